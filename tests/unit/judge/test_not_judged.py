"""An area is called ok only for what was read of it; what could not be judged is listed with the reason."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click import unstyle
from tests.evidence import report_of
from tests.gathered import for_each
from tests.one_shot import look_at, with_life
from tests.rig import only, pair, pair_with, rig, scenario_with, three

from gpu_triage.cli.measure import measure
from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.report.machine_readable import render_json, report_from_json
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import render_text
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.judgment import JUDGE
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.serve.page.sections import areas_section
from gpu_triage_simulator import VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.scenario_file import SCENARIOS

pytestmark = pytest.mark.slow

FAILS = 'at = 0\neffect = {{ kind = "error", function = "{}", code = "UNKNOWN" }}'
MODE = "nvmlDeviceGetPersistenceMode"
ABSENT = f'at = 0\ngpu = 1\neffect = {{ kind = "error", function = "{MODE}", code = "NOT_SUPPORTED" }}'
LOST = 'at = 5\ngpu = 1\neffect = { kind = "lost" }'


def known(report: Report) -> dict[Area, bool]:
    return {area.area: area.is_known for area in report.areas}


def marks(report: Report) -> dict[str, str]:
    """The mark of each area in the text."""
    text = unstyle(render_text(report))
    names = "|".join(re.escape(area.value) for area in Area)
    found = re.findall(rf"^(ok|-|not read|[a-z]+) +({names})\b", text, re.MULTILINE)
    return {area: mark.strip() for mark, area in found}


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


FAILING = (FAILS.format(MODE), FAILS.format("nvmlDeviceGetPcieReplayCounter"))
CASES: dict[str, tuple[str, tuple[str, ...], set[str]]] = {
    "a GeForce has no ECC": ("rtx-4070-ti-super", (), {"memory errors (not reported by GPU 0-1)"}),
    # nvml.h, nvmlDeviceGetMemoryErrorCounter, on MIG-enabled GPUs: "Querying volatile errors using device handles is
    # currently not supported"; an H200 with driver 590.48.01 reports 0 (utkuozdemir/nvidia_gpu_exporter).
    "zero errors in MIG mode": ("h100-mig", (), {"memory errors (not reported in MIG mode by GPU 0)"}),
    "an old driver": ("v100-old-driver", (), {"whether the driver asks for a reset (not reported by GPU 0-3)"}),
    "processes that a container does not see": ("no-host-pids", (), {"processes (not reported by GPU 0-1)"}),
    "a call that fails": ("h100-8", FAILING, {"PCIe replays, persistence mode (not reported by GPU 0-1)"}),
    "one GPU of two": ("h100-8", (ABSENT,), {"persistence mode (not reported by GPU 1)"}),
    "a GPU that does not answer": ("h100-8", (LOST,), {"GPU 1 (no answer)"}),
}


@pytest.mark.parametrize(("base", "events", "gaps"), CASES.values(), ids=CASES)
def test_what_could_not_be_judged_is_listed_with_the_reason(
    tmp_path: Path, base: str, events: tuple[str, ...], gaps: set[str]
) -> None:
    shipped = pair_with if base == "h100-8" else scenario_with
    report = look_at(shipped(tmp_path, base, *events), 20, seconds=3)
    assert set(report.not_judged) == gaps
    (line,) = (line for line in unstyle(render_text(report)).splitlines() if line.startswith("not judged: "))
    assert all(gap in line for gap in gaps)
    assert all(gap in areas_section(report) for gap in gaps)
    read = report_from_json(render_json(report))
    assert read.not_judged == report.not_judged
    assert known(read) == known(report)


def test_a_single_gpu_has_no_peers_to_be_called_ok() -> None:
    scenario = load_scenario("a100-power-capped")
    assert len(scenario.gpus) == 1
    report = look_at(scenario, 60, seconds=3)
    assert known(report) == {area: area is not Area.PEERS for area in Area}
    assert marks(report)[Area.PEERS.value] == "-"
    assert states(report)["peers"] == "not_judged"
    assert marks(report)[Area.HEALTH.value] == "ok"


@pytest.fixture(scope="module")
def ailing() -> Report:
    return look_at(load_scenario("dual-a10"), 3600)


YOUNG = {"since": 1.0, "lasted_seconds": 40.0}
GONE = {"state": State.CONFIRMED, "holds": False, "quiet_seconds": 180.0}
TO_COME = "warning pcie.width  GPU 0: {} (has lasted 40 s of 10 min; then critical: take it out of use"


@pytest.mark.parametrize(
    ("life", "said"),
    [
        (YOUNG, f"{TO_COME})"),
        ({**YOUNG, "holds": None}, f"{TO_COME}; cannot be observed now)"),
        ({"state": State.CONFIRMED, "lasted_seconds": 700.0}, "critical pcie.width  GPU 0: {}"),
        (GONE, "warning pcie.width  GPU 0: {} (gone for 3 min, ends after 25 min)"),
    ],
)
def test_a_finding_says_where_it_stands(ailing: Report, life: dict[str, object], said: str) -> None:
    lines = [line.strip() for line in unstyle(render_text(with_life(ailing, "pcie.width", **life))).splitlines()]
    assert said.format("8 of 16 lanes under load, at 0000:65:00.0") in lines


SEEN_AT = (40.0, 60.0, 80.0, 100.0)

Rounds = list[tuple[float, list[tuple[str, Sample]]]]
"""What is published at some moments, each sample with its collector, without what the judge adds."""


@pytest.fixture(scope="module")
def rounds() -> Rounds:
    seen: Rounds = []
    with rig(replace(three("h100-8"), events=())) as running:
        for at in SEEN_AT:
            running.run_to(at)
            store = running.sampler.store
            outcomes = [each for name in store.collectors if name != JUDGE.name for each in store.of(name).values()]
            seen.append((at, [(one.collector, each) for one in outcomes for each in one.samples]))
    return seen


def test_each_metric_and_all_of_a_collector_may_be_missing(rounds: Rounds) -> None:
    published = {(name, sample.spec.name) for _, samples in rounds for name, sample in samples}

    @for_each("missing", {each for names in published for each in names} - {GPU_UP.name})
    def judged_without(missing: str) -> None:
        less = [(at, [one for name, one in found if missing not in (name, one.spec.name)]) for at, found in rounds]
        assert len(report_of(*less).gpus) == 3 or missing == "presence"

    judged_without()


def look_without(scenario: str, **paths: Any) -> Report:
    """The verdict on a host, with these in place of its own."""
    with simulated_machine(load_scenario(scenario), clock=VirtualClock()) as simulated:
        return measure(replace(simulated.machine, **paths), Config(), 10.0).report


def lines_of(report: Report, name: str) -> list[str]:
    return [line for line in report.not_read if name in line]


def test_an_empty_procfs_is_told_in_text_and_json_and_leaves_the_gpus_their_verdict(tmp_path: Path) -> None:
    report = look_without("idle-downshift", procfs=tmp_path)
    (mount,) = lines_of(report, "--path.procfs")
    (collectors,) = lines_of(report, "host_cpu")
    of_host = {"host_cpu", "host_memory", "host_disk", "host_network", "host_nfs", "host_file_systems", "host_pressure"}
    assert {*of_host, "modules"} == set(collectors.partition(":")[0].split(", "))
    assert "missing" in collectors
    assert not lines_of(report, "this kernel has none")
    assert {gpu.verdict.value for gpu in report.gpus} == {"keep"}
    text = render_text(report)
    assert mount in text
    assert collectors in text
    assert {mount, collectors} <= set(json.loads(render_json(report))["not_read"])
    without_driver = look_without("no-driver", procfs=tmp_path)
    assert without_driver.blocked is not None
    assert lines_of(without_driver, "host_cpu")
    assert not lines_of(without_driver, "power")


def test_an_empty_sysfs_is_told(tmp_path: Path) -> None:
    report = look_without("idle-downshift", sysfs=tmp_path)
    assert lines_of(report, "--path.sysfs")
    (collectors,) = lines_of(report, "host_infiniband")
    assert {"platform", "host_services", "pcie_aer"} <= set(collectors.partition(":")[0].split(", "))


def test_a_container_with_a_procfs_of_its_own_misses_nothing_that_every_host_has(tmp_path: Path) -> None:
    path = tmp_path / "contained.toml"
    contained = "\n[exporter]\nhost_pids = false\nhost_procfs = false\n"
    path.write_text((SCENARIOS / "idle-downshift.toml").read_text() + contained)
    assert not lines_of(look_without(str(path)), "missing")


def test_without_the_kernel_log_the_xids_that_nvml_missed_are_named_with_the_year(tmp_path: Path) -> None:
    # DCGM "can't report XID 79, 119, and 120 due to limitations in the NVML library. Our team is working to fix this":
    # NVIDIA/DCGM, issue 162, on April 24, 2024.
    (line,) = lines_of(look_without("idle-downshift", kmsg=tmp_path / "missing"), "kernel log")
    assert "Xids 79, 119, 120;" in line
    assert "2024" in line
    assert not lines_of(look_without("idle-downshift"), "kernel log")
