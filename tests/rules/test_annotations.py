"""What a firing alert tells the person it wakes: where, which GPU, how much, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.cases import load_any
from tests.rules.examine import prepare
from tests.rules.promtool import Alert, ask
from tests.rules.rulefile import rule_files


@dataclass(frozen=True, slots=True)
class Told:
    """An alert of a scenario, and patterns that its description must match, each once."""

    scenario: str
    minute: int
    alert: str
    labels: dict[str, str]
    patterns: tuple[str, ...]


TOLD = [
    Told(
        "h100-8-bad-night",
        55,
        "GpuPcieAerErrors",
        {"gpu": "5"},
        (
            r"reported \d{3} PCIe errors",
            r"and 0 nonfatal or fatal ones within 30 minutes",
            r"drain the host now",
            r"at the next chance",
        ),
    ),
    Told(
        "missing",
        30,
        "GpuMissing",
        {},
        (r"missing shows 2 GPUs\.", r"bus has 2\. The driver showed 3 within 6 hours\.", r"Drain the host"),
    ),
    Told(
        "path",
        40,
        "GpuPcieGenerationDowntrained",
        {"gpu": "0"},
        (r"GPU 0 of path", r"PCIe generation 2 instead of \d for 10 minutes", r"Check BIOS settings"),
    ),
    Told(
        "sick-fabric",
        55,
        "GpuRecoveryActionNeeded",
        {"gpu": "1"},
        (r"recovery action 1 on GPU 1 of sick-fabric: end its processes and reset it\.", r"Drain it and do that"),
    ),
    Told(
        "h100-8-bad-night",
        33,
        "GpuHwThermalThrottling",
        {"gpu": "3"},
        (r"GPU 3 of h100-8-bad-night", r"\b[78][0-9](\.\d+)?% of the last 5 minutes", r"Check inlet air"),
    ),
    Told(
        "dual-a10",
        75,
        "GpuPcieWidthDowntrained",
        {"gpu": "0", "severity": "critical"},
        (r"GPU 0 of dual-a10", r"\b8 of 16 PCIe lanes", r"reseat card and riser"),
    ),
    Told(
        "dual-a10",
        97,
        "GpuLost",
        {"gpu": "0"},
        (r"GPU 0 of dual-a10", r"gpu_error_info: lost\b", r"Drain the host"),
    ),
    Told(
        "dual-a10",
        97,
        "GpuXidCritical",
        {"gpu": "0"},
        (r"GPU 0 of dual-a10", r"Xid 79 at ", r"Drain it"),
    ),
    Told(
        "lost-before-start",
        5,
        "GpuXidCritical",
        {"pci_bus_id": "0000:b3:00.0"},
        (r"The GPU at 0000:b3:00\.0 of lost-before-start", r"Xid 79 at ", r"Drain it"),
    ),
    Told(
        "lost-before-start",
        5,
        "GpuLost",
        {},
        (r"^GPU 1 of lost-before-start", r"gpu_error_info: lost\b", r"then power it off and on"),
    ),
    Told(
        "no-driver",
        60,
        "GpuDriverUnavailable",
        {},
        (r"^no-driver has NVIDIA devices", r"answered with driver_not_loaded\b", r"load or repair the driver"),
    ),
    Told(
        "a100-power-capped",
        90,
        "GpuPowerCapped",
        {"gpu": "0"},
        (
            r"GPU 0 of a100-power-capped",
            r"\b(9\d(\.\d+)?|100)% of the last 5 minutes",
            r"power limit \(\d+ W\)",
            r"nvidia-smi -i 0 -pl 400,",
        ),
    ),
    Told(
        "sick-memory",
        125,
        "GpuEccUncorrected",
        {"gpu": "0"},
        (r"GPU 0 of sick-memory", r"\b2 uncorrected ECC errors", r"Drain it and reset it"),
    ),
    Told(
        "starved",
        48,
        "GpuStarvedByStorage",
        {},
        (r"^3 GPUs of starved", r"for 20 minutes", r"Look at disk, NFS and iowait first"),
    ),
    Told(
        "starved",
        172,
        "GpuHostSwapping",
        {},
        (r"^starved reads 8\.\d+MiB/s back from swap", r"reduce data workers"),
    ),
    Told(
        "exporter-blind",
        30,
        "GpuExporterStale",
        {"collector": "ecc"},
        (r"Collector ecc of exporter-blind", r"last succeeded (19|20)m \d+s ago", r"see gpu_up"),
    ),
]


@pytest.mark.parametrize("told", TOLD, ids=lambda told: f"{told.scenario}-{told.alert}")
def test_a_description_says_where_how_much_and_what_to_do(
    told: Told, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    (alert,) = _firing(told, requires_tool("promtool"), tmp_path)
    description = " ".join(alert.annotations["description"].split())
    assert [pattern for pattern in told.patterns if len(re.findall(pattern, description)) != 1] == [], description
    assert "%!" not in description, "a template was given the wrong type"
    assert "<no value>" not in description


def _firing(told: Told, promtool: Path, directory: Path) -> list[Alert]:
    asked = (told.alert, told.minute * 60.0)
    run = prepare(load_any(told.scenario), rule_files(), step_seconds=60, seconds=asked[1])
    answers = ask(promtool, run.asking(alerts=(asked,)), directory)
    return [alert for alert in answers.alerts[asked] if told.labels.items() <= alert.labels.items()]
