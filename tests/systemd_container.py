"""A host that boots: this machine's release of Debian or Ubuntu with a real systemd, in systemd-nspawn.

Each boot gets the bare system below an overlay in memory, with a network and processes of its own, and leaves nothing
behind.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest
from tests.conftest import RequiresTool
from tests.root_file_system import root_file_system

_BOOT_SECONDS: Final = 300
_BOOT: Final = (Path(__file__).parent / "systemd_boot.sh").read_text(encoding="utf-8")
_UNIT: Final = """
[Unit]
After=multi-user.target
[Service]
Type=oneshot
StandardOutput=append:/shared/output
StandardError=append:/shared/output
ExecStart=/bin/sh -eux /shared/script
ExecStopPost=/bin/systemctl --no-block poweroff
"""


def boot(bare: Path, scratch: Path, script: str) -> None:
    """Boot a host and run a script in it, as root; the test fails with what both said if the script does.

    Args:
        scratch: a folder for this boot; the host sees its folder `shared` as ``/shared``.
    """
    said = _boot(bare, scratch, script)
    assert (scratch / "shared" / "done").exists(), said


def _boot(bare: Path, scratch: Path, script: str) -> str:
    shared = scratch / "shared"
    shared.mkdir(exist_ok=True)
    (shared / "script").write_text(f"{script}\ntouch /shared/done\n")
    (scratch / "script.service").write_text(_UNIT)
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", _BOOT, "sh"]
    try:
        ran = subprocess.run(
            [*command, bare, scratch],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_BOOT_SECONDS,
        )
        outside = ran.stdout
    except subprocess.TimeoutExpired:
        outside = f"still running after {_BOOT_SECONDS} s"
    output = shared / "output"
    inside = output.read_text(errors="replace") if output.exists() else ""
    return f"{inside}\n{outside}"


def bare_system(requires_tool: RequiresTool) -> Path:
    """A minimal system with Python, of this machine's release; the test is skipped where it cannot be had."""
    requires_tool("systemd-nspawn")
    system = root_file_system(requires_tool, "", "python3,systemd-sysv")
    with tempfile.TemporaryDirectory(prefix="boot-", dir="/var/tmp") as scratch:
        said = _boot(system, Path(scratch), "true")
        if not Path(scratch, "shared", "done").exists():
            pytest.skip(f"systemd-nspawn cannot boot a system here: {said[-500:]}")
    return system
