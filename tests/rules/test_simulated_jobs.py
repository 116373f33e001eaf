"""Jobs on four simulated hosts: what the exporters publish of them, and what the rules make of it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import Alert, Run, ask
from tests.recordings import DRILL
from tests.rig import scenario_with
from tests.rules.examine import run_of
from tests.rules.rulefile import alert_files, groups_of

from gpu_triage_simulator.history import record_history

pytestmark = pytest.mark.slow

STEP_SECONDS: Final = 15.0
STOPPED_AT: Final = 600.0
"""When a job stops; then there are five minutes until its people must know."""
NOTIFIED_BY, ABORTED_AT = (STOPPED_AT + 60 * minutes for minutes in (5, 10))
GROUP_WAIT_SECONDS: Final = 30.0
"""Of the routes that come with the rules."""
HOSTS: Final = "abcd"
INSTANCE: Final = re.compile(r'instance="[^"]*"')
STOPS: Final = 'kind = "load", utilization = 0.0, jitter = 0.0'
SPINS: Final = (
    'kind = "load", utilization = 1.0, memory_utilization = 0.02, intensity = 0.05, spinning = true, jitter = 0.0, '
    "burst_duty = 1.0, pcie_receive_bytes_per_second = 0.0, pcie_transmit_bytes_per_second = 0.0"
)
SAVES: Final = 'kind = "disk", device = "nvme0n1", writes_per_second = 900, write_bytes_per_second = 2.0e9, busy = 0.5'
EVALUATES: Final = 'kind = "load", utilization = 0.95, intensity = 0.55, burst_duty = 1.0'
SLURM: Final = 'slurm_job_id="4711",user="alice",account="physics"'

Series = dict[str, Sequence[float]]


def event(effect: str, gpu: int | None = None, at: float = STOPPED_AT) -> str:
    return f'at = {at:.0f}\nuntil = "24h"\n{"" if gpu is None else f"gpu = {gpu}"}\neffect = {{ {effect} }}'


def host(tmp_path: Path, instances: str, *events: str, pods: bool = False, seconds: float = ABORTED_AT) -> Series:
    """What is scraped of hosts of two GPUs, to which all of this happens, and whose job it is."""
    scenario = scenario_with(tmp_path, "training-day", *events)
    history = record_history(scenario, seconds=seconds, step_seconds=STEP_SECONDS, target=DRILL)
    series = run_of(history, scenario, alert_files()).series
    found: Series = {}
    for instance in instances:
        owner = f'workload_namespace="ml",workload_pod="train-{HOSTS.index(instance)}"' if pods else SLURM
        for selector, values in series.items():
            own = INSTANCE.sub(f'instance="{instance}"', selector)
            found[own] = values
            if own.startswith("gpu_up{"):
                found[f"gpu_allocated{own.removeprefix('gpu_up').removesuffix('}')},{owner}}}"] = [1.0] * len(values)
    return found


def steps(until: float) -> Series:
    """The steps that the job's first rank writes, one every two seconds until it stops."""
    values = [min(at * STEP_SECONDS, until) / 2 for at in range(int(ABORTED_AT / STEP_SECONDS) + 1)]
    return {'gpu_job_steps_total{instance="a",job="gpu-triage",drill="true",job_name="bert",owner="4711"}': values}


def fired(
    promtool: Path, directory: Path, series: Series, alert: str, seconds: float
) -> Mapping[float, Sequence[Alert]]:
    """The alerts of a name, with their texts, every 30 s."""
    rules = alert_files()
    times = [at * 30.0 for at in range(int(seconds / 30) + 1)]
    run = Run(rules, groups_of(rules), STEP_SECONDS, series, (), tuple((alert, at) for at in times), 30.0)
    return {at: found for (_, at), found in ask(promtool, run, directory).alerts.items() if found}


@pytest.mark.parametrize("known_by", ["the other ranks", "steps", "pods"])
def test_a_rank_that_stops_is_told_of_within_five_minutes(
    known_by: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    pods = known_by == "pods"
    if known_by == "steps":
        series = host(tmp_path, HOSTS, event(STOPS)) | steps(STOPPED_AT)
    else:
        odd = host(tmp_path, "c", event(STOPS, 1), event(SPINS, 0), pods=pods)
        series = odd | host(tmp_path, "abd", event(SPINS), pods=pods)
    alerts = fired(requires_tool("promtool"), tmp_path, series, "GpuJobHung", ABORTED_AT)
    first = min(alerts)
    assert STOPPED_AT + 90 < first <= NOTIFIED_BY - GROUP_WAIT_SECONDS
    (alert,) = alerts[first]
    hangs = "ml/train hangs" if pods else "Slurm job 4711 hangs"
    assert alert.annotations["summary"] == hangs + ("" if known_by == "steps" else ": all wait for GPU 1 of c")
    assert all(len(found) == 1 for found in alerts.values())


@pytest.mark.parametrize(
    ("first", "others"),
    [
        ([event(STOPS), event(SAVES)], [event(SPINS)]),
        ([event(EVALUATES, 0), event(SPINS, 1)], [event(SPINS)]),
        ([event(EVALUATES)], [event(EVALUATES)]),
        ([event(STOPS), event(SAVES)], [event(STOPS), event(SAVES)]),
    ],
    ids=["rank 0 saves", "rank 0 evaluates", "all evaluate", "all save"],
)
def test_checkpoints_and_evaluations_of_ten_minutes_are_quiet(
    first: list[str], others: list[str], requires_tool: RequiresTool, tmp_path: Path
) -> None:
    series = host(tmp_path, "a", *first) | host(tmp_path, "bcd", *others) | steps(STOPPED_AT)
    promtool = requires_tool("promtool")
    for alert in ("GpuJobHung", "GpuCollectiveHang", "GpuHungProcess", "GpuJobSlow"):
        assert fired(promtool, tmp_path, series, alert, ABORTED_AT) == {}, alert


def test_a_host_with_locked_clocks_is_named_as_that(requires_tool: RequiresTool, tmp_path: Path) -> None:
    """Its GPUs are slow together, so they see no difference between themselves."""
    seconds = 1800.0
    busy = event('kind = "load", utilization = 0.97, intensity = 0.6, burst_duty = 1.0', at=0)
    locked = event('kind = "application_clock", sm_mhz = 1300', at=60)
    series = host(tmp_path, "b", busy, locked, seconds=seconds) | host(tmp_path, "acd", busy, seconds=seconds)
    alerts = fired(requires_tool("promtool"), tmp_path, series, "GpuStragglerAcrossHosts", seconds)
    (alert,) = alerts[max(alerts)]
    assert alert.annotations["summary"].startswith("b: clocks set by an administrator, at ")
    assert alert.labels["action"] == "fix_host"
