"""What the benchmark of the rules counts, and what its page admits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.bench.rules_page import Fleet, Scrapes, Seen, document, scaled_share

COMPLETE = Scrapes(hosts=250, due=60, fewest=60, failed=0, longest_seconds=0.4)


def seen(*evaluations: tuple[str, float]) -> Seen:
    """A group that was looked at, all looks counting."""
    group = Seen(interval=60.0, rules=3)
    for at, seconds in evaluations:
        group.note(at, seconds, counts=True)
    return group


FLEET = Fleet(
    hosts=250,
    scrape_seconds=15,
    series=800_000,
    scraped=3000,
    recorded=200,
    memory_bytes=3 << 30,
    cores=0.5,
    past_samples=78_000_000,
    minutes=15.0,
    scrapes=COMPLETE,
    groups={"gpu-triage-load": seen(("a", 9.0), ("b", 0.5), ("c", 0.9))},
    rules={"gpu-triage-load: instance_gpu:gpu_busy:ratio5m": seen(("a", 9.0), ("b", 0.2))},
    review=[(0.2, "Hours lost: 14 series")],
)


def test_the_first_evaluation_does_not_count_and_no_other_counts_twice() -> None:
    group = seen(("a", 9.0), ("a", 9.0), ("b", 0.5), ("b", 0.5), ("c", 0.9))
    assert group.first == 9.0
    assert group.times == [0.5, 0.9]


def test_the_longest_evaluation_is_scaled_to_a_thousand_hosts() -> None:
    assert scaled_share(FLEET.groups["gpu-triage-load"], 250) == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("scrapes", "complete"),
    [
        (COMPLETE, True),
        (replace(COMPLETE, fewest=59), True),
        (replace(COMPLETE, fewest=58), False),
        (replace(COMPLETE, failed=1), False),
        (replace(COMPLETE, hosts=0), False),
    ],
)
def test_a_missed_scrape_is_noticed_and_admitted(scrapes: Scrapes, *, complete: bool) -> None:
    assert scrapes.complete == complete
    assert ("count for nothing" in document(replace(FLEET, scrapes=scrapes), [])) != complete


def test_the_page_says_what_was_measured_and_what_is_scaled() -> None:
    page = " ".join(document(FLEET, ["- 2 cores"]).split())
    assert "250 simulated hosts of eight H100" in page
    assert "scaled to 1,000 hosts is what was measured, multiplied by 4." in page
    assert "| gpu-triage-load | 3 | 60 s | 0.70 s | 0.90 s | 1.5% | 6.0% |" in page
