"""Classes do not change while nothing is wrong, for as long as there is time to look; the page shows days."""

from __future__ import annotations

import pytest
from tests.bench.attribution import calm_day
from tests.bench.attribution_faults import FAULTS
from tests.bench.attribution_report import MOST_CHANGES, Attribution, Day, Settled, Start, document


@pytest.mark.parametrize(
    ("scenario", "fast_seconds", "minutes"),
    [("h100-8", 1, 15), ("training-day", 1, 25), ("training-day", 5, 70)],
)
def test_the_class_of_a_healthy_gpu_stays_what_it_is(scenario: str, fast_seconds: int, minutes: int) -> None:
    day = calm_day(scenario, fast_seconds, 60.0 * minutes)
    assert set(day.changes) == {"0", "1"}
    assert {gpu: count for gpu, count in day.changes.items() if count > MOST_CHANGES} == {}


def test_the_page_shows_what_breaks_a_promise() -> None:
    soon, late, never = Settled(5.0, ()), Settled(95.0, ("compute",)), Settled(float("inf"), ("idle",))
    page = document(
        [Attribution(FAULTS[0], 1, soon, None), Attribution(FAULTS[0], 5, late, never)],
        [Start(FAULTS[0], 1, soon), Start(FAULTS[0], 5, never)],
        [Day("training-day", 24.0, 1, {"0": 2, "1": 3})],
    )
    assert "| falls off the bus | 10 s | 5 s | **95 s** |  | **never** | 5 s | **never** | compute, idle |" in page
    assert "| `training-day` | 24 | 1 s | 2, **3** |" in page
    assert max(map(len, page.splitlines())) <= 200
