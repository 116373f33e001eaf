"""Hosts whose clock differs from the Prometheus server's. Series by hand, a sample a minute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.handwritten import Firing, Series, Told, gpu, host
from tests.rules.promtool import Run, ask
from tests.rules.rulefile import read_rules, rule_files

from gpu_triage.fleet.query import Selection, queries

MINUTES = 100
HOUR = 3600.0
BEHIND, AHEAD = -70 * 60.0, 2 * HOUR
wrong = pytest.mark.parametrize("off", [BEHIND, AHEAD, 20 * 365 * 24 * HOUR], ids=["behind", "ahead", "decades ahead"])


def clock(off: Callable[[int], float], minutes: int = MINUTES, metric: str = "gpu_exporter_time_seconds") -> Series:
    """What time the exporter says it is at each scrape, by how far its clock is off."""
    return host(metric, [minute * 60.0 + off(minute) for minute in range(minutes)])


def since(metric: str, seen: int, off: float, **labels: str) -> Series:
    """A timestamp of a GPU, by the host's clock, scraped from that minute on."""
    values = [float("nan")] * seen + [seen * 60.0 + off] * (MINUTES - seen)
    return gpu(metric, values, **labels)


@pytest.mark.parametrize(
    ("off", "words"), [(BEHIND, "the clock is 1h 10m 0s behind"), (AHEAD, "the clock is 2h 0m 0s ahead")]
)
def test_a_clock_that_is_off_is_told_in_either_direction(firing: Firing, told: Told, off: float, words: str) -> None:
    series = clock(lambda minute: off if minute >= 10 else 0.0, 40)
    assert firing("GpuHostClockWrong", series, minutes=40) == frozenset(range(15, 40))
    (alert,) = told("GpuHostClockWrong", series, 30)
    assert alert.annotations["summary"] == f"a: {words}"
    assert (alert.labels["severity"], alert.labels["action"]) == ("warning", "fix_host")


@pytest.mark.parametrize("off", [50.0, -50.0])
def test_a_difference_of_less_than_a_minute_is_nothing(firing: Firing, off: float) -> None:
    assert firing("GpuHostClockWrong", clock(lambda _minute: off)) == frozenset()


def test_slow_scrapes_and_scrapes_that_are_missed_make_no_clock_wrong(firing: Firing) -> None:
    # Ten seconds into the scrape is the most that its deadline allows.
    slow = clock(lambda minute: 10.0 if minute % 2 else 0.0)
    ((key, values),) = slow.items()
    missed = {key: [value if minute % 5 == 0 else float("nan") for minute, value in enumerate(values)]}
    assert firing("GpuHostClockWrong", slow) == firing("GpuHostClockWrong", missed) == frozenset()


def test_a_late_evaluation_makes_no_clock_wrong(requires_tool: RequiresTool, tmp_path: Path) -> None:
    (rule,) = [rule for rule in read_rules(rule_files()) if rule.name == "GpuHostClockWrong"]
    # Four minutes after the last scrape that was answered.
    question = (rule.expr, 24 * 60.0 + 59)
    run = Run(rule_files(), (), 60, clock(lambda _minute: 0.5, 21), (question,))
    assert ask(requires_tool("promtool"), run, tmp_path).samples[question] == ()


@wrong
def test_the_fleet_command_tells_since_when_by_the_servers_clock(
    requires_tool: RequiresTool, tmp_path: Path, off: float
) -> None:
    finding = {"code": "gpu.lost", "severity": "critical", "action": "drain"}
    since_minute_5 = since("gpu_finding_since_timestamp_seconds", 5, off, **finding)
    for series in (
        {**clock(lambda _minute: off), **since_minute_5},
        since("gpu_finding_since_timestamp_seconds", 5, 0),
    ):
        question = (queries(Selection())["findings"], 20 * 60.0)
        (found,) = ask(requires_tool("promtool"), Run((), (), 60, series, (question,)), tmp_path).samples[question]
        assert found.value == 5 * 60.0
        assert found.labels["uuid"] == "GPU-1"
