"""Every fault has its class as soon as is promised, at phases of the tiers that were bad ones; the page has more."""

from __future__ import annotations

import pytest
from tests.bench.attribution import HEALTHY, attribute, start_under
from tests.bench.attribution_faults import BACK_SECONDS, FAULTS, START_SECONDS, Fault
from tests.bench.attribution_report import Attribution, promised

from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES

KNOWS_LESS = {"compute", "unattributed"}
"""Classes that a GPU may pass through on its way: they say that nothing is known to be wrong."""
BY_NAME = [f"{fault.name}: {fault.what}" for fault in FAULTS]
TOLD_AT_THE_START = [fault for fault in (HEALTHY, *FAULTS) if not fault.remembered]


def is_as_promised(seen: Attribution) -> None:
    limit = promised(seen.fault, seen.fast_seconds)
    assert limit is None or seen.onset.seconds <= limit
    assert seen.end is None or seen.end.seconds <= BACK_SECONDS
    # No fault is taken for another one, neither while it begins nor while it ends.
    assert set(seen.detours) <= KNOWS_LESS | {seen.fault.name}


@pytest.mark.parametrize("fault", FAULTS, ids=BY_NAME)
def test_a_fault_has_its_class_in_time_with_the_default_tiers(fault: Fault) -> None:
    is_as_promised(attribute(fault, 1, offset=3))


@pytest.mark.parametrize("fault", FAULTS, ids=BY_NAME)
def test_a_fault_has_its_class_in_time_with_a_slower_fast_tier(fault: Fault) -> None:
    is_as_promised(attribute(fault, 5, offset=1))


@pytest.mark.parametrize("fault", TOLD_AT_THE_START, ids=[f"{fault.name}: {fault.what}" for fault in TOLD_AT_THE_START])
def test_an_exporter_that_starts_in_the_middle_of_it_has_the_class_within_a_minute(fault: Fault) -> None:
    assert start_under(fault, 1).start.seconds <= START_SECONDS


def test_every_class_is_measured() -> None:
    assert {HEALTHY.name, *(fault.name for fault in FAULTS)} == set(BOTTLENECK_CLASSES)
