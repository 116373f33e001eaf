"""``python -m deploy.packages``: build the deb and the rpm into a folder."""

import sys
from pathlib import Path

import click
from deploy.packages.build import ARCHITECTURES, PYTHONS, Target, build_packages

_RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


@click.command()
@click.option(
    "--python",
    type=click.Choice(PYTHONS),
    default=_RUNNING,
    show_default=True,
    help="Python of the hosts, as their distribution ships it; it need not be installed here.",
)
@click.option(
    "--arch", type=click.Choice(tuple(ARCHITECTURES)), default="amd64", show_default=True, help="Of the hosts."
)
@click.option("--output", type=click.Path(path_type=Path), default=Path("dist"), show_default=True, help="Folder.")
def main(python: str, arch: str, output: Path) -> None:
    """Build the deb and the rpm of gpu-triage-exporter."""
    repository = Path(__file__).parents[2]
    for package in build_packages(repository, Target(python, arch), output):
        click.echo(f"{package}: {package.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
