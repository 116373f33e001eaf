"""A history goes through promtool into a real Prometheus, which answers for what the simulated host did."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import prometheus, wait_for

from gpu_triage_simulator.scenario_file import SCENARIOS

START = 1_768_435_200
CONFIG = "global: {scrape_interval: 1m}\n"
EVENTS = """
[[event]]
at = "20m"
until = "25m"
effect = { kind = "exporter_down" }

[[event]]
at = "30m"
until = "35m"
effect = { kind = "scrape_gap" }
"""


@pytest.mark.timeout(300)
def test_prometheus_serves_a_history_as_if_it_had_scraped_it(tmp_path: Path, requires_tool: RequiresTool) -> None:
    promtool, server = requires_tool("promtool"), requires_tool("prometheus")
    scenario = tmp_path / "dual.toml"
    scenario.write_text((SCENARIOS / "dual-a10.toml").read_text() + EVENTS)
    output = tmp_path / "history.om"
    command = [sys.executable, "-m", "gpu_triage", "simulate", str(scenario), "--history", "1h", "--step", "30s"]
    subprocess.run([*command, "--start", str(START), "--output", str(output), "--label", "rack=r2"], check=True)
    data = tmp_path / "tsdb"
    subprocess.run([promtool, "tsdb", "create-blocks-from", "openmetrics", "-q", str(output), str(data)], check=True)
    # The default retention would delete a start so long ago; the default lookback would hide that series end.
    flags = ("--storage.tsdb.retention.time=100y", "--query.lookback-delta=35s")
    with prometheus(server, tmp_path, CONFIG, *flags) as ask:

        def at(minute: float, expression: str) -> list[float]:
            return [float(found["value"][1]) for found in ask(expression, START + minute * 60)]

        wait_for(lambda: at(10, "up"))
        assert [at(minute, 'up{job="gpu-triage",instance="dual-a10",rack="r2"}') for minute in (10, 22, 59)] == [
            [1.0],
            [0.0],
            [1.0],
        ]
        assert at(22, "gpu_up") == at(34.5, "last_over_time(up[4m])") == []
        assert at(15, "count(gpu_power_watts > 50)") == [2.0]
        watts, mean = at(15, "rate(gpu_energy_joules_total[10m])"), at(15, "avg_over_time(gpu_power_watts[10m])")
        assert watts == pytest.approx(mean, rel=0.05)
        assert at(15, "increase(gpu_busy_seconds_total[10m]) > 500") != []
        assert at(40, "resets(gpu_busy_seconds_total[30m])") == [1.0, 1.0]
        assert at(40, "resets(gpu_energy_joules_total[30m])") == [0.0, 0.0]
        assert at(59, "count_over_time(up[1h])")[0] == pytest.approx(60 * 2 - 10, abs=2)
