"""Parses clocks, temperatures, power and throttle reasons of a GPU from nvidia-smi output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_triage.cli.offline.smi_facts import Facts
from gpu_triage.cli.offline.smi_values import Unit
from gpu_triage.read.gpu.limits import LimitsReading
from gpu_triage.read.gpu.power import PowerReading, other_limit
from gpu_triage.read.gpu.thermal import ThermalReading
from gpu_triage.read.gpu.throttle import ThrottleReading

REASONS_OF_CLOCKS: Final = (
    ("idle", "idle", "gpu_idle"),
    ("applications_clocks", "applications clocks setting", "applications_clocks_setting"),
    ("sw_power_cap", "sw power cap", "sw_power_cap"),
    ("hw_slowdown", "hw slowdown", "hw_slowdown"),
    ("hw_thermal", "hw slowdown/hw thermal slowdown", "hw_thermal_slowdown"),
    ("hw_power_brake", "hw slowdown/hw power brake slowdown", "hw_power_brake_slowdown"),
    ("sync_boost", "sync boost", "sync_boost"),
    ("sw_thermal", "sw thermal slowdown", "sw_thermal_slowdown"),
    ("display_clocks", "display clock setting", "display_clocks_setting"),
)
"""Our label, then its names in text and XML output, without the section prefix."""

_COUNTERS: Final = (
    ("sw_power_cap", ("sw power cap", "sw_power_cap")),
    ("sync_boost", ("sync boost", "sync_boost")),
    ("sw_thermal", ("sw therm", "sw_therm")),
    ("hw_thermal", ("hw therm", "hw_therm")),
    ("hw_power_brake", ("hw power brak", "hw_power_brak")),
)
_COUNTER_SECTIONS: Final = (
    "clocks event reasons counters/",
    "clocks throttle reasons counters/",
    "clocks_event_reasons_counters/",
    "clocks_throttle_reasons_counters/",
)


def read_throttle(facts: Facts) -> ThrottleReading:
    """Active throttle reasons, and how long each has been active if the driver counts that."""
    active: dict[str, bool] = {}
    for reason, label, tag in REASONS_OF_CLOCKS:
        held = facts.flag(
            *(
                f"clocks {kind} reasons/{name}"
                for kind in ("event", "throttle")
                # If pasting lost the indentation, a cause of HW slowdown no longer appears below it.
                for name in dict.fromkeys((label, label.rpartition("/")[2]))
            ),
            f"clocks_event_reasons/clocks_event_reason_{tag}",
            f"clocks_throttle_reasons/clocks_throttle_reason_{tag}",
        )
        if held is not None:
            active[reason] = held
    seconds: dict[str, float] = {}
    for name, path in facts.below(*_COUNTER_SECTIONS):
        counter = next((r for r, stems in _COUNTERS if any(stem in name for stem in stems)), None)
        counted = None if counter is None else facts.within(0.0, 1e10, Unit.SECONDS, path)
        if counter is not None and counted is not None:
            seconds[counter] = counted
    return ThrottleReading(active or None, seconds)


def read_power(facts: Facts) -> PowerReading:
    """Power draw and power limit."""
    drawn = (
        *_of_power("instantaneous power draw", "instant_power_draw"),
        *_of_power("power draw"),
        *_of_power("average power draw"),
    )
    limits = (*_of_power("current power limit"), *_of_power("enforced power limit"), *_of_power("power limit"))
    limit_watts = facts.within(0.01, 1e5, Unit.WATTS, *limits)
    requested_watts = facts.within(0.01, 1e5, Unit.WATTS, *_of_power("requested power limit"))
    return PowerReading(
        facts.within(0.01, 1e5, Unit.WATTS, *drawn),
        limit_watts,
        energy_joules=None,
        requested_limit_watts=other_limit(requested_watts, limit_watts),
        module_watts=facts.within(
            0.01,
            1e5,
            Unit.WATTS,
            "module power readings/instantaneous power draw",
            "module_power_readings/instant_power_draw",
        ),
        module_limit_watts=facts.within(
            0.01,
            1e5,
            Unit.WATTS,
            "module power readings/current power limit",
            "module_power_readings/current_power_limit",
        ),
    )


def _of_power(label: str, tag: str = "") -> Iterator[str]:
    """Paths of one power reading: its section was renamed once, and driver 610 moved the limits to a subsection."""
    tag = tag or label.replace(" ", "_")
    yield f"gpu power readings/{label}"
    yield f"gpu power readings/gpu ceiling power limit/{label}"
    yield f"gpu_power_readings/{tag}"
    yield f"gpu_power_readings/gpu_ceiling_power_limit/{tag}"
    yield f"power readings/{label}"
    yield f"power_readings/{tag}"


def read_thermal(facts: Facts) -> ThermalReading:
    """Temperatures, thermal margin and fan."""
    fan = facts.within(0, 2, Unit.RATIO, "fan speed", "fan_speed")
    return ThermalReading(
        gpu_celsius=facts.within(-100, 200, Unit.CELSIUS, "temperature/gpu current temp", "temperature/gpu_temp"),
        memory_celsius=facts.within(1, 200, Unit.CELSIUS, "temperature/memory current temp", "temperature/memory_temp"),
        margin_celsius=facts.within(
            -200,
            200,
            Unit.CELSIUS,
            "temperature/gpu t.limit temp",
            "temperature/gpu current t.limit temp",  # driver 610 and later
            "temperature/gpu_temp_tlimit",
        ),
        fan_ratios={} if fan is None else {"0": fan},
    )


def read_limits(facts: Facts) -> LimitsReading:
    """Clock and power limits, and temperature thresholds."""
    thresholds = {
        "shutdown": ("temperature/gpu shutdown temp", "temperature/gpu_temp_max_threshold"),
        "slowdown": ("temperature/gpu slowdown temp", "temperature/gpu_temp_slow_threshold"),
        "memory_max": ("temperature/memory max operating temp", "temperature/gpu_temp_max_mem_threshold"),
        "gpu_max": ("temperature/gpu max operating temp", "temperature/gpu_temp_max_gpu_threshold"),
    }
    margins = {
        "shutdown": ("temperature/gpu shutdown t.limit temp", "temperature/gpu_temp_max_tlimit_threshold"),
        "slowdown": ("temperature/gpu slowdown t.limit temp", "temperature/gpu_temp_slow_tlimit_threshold"),
        "memory_max": (
            "temperature/memory max operating t.limit temp",
            "temperature/gpu_temp_max_mem_tlimit_threshold",
        ),
        "gpu_max": ("temperature/gpu max operating t.limit temp", "temperature/gpu_temp_max_gpu_tlimit_threshold"),
    }
    celsius = {name: facts.within(20, 200, Unit.CELSIUS, *paths) for name, paths in thresholds.items()}
    left = {name: facts.within(-100, 100, Unit.CELSIUS, *paths) for name, paths in margins.items()}
    return LimitsReading(
        clock_max_hertz=read_clocks(facts, "max clocks", "max_clocks", least=1.0),
        clock_default_hertz=read_clocks(facts, "default applications clocks", "default_applications_clocks", least=1.0),
        power_default_watts=facts.within(0.01, 1e5, Unit.WATTS, *_of_power("default power limit")),
        power_min_watts=facts.within(0.01, 1e5, Unit.WATTS, *_of_power("min power limit")),
        power_max_watts=facts.within(0.01, 1e5, Unit.WATTS, *_of_power("max power limit")),
        threshold_celsius={name: limit for name, limit in celsius.items() if limit is not None},
        margin_threshold_celsius={name: margin for name, margin in left.items() if margin is not None},
    )


def read_clocks(facts: Facts, *sections: str, least: float = 0.0) -> dict[str, float]:
    """Frequency in hertz by clock, from the first section that has it; values below `least` mean unset."""
    table = {"graphics": "graphics_clock", "sm": "sm_clock", "memory": "mem_clock", "video": "video_clock"}
    if sections[0] != "clocks" and "max" not in sections[0]:
        del table["video"]
    paths = {label: [f"{s}/{name}" for s in sections for name in (label, tag)] for label, tag in table.items()}
    found = {label: facts.within(0.0, 20e9, Unit.HERTZ, *each) for label, each in paths.items()}
    return {label: hertz for label, hertz in found.items() if hertz is not None and hertz >= least}
