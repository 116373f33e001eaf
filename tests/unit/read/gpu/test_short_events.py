"""Events far shorter than any scrape or sampling interval, for long, held against what really happened."""

from pathlib import Path

import pytest
from tests.rig import rig

from gpu_triage.options.config import Config
from gpu_triage.read.registry import ALL_COLLECTORS
from gpu_triage_simulator import Scenario, load_scenario

pytestmark = pytest.mark.slow

HOUR = 3600
ONLY_FAST = Config(collectors={c.name: c.name in ("activity", "throttle") for c in ALL_COLLECTORS})

PULSES_A_MINUTE = {"hw_thermal": 31.7, "sw_power_cap": 23.3, "utilization": 19.3}
"""In no step with the exporter's interval, which would see all of them or none."""
SECONDS = {"hw_thermal": 0.1, "sw_power_cap": 0.1, "utilization": 0.2}


def hour_of(tmp_path: Path, driver: str, *, without: str = "") -> Scenario:
    """One A10, idle but for bursts and pulses at random times; `without` names a function its library lacks."""
    effects = [
        f'{{ kind = "pulses", of = "{of}", milliseconds = {SECONDS[of] * 1000}, per_minute = {a_minute} }}'
        for of, a_minute in PULSES_A_MINUTE.items()
    ]
    if without:
        effects.append(f'{{ kind = "missing_function", function = "{without}" }}')
    path = tmp_path / "hour.toml"
    path.write_text(
        f"""
        name = "hour"
        description = "Short events."
        driver = {{ version = "{driver}", cuda = "12.2" }}
        machine = {{ memory_gib = 64, memory_available_gib = 32, node = [{{ cpus = "0-7" }}] }}
        gpu = [{{ model = "a10", slot = {{ bus_id = "0000:65:00.0", node = 0 }}, load = {{}} }}]
        """
        + "".join(f"[[event]]\nat = 0\neffect = {effect}\n" for effect in effects)
    )
    return load_scenario(path)


def shares_counted(scenario: Scenario, seconds: float) -> dict[str, float]:
    """What the exporter counts in so long, as a share of what happened."""
    with rig(scenario, ONLY_FAST) as running:
        running.run(seconds)
        counted = {of: running.value("gpu_throttle_seconds_total", reason=of) for of in ("hw_thermal", "sw_power_cap")}
        counted["utilization"] = running.value("gpu_busy_seconds_total")
        return {
            of: (counted_seconds or 0.0) / (seconds / 60 * PULSES_A_MINUTE[of] * SECONDS[of])
            for of, counted_seconds in counted.items()
        }


@pytest.mark.parametrize(
    ("driver", "without", "seconds", "exact"),
    [
        # A driver with counters of its own, and an older one.
        ("580.95.05", "", HOUR / 8, dict.fromkeys(SECONDS, 0.02)),
        pytest.param("535.183.01", "", HOUR, {"sw_power_cap": 0.02, "utilization": 0.02}, marks=pytest.mark.full),
        # What can only be polled is an estimate: one look a second meets about one in twenty of these pulses. The error
        # falls with the root of the number of looks: about 7 % after an hour, 55 % after a minute.
        pytest.param(
            "535.183.01",
            "nvmlDeviceGetSamples",
            HOUR,
            {"hw_thermal": 0.25, "utilization": 0.25},
            marks=pytest.mark.full,
        ),
    ],
)
def test_bursts_are_counted(tmp_path: Path, driver: str, without: str, seconds: float, exact: dict[str, float]) -> None:
    shares = shares_counted(hour_of(tmp_path, driver, without=without), seconds)
    for of, error in exact.items():
        assert shares[of] == pytest.approx(1.0, rel=error)
