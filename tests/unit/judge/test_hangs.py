"""A hang is judged before NCCL aborts the job; checkpoints, evaluations and loading data are not hangs."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tests.judged import HOST, Judged, judged
from tests.rig import only, scenario_with
from tests.states.play import Seen, play
from tests.states.states import STATES

from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.report.report import Report
from gpu_triage.options.config import Config
from gpu_triage_simulator.host_effects import Start

pytestmark = pytest.mark.slow

WORKS: Final = only(
    "activity",
    "clocks",
    "host_cpu",
    "host_disk",
    "host_infiniband",
    "host_network",
    "host_pressure",
    "identity",
    "memory",
    "nvlink",
    "power",
    "processes",
    "throttle",
)
CONFIG: Final[Config] = replace(WORKS, sample_fast_seconds=10.0, sample_medium_seconds=10.0)
SPINS: Final = (
    'kind = "load", utilization = 1.0, memory_utilization = 0.02, intensity = 0.05, spinning = true, jitter = 0.0, '
    "burst_duty = 1.0, pcie_receive_bytes_per_second = 0.0, pcie_transmit_bytes_per_second = 0.0"
)
STOPS: Final = 'kind = "load", utilization = 0.0, jitter = 0.0'
SAVES: Final = 'kind = "disk", device = "nvme0n1", writes_per_second = 900, write_bytes_per_second = 2.0e9, busy = 0.5'
WRITES: Final = 'kind = "writes", pids = [7000, 7001], bytes_per_second = {}'
STOPPED_AT: Final = 300
JUDGED, TOLD = STOPPED_AT + 180, STOPPED_AT + 330
ABORTED: Final = STOPPED_AT + 600
COLLECTIVE, HUNG = "work.collective_hang", "work.hung"


def event(effect: str, gpu: int | None = None, at: float = STOPPED_AT, until: float = 5000) -> str:
    where = "" if gpu is None else f"gpu = {gpu}\n"
    return f"at = {at:.0f}\nuntil = {until:.0f}\n{where}effect = {{ {effect} }}"


def began(seen: Judged, code: str, subject: str, state: State) -> float | None:
    """Scenario second at which a finding first was in a state; None if it never was."""
    return next((at for at, each in seen.lives.get((subject, code), []) if each is state), None)


@pytest.mark.parametrize(
    ("events", "confirmed_by"),
    [
        pytest.param([event(STOPS, 0), event(SPINS, 1)], STOPPED_AT + 240, id="one stops and the other spins"),
        pytest.param([event(SPINS)], TOLD, id="both spin", marks=pytest.mark.full),
        pytest.param([event(STOPS)], TOLD, id="both stop", marks=pytest.mark.full),
        pytest.param(
            [event(STOPS), event(SAVES), event(WRITES.format(1e3), at=0)], TOLD, id="both stop, and others write"
        ),
    ],
)
def test_gpus_of_one_job_that_are_stuck(events: list[str], confirmed_by: float, tmp_path: Path) -> None:
    with judged(scenario_with(tmp_path, "training-day", *events), CONFIG) as seen:
        seen.run_to(TOLD + 10)
        pending, confirmed = (began(seen, COLLECTIVE, HOST, state) for state in (State.PENDING, State.CONFIRMED))
        assert pending is not None
        assert STOPPED_AT + 60 < pending <= JUDGED
        assert confirmed is not None
        assert confirmed <= confirmed_by


def test_writing_of_unknown_processes_does_not_hide_a_hang_until_nccl_aborts(tmp_path: Path) -> None:
    with judged(scenario_with(tmp_path, "training-day", event(STOPS), event(SAVES)), CONFIG) as seen:
        seen.run_to(ABORTED)
        pending, confirmed = (began(seen, COLLECTIVE, HOST, state) for state in (State.PENDING, State.CONFIRMED))
        assert pending is not None
        assert confirmed is not None
        assert JUDGED < pending < confirmed <= ABORTED - 150


def test_the_gpu_that_stopped_is_named(tmp_path: Path) -> None:
    with judged(scenario_with(tmp_path, "training-day", event(STOPS, 0), event(SPINS, 1)), CONFIG) as seen:
        seen.run_to(JUDGED)
        (finding,) = [each for each in seen.report.findings if each.check.code == COLLECTIVE]
        assert finding.measured.startswith("GPU 0 stopped; GPU 1: busy at low power, and no data moves")
        stopped = began(seen, HUNG, "0", State.PENDING)
        assert stopped is not None
        assert stopped <= JUDGED


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([event(SPINS, until=STOPPED_AT + 100)], id="a barrier of 100 s"),
        pytest.param([event(STOPS, until=STOPPED_AT + 150)], id="a pause of 150 s", marks=pytest.mark.full),
        pytest.param(
            [event(STOPS), event(SAVES), event(WRITES.format(1e9))],
            id="both wait for a checkpoint",
            marks=pytest.mark.full,
        ),
        pytest.param(
            [event(STOPS, 0), event(SPINS, 1), event(SAVES), event(WRITES.format(1e9))],
            id="one waits for the other's checkpoint",
        ),
        pytest.param([event(SPINS, 1)], id="one waits for the other's evaluation", marks=pytest.mark.full),
        pytest.param([event(STOPS, at=0)], id="loads, and never worked", marks=pytest.mark.full),
    ],
)
def test_what_is_no_hang(events: list[str], tmp_path: Path) -> None:
    with judged(scenario_with(tmp_path, "training-day", *events), CONFIG) as seen:
        seen.run_to(ABORTED)
        assert seen.lives.get((HOST, COLLECTIVE), []) == []
        assert {began(seen, HUNG, gpu, State.CONFIRMED) for gpu in "01"} == {None}


@pytest.mark.full
def test_a_pause_of_four_and_a_half_minutes_is_never_confirmed(tmp_path: Path) -> None:
    with judged(scenario_with(tmp_path, "training-day", event(STOPS, until=STOPPED_AT + 270)), CONFIG) as seen:
        seen.run_to(ABORTED)
        assert began(seen, COLLECTIVE, HOST, State.CONFIRMED) is None


@pytest.mark.full
def test_the_next_job_that_loads_has_not_stopped(tmp_path: Path) -> None:
    """It begins where another one ended, and holds memory from the start."""
    kill = 'kind = "kill", pids = [7000, 7001]'
    scenario = scenario_with(tmp_path, "training-day", event(STOPS), event(kill))
    others = tuple(replace(each, pid=each.pid + 2000) for each in scenario.processes)
    begins = replace(scenario.events[-1], effect=Start(tuple(each.pid for each in others)))
    processes, events = (*scenario.processes, *others), (*scenario.events, begins)
    with judged(replace(scenario, processes=processes, events=events), CONFIG) as seen:
        seen.run_to(ABORTED)
        assert {code for _, code in seen.lives} & {COLLECTIVE, HUNG} == set()


NCCL_ABORTS_SECONDS = 600
"""The timeout of PyTorch's NCCL process groups."""
BY_NAME = {state.name: state for state in STATES}
ABSENT = 0


def _report(seen: Seen) -> Report:
    assert seen.report is not None
    return seen.report


@pytest.mark.parametrize(
    ("name", "hang"),
    [
        ("a hang", State.CONFIRMED),
        ("a hang while others write", State.CONFIRMED),
        ("a hang while others write, by its cgroup", State.CONFIRMED),
        ("a hang while somebody writes", State.CONFIRMED),
        ("a collective hangs while others send", State.CONFIRMED),
        ("a long checkpoint", ABSENT),
        ("a long checkpoint, by its cgroup", ABSENT),
        ("a checkpoint of somebody", ABSENT),
        ("a job that waits for a slow server", ABSENT),
    ],
)
def test_a_hang_is_confirmed_before_nccl_aborts_and_a_checkpoint_never(name: str, hang: int) -> None:
    state = BY_NAME[name]
    assert state.lasts < NCCL_ABORTS_SECONDS
    seen = play(state)
    found = {each.check.code: each.state for each in _report(seen).findings}.get("work.collective_hang", ABSENT)
    assert (found, seen.seconds <= state.promised) == (hang, True)
    assert ("hung" in {each for of_gpu in seen.found.values() for each in of_gpu}) == (state.wanted == "hung")
