"""The files of a release, as `make release` builds them of this working tree, or of a later version of it.

They are built once and kept in build/released under a hash of what they are made of. A worker that needs files that
another worker builds waits for them. The folder can be removed at any time.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from deploy.packages.build import PYTHONS
from deploy.release.files import copied, run
from filelock import FileLock
from tests.conftest import REPOSITORY

from gpu_triage import __version__

NEWER: Final = "99.0.0"
CLOCKS_SECONDS: Final = 0.5
"""By how much the time of a kept finding may move with each start, and far less than a start takes."""
KINDS: Final = ("wheel", "packages", "chart", "rules", "dashboards")
IMAGE: Final = ("buildah", "debootstrap")
FOLDER: Final = REPOSITORY / "build" / "released"
_SYSTEM_PYTHON: Final = Path("/usr/bin/python3")


class Packages(NamedTuple):
    """The deb and the rpm, and the version of Python that they are for."""

    deb: Path
    rpm: Path
    python: str


def release() -> Path:
    """The folder of all files that can be built here."""
    possible = os.geteuid() == 0 and all(map(shutil.which, IMAGE))
    return built(*KINDS, *(("image",) if possible else ()))


def packages_in(folder: Path) -> Packages:
    """Of a folder of files; the test is skipped where no package is built for the distribution's Python."""
    if _python() is None:
        pytest.skip(f"no package is built for the Python of {_SYSTEM_PYTHON}")
    (deb,), (rpm,) = folder.glob("*.deb"), folder.glob("*.rpm")
    return Packages(deb, rpm, _python() or "")


def built(*kinds: str, version: str = __version__) -> Path:
    """The folder of these files."""
    git = ("git", "-C", str(REPOSITORY))
    modified = run(*git, "status", "--porcelain", "--untracked-files=no") != ""
    digest = hashlib.sha256(f"{run(*git, 'rev-parse', 'HEAD')}{modified}".encode())
    for name in sorted(filter(None, run(*git, "ls-files", "-z").split("\0"))):
        if not name.startswith("tests/") and (REPOSITORY / name).is_file():
            digest.update(name.encode() + b"\0" + (REPOSITORY / name).read_bytes())
    folder = FOLDER / digest.hexdigest()[:16] / f"{version}-{'-'.join(kinds)}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            for old in (old for old in FOLDER.iterdir() if old != folder.parent):
                shutil.rmtree(old, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
                unfinished = Path(scratch) / "files"
                make(checkout(Path(scratch), version), unfinished, *kinds)
                shutil.move(unfinished, folder)
    return folder


def checkout(scratch: Path, version: str = __version__) -> Path:
    """Another checkout of this commit with this working tree's files; a later version also has an option more."""
    folder = scratch / "checkout"
    run("git", "clone", "--quiet", "--shared", "--no-checkout", str(REPOSITORY), str(folder))
    copied(REPOSITORY, folder, version)
    if version != __version__:
        _replace(folder / "exporter/gpu_triage/__init__.py", r"(?m)^__version__ = .*$", f'__version__ = "{version}"')
        chart = folder / "helm/gpu-triage-exporter/Chart.yaml"
        _replace(chart, r"(?m)^(version|appVersion): .*$", rf'\1: "{version}"')
        _replace(folder / "deploy/systemd/gpu-triage-exporter.env", r"\Z", "# new\n")
    run("git", "-C", str(folder), "add", "--all")
    return folder


def make(checkout: Path, output: Path, *kinds: str, environment: Mapping[str, str] | None = None) -> None:
    """As `make release` does in a checkout, with the environment of these tests."""
    python = ("--python", _python() or PYTHONS[-1])
    command = [sys.executable, "-m", "deploy.release", *kinds, *python, "--output", str(output)]
    modules = {"PYTHONPATH": str(checkout / "exporter")}
    environment = {**os.environ, **modules, **(environment or {})}
    ran = subprocess.run(command, cwd=checkout, env=environment, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _replace(file: Path, pattern: str, by: str) -> None:
    text, count = re.subn(pattern, by, file.read_text(encoding="utf-8"))
    assert count
    file.write_text(text, encoding="utf-8")


def _python() -> str | None:
    found = re.search(r"3\.\d+", _SYSTEM_PYTHON.resolve().name) if _SYSTEM_PYTHON.exists() else None
    return found[0] if found and found[0] in PYTHONS else None
