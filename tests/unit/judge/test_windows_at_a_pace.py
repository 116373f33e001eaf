"""A scenario that is played faster is judged by windows that are as much shorter, so that a demonstration ends soon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.fed import GPU, MINUTE, WALL, Fed, Total, loaded

from gpu_triage.read.gpu.pcie import GPU_PCIE_REPLAYS_TOTAL
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.xid.xid_metrics import GPU_XID_ERRORS_TOTAL, GPU_XID_LAST_TIMESTAMP_SECONDS

PACE = 20


@pytest.mark.slow
def test_heat_is_over_as_soon_as_the_last_minute_and_the_shorter_windows_are_without_it() -> None:
    seconds = Total(lambda at: 0.8 * (30 <= at < 120))

    def hot(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield GPU_THROTTLE_SECONDS_TOTAL.sample(seconds.at(at), *GPU, "hw_thermal")

    changes = Fed(1.0, PACE).states("thermal.hw", 6 * MINUTE, hot)
    assert [state for _, state in changes] == ["pending", "confirmed", "ended"]
    confirmed_at, ended_at = changes[1][0], changes[2][0]
    assert 30 + 10 * MINUTE / PACE <= confirmed_at <= 70
    hold_seconds = 20 * MINUTE / PACE
    assert ended_at <= 120 + MINUTE + 15 * MINUTE / PACE + hold_seconds


@pytest.mark.slow
def test_as_many_events_are_found_in_the_shorter_window() -> None:
    replays = Total(lambda at: 400 / 3600 * PACE * (at < 120))

    def replaying(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield GPU_PCIE_REPLAYS_TOTAL.sample(replays.at(at), *GPU)

    changes = Fed(1.0, PACE).states("pcie.replays", 5 * MINUTE, replaying)
    assert [state for _, state in changes] == ["pending", "confirmed", "ended"]
    assert 120 + 15 * MINUTE / PACE < changes[-1][0] <= 120 + (10 + 15) * MINUTE / PACE


@pytest.mark.slow
def test_an_xid_is_recent_for_as_much_shorter() -> None:
    def after_xid(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        if at >= 10:
            yield GPU_XID_ERRORS_TOTAL.sample(1, *GPU, "79", "")
            yield GPU_XID_LAST_TIMESTAMP_SECONDS.sample(WALL + 10, *GPU, "79", "")

    changes = Fed(1.0, PACE).states("xid.79", 5 * MINUTE, after_xid)
    assert [state for _, state in changes] == ["confirmed", "ended"]
    assert changes[-1][0] == pytest.approx(10 + (60 + 8) * MINUTE / PACE, abs=5)
