"""Every fault has its class as soon as is promised, at phases of the tiers that were bad ones; the page has more."""

from __future__ import annotations

import pytest
from tests.bench.attribution import (
    BACK_SECONDS,
    FAULTS,
    HEALTHY,
    MOST_CHANGES,
    START_SECONDS,
    Fault,
    attribute,
    start_under,
    steady_day,
)

from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES

KNOWS_LESS = {"compute", "unattributed"}
"""Classes that a GPU may pass through on its way: they say that nothing is known to be wrong."""
TOLD_AT_THE_START = [fault for fault in (HEALTHY, *FAULTS) if not fault.remembered]


def named(fault: object) -> str | None:
    return f"{fault.name}: {fault.what}" if isinstance(fault, Fault) else None


@pytest.mark.parametrize(("fast_seconds", "offset"), [(1, 3), (5, 1)])
@pytest.mark.parametrize("fault", FAULTS, ids=named)
def test_a_fault_has_its_class_in_time_and_is_not_taken_for_another(
    fault: Fault, fast_seconds: int, offset: int
) -> None:
    seen = attribute(fast_seconds, fault, offset)
    assert seen.promised is None or seen.onset.seconds <= seen.promised
    assert seen.end is None or seen.end.seconds <= BACK_SECONDS
    assert set(seen.detours) <= KNOWS_LESS | {fault.name}


@pytest.mark.parametrize("fault", TOLD_AT_THE_START, ids=named)
def test_an_exporter_that_starts_in_the_middle_of_it_has_the_class_within_a_minute(fault: Fault) -> None:
    assert start_under(1, fault) <= START_SECONDS


def test_every_class_is_measured() -> None:
    assert {HEALTHY.name, *(fault.name for fault in FAULTS)} == set(BOTTLENECK_CLASSES)


@pytest.mark.parametrize(
    ("scenario", "fast_seconds", "minutes"),
    [("h100-8", 1, 15), ("training-day", 1, 25), ("training-day", 5, 70)],
)
def test_the_class_of_a_healthy_gpu_stays_what_it_is(scenario: str, fast_seconds: int, minutes: int) -> None:
    changes = steady_day(scenario, fast_seconds, minutes / 60)
    assert set(changes) == {"0", "1"}
    assert max(changes.values()) <= MOST_CHANGES
