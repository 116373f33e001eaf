"""Hangs and checkpoints beside others that write, and GPUs that are read late, in raw numbers."""

import pytest
from tests.states.play import Seen, play
from tests.states.states import STATES

from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.report.report import Report

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize(
    ("name", "observed"),
    [
        ("at work, some readings late", True),
        ("busy 40%, some readings late", True),
        ("at work, all readings late, and the driver keeps samples", True),
        ("at work, most readings late", False),
        ("idle, most readings late", False),
    ],
)
def test_a_gpu_has_a_class_if_most_of_the_time_was_observed(name: str, observed: bool) -> None:  # noqa: FBT001 - a table
    state = BY_NAME[name]
    seen = play(state)
    (gpu,) = _report(seen).gpus
    assert gpu.bottleneck.because.startswith("not observed") != observed
    assert seen.seconds <= state.promised


def test_traffic_of_others_is_no_peer_to_talk_to() -> None:
    seen = play(BY_NAME["small kernels while the next job sends"])
    assert seen.found[0] == ("compute",)
