"""An area is called ok only for what was read of it; what could not be judged is listed with the reason."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click import unstyle
from tests.one_shot import look_at
from tests.rig import only, pair, scenario_with

from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.report.machine_readable import render_json, report_from_json
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import render_text
from gpu_triage.serve.page.sections import areas_section
from gpu_triage_simulator import Scenario, load_scenario

pytestmark = pytest.mark.slow

FAILS = 'at = 0\neffect = {{ kind = "error", function = "{}", code = "UNKNOWN" }}'
ABSENT = 'at = 0\n{}effect = {{ kind = "error", function = "{}", code = "NOT_SUPPORTED" }}'
LOST = 'at = 5\ngpu = 1\neffect = { kind = "lost" }'


def known(report: Report) -> dict[Area, bool]:
    return {area.area: area.is_known for area in report.areas}


def marks(report: Report) -> dict[str, str]:
    """The mark of each area in the text."""
    text = unstyle(render_text(report))
    names = "|".join(re.escape(area.value) for area in Area)
    return {
        area: mark.strip() for mark, area in re.findall(rf"^(ok|-|not read|[a-z]+) +({names})\b", text, re.MULTILINE)
    }


def states(report: Report) -> dict[str, str]:
    """The state of each area on the page."""
    return dict(re.findall(r'data-area="(\w+)" data-state="(\w+)"', areas_section(report)))


def test_a_host_of_which_everything_is_read_leaves_nothing_open() -> None:
    report = look_at(pair("h100-8"), 60, seconds=3)
    assert report.not_judged == ()
    assert known(report) == dict.fromkeys(Area, True)
    assert "not judged" not in render_text(report) + areas_section(report)


def test_what_no_collector_reads_is_not_ok() -> None:
    report = look_at(pair("h100-8"), 60, seconds=3, config=only("identity"))
    # Xids need no collector.
    assert known(report) == {area: area in (Area.DRIVER, Area.HEALTH) for area in Area}
    named = " ".join(report.not_judged)
    for what in ("throttling", "memory errors", "PCIe links", "peer access", "CPUs", "processes", "persistence mode"):
        assert what in named
    assert all("is off)" in line for line in report.not_judged)
    others = [area.value for area in Area if area not in (Area.DRIVER, Area.HEALTH)]
    assert [marks(report)[area] for area in others] == ["not read"] * len(others)
    assert {state for area, state in states(report).items() if area not in ("driver", "health")} == {"not_read"}


CASES: dict[str, tuple[str, tuple[str, ...], set[str]]] = {
    "a GeForce has no ECC": ("rtx-4070-ti-super", (), {"memory errors (not reported by GPU 0-1)"}),
    "an old driver": ("v100-old-driver", (), {"whether the driver asks for a reset (not reported by GPU 0-3)"}),
    "processes that a container does not see": ("no-host-pids", (), {"processes (not reported by GPU 0-1)"}),
    "a call that fails": (
        "h100-8",
        (FAILS.format("nvmlDeviceGetPersistenceMode"), FAILS.format("nvmlDeviceGetPcieReplayCounter")),
        {"PCIe replays, persistence mode (not reported by GPU 0-1)"},
    ),
    "one GPU of two": (
        "h100-8",
        (ABSENT.format("gpu = 1\n", "nvmlDeviceGetPersistenceMode"),),
        {"persistence mode (not reported by GPU 1)"},
    ),
    "a GPU that does not answer": ("h100-8", (LOST,), {"GPU 1 (no answer)"}),
}


@pytest.mark.parametrize(("base", "events", "gaps"), CASES.values(), ids=CASES)
def test_what_could_not_be_judged_is_listed_with_the_reason(
    tmp_path: Path, base: str, events: tuple[str, ...], gaps: set[str]
) -> None:
    scenario = scenario_with(tmp_path, base, *events)
    if base == "h100-8":
        scenario = two_of(scenario)
    report = look_at(scenario, 20, seconds=3)
    assert set(report.not_judged) == gaps
    (line,) = (line for line in unstyle(render_text(report)).splitlines() if line.startswith("not judged: "))
    assert all(gap in line for gap in gaps)
    assert all(gap in areas_section(report) for gap in gaps)
    read = report_from_json(render_json(report))
    assert read.not_judged == report.not_judged
    assert known(read) == known(report)


def two_of(scenario: Scenario) -> Scenario:
    processes = tuple(process for process in scenario.processes if process.gpu < 2)
    events = tuple(
        replace(event, gpus=tuple(gpu for gpu in event.gpus if gpu < 2)) if event.gpus else event
        for event in scenario.events
    )
    return replace(scenario, gpus=scenario.gpus[:2], processes=processes, events=events)


def test_a_single_gpu_has_no_peers_to_be_called_ok() -> None:
    scenario = load_scenario("a100-power-capped")
    assert len(scenario.gpus) == 1
    report = look_at(scenario, 60, seconds=3)
    assert known(report) == {area: area is not Area.PEERS for area in Area}
    assert marks(report)[Area.PEERS.value] == "-"
    assert states(report)["peers"] == "not_judged"
    assert marks(report)[Area.HEALTH.value] == "ok"
