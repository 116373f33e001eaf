"""``python -m deploy.release``: build the files of a release into a folder."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import click
from deploy.packages.build import ARCHITECTURES, PYTHONS, Target, build_packages
from deploy.release import statements
from deploy.release.files import bundle, chart, copied, distributions, stamp
from deploy.release.image import build_image

from gpu_triage import __version__

_KINDS = ("wheel", "packages", "chart", "rules", "dashboards", "image")
_RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


@click.command()
@click.argument("kinds", nargs=-1, type=click.Choice(_KINDS))
@click.option(
    "--python",
    type=click.Choice(PYTHONS),
    default=_RUNNING if _RUNNING in PYTHONS else None,
    show_default=True,
    help="Python of the packages' hosts, as their distribution ships it; it need not be installed here.",
)
@click.option(
    "--arch", type=click.Choice(tuple(ARCHITECTURES)), default="amd64", show_default=True, help="Of these hosts."
)
@click.option("--base", metavar="IMAGE", help="Base of the image; by default, one of Debian's packages is made.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("dist"), show_default=True, help="Folder.")
def main(kinds: tuple[str, ...], python: str | None, arch: str, base: str | None, output: Path) -> None:
    """Build the files of a release, or only these KINDS; wheel is the sdist too, packages the deb and the rpm."""
    kinds = kinds or _KINDS
    if python is None and "packages" in kinds:
        raise click.UsageError(f"Python {_RUNNING} runs this; for packages, name one of theirs with --python")
    key = os.environ.pop(statements.KEY, "")  # not for the programs that build
    os.umask(0o022)
    output.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-triage-release-", dir="/var/tmp") as scratch:
            kept = statements.kept(output / statements.SUMS, __version__)
            (made := Path(scratch) / "made").mkdir()
            files = _build(kinds, Target(python or "", arch), base, made, Path(scratch))
            (sums := made / statements.SUMS).write_text(statements.checksums(files, kept), encoding="utf-8")
            files += [sums, *([statements.sign(sums, key)] if key else ())]
            (output / f"{sums.name}.asc").unlink(missing_ok=True)
            files = [Path(shutil.move(path, output / path.name)) for path in files]
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    for path in files:
        click.echo(f"{path}: {path.stat().st_size / 1e3:,.0f} kB")


def _build(kinds: tuple[str, ...], target: Target, base: str | None, output: Path, scratch: Path) -> list[Path]:
    source = copied(Path(__file__).parents[2], scratch / "source", __version__)
    stamp(source)
    lock = (source.folder / "requirements" / "image.txt").read_text(encoding="utf-8")
    files: dict[Path, str] = {}  # with what they contain
    if {"wheel", "packages"} & {*kinds}:
        wheel, sdist = distributions(source, output if "wheel" in kinds else scratch)
        files |= dict.fromkeys((wheel, sdist) if "wheel" in kinds else (), "")
    if "packages" in kinds:
        bill = statements.bill_of_materials(__version__, lock, target.python)
        files |= dict.fromkeys(build_packages(source, target, wheel, output), bill)
    files |= {chart(source, output, __version__): ""} if "chart" in kinds else {}
    files |= {bundle(source, output, each, __version__): "" for each in ("rules", "dashboards") if each in kinds}
    if "image" in kinds:
        image = build_image(source, scratch, output, __version__, base)
        of_base = (image.base, image.distribution, image.release)
        files[image.archive] = statements.bill_of_materials(__version__, lock, image.python, *of_base)
    parameters = {"version": __version__, "kinds": kinds, "python": target.python, "arch": target.architecture}
    for path, bill in files.items():
        if bill:
            path.with_name(f"{path.name}.cdx.json").write_text(bill, encoding="utf-8")
        statement = statements.provenance(sorted(output.glob(f"{path.name}*")), source, {**parameters, "base": base})
        path.with_name(f"{path.name}.provenance.json").write_text(statement, encoding="utf-8")
    return sorted(output.iterdir())


if __name__ == "__main__":
    main(prog_name="python -m deploy.release")
