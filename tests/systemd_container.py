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
_BOOT: Final = """
set -eu
bare=$1 scratch=$2
# systemd-nspawn makes cgroups of fixed names below the one that it runs in, so it runs in one of its own: of version 2,
# or of the hierarchy that is named systemd, and of version 2 beside it if there is that too.
roots=/sys/fs/cgroup
if [ "$(stat --file-system --format %T $roots)" != cgroup2fs ]; then
    mkdir -p $roots/systemd
    mountpoint --quiet $roots/systemd || mount -t cgroup -o none,name=systemd systemd $roots/systemd
    roots="$roots/systemd $(find $roots/unified -maxdepth 0 2>/dev/null || :)"
fi
name=gpu-triage-$(basename "$scratch")
enter() {
    for root in $roots; do
        mkdir -p "$root/$1"
        echo $$ >"$root/$1/cgroup.procs"
    done
}
enter "$name"
# Its locks and sockets of this name, too, are for this one alone.
mkdir -p /run/systemd/nspawn
mount -t tmpfs tmpfs /run/systemd/nspawn
mkdir "$scratch/memory" "$scratch/root"
mount -t tmpfs tmpfs "$scratch/memory"
upper=$scratch/memory/changes work=$scratch/memory/work
mkdir "$upper" "$work"
mount -t overlay overlay -o "lowerdir=$bare,upperdir=$upper,workdir=$work" "$scratch/root"
code=0
systemd-nspawn --quiet --directory="$scratch/root" --bind="$scratch/shared:/shared" --private-network --register=no \\
    --keep-unit --console=pipe --bind-ro="$scratch/script.service:/etc/systemd/system/script.service" \\
    --boot systemd.unit=multi-user.target systemd.wants=script.service </dev/null || code=$?
enter .
for root in $roots; do
    find "$root/$name" -depth -type d -exec rmdir {} +
done
exit "$code"
"""
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
