"""Root file systems of this machine's release of Debian or Ubuntu.

debootstrap makes each once, which takes a minute or two, and they are kept in the cache of the user.
"""

import os
import platform
import shutil
from pathlib import Path
from typing import Final

import pytest
from deploy.release.image import debootstrap
from filelock import FileLock
from tests.conftest import RequiresTool

PROGRAMS: Final = ("debootstrap", "unshare", "apt-get")


def root_file_system(requires_tool: RequiresTool, kind: str, packages: str) -> Path:
    """A minimal system with these packages, separated by commas; the test is skipped where it cannot be had.

    Args:
        kind: ends the name of its folder in the cache; empty for the system that boots.
    """
    for program in PROGRAMS:
        requires_tool(program)
    if os.geteuid() != 0:
        pytest.skip("making a root file system needs root")
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-triage-exporter"
    cache.mkdir(parents=True, exist_ok=True)
    system = cache / "-".join(filter(None, (release, platform.machine(), kind)))
    with FileLock(f"{system}.lock"):
        if not system.exists():
            _make(system, packages)
    return system


def _make(system: Path, packages: str) -> None:
    unfinished = system.with_name(f"{system.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        debootstrap(unfinished, packages)
    except RuntimeError as error:
        pytest.skip(f"debootstrap cannot make a system here: {str(error)[-500:]}")
    unfinished.rename(system)
