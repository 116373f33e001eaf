"""The sources of a release, and its files that need no more than Python: distributions, chart, rules, dashboards.

Two builds of a commit are equal byte for byte: everything is made from a copy of the tracked files, in sorted order,
with the commit's time, and with modes and owners that depend on neither the checkout nor the user.
"""

import gzip
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

NAME: Final = "gpu-triage-exporter"
CHART: Final = Path("helm") / NAME


class Source(NamedTuple):
    folder: Path  # a copy of the tracked files
    epoch: int  # of all that is built
    commit: str
    modified: bool  # whether the tracked files differ from the commit

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SOURCE_DATE_EPOCH": str(self.epoch)}


def copied(repository: Path, folder: Path, version: str) -> Source:
    """Copy what git tracks into a new folder.

    Raises RuntimeError: it is not a checkout, or this version has been released from another commit.
    """
    for name in filter(None, git(repository, "ls-files", "-z").split("\0")):
        origin, place = repository / name, folder / name
        if origin.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin, place, follow_symlinks=False)
            if not place.is_symlink():
                place.chmod(0o755 if os.access(origin, os.X_OK) else 0o644)
    commit = git(repository, "rev-parse", "HEAD")
    released = tagged(repository, version)
    if released not in {"", commit}:
        raise RuntimeError(f"{version} has been released from {released}; raise __version__ and the chart's versions")
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or git(repository, "log", "-1", "--format=%ct")
    modified = git(repository, "status", "--porcelain", "--untracked-files=no")
    return Source(folder, int(epoch), commit, bool(modified))


def tagged(repository: Path, version: str) -> str:
    """The commit of a released version, or ""."""
    return git(repository, "for-each-ref", "--format=%(*objectname)%(objectname)", f"refs/tags/v{version}")[:40]


def git(repository: Path, *arguments: str) -> str:
    return run("git", "-C", str(repository), *arguments).strip()


def stamp(source: Source) -> None:
    """Write the commit into the copy, for gpu_exporter_build_info."""
    module = source.folder / "exporter" / "gpu_triage" / "__init__.py"
    revision = f"{source.commit}{'-modified' if source.modified else ''}"
    before = module.read_text(encoding="utf-8")
    module.write_text(before.replace('__revision__ = ""', f'__revision__ = "{revision}"'), encoding="utf-8")


def distributions(source: Source, output: Path) -> tuple[Path, Path]:
    """The wheel, built from the sdist, and the sdist."""
    built = source.folder.parent / "distributions"
    offline = ("--offline", "--no-config", "--no-build-isolation", f"--python={sys.executable}")
    run(tool("uv"), "build", "--quiet", *offline, f"--out-dir={built}", str(source.folder), env=source.environment)
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    unpacked = source.folder.parent / "sdist"
    unpacked.mkdir()
    run("tar", "--extract", f"--file={sdist}", f"--directory={unpacked}")
    pack(output / sdist.name, unpacked, source.epoch)
    return Path(shutil.copy(wheel, output)), output / sdist.name


def chart(source: Source, output: Path, version: str) -> Path:
    """As `helm package` makes it."""
    return pack(output / f"{NAME}-{version}.tgz", source.folder / CHART, source.epoch, NAME)


def bundle(source: Source, output: Path, folder: str, version: str) -> Path:
    """The rules or the dashboards."""
    name = f"gpu-triage-{folder}-{version}"
    return pack(output / f"{name}.tar.gz", source.folder / folder, source.epoch, name, {".yml", ".json", ".md"})


def pack(target: Path, folder: Path, epoch: int, prefix: str = "", suffixes: Iterable[str] = ()) -> Path:
    """A compressed archive of a folder's files, or of those with these suffixes."""
    with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:
        write_tar(compressed, folder, epoch, prefix, suffixes)
    return target


def write_tar(
    file: BinaryIO | gzip.GzipFile, folder: Path, epoch: int, prefix: str = "", suffixes: Iterable[str] = ()
) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and (not suffixes or path.suffix in suffixes):
                member = tarfile.TarInfo(str(prefix / path.relative_to(folder)))
                member.mode = 0o755 if os.access(path, os.X_OK) else 0o644
                member.mtime, member.size = epoch, path.stat().st_size
                with path.open("rb") as content:
                    archive.addfile(member, content)


def tool(name: str) -> str:
    """A program of the environment that runs this."""
    return str(Path(sysconfig.get_path("scripts")) / name)


def run(*command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, stdin: str = "") -> str:
    """The output of a command; raises RuntimeError with all that it printed if it fails."""
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=env, cwd=cwd, input=stdin)
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}")
    return ran.stdout
