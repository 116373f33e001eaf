"""Power and energy, temperatures and fans, clocks; the limits of all three, and workload power profiles."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import Annotated, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.lists import FieldId
from gpu_triage.driver.nvml.structs import power_profile_masks
from gpu_triage.read.gpu.activity import SILENCE_SECONDS, TOTAL_POWER, SampleRing
from gpu_triage.read.metrics.contract import GpuCollector, GpuRound, known
from gpu_triage.read.metrics.driver_counters import CounterLimit, DriverCounter
from gpu_triage.read.metrics.metric import ANY, Tier, gpu_counter, gpu_gauge, gpu_info

AVERAGE_FIELD: Final = 185
INSTANT_FIELD: Final = 186
"""NVML_FI_DEV_POWER_AVERAGE and _INSTANT in milliwatts; scope 0 is the GPU's board."""

_MODULE: Final = 1
_MODULE_FIELDS: Final = ((INSTANT_FIELD, _MODULE), (AVERAGE_FIELD, _MODULE))
_MODULE_LIMIT_FIELD: Final = (190, _MODULE)
"""The same, and NVML_FI_DEV_POWER_CURRENT_LIMIT, for the module: the GPU with its Grace CPU."""

_REQUESTED_LIMIT_FIELD: Final = 192  # NVML_FI_DEV_POWER_REQUESTED_LIMIT
_SAME_LIMIT_WATTS: Final = 1.0

_FIELDS: Final = (INSTANT_FIELD, AVERAGE_FIELD, _REQUESTED_LIMIT_FIELD, *_MODULE_FIELDS, _MODULE_LIMIT_FIELD)

_MOST_WATTS: Final = 100_000.0

_ENERGY_LIMIT: Final = CounterLimit(per_second=10_000.0, most=10_000.0 * 10 * 365 * 86_400)
"""Joules: far more power than any board draws, for ten years."""

GPU_POWER_WATTS = gpu_gauge(
    "Power draw of the board: instantaneous if the driver offers it, before Ampere and on GA100 always; else a "
    "one-second average.",
    source="field 186, else 185, else nvmlDeviceGetPowerUsage",
)
GPU_POWER_LIMIT_WATTS = gpu_gauge(
    "Power cap in force, including out-of-band limits.", source="nvmlDeviceGetEnforcedPowerLimit"
)
GPU_POWER_REQUESTED_LIMIT_WATTS = gpu_gauge(
    "Power cap requested from the driver, if another one is in force, such as one set by the BMC.", source="field 192"
)
GPU_MODULE_POWER_WATTS = gpu_gauge(
    "Power draw of the GPU's whole module, including Grace CPU and memory; the same on every GPU of the module. GH200, "
    "GB200 and GB300 only.",
    source="field 186, else 185, of the module",
)
GPU_MODULE_POWER_LIMIT_WATTS = gpu_gauge(
    "Power cap in force for the GPU's whole module. Absent when gpu_module_power_watts is.",
    source="field 190, of the module",
)
GPU_ENERGY_JOULES_TOTAL = gpu_counter(
    "Energy used since the driver was loaded. Volta and later. With a Grace CPU drivers count the whole module.",
    source="nvmlDeviceGetTotalEnergyConsumption",
)


@dataclass(frozen=True, slots=True)
class PowerReading:
    power_watts: Annotated[float | None, GPU_POWER_WATTS]
    limit_watts: Annotated[float | None, GPU_POWER_LIMIT_WATTS]
    energy_joules: Annotated[float | None, GPU_ENERGY_JOULES_TOTAL] = None
    requested_limit_watts: Annotated[float | None, GPU_POWER_REQUESTED_LIMIT_WATTS] = None
    module_watts: Annotated[float | None, GPU_MODULE_POWER_WATTS] = None
    module_limit_watts: Annotated[float | None, GPU_MODULE_POWER_LIMIT_WATTS] = None


class PowerReader:
    def __init__(self) -> None:
        self._energy = DriverCounter(_ENERGY_LIMIT)

    def read(self, gpu: GpuRound) -> PowerReading:
        inquiry = gpu.inquiry
        energy_mj = inquiry.ask("nvmlDeviceGetTotalEnergyConsumption")
        values = inquiry.fields(_FIELDS)
        # Without power management by the driver, as on laptops and under WSL, the limit reads 0.
        limit_watts = watts(inquiry, inquiry.ask("nvmlDeviceGetEnforcedPowerLimit")) or None
        # None if it equals the GPU's own, as with drivers that ignore the scope.
        module_limit_watts = other_limit(watts(inquiry, values.get(_MODULE_LIMIT_FIELD)), limit_watts)
        return PowerReading(
            power_watts=watts(inquiry, _drawn(values) or inquiry.ask("nvmlDeviceGetPowerUsage")),
            limit_watts=limit_watts,
            requested_limit_watts=other_limit(watts(inquiry, values.get(_REQUESTED_LIMIT_FIELD)), limit_watts),
            module_watts=None if module_limit_watts is None else watts(inquiry, _drawn(values, *_MODULE_FIELDS)),
            module_limit_watts=module_limit_watts,
            energy_joules=self._energy.read(inquiry, None if energy_mj is None else energy_mj / 1000, gpu.at.monotonic),
        )


def watts(inquiry: Inquiry, milliwatts: float | None) -> float | None:
    return inquiry.within(None if milliwatts is None else milliwatts / 1000, 0, _MOST_WATTS)


def _drawn(
    values: Mapping[FieldId, float], instant: FieldId = INSTANT_FIELD, average: FieldId = AVERAGE_FIELD
) -> float | None:
    """Power draw in milliwatts, or None; not 0, which some drivers return for fields that they do not support."""
    return values.get(instant) or values.get(average) or None


def other_limit(requested_watts: float | None, limit_watts: float | None) -> float | None:
    """Return the requested limit if it differs from the one in force; None if equal or unknown."""
    if not requested_watts or limit_watts is None or abs(requested_watts - limit_watts) <= _SAME_LIMIT_WATTS:
        return None
    return requested_watts


POWER = GpuCollector("power, power cap and energy", Tier.FAST, lambda _config: PowerReader().read)


PERIOD_PARTS: Final = 240
_PART_US: Final = 500_000
"""Samples of two minutes, averaged over equal parts: twice as many parts take four times as long to compare."""
_LEAST_STRENGTH: Final = 0.5
_LEAST_PARTS: Final = 5
"""A period of fewer may be that of something faster, which falls between them."""
_SIMILAR: Final = 0.75
"""Power also repeats after two and three periods. The shortest counts, unless its peak is lower than this share of the
highest one: a period of 7.5 parts has a lower peak than two of them."""

GPU_POWER_PERIOD_SECONDS = gpu_gauge(
    "Period of power, 2.5 to 40 s: often a training job's step, or a part or multiple of it. Off by default. Absent "
    "unless clear for two minutes.",
    source="nvmlDeviceGetSamples(TOTAL_POWER), autocorrelation",
)
GPU_POWER_PERIOD_STRENGTH_RATIO = gpu_gauge(
    "Autocorrelation of power one and two periods apart, the lower one, 0.5-1.", source="as gpu_power_period_seconds"
)


@dataclass(frozen=True, slots=True)
class PowerPeriodReading:
    seconds: Annotated[float | None, GPU_POWER_PERIOD_SECONDS] = None
    strength: Annotated[float | None, GPU_POWER_PERIOD_STRENGTH_RATIO] = None


class PowerPeriodReader:
    def __init__(self) -> None:
        self._ring = SampleRing(TOTAL_POWER, int(_MOST_WATTS * 1000))
        self._parts: dict[int, list[int]] = {}  # milliwatts by half second since 1970

    def read(self, gpu: GpuRound) -> PowerPeriodReading:
        """Empty unless each half second of the last two minutes has a sample."""
        if self._ring.clock_was_set(gpu.at):
            self._parts.clear()
        for stamp, milliwatts in self._ring.take(gpu.inquiry, gpu.at) or ():
            self._parts.setdefault(stamp // _PART_US, []).append(milliwatts)
        newest = self._ring.newest_us // _PART_US  # not over yet
        parts = self._parts = {part: values for part, values in self._parts.items() if part >= newest - PERIOD_PARTS}
        if len(parts) <= PERIOD_PARTS or gpu.at.wall - self._ring.newest_us / 1e6 > SILENCE_SECONDS:
            return PowerPeriodReading()
        found = repetition([sum(parts[part]) / len(parts[part]) for part in range(newest - PERIOD_PARTS, newest)])
        return PowerPeriodReading(found[0] * _PART_US / 1e6, found[1]) if found else PowerPeriodReading()


def repetition(values: Sequence[float]) -> tuple[float, float] | None:
    """Period of evenly spaced values, at most a third of their number, and its strength; None if none is clear."""
    mean = sum(values) / len(values)
    off = [value - mean for value in values]
    most = len(values) // 3  # two distances must be alike: any two events have one
    products = [sum(map(mul, off, off[lag:])) / (len(off) - lag) for lag in range(2 * most + 2)]
    alike = [each / products[0] for each in products] if products[0] else []
    falls = next((lag for lag, each in enumerate(alike) if each < 0), 0)
    if falls <= 1:
        # It does not vary, drifts, or changes faster than it is sampled.
        return None
    tops = (lag for lag in range(falls, most + 1) if alike[lag - 1] < alike[lag] >= alike[lag + 1])
    peaks = [lag for lag in tops if alike[lag] >= _LEAST_STRENGTH]
    lag = next((lag for lag in peaks if alike[lag] >= _SIMILAR * max(alike[peak] for peak in peaks)), 0)
    strength = min(1.0, alike[lag], max(alike[2 * lag - 1 : 2 * lag + 2], default=0.0))
    if lag < _LEAST_PARTS or strength < _LEAST_STRENGTH:
        return None
    before, at, after = alike[lag - 1 : lag + 2]
    return lag + (before - after) / (before - 2 * at + after) / 2, strength  # at the top of a parabola through these


POWER_PERIOD = GpuCollector(
    "period at which power repeats", Tier.FAST, lambda _config: PowerPeriodReader().read, default=False
)


PROFILES: Final = (
    *("max_p", "max_q", "compute", "memory_bound", "network", "balanced", "llm_inference", "llm_training"),
    *("rbm", "dcpcie", "hmma_sparse", "hmma_dense", "sync_balanced", "hpc", "mig"),
)
"""Names of NVML_POWER_PROFILE_* by number, as long as all releases of nvml.h agree."""

_MOST_PROFILES: Final = 255
_BITS: Final = 32

REQUESTED: Final = "requested"
ENFORCED: Final = "enforced"

GPU_POWER_PROFILE_INFO = gpu_info(
    "Workload power profiles that are requested for the GPU, and those enforced after the driver resolved conflicts. "
    "Absent without any, and before Blackwell.",
    labels={"profile": ANY, "state": (REQUESTED, ENFORCED)},
    source="nvmlDeviceWorkloadPowerProfileGetCurrentProfiles",
)


@dataclass(frozen=True, slots=True)
class PowerProfilesReading:
    """Each profile of one GPU by name, with its state; none if they are unsupported."""

    profiles: Annotated[Mapping[tuple[str, str], bool], GPU_POWER_PROFILE_INFO]


def read_power_profiles(gpu: GpuRound) -> PowerProfilesReading:
    masks = zip((REQUESTED, ENFORCED), power_profile_masks(gpu.inquiry) or (), strict=False)
    return PowerProfilesReading({(name, state): True for state, mask in masks for name in profiles_in(mask)})


def profiles_in(mask: Sequence[int]) -> Iterator[str]:
    """Yield the names of the profiles in a mask of 32-bit words."""
    for number in range(_MOST_PROFILES):
        if mask[number // _BITS] >> number % _BITS & 1:
            yield PROFILES[number] if number < len(PROFILES) else f"profile_{number}"


POWER_PROFILES = GpuCollector(
    about="workload power profiles (Blackwell and later)", tier=Tier.SLOW, reader=lambda _config: read_power_profiles
)


GPU_SENSOR: Final = 0
MEMORY_TEMPERATURE_FIELD: Final = 82

_NOT_AVAILABLE: Final = -1  # NVML_VALUE_NOT_AVAILABLE as a signed number
_COLDEST_CELSIUS: Final = -100
_HOTTEST_CELSIUS: Final = 200
_MOST_FANS: Final = 16
_MOST_FAN_PERCENT: Final = 200
"""A fan may exceed its nominal maximum."""

GPU_TEMPERATURE_CELSIUS = gpu_gauge(
    "Temperature by sensor: {sensor}.",
    labels={"sensor": ("gpu", "memory")},
    source="nvmlDeviceGetTemperatureV, else nvmlDeviceGetTemperature; field 82",
)
GPU_TEMPERATURE_MARGIN_CELSIUS = gpu_gauge(
    "Degrees left to the highest operating temperature, beyond which the GPU slows down (T.Limit). Absent before "
    "driver r570, before Ada and Hopper, and on many GeForce cards.",
    source="nvmlDeviceGetMarginTemperature",
)
GPU_FAN_SPEED_RATIO = gpu_gauge(
    "Intended fan speed as a share of the maximum. Absent on boards without fans, except some (A10, A10G) that "
    "always report 0.",
    labels=("fan",),
    source="nvmlDeviceGetFanSpeed_v2",
)


@dataclass(frozen=True, slots=True)
class ThermalReading:
    """Temperatures and fan speeds of one GPU; None where not reported. Fans that did not answer are missing."""

    gpu_celsius: Annotated[float | None, GPU_TEMPERATURE_CELSIUS, "gpu"]
    memory_celsius: Annotated[float | None, GPU_TEMPERATURE_CELSIUS, "memory"]
    margin_celsius: Annotated[float | None, GPU_TEMPERATURE_MARGIN_CELSIUS]
    fan_ratios: Annotated[Mapping[str, float], GPU_FAN_SPEED_RATIO]


def read_thermal(gpu: GpuRound) -> ThermalReading:
    inquiry = gpu.inquiry
    die = inquiry.first("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", args=(GPU_SENSOR,))
    # Boards without a memory sensor return 0 rather than "not supported".
    memory = inquiry.fields((MEMORY_TEMPERATURE_FIELD,)).get(MEMORY_TEMPERATURE_FIELD) or None
    margin = inquiry.ask("nvmlDeviceGetMarginTemperature")
    if die == _NOT_AVAILABLE:
        die = None
        # If only the margin is -1, it may be valid.
        margin = None if margin == _NOT_AVAILABLE else margin
    return ThermalReading(
        gpu_celsius=inquiry.within(die, _COLDEST_CELSIUS, _HOTTEST_CELSIUS),
        memory_celsius=inquiry.within(memory, _COLDEST_CELSIUS, _HOTTEST_CELSIUS),
        margin_celsius=inquiry.within(margin, -_HOTTEST_CELSIUS, _HOTTEST_CELSIUS),
        fan_ratios=_fan_ratios(inquiry),
    )


def _fan_ratios(inquiry: Inquiry) -> Mapping[str, float]:
    count = inquiry.within(inquiry.ask("nvmlDeviceGetNumFans"), 0, _MOST_FANS)
    # Older drivers do not report the number of fans, and have one value for one or all of them.
    answers = (
        [inquiry.ask("nvmlDeviceGetFanSpeed")]
        if count is None
        else [inquiry.ask("nvmlDeviceGetFanSpeed_v2", fan) for fan in range(count)]
    )
    return known({str(fan): inquiry.ratio(answer, _MOST_FAN_PERCENT) for fan, answer in enumerate(answers)})


THERMAL = GpuCollector("temperatures, margin and fans", Tier.MEDIUM, lambda _config: read_thermal)


CLOCK_TYPES: Final = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}  # label to nvmlClockType_t
APPLICATION_CLOCKS: Final = {label: kind for label, kind in CLOCK_TYPES.items() if label != "video"}
"""Clocks an administrator can set; for others the driver returns "invalid argument"."""

_HERTZ_PER_MHZ: Final = 1e6
_MOST_MHZ: Final = 20_000

GPU_CLOCK_HERTZ = gpu_gauge("Current clock frequency.", labels={"clock": CLOCK_TYPES}, source="nvmlDeviceGetClockInfo")


@dataclass(frozen=True, slots=True)
class ClocksReading:
    hertz: Annotated[Mapping[str, float], GPU_CLOCK_HERTZ]


def read_clocks(gpu: GpuRound) -> ClocksReading:
    return ClocksReading(read_clock_table(gpu.inquiry, "nvmlDeviceGetClockInfo", CLOCK_TYPES))


def read_clock_table(
    inquiry: Inquiry, function: str, clocks: Mapping[str, int], least_mhz: int = 0
) -> Mapping[str, float]:
    """Hertz by clock from an NVML function that takes a clock type and returns MHz; below `least_mhz` means unset."""
    table = known({label: inquiry.within(inquiry.ask(function, kind), 0, _MOST_MHZ) for label, kind in clocks.items()})
    return {label: mhz * _HERTZ_PER_MHZ for label, mhz in table.items() if mhz >= least_mhz}


CLOCKS = GpuCollector("clock frequencies", Tier.FAST, lambda _config: read_clocks)


GPU_CLOCK_TARGET_HERTZ = gpu_gauge(
    "Application clock set by an administrator; below its default it caps every job. Absent on GeForce, and from "
    "driver 590 on, which has no application clocks.",
    labels={"clock": APPLICATION_CLOCKS},
    source="nvmlDeviceGetApplicationsClock",
)


@dataclass(frozen=True, slots=True)
class ClockTargetsReading:
    hertz: Annotated[Mapping[str, float], GPU_CLOCK_TARGET_HERTZ]


def read_clock_targets(gpu: GpuRound) -> ClockTargetsReading:
    table = read_clock_table(gpu.inquiry, "nvmlDeviceGetApplicationsClock", APPLICATION_CLOCKS, least_mhz=1)
    return ClockTargetsReading(table)


# Faster than the limits, which only change with a reboot or a new board: a low setting slows jobs immediately.
CLOCK_TARGETS = GpuCollector("application clocks as set", Tier.MEDIUM, lambda _config: read_clock_targets)


THRESHOLDS: Final = {"shutdown": 0, "slowdown": 1, "memory_max": 2, "gpu_max": 3}
"""Label to nvmlTemperatureThresholds_t."""

MARGIN_FIELDS: Final = {"shutdown": 193, "slowdown": 194, "memory_max": 195, "gpu_max": 196}
"""Label to NVML_FI_DEV_TEMPERATURE_*_TLIMIT."""

_LEAST_THRESHOLD_CELSIUS: Final = 20
"""Lower values mean that the threshold is not set, or are offsets rather than temperatures."""
_MOST_THRESHOLD_CELSIUS: Final = 200
_MOST_MARGIN: Final = 100

GPU_CLOCK_MAX_HERTZ = gpu_gauge(
    "Highest supported clock frequency.", labels={"clock": CLOCK_TYPES}, source="nvmlDeviceGetMaxClockInfo"
)
GPU_CLOCK_DEFAULT_HERTZ = gpu_gauge(
    "Default application clock. Absent on GeForce, and from driver 590 on, which has no application clocks.",
    labels={"clock": APPLICATION_CLOCKS},
    source="nvmlDeviceGetDefaultApplicationsClock",
)
GPU_POWER_DEFAULT_LIMIT_WATTS = gpu_gauge(
    "Default power cap of the board.", source="nvmlDeviceGetPowerManagementDefaultLimit"
)
GPU_POWER_MIN_LIMIT_WATTS = gpu_gauge(
    "Lowest settable power cap.", source="nvmlDeviceGetPowerManagementLimitConstraints"
)
GPU_POWER_MAX_LIMIT_WATTS = gpu_gauge(
    "Highest settable power cap.", source="nvmlDeviceGetPowerManagementLimitConstraints"
)
GPU_TEMPERATURE_THRESHOLD_CELSIUS = gpu_gauge(
    "Temperature at which the GPU slows down or shuts down, or that GPU or memory should not exceed. Newer drivers "
    "report gpu_temperature_margin_threshold_celsius instead for Ada and later.",
    labels={"threshold": THRESHOLDS},
    source="nvmlDeviceGetTemperatureThreshold",
)
GPU_TEMPERATURE_MARGIN_THRESHOLD_CELSIUS = gpu_gauge(
    "Value of gpu_temperature_margin_celsius at which the same happens: 0 or slightly below. Absent if the driver "
    "reports gpu_temperature_threshold_celsius, and on cards without a margin.",
    labels={"threshold": MARGIN_FIELDS},
    source="fields 193-196",
)


@dataclass(frozen=True, slots=True)
class LimitsReading:
    """Limits of one board; clocks and thresholds not reported are missing, power limits are None."""

    clock_max_hertz: Annotated[Mapping[str, float], GPU_CLOCK_MAX_HERTZ]
    clock_default_hertz: Annotated[Mapping[str, float], GPU_CLOCK_DEFAULT_HERTZ]
    power_default_watts: Annotated[float | None, GPU_POWER_DEFAULT_LIMIT_WATTS]
    power_min_watts: Annotated[float | None, GPU_POWER_MIN_LIMIT_WATTS]
    power_max_watts: Annotated[float | None, GPU_POWER_MAX_LIMIT_WATTS]
    threshold_celsius: Annotated[Mapping[str, float], GPU_TEMPERATURE_THRESHOLD_CELSIUS]
    margin_threshold_celsius: Annotated[Mapping[str, float], GPU_TEMPERATURE_MARGIN_THRESHOLD_CELSIUS] = field(
        default_factory=dict
    )


def read_limits(gpu: GpuRound) -> LimitsReading:
    """Limits (nvmlDeviceGetMaxClockInfo, …DefaultApplicationsClock, …PowerManagement*Limit*, …TemperatureThreshold)."""
    inquiry = gpu.inquiry
    constraints = inquiry.ask("nvmlDeviceGetPowerManagementLimitConstraints")  # [least, most] in mW
    thresholds = _thresholds(inquiry)
    return LimitsReading(
        clock_max_hertz=read_clock_table(inquiry, "nvmlDeviceGetMaxClockInfo", CLOCK_TYPES, least_mhz=1),
        clock_default_hertz=read_clock_table(
            inquiry, "nvmlDeviceGetDefaultApplicationsClock", APPLICATION_CLOCKS, least_mhz=1
        ),
        power_default_watts=watts(inquiry, inquiry.ask("nvmlDeviceGetPowerManagementDefaultLimit")) or None,
        power_min_watts=watts(inquiry, constraints[0]) if constraints else None,
        power_max_watts=watts(inquiry, constraints[1]) or None if constraints else None,
        threshold_celsius=thresholds,
        margin_threshold_celsius={} if thresholds else _margin_thresholds(inquiry),
    )


def _thresholds(inquiry: Inquiry) -> Mapping[str, float]:
    celsius = {label: inquiry.ask("nvmlDeviceGetTemperatureThreshold", kind) for label, kind in THRESHOLDS.items()}
    most, least = _MOST_THRESHOLD_CELSIUS, _LEAST_THRESHOLD_CELSIUS
    return {label: value for label, value in known(celsius).items() if least <= value <= most}


def _margin_thresholds(inquiry: Inquiry) -> Mapping[str, float]:
    """Margins are not converted to temperatures: they cover several sensors, at varying offsets from the GPU's."""
    answers = inquiry.fields(MARGIN_FIELDS.values(), offsets=True)  # -2 to -12 in captures
    margins = {label: answers.get(number) for label, number in MARGIN_FIELDS.items()}
    return known({label: inquiry.within(each, -_MOST_MARGIN, _MOST_MARGIN) for label, each in margins.items()})


LIMITS = GpuCollector("clock and power limits, temperature thresholds", Tier.SLOW, lambda _config: read_limits)
