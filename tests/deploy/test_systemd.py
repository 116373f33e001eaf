"""The unit is as hardened as it claims, and what it names exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.program_output import output_of

from gpu_triage.options.option_table import all_options
from gpu_triage.read.registry import COLLECTOR_SWITCHES


@pytest.fixture
def systemd(repository: Path) -> Path:
    return repository / "deploy" / "systemd"


def test_systemd_rates_the_unit_as_well_hardened(systemd: Path, requires_tool: RequiresTool) -> None:
    program = requires_tool("systemd-analyze")
    unit = systemd / "gpu-triage-exporter.service"
    # In tenths. 20 under systemd 252; other versions weigh a few lines differently.
    rated = output_of(program, "security", "--offline=true", "--no-pager", "--threshold=25", unit)
    assert "Overall exposure level" in rated


@pytest.mark.parametrize("drop_in", ["", "kernel-log.conf.example", "process-memory.conf.example"])
def test_systemd_accepts_every_line(systemd: Path, tmp_path: Path, drop_in: str, requires_tool: RequiresTool) -> None:
    program = requires_tool("systemd-analyze")
    text = (systemd / "gpu-triage-exporter.service").read_text(encoding="utf-8")
    unit = tmp_path / "gpu-triage-exporter.service"
    unit.write_text(text.replace("/opt/gpu-triage/bin/gpu-triage", sys.executable), encoding="utf-8")
    if drop_in:
        folder = tmp_path / "gpu-triage-exporter.service.d"
        folder.mkdir()
        source = systemd / "gpu-triage-exporter.service.d" / drop_in
        (folder / "more.conf").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    result = subprocess.run([program, "verify", "--man=no", unit], check=False, capture_output=True, text=True)
    # It may complain of other units of this machine.
    assert "gpu-triage" not in result.stderr
    assert "more.conf" not in result.stderr


def test_a_drop_in_gives_no_more_than_the_capability_it_names(systemd: Path) -> None:
    for path, capability in (("kernel-log", "CAP_SYSLOG"), ("process-memory", "CAP_SYS_PTRACE")):
        text = (systemd / "gpu-triage-exporter.service.d" / f"{path}.conf.example").read_text(encoding="utf-8")
        assert (
            re.findall(r"^(?:CapabilityBoundingSet|AmbientCapabilities)=(.*)$", text, re.MULTILINE) == [capability] * 2
        )


def test_the_environment_file_names_options_that_exist(systemd: Path) -> None:
    known = {option.variable for option in all_options(COLLECTOR_SWITCHES)}
    texts = [(systemd / "gpu-triage-exporter.env").read_text(encoding="utf-8")]
    texts += [path.read_text(encoding="utf-8") for path in (systemd / "gpu-triage-exporter.service.d").iterdir()]
    named = {name for text in texts for name in re.findall(r"\b(GPU_TRIAGE_\w+)=", text)}
    assert len(named) > 5
    assert named <= known


def test_the_readme_lists_what_every_hardening_setting_restricts(systemd: Path) -> None:
    unit = (systemd / "gpu-triage-exporter.service").read_text(encoding="utf-8")
    hardening = set(
        re.findall(r"^(\w+)=", unit[unit.index("# Resource limits.") :].split("[Install]")[0], re.MULTILINE)
    )
    listed = (systemd / "README.md").read_text(encoding="utf-8")
    unlisted = {name for name in hardening if f"`{name}=" not in listed}
    # Parts of a line that the table writes under the first of them.
    assert unlisted <= {"AmbientCapabilities", "SystemCallArchitectures", "SystemCallErrorNumber"}
