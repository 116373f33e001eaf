"""Jobs on four simulated hosts: what the exporters publish of them, and what the rules make of it."""

import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import Alert, Run, ask
from tests.recordings import DRILL
from tests.rules.examine import run_of
from tests.rules.rulefile import alert_files, groups_of

from gpu_triage_simulator.history import record_history
from gpu_triage_simulator.scenario_file import SCENARIOS, read_fleet
from gpu_triage_simulator.schema import read_toml

STEP_SECONDS: Final = 15.0
STOPPED_AT: Final = 600.0
"""When a job stops; then there are five minutes until its people must know."""
NOTIFIED_BY, ABORTED_AT = (STOPPED_AT + 60 * minutes for minutes in (5, 10))
GROUP_WAIT_SECONDS: Final = 30.0
"""Of the routes that come with the rules."""
HOSTS: Final = "abcd"
"""Of two GPUs each; a rank's number is 2 for each host before it, and its GPU."""
INSTANCE: Final = re.compile(r'instance="[^"]*"')
WRITES: Final = {
    "kind": "disk",
    "device": "nvme0n1",
    "writes_per_second": 900,
    "write_bytes_per_second": 2e9,
    "busy": 0.5,
}
SAVES: Final = {"at": int(STOPPED_AT), "effect": WRITES}
SLURM: Final = 'slurm_job_id="4711",user="alice",account="physics"'

Series = dict[str, Sequence[float]]
Table = Mapping[str, Any]


def episode(trouble: str, *ranks: int) -> Table:
    return {"trouble": trouble, "at": int(STOPPED_AT), **({"ranks": [*ranks]} if ranks else {})}


STOPS: Final = episode("hung", 5)
STOPS_WITHOUT_WAITING: Final = episode("paused")
"""Of all ranks: only the steps show it."""


def job(*episodes: Table, saving: str = "") -> Series:
    """What is scraped of the hosts of a job, to which all of this happens; hosts like each other are recorded once."""
    day = read_toml(SCENARIOS / "training-day.toml")
    ranks = [{"host": each, "gpus": [0, 1], "compute_seconds": 0.85} for each in HOSTS]
    coupled = {"exchange_seconds": 0.15, "ranks": ranks, "episode": [*episodes]}
    hosts = [{"name": each, "event": [*day["event"], *[SAVES] * (each in saving)]} for each in HOSTS]
    concerned = {HOSTS[rank // 2] for each in episodes for rank in each.get("ranks", ())} | {*saving}
    scenarios = read_fleet({**day, "job": [coupled], "host": hosts}, "job.toml")
    found: Series = {}
    recorded: dict[str, Series] = {}
    for scenario in scenarios:
        alike = scenario.name if scenario.name in concerned else ""
        if alike not in recorded:
            history = record_history(scenario, seconds=ABORTED_AT, step_seconds=STEP_SECONDS, target=DRILL)
            recorded[alike] = dict(run_of(history, scenario, alert_files()).series)
        for selector, values in recorded[alike].items():
            own = INSTANCE.sub(f'instance="{scenario.name}"', selector)
            found[own] = values
            if own.startswith("gpu_up{"):
                found[f"gpu_allocated{own.removeprefix('gpu_up').removesuffix('}')},{SLURM}}}"] = [1.0] * len(values)
    return found


def steps(until: float) -> Series:
    """The steps that the job's first rank writes, one every two seconds until it stops."""
    values = [min(at * STEP_SECONDS, until) / 2 for at in range(int(ABORTED_AT / STEP_SECONDS) + 1)]
    return {'gpu_job_steps_total{instance="a",job="gpu-triage",drill="true",job_name="bert",owner="4711"}': values}


def fired(promtool: Path, directory: Path, series: Series, *names: str) -> Mapping[float, Sequence[Alert]]:
    """The alerts of these names, with their texts, every 30 s."""
    rules = alert_files()
    times = [at * 30.0 for at in range(int(ABORTED_AT / 30) + 1)]
    run = Run(rules, groups_of(rules), STEP_SECONDS, series, (), tuple(product(names, times)), 30.0)
    return {at: found for (_, at), found in ask(promtool, run, directory).alerts.items() if found}


@pytest.mark.parametrize("known_by", ["the other ranks", "steps"])
def test_a_rank_that_stops_is_told_of_within_five_minutes(
    known_by: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    series = job(STOPS_WITHOUT_WAITING) | steps(STOPPED_AT) if known_by == "steps" else job(STOPS)
    alerts = fired(requires_tool("promtool"), tmp_path, series, "GpuJobHung")
    first = min(alerts)
    assert STOPPED_AT + 90 < first <= NOTIFIED_BY - GROUP_WAIT_SECONDS
    (alert,) = alerts[first]
    waits = "" if known_by == "steps" else ": all wait for GPU 1 of c"
    assert alert.annotations["summary"] == f"Slurm job 4711 hangs{waits}"
    assert all(len(found) == 1 for found in alerts.values())


@pytest.mark.parametrize(
    ("happens", "saving"),
    [(episode("paused", 0, 1), "a"), (episode("alone", 0), ""), (episode("alone"), ""), (episode("paused"), HOSTS)],
    ids=["rank 0 saves", "rank 0 evaluates", "all evaluate", "all save"],
)
def test_checkpoints_and_evaluations_of_ten_minutes_are_quiet(
    happens: Table, saving: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    series = job(happens, saving=saving) | steps(STOPPED_AT)
    alerts = ("GpuJobHung", "GpuCollectiveHang", "GpuHungProcess", "GpuJobSlow")
    assert fired(requires_tool("promtool"), tmp_path, series, *alerts) == {}
