"""``python -m deploy.release``: build the files of a release into a folder."""

import os
import sys
import tempfile
from pathlib import Path

import click
from deploy.packages.build import ARCHITECTURES, PYTHONS, Target, build_packages
from deploy.release import statements
from deploy.release.files import NAME, bundle, chart, copied, distributions, stamp
from deploy.release.image import build_image

from gpu_triage import __version__

_KINDS = ("wheel", "packages", "chart", "rules", "dashboards", "image")
_RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


@click.command()
@click.argument("kinds", nargs=-1, type=click.Choice(_KINDS))
@click.option(
    "--python",
    type=click.Choice(PYTHONS),
    default=_RUNNING,
    show_default=True,
    help="Python of the packages' hosts, as their distribution ships it; it need not be installed here.",
)
@click.option(
    "--arch", type=click.Choice(tuple(ARCHITECTURES)), default="amd64", show_default=True, help="Of these hosts."
)
@click.option("--base", metavar="IMAGE", help="Base of the image; by default, one of Debian's packages is made.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("dist"), show_default=True, help="Folder.")
def main(kinds: tuple[str, ...], python: str, arch: str, base: str | None, output: Path) -> None:
    """Build the files of a release, or only these KINDS; wheel is the sdist too, packages the deb and the rpm."""
    os.umask(0o022)
    output.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-triage-release-", dir="/var/tmp") as scratch:
            files = _build(kinds or _KINDS, Target(python, arch), base, output, Path(scratch))
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    for path in files:
        click.echo(f"{path}: {path.stat().st_size / 1e3:,.0f} kB")


def _build(kinds: tuple[str, ...], target: Target, base: str | None, output: Path, scratch: Path) -> list[Path]:
    source = copied(Path(__file__).parents[2], scratch / "source", __version__)
    stamp(source)
    files: list[Path] = []
    if {"wheel", "packages"} & {*kinds}:
        wheel, sdist = distributions(source, output if "wheel" in kinds else scratch)
        files += (wheel, sdist) if "wheel" in kinds else ()
        files += build_packages(source, target, wheel, output) if "packages" in kinds else ()
    files += [chart(source, output, __version__)] if "chart" in kinds else []
    files += [bundle(source, output, folder, __version__) for folder in ("rules", "dashboards") if folder in kinds]
    pythons, packages, release = [target.python], {}, ""
    if "image" in kinds:
        image = build_image(source, scratch, output, __version__, base)
        files.append(image.archive)
        pythons, packages, release = [target.python, image.python], image.base, image.release
    lock = (source.folder / "requirements" / "image.txt").read_text(encoding="utf-8")
    bill = output / f"{NAME}-{__version__}.cdx.json"
    bill.write_text(statements.bill_of_materials(__version__, lock, pythons, packages, release), encoding="utf-8")
    files.append(bill)
    parameters = {
        "version": __version__,
        "kinds": kinds,
        "python": target.python,
        "arch": target.architecture,
        "base": base,
    }
    statement = output / f"{NAME}-{__version__}.provenance.json"
    statement.write_text(statements.provenance(files, source, parameters), encoding="utf-8")
    files.append(statement)
    sums = output / "SHA256SUMS"
    sums.write_text(statements.checksums(files), encoding="utf-8")
    files.append(sums)
    if key := os.environ.get(statements.KEY):
        files.append(statements.sign(sums, key))
    return files


if __name__ == "__main__":
    main(prog_name="python -m deploy.release")
