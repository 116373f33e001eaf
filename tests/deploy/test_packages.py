"""Lintian has nothing to say of the deb, whose life is played under systemd, and the rpm leaves no trace.

The rpm is installed for real into an overlay of this host's root file system in a mount namespace: the host stays as it
is.
"""

import os
from pathlib import Path

import pytest
from deploy.release.files import NAME
from tests.conftest import RequiresTool
from tests.program_output import output_of
from tests.released import Packages

HERE = Path(__file__).parent
OVERLAY, LIFE = ((HERE / f"rpm_{name}.sh").read_text(encoding="utf-8") for name in ("overlay", "life"))


def test_lintian_has_nothing_to_say(packages: Packages, requires_tool: RequiresTool) -> None:
    lintian = str(requires_tool("lintian"))
    assert output_of(lintian, "--allow-root", "--fail-on", "none", str(packages.deb)) == ""


def test_the_rpm_installs_runs_is_upgraded_rolled_back_and_goes(
    packages: Packages, newer: Packages, tmp_path: Path, requires_tool: RequiresTool
) -> None:
    for shell in ("fish", "zsh"):
        requires_tool(shell)
    rpm = str(requires_tool("rpm"))
    needs = output_of(rpm, "--query", "--package", "--requires", str(packages.rpm)).splitlines()
    assert {f"/usr/bin/python{packages.python}", "systemd", "libudev.so.1()(64bit)"} <= set(needs)
    assert output_of(rpm, "--query", "--package", "--configfiles", str(packages.rpm)) == f"/etc/default/{NAME}\n"
    if os.geteuid() != 0:
        pytest.skip("installing a package, though into an overlay, needs root")
    command = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", OVERLAY)
    files = {"PACKAGE": str(packages.rpm), "NEWER": str(newer.rpm)}
    said = output_of(*command, stdin=LIFE, SCRATCH=str(tmp_path), **files)
    assert said.endswith("all went well\n")
