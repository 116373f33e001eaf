"""Throttling and limits of a GPU: heat, power and clocks."""

from typing import Final

from gpu_triage.judge.findings.check import Action, Area, Measure, Unit, rows_of

_critical, _warning, _info = rows_of(Area.CLOCKS)
_load_critical, _load_warning, _load_info = rows_of(Area.CLOCKS, under_load=True)
_THROTTLED: Final = Measure(Unit.RATIO, "throttled {} of the time")

CLOCKS: Final = (
    # Held longer than the findings that heat explains.
    _load_critical("thermal.hw", Action.INSPECT_HARDWARE, "GpuHwThermalThrottling", wait="10m", hold="20m")(
        title="too hot, slowed down by the hardware",
        meaning="The hardware slows the GPU down to protect it from heat; with several GPUs the others wait for it.",
        decision="Take it out of use; check fans, airflow, dust, inlet air and the cooler's seating.",
        measure=_THROTTLED,
    ),
    _load_warning("thermal.sw", Action.INSPECT_HARDWARE, "GpuSwThermalThrottling", wait="30m")(
        title="too hot, clocks lowered by the driver",
        meaning="The driver lowers the clocks to keep the GPU below its target temperature.",
        decision="Improve the airflow or spread the heat; lower the power limit only as a stopgap.",
        measure=_THROTTLED,
    ),
    _load_warning("thermal.margin", Action.INSPECT_HARDWARE, "GpuTemperatureNearSlowdown", wait="15m")(
        title="close to its slowdown temperature",
        meaning="The GPU or its memory is a few degrees from slowing down.",
        decision="Check cooling before it throttles.",
        measure=Measure(Unit.CELSIUS, "{} left", low=True),
    ),
    _warning("thermal.at_rest", Action.INSPECT_HARDWARE, "GpuTemperatureNearSlowdown", unbroken="30m")(
        title="hot while idle, unlike its siblings",
        meaning="The GPU has been idle and is far hotter than its idle siblings: its heat does not get away, and a "
        "load will throttle it.",
        decision="Check the cooler's seating, its fan, airflow or coolant before the next job.",
        measure=Measure(Unit.CELSIUS, "{}"),
    ),
    _warning("thermal.low_limit", Action.FIX_HOST, page="GpuSwThermalThrottling", wait="15m")(
        title="limited by the firmware to a low temperature",
        meaning="The firmware limits the GPU to a temperature far below the one at which the board slows down.",
        decision="On a laptop, check its thermal profile and thermald; then update or roll back BIOS and driver.",
        measure=Measure(Unit.CELSIUS, "limit {}", low=True),
    ),
    # Held longer than the findings that the brake explains.
    _load_critical("power.brake", Action.INSPECT_HARDWARE, "GpuPowerBrake", topic="power_brake", wait="5m", hold="20m")(
        title="slowed down by the power brake",
        meaning="The power supply or the board pulled the power brake: the clocks are halved or worse.",
        decision="Check power supplies, cables and the rack's budget.",
        measure=Measure(Unit.RATIO, "brake on {} of the time"),
    ),
    _load_warning(
        "power.hw_slowdown", Action.INSPECT_HARDWARE, "GpuHwSlowdownUnattributed", topic="power_brake", wait="15m"
    )(
        title="slowed down by the board for an unknown reason",
        meaning="The hardware slows the clocks down and reports neither heat nor power brake.",
        decision="Check power delivery and cooling; brief spikes on P-state changes are normal.",
        measure=_THROTTLED,
    ),
    _load_warning("power.reading", Action.FIX_HOST, topic="power_cap", page="GpuPowerCapped", wait="15m")(
        title="throttled because of a wrong power reading",
        meaning="The driver reads more power than the board can draw at this clock, and throttles the GPU for it.",
        decision="Power-cycle the host; if it persists, go back to the driver, BIOS and linux-firmware that worked.",
        measure=Measure(Unit.WATTS, "reads {}"),
    ),
    _load_info("power.cap", Action.FIX_HOST, "GpuPowerCapped", topic="power_cap", wait="1h")(
        title="held back by a lowered power limit",
        meaning="Somebody set the power limit below the board's default, and it holds the clocks.",
        decision="Unless that is intended, restore the limit (nvidia-smi -pl).",
        measure=Measure(Unit.RATIO, "at the limit {} of the time"),
    ),
    _info("power.limit", Action.FIX_HOST, topic="power_limit", page="GpuPowerCapped", wait="1h")(
        title="its power limit is below the default",
        meaning="The power limit is below the board's default; it will hold the clocks under load.",
        decision="Unless that is intended, restore the limit (nvidia-smi -pl).",
        measure=Measure(Unit.WATTS, "limit {}", low=True),
    ),
    _warning("clock.policy", Action.FIX_HOST, "GpuClockPolicyDrift", topic="clock_cap", wait="30m")(
        title="its clocks are set or held too low",
        meaning="A setting, or a limit of the board, holds the clocks below normal: every job here is slower than "
        "elsewhere.",
        decision="Unless that is intended, reset them (nvidia-smi -rac, and -rgc for locked ones).",
        measure=Measure(Unit.RATIO, "at {} of normal", low=True),
    ),
    _load_warning("clock.straggler", Action.INSPECT_HARDWARE, "GpuStraggler", topic="straggler", wait="15m")(
        title="slower than the GPUs beside it",
        meaning="The GPU runs slower than its siblings under the same work, and a synchronous job runs at its pace.",
        decision="Look at its heat, power and clocks first; move the job off it.",
        measure=Measure(Unit.HERTZ, "SM clock {}"),
    ),
)
