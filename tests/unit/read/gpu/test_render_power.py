from __future__ import annotations

from tests.nvml_bench import shown

from gpu_triage.read.gpu import clock_targets, limits, power, thermal, throttle
from gpu_triage.read.gpu.clock_targets import ClockTargetsReading
from gpu_triage.read.gpu.limits import LimitsReading
from gpu_triage.read.gpu.power import PowerReading
from gpu_triage.read.gpu.thermal import ThermalReading
from gpu_triage.read.gpu.throttle import ThrottleReading
from gpu_triage.read.metrics.contract import GpuLabels

GPU = GpuLabels("0", "GPU-a")


def test_power() -> None:
    reading = PowerReading(power_watts=411.25, limit_watts=700.0, energy_joules=1.5e9)
    assert shown(power.POWER.render(reading, GPU)) == [
        'gpu_power_watts{gpu="0",uuid="GPU-a"} 411.25',
        'gpu_power_limit_watts{gpu="0",uuid="GPU-a"} 700.0',
        'gpu_energy_joules_total{gpu="0",uuid="GPU-a"} 1500000000.0',
    ]
    assert shown(power.POWER.render(PowerReading(None, None, None), GPU)) == []


def test_throttle() -> None:
    reading = ThrottleReading(
        active={"sw_power_cap": True, "hw_thermal": False}, seconds={"sw_power_cap": 3.5, "hw_thermal": 0.0}
    )
    assert shown(throttle.THROTTLE.render(reading, GPU)) == [
        'gpu_throttle_active{gpu="0",uuid="GPU-a",reason="sw_power_cap"} 1.0',
        'gpu_throttle_active{gpu="0",uuid="GPU-a",reason="hw_thermal"} 0.0',
        'gpu_throttle_seconds_total{gpu="0",uuid="GPU-a",reason="sw_power_cap"} 3.5',
        'gpu_throttle_seconds_total{gpu="0",uuid="GPU-a",reason="hw_thermal"} 0.0',
    ]


def test_throttle_counters_show_where_the_reasons_do_not() -> None:
    assert shown(throttle.THROTTLE.render(ThrottleReading(None, {"sync_boost": 1.0}), GPU)) == [
        'gpu_throttle_seconds_total{gpu="0",uuid="GPU-a",reason="sync_boost"} 1.0'
    ]
    assert shown(throttle.THROTTLE.render(ThrottleReading(None, {}), GPU)) == []


def test_thermal() -> None:
    reading = ThermalReading(gpu_celsius=84, memory_celsius=92, margin_celsius=-2, fan_ratios={"0": 0.5, "2": 1.0})
    assert shown(thermal.THERMAL.render(reading, GPU)) == [
        'gpu_temperature_celsius{gpu="0",uuid="GPU-a",sensor="gpu"} 84.0',
        'gpu_temperature_celsius{gpu="0",uuid="GPU-a",sensor="memory"} 92.0',
        'gpu_temperature_margin_celsius{gpu="0",uuid="GPU-a"} -2.0',
        'gpu_fan_speed_ratio{gpu="0",uuid="GPU-a",fan="0"} 0.5',
        'gpu_fan_speed_ratio{gpu="0",uuid="GPU-a",fan="2"} 1.0',
    ]
    assert shown(thermal.THERMAL.render(ThermalReading(None, None, None, {}), GPU)) == []


def test_clock_targets() -> None:
    assert shown(clock_targets.CLOCK_TARGETS.render(ClockTargetsReading({"sm": 1.2e9}), GPU)) == [
        'gpu_clock_target_hertz{gpu="0",uuid="GPU-a",clock="sm"} 1200000000.0',
    ]


def test_limits() -> None:
    reading = LimitsReading(
        clock_max_hertz={"sm": 1.98e9},
        clock_default_hertz={"sm": 1.755e9},
        power_default_watts=700.0,
        power_min_watts=200.0,
        power_max_watts=750.0,
        threshold_celsius={"shutdown": 92, "slowdown": 89},
    )
    assert shown(limits.LIMITS.render(reading, GPU)) == [
        'gpu_clock_max_hertz{gpu="0",uuid="GPU-a",clock="sm"} 1980000000.0',
        'gpu_clock_default_hertz{gpu="0",uuid="GPU-a",clock="sm"} 1755000000.0',
        'gpu_power_default_limit_watts{gpu="0",uuid="GPU-a"} 700.0',
        'gpu_power_min_limit_watts{gpu="0",uuid="GPU-a"} 200.0',
        'gpu_power_max_limit_watts{gpu="0",uuid="GPU-a"} 750.0',
        'gpu_temperature_threshold_celsius{gpu="0",uuid="GPU-a",threshold="shutdown"} 92.0',
        'gpu_temperature_threshold_celsius{gpu="0",uuid="GPU-a",threshold="slowdown"} 89.0',
    ]
    assert shown(limits.LIMITS.render(LimitsReading({}, {}, None, None, None, {}), GPU)) == []
