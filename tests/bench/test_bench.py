"""The parts of the benchmarks that can be wrong without anybody noticing."""

from tests.bench.fleet import CHOSEN, DASHBOARDS, sent


def test_raw_series_that_are_sent_are_those_that_dashboards_read() -> None:
    chosen, dashboards = (set(sent()[name].split("|")) for name in (CHOSEN, DASHBOARDS))
    assert {"gpu_verdict", "gpu_info", "up"} <= chosen < dashboards
