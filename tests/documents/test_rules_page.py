"""What the benchmark of the rules counts, and what its page admits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.bench.rules_page import Fleet, Phase, Scrapes, Seen, document, scaled_share, too_slow

COMPLETE = Scrapes(hosts=250, due=60, fewest=60, failed=0, longest_seconds=0.4)


def seen(*evaluations: tuple[str, float], hot: tuple[tuple[str, float], ...] = ()) -> Seen:
    """A group that was looked at, all looks counting."""
    group = Seen(interval=60.0, rules=3)
    for phase, looks in ((Phase.CALM, evaluations), (Phase.HOT, hot)):
        for at, seconds in looks:
            group.note(at, seconds, phase)
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
    alerts=200,
    scrapes=COMPLETE,
    groups={"gpu-triage-load": seen(("a", 9.0), ("b", 0.5), ("c", 0.9), hot=(("d", 1.2),))},
    rules={"gpu-triage-load: instance_gpu:gpu_busy:ratio5m": seen(("a", 9.0), ("b", 0.2))},
    review=[(0.2, "Hours lost: 14 series")],
)


def test_the_first_evaluation_does_not_count_and_no_other_counts_twice() -> None:
    group = seen(("a", 9.0), ("a", 9.0), ("b", 0.5), ("b", 0.5), ("c", 0.9))
    assert group.first == 9.0
    assert group.times == {Phase.CALM: [0.5, 0.9]}


def test_the_longest_evaluation_is_scaled_to_a_thousand_hosts() -> None:
    group = FLEET.groups["gpu-triage-load"]
    assert scaled_share(group, 250, Phase.CALM) == pytest.approx(0.06)
    assert scaled_share(group, 250, Phase.HOT) == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("calm", "hot", "slow"), [(0.7, 1.4, False), (0.8, 1.4, True), (0.7, 1.6, True), (0.7, 0.8, False)]
)
def test_a_group_may_take_longer_while_much_is_wrong(calm: float, hot: float, *, slow: bool) -> None:
    assert too_slow(seen(("a", 9.0), ("b", calm), hot=(("c", hot),)), 250) is slow


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
    assert "| gpu-triage-load | 3 | 60 s | 0.70 s | 0.90 s | 6.0% | 1.20 s | 1.20 s | 8.0% |" in page
