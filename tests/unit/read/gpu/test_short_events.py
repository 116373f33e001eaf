"""Events far shorter than any scrape or sampling interval, for long, held against what really happened."""

from __future__ import annotations

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


def shares_counted(scenario: Scenario, seconds: float = HOUR) -> dict[str, float]:
    """What the exporter counts in so long, as a share of what happened."""
    with rig(scenario, ONLY_FAST) as running:
        running.run(seconds)
        counted = {of: running.value("gpu_throttle_seconds_total", reason=of) for of in ("hw_thermal", "sw_power_cap")}
        counted["utilization"] = running.value("gpu_busy_seconds_total")
        return {
            of: (counted_seconds or 0.0) / (seconds / 60 * PULSES_A_MINUTE[of] * SECONDS[of])
            for of, counted_seconds in counted.items()
        }


def test_a_driver_with_counters_has_throttle_pulses_and_bursts_counted_within_two_percent(tmp_path: Path) -> None:
    shares = shares_counted(hour_of(tmp_path, "580.95.05"), seconds=HOUR / 8)
    assert shares == pytest.approx(dict.fromkeys(SECONDS, 1.0), rel=0.02)


@pytest.mark.full
def test_an_older_driver_has_power_capping_and_bursts_counted_within_two_percent_too(tmp_path: Path) -> None:
    shares = shares_counted(hour_of(tmp_path, "535.183.01"))
    assert shares["sw_power_cap"] == pytest.approx(1.0, rel=0.02)
    assert shares["utilization"] == pytest.approx(1.0, rel=0.02)


@pytest.mark.full
def test_what_can_only_be_polled_is_an_estimate_within_a_quarter_after_an_hour(tmp_path: Path) -> None:
    # One look a second meets about one in twenty of these pulses. The error falls with the root of the number of
    # looks: some 7 % after an hour, 55 % after a minute. More is not to be had without a counter or samples.
    shares = shares_counted(hour_of(tmp_path, "535.183.01", without="nvmlDeviceGetSamples"))
    assert shares["hw_thermal"] == pytest.approx(1.0, rel=0.25)
    assert shares["utilization"] == pytest.approx(1.0, rel=0.25)
