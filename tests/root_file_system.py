"""Root file systems of this machine's release of Debian or Ubuntu.

debootstrap makes each once, which takes a minute or two, and they are kept in the cache of the user.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
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
            _debootstrap(release, system, packages)
    return system


def _debootstrap(release: str, system: Path, packages: str) -> None:
    unfinished = system.with_name(f"{system.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", release, str(unfinished), _mirror(release)]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"debootstrap cannot make a system here: {made.stdout[-500:]}{made.stderr[-500:]}")
    unfinished.rename(system)


def _mirror(release: str) -> str:
    command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Identifier: Packages"]
    targets = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for line in targets.splitlines():
        name, _, address = line.partition(" ")
        if name == release:
            return address
    pytest.skip(f"apt has no archive of {release}, so there is nothing to make a system from")
