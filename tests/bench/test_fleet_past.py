"""What the benchmark of the rules tells Prometheus of a fleet's past."""

from __future__ import annotations

import io

import psutil
from tests.bench.fleet import FleetSeries, host_series
from tests.bench.fleet_past import BLOCK_SECONDS, SCRAPED, Part, Past, past_of, write_past
from tests.promql.expressions import uses
from tests.rules.rulefile import read_rules, rule_files

HOUR = 3600
END = 1000 * HOUR + 1500


def written(past: Past, hosts: range = range(1), since: int = 0) -> list[tuple[str, float, int]]:
    """Series, value and time of each sample."""
    out = io.StringIO()
    count = write_past([past], hosts, Part(since, END, END), out)
    rows = [line.rsplit(" ", 2) for line in out.getvalue().splitlines() if not line.startswith("#")]
    assert len(rows) == count
    return [(series, float(value), int(at)) for series, value, at in rows]


def test_a_past_of_minutes_stands_on_full_minutes_as_rules_are_evaluated() -> None:
    rows = written(Past("busy", [FleetSeries("busy", 'gpu="0"', 7.0, 0.0)], HOUR, 60))
    assert [at for _, _, at in rows] == list(range(END - HOUR, END, 60))


def test_a_part_holds_nothing_of_before() -> None:
    rows = written(Past("busy", [FleetSeries("busy", "", 7.0, 0.0)], 24 * HOUR, 60), since=END - 600)
    assert [at for _, _, at in rows] == list(range(END - 600, END, 60))


def test_a_counter_grows_from_nothing_into_its_value_at_the_end() -> None:
    rows = written(Past("x_total", [FleetSeries("x_total", "", 120.0, 1.0)], 240, 60))
    assert [value for _, value, _ in rows] == [0, 0, 0, 60]


def test_hosts_differ_in_their_target_and_their_uuids() -> None:
    series = [FleetSeries("gpu_up", 'gpu="0",uuid="GPU-@host@-1"', 1.0, 0.0)]
    rows = written(Past("gpu_up", series, 60, 60), range(2))
    assert [name for name, _, _ in rows] == [
        'gpu_up{instance="host-0000",job="gpu-triage",gpu="0",uuid="GPU-0000-1"}',
        'gpu_up{instance="host-0001",job="gpu-triage",gpu="0",uuid="GPU-0001-1"}',
    ]


def test_a_simulated_host_does_not_hide_the_servers_that_are_measured() -> None:
    assert host_series("dual-a10")
    assert psutil.Process().cpu_times().user > 0


def test_blocks_are_those_of_prometheus() -> None:
    assert BLOCK_SECONDS == 2 * HOUR


def test_what_is_told_of_is_read_by_a_window_of_the_rules() -> None:
    host = [FleetSeries(name, 'gpu="0"', 1.0, 0.0) for name in ("gpu_up", *SCRAPED)]
    read = [use for rule in read_rules(rule_files()) for use in uses(rule.expr)]
    looked_back_on = {use.metric for use in read if use.ranged or "subquery" in use.inside}
    assert {past.name for past in past_of(host, 15)} - looked_back_on == set()
