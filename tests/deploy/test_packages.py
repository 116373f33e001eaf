"""Lintian has nothing to say of the deb, whose life is played under systemd, and the rpm leaves no trace.

The rpm is installed for real into an overlay of this host's root file system in a mount namespace: the host stays as it
is.
"""

import os
from pathlib import Path

import pytest
from deploy.packages.build import NAME
from tests.built_packages import Packages
from tests.conftest import RequiresTool
from tests.program_output import output_of

pytestmark = pytest.mark.slow

OVERLAY = """
set -eu
mkdir -p "$SCRATCH/upper" "$SCRATCH/work" "$SCRATCH/root"
mount -t tmpfs tmpfs "$SCRATCH/upper"
mkdir "$SCRATCH/upper/changes" "$SCRATCH/upper/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$SCRATCH/upper/changes,workdir=$SCRATCH/upper/work" "$SCRATCH/root"
mount --rbind /dev "$SCRATCH/root/dev"
mount -t proc proc "$SCRATCH/root/proc"
cp "$PACKAGE" "$SCRATCH/root/tmp/package"
exec chroot "$SCRATCH/root" /bin/sh -eu
"""

RUN = (Path(__file__).parent / "package_run.sh").read_text(encoding="utf-8")

# As slurmd runs a prolog: without PATH and, here, without an exporter, on a simulated host that has lost a GPU.
CARRIED = r"""
zcat /usr/share/man/man1/gpu-triage-check.1.gz | grep '^\.TH GPU-TRIAGE-CHECK 1'
grep '^## Reporting a vulnerability' /usr/share/doc/gpu-triage-exporter/SECURITY.md
cd /usr/share/gpu-triage-exporter/slurm
test "$(stat -c %U:%a prolog.sh judge.sh | tr '\n' ' ')" = 'root:755 root:644 '
! env -i SLURM_JOB_ID=1 SLURM_JOB_GPUS=1 SLURMD_NODENAME=n NODE_CHECK_URL=http://127.0.0.1:1 NODE_CHECK_SCONTROL=echo \
    NODE_CHECK_LOOK='--for 3s --simulate lost-before-start' ./prolog.sh 2>/tmp/said
grep 'update NodeName=n State=DRAIN Reason=gpu.lost GPU 1, xid.79 GPU 1 (gpu-triage)' /tmp/said
test "$(bash -c '
    source /usr/share/bash-completion/completions/gpu-triage
    set -- $(complete -p gpu-triage)
    COMP_WORDS=(gpu-triage ch) COMP_CWORD=1
    "${@: -2:1}" gpu-triage
    echo "${COMPREPLY[@]}"
')" = check
test "$(fish -c 'complete --do-complete "gpu-triage ch"' | cut -f1)" = check
# What zsh's own part, which runs only in a terminal, is told to offer, from the folder that RPM's distributions read.
test "$(zsh -fc '
    fpath=(/usr/share/zsh/site-functions $fpath)
    autoload -Uz compinit && compinit -uD
    _describe() { print -- ${(P)@[-2]} }
    words=(gpu-triage ch) CURRENT=2
    $_comps[gpu-triage]
' | cut -d: -f1)" = check
"""

# Debian's rpm knows nothing of what Debian's packages provide.
RPM = f"""
rpm --install --nodeps /tmp/package
{RUN}
{CARRIED}
rpm --upgrade --force --nodeps /tmp/package
find /usr/lib/gpu-triage-exporter -name 'daemon.*.pyc' | grep .
rpm --erase gpu-triage-exporter
! test -e /usr/bin/gpu-triage
! test -e /usr/lib/gpu-triage-exporter
! test -e /usr/lib/systemd/system/gpu-triage-exporter.service
! test -e /etc/default/gpu-triage-exporter
! test -e /usr/share/doc/gpu-triage-exporter
! test -e /usr/share/gpu-triage-exporter
! test -e /usr/share/man/man1/gpu-triage.1.gz
echo all went well
"""


def _installed(package: Path, script: str, scratch: Path) -> None:
    """Plays a script beside the package in an overlay of the root file system."""
    if os.geteuid() != 0:
        pytest.skip("installing a package, though into an overlay, needs root")
    variables = {"SCRATCH": str(scratch), "PACKAGE": str(package), "DEBIAN_FRONTEND": "noninteractive"}
    command = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", OVERLAY)
    assert output_of(*command, stdin=script, **variables).endswith("all went well\n")


def test_lintian_has_nothing_to_say(packages: Packages, requires_tool: RequiresTool) -> None:
    lintian = str(requires_tool("lintian"))
    assert output_of(lintian, "--allow-root", "--fail-on", "none", str(packages.deb)) == ""


def test_the_rpm_installs_runs_and_goes(packages: Packages, tmp_path: Path, requires_tool: RequiresTool) -> None:
    for shell in ("fish", "zsh"):
        requires_tool(shell)
    rpm = str(requires_tool("rpm"))
    needs = output_of(rpm, "--query", "--package", "--requires", str(packages.rpm)).splitlines()
    assert {f"/usr/bin/python{packages.python}", "systemd", "libudev.so.1()(64bit)"} <= set(needs)
    assert output_of(rpm, "--query", "--package", "--configfiles", str(packages.rpm)) == f"/etc/default/{NAME}\n"
    _installed(packages.rpm, RPM, tmp_path)
