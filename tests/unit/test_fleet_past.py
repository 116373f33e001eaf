"""What the benchmark of the rules tells Prometheus of a fleet's past."""

from __future__ import annotations

import io

from tests.bench.fleet import FleetSeries, Past, write_past

HOUR = 3600


def test_an_hourly_past_stands_on_full_hours_where_a_subquery_looks_for_it() -> None:
    hourly = Past("lost", [FleetSeries("lost", 'gpu="0"', 7.0, 0.0)], 24 * HOUR, HOUR)
    out = io.StringIO()
    count = write_past([hourly], range(1), 1000 * HOUR + 1500, out)
    times = [int(line.rsplit(" ", 1)[1]) for line in out.getvalue().splitlines() if not line.startswith("#")]
    assert times == [hour * HOUR for hour in range(977, 1001)]
    assert count == 24
