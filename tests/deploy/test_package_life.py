"""The deb under a real systemd: installed, started, killed, upgraded, removed and purged in a container."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.certificates import Authority
from tests.conftest import RequiresTool
from tests.released import CLOCKS_SECONDS, NEWER, Packages
from tests.root_file_system import root_file_system

from gpu_triage import __version__

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


pytestmark = pytest.mark.timeout(1200)

OPTIONS = "/etc/default/gpu-triage-exporter"

LIFE = (Path(__file__).parent / "package_life.sh").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def life(packages: Packages, newer: Packages, requires_tool: RequiresTool) -> Iterator[Path]:
    """The folder of what the container found, by the step and the thing."""
    bare = bare_system(requires_tool)
    # Not in pytest's folder, which may be on a file system that systemd-nspawn cannot share.
    scratch = Path(tempfile.mkdtemp(prefix="package-life-", dir="/var/tmp"))
    try:
        shared = scratch / "shared"
        shared.mkdir()
        shutil.copy(packages.deb, shared / "package.deb")
        (shared / "certificates").mkdir()
        (shared / "certificates" / "web.yml").write_text(Authority(shared / "certificates").server())
        shutil.copy(newer.deb, shared / "newer.deb")
        boot(bare, scratch, LIFE)
        yield shared
    finally:
        shutil.rmtree(scratch)


def state(life: Path, step: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (life / f"{step}-state").read_text().splitlines())


def series(life: Path, step: str, name: str) -> list[str]:
    return [line for line in (life / f"{step}-page").read_text().splitlines() if line.startswith(name)]


def test_the_service_runs_after_the_installation_and_answers(life: Path) -> None:
    installed = state(life, "installed")
    assert (installed["ActiveState"], installed["SubState"]) == ("active", "running")
    assert (installed["User"], installed["UnitFileState"], installed["NRestarts"]) == ("gpu-triage", "enabled", "0")
    assert series(life, "installed", "gpu_driver_up") == ["gpu_driver_up 0.0"]
    assert (life / "installed-failed").read_text() == ""


def test_a_service_that_crashed_is_started_again(life: Path) -> None:
    killed = state(life, "killed")
    assert killed["ActiveState"] == "active"
    assert killed["MainPID"] != state(life, "installed")["MainPID"]
    assert series(life, "killed", "gpu_driver_up") == ["gpu_driver_up 0.0"]
    journal = (life / "killed-journal").read_text()
    assert "status=11/SEGV" in journal
    assert "restart the exporter after each upgrade" not in journal, "the sandbox forbids the copy of its code"


def test_the_hardened_unit_reads_gpus(life: Path) -> None:
    assert len(series(life, "configured", "gpu_up{")) == 2
    assert series(life, "configured", "gpu_exporter_errors_total") == [], "no system call that it makes is forbidden"


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("variable", "GPU_TRIAGE_METRICS_PROFILE"),
        ("config", "/etc/config.yml: line 1: web.port: unknown"),
        ("key", "server.key: cannot be read: Permission denied"),
        ("flag", "no such option --no-such-flag"),
    ],
)
def test_a_service_that_no_restart_can_help_fails_and_its_log_says_why(life: Path, what: str, named: str) -> None:
    refused = state(life, f"refused-{what}")
    assert (refused["ActiveState"], refused["ExecMainStatus"]) == ("failed", "2")
    (said,) = [line for line in (life / f"refused-{what}-journal").read_text().splitlines() if named in line]
    assert said.startswith("gpu-triage: error: ")


def test_a_service_whose_port_is_taken_is_started_again_until_it_is_free(life: Path) -> None:
    assert state(life, "taken")["ActiveState"] in {"active", "activating"}
    assert (life / "taken-journal").read_text().count("Address already in use") >= 2
    assert state(life, "freed")["ActiveState"] == "active"


@pytest.mark.parametrize(
    ("step", "earlier", "version"), [("upgraded", "configured", NEWER), ("back", "upgraded", __version__)]
)
def test_an_upgrade_and_a_rollback_start_that_version_and_keep_options_and_state(
    life: Path, step: str, earlier: str, version: str
) -> None:
    assert state(life, step)["ActiveState"] == "active"
    assert state(life, step)["MainPID"] != state(life, earlier)["MainPID"]
    assert [f'version="{version}"' in line for line in series(life, step, "gpu_exporter_build_info")] == [True]
    assert "# mine\n" in (life / f"{step}-options").read_text()
    assert "# new\n" not in (life / f"{step}-options").read_text()
    first, now = (began(life, each) for each in ("configured", step))
    assert now == pytest.approx(first, abs=CLOCKS_SECONDS)


def began(life: Path, step: str) -> float:
    """When a finding of the simulated host began."""
    (line,) = (each for each in series(life, step, "gpu_finding_since") if 'code="pcie.width"' in each)
    return float(line.rpartition(" ")[2])


def test_an_upgrade_leaves_a_disabled_service_disabled(life: Path) -> None:
    disabled = state(life, "disabled")
    assert (disabled["ActiveState"], disabled["UnitFileState"]) == ("inactive", "disabled")


def test_a_removal_keeps_options_and_state_and_a_purge_leaves_nothing_but_the_user(life: Path) -> None:
    assert state(life, "removed")["ActiveState"] == "inactive"
    assert "# mine\n" in (life / "removed-options").read_text()
    assert (life / "purged-left").read_text() == ""
    assert (life / "purged-user").read_text().startswith("gpu-triage:")


def test_a_prolog_without_exporter_and_program_writes_to_the_journal(life: Path) -> None:
    said = "nothing was checked: no verdict from http://localhost:9836, and gpu-triage is not installed"
    assert (life / "unchecked-journal").read_text() == f"job 42: {said}\n"
