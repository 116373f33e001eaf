"""Environments of other Pythons, as users install the wheel into them."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SUPPORTED: Final = ("3.10", "3.11", "3.12", "3.13")
"""As the classifiers in pyproject.toml name them."""


def interpreters() -> Mapping[str, Path]:
    """Supported Pythons of this host by version: the one that runs, pyenv's, and those on PATH."""
    found = {version: path for version in SUPPORTED if (path := _pyenv(version) or _on_path(version))}
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    return dict(sorted({**found, running: Path(sys.executable)}.items(), key=lambda item: SUPPORTED.index(item[0])))


def make_environment(python: Path, where: Path, lock: Path) -> Path:
    """A fresh virtual environment with what a lock pins for that Python; returns its interpreter."""
    _run(uv(), "venv", "--quiet", "--clear", "--no-python-downloads", "--python", str(python), str(where))
    inside = where / "bin" / "python"
    install(inside, "--require-hashes", "--requirements", str(lock))
    return inside


def install(python: Path | str, *what: str) -> None:
    """Install into the environment of this interpreter, from PyPI or uv's cache of it; what uv says is the error."""
    _run(uv(), "pip", "install", "--quiet", "--no-config", "--python", str(python), *what)


def uv() -> str:
    return str(Path(sysconfig.get_path("scripts")) / "uv")


def _pyenv(version: str) -> Path | None:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    patches = [path for path in root.glob(f"versions/{version}.*/bin/python{version}") if _patch(path) is not None]
    return max(patches, key=lambda path: _patch(path) or 0, default=None)


def _patch(python: Path) -> int | None:
    """13 of …/versions/3.10.13/bin/python3.10; None for a build of another name, as 3.13.0t."""
    patch = python.parent.parent.name.rpartition(".")[2]
    return int(patch) if patch.isdigit() else None


def _on_path(version: str) -> Path | None:
    for folder in os.get_exec_path():
        python = Path(folder) / f"python{version}"
        # A shim of pyenv's answers only for the versions that are switched on.
        if Path(folder).name != "shims" and os.access(python, os.X_OK):
            return python
    return None


def _run(*command: str) -> None:
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"
