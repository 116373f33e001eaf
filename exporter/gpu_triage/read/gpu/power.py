"""Power and its limit, energy, and the workload power profiles of Blackwell boards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.lists import FieldId
from gpu_triage.driver.nvml.structs import power_profile_masks
from gpu_triage.read.metrics.contract import GpuCollector, GpuLabels
from gpu_triage.read.metrics.driver_counters import CounterLimit, DriverCounter
from gpu_triage.read.metrics.metric import ANY, Sample, Tier, gpu_counter, gpu_gauge, gpu_info
from gpu_triage.read.metrics.rounds import GpuRound

AVERAGE_FIELD: Final = 185
INSTANT_FIELD: Final = 186
"""NVML_FI_DEV_POWER_AVERAGE and _INSTANT in milliwatts; scope 0 is the GPU's board."""

_MODULE: Final = 1
_MODULE_FIELDS: Final = ((INSTANT_FIELD, _MODULE), (AVERAGE_FIELD, _MODULE))
_MODULE_LIMIT_FIELD: Final = (190, _MODULE)
"""The same, and NVML_FI_DEV_POWER_CURRENT_LIMIT, for the module: the GPU with its Grace CPU."""

_REQUESTED_LIMIT_FIELD: Final = 192
"""NVML_FI_DEV_POWER_REQUESTED_LIMIT."""
_SAME_LIMIT_WATTS: Final = 1.0

_FIELDS: Final = (INSTANT_FIELD, AVERAGE_FIELD, _REQUESTED_LIMIT_FIELD, *_MODULE_FIELDS, _MODULE_LIMIT_FIELD)

_MOST_WATTS: Final = 100_000.0

_ENERGY_LIMIT: Final = CounterLimit(per_second=10_000.0, most=10_000.0 * 10 * 365 * 86_400)
"""Joules: far more power than any board draws, for ten years."""

GPU_POWER_WATTS = gpu_gauge(
    "gpu_power_watts",
    "Power draw of the board: instantaneous if the driver offers it, else a one-second average.",
    source="field 186 (instant), else 185 (average), else nvmlDeviceGetPowerUsage",
)
GPU_POWER_LIMIT_WATTS = gpu_gauge(
    "gpu_power_limit_watts",
    "Power cap in force, including out-of-band limits.",
    source="nvmlDeviceGetEnforcedPowerLimit",
)
GPU_POWER_REQUESTED_LIMIT_WATTS = gpu_gauge(
    "gpu_power_requested_limit_watts",
    "Power cap requested from the driver, if another one is in force, such as one set by the BMC; absent if "
    "gpu_power_limit_watts is the requested one.",
    source="field 192",
)
GPU_MODULE_POWER_WATTS = gpu_gauge(
    "gpu_module_power_watts",
    "Power draw of the GPU's whole module, including Grace CPU and memory; the same on every GPU of the module. GH200, "
    "GB200 and GB300 only.",
    source="field 186 (instant), else 185 (average), of the module",
)
GPU_MODULE_POWER_LIMIT_WATTS = gpu_gauge(
    "gpu_module_power_limit_watts",
    "Power cap in force for the GPU's whole module; it can hold back a GPU below its own cap. Absent when "
    "gpu_module_power_watts is.",
    source="field 190, of the module",
)
GPU_ENERGY_JOULES_TOTAL = gpu_counter(
    "gpu_energy_joules_total",
    "Energy used since the driver was loaded. Volta and later. With a Grace CPU drivers count the whole module: "
    "compare its rate with gpu_module_power_watts and gpu_power_watts.",
    source="nvmlDeviceGetTotalEnergyConsumption",
)


@dataclass(frozen=True, slots=True)
class PowerReading:
    """Power of one board; None where not reported."""

    power_watts: Annotated[float | None, GPU_POWER_WATTS]
    limit_watts: Annotated[float | None, GPU_POWER_LIMIT_WATTS]
    energy_joules: Annotated[float | None, GPU_ENERGY_JOULES_TOTAL]
    requested_limit_watts: Annotated[float | None, GPU_POWER_REQUESTED_LIMIT_WATTS] = None
    module_watts: Annotated[float | None, GPU_MODULE_POWER_WATTS] = None
    module_limit_watts: Annotated[float | None, GPU_MODULE_POWER_LIMIT_WATTS] = None


class PowerReader:
    """Reads power; continues the energy counter over driver reloads."""

    def __init__(self) -> None:
        self._energy = DriverCounter(_ENERGY_LIMIT)

    def read(self, gpu: GpuRound) -> PowerReading:
        """Read power (fields 185-192, nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetTotalEnergyConsumption)."""
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
    """Convert milliwatts to watts; None if missing or implausible."""
    return inquiry.within(None if milliwatts is None else milliwatts / 1000, 0, _MOST_WATTS)


def _drawn(
    values: Mapping[FieldId, float], instant: FieldId = INSTANT_FIELD, average: FieldId = AVERAGE_FIELD
) -> float | None:
    """Power draw in milliwatts; None if neither field has it.

    A powered board always draws something: some drivers return 0 for fields they do not support.
    """
    return values.get(instant) or values.get(average) or None


def other_limit(requested_watts: float | None, limit_watts: float | None) -> float | None:
    """Return the requested limit if it differs from the one in force; None if equal or unknown."""
    if not requested_watts or limit_watts is None or abs(requested_watts - limit_watts) <= _SAME_LIMIT_WATTS:
        return None
    return requested_watts


POWER = GpuCollector("power", "power, power cap and energy", Tier.FAST, lambda _config: PowerReader().read)


PROFILES: Final = (
    "max_p",
    "max_q",
    "compute",
    "memory_bound",
    "network",
    "balanced",
    "llm_inference",
    "llm_training",
    "rbm",
    "dcpcie",
    "hmma_sparse",
    "hmma_dense",
    "sync_balanced",
    "hpc",
    "mig",
)
"""Names of NVML_POWER_PROFILE_* by number, as long as all releases of nvml.h agree."""

_MOST_PROFILES: Final = 255
_BITS: Final = 32

REQUESTED: Final = "requested"
ENFORCED: Final = "enforced"

GPU_POWER_PROFILE_INFO = gpu_info(
    "gpu_power_profile_info",
    "Workload power profiles that are requested for the GPU, and those enforced after the driver resolved conflicts. A "
    "profile may hold clocks or power below the defaults. Unknown ones are profile_N. Absent without any, and before "
    "Blackwell.",
    labels={"profile": ANY, "state": (REQUESTED, ENFORCED)},
    source="nvmlDeviceWorkloadPowerProfileGetCurrentProfiles",
)


@dataclass(frozen=True, slots=True)
class PowerProfilesReading:
    """Numbers of one GPU's profiles; empty if there are none or they are unsupported."""

    requested: tuple[int, ...]
    enforced: tuple[int, ...]


def read_power_profiles(gpu: GpuRound) -> PowerProfilesReading:
    """Read the profiles (nvmlDeviceWorkloadPowerProfileGetCurrentProfiles)."""
    masks = power_profile_masks(gpu.inquiry)
    return PowerProfilesReading((), ()) if masks is None else PowerProfilesReading(*map(_numbers, masks))


def _numbers(mask: Any) -> tuple[int, ...]:
    return tuple(number for number in range(_MOST_PROFILES) if mask[number // _BITS] >> number % _BITS & 1)


def name_of(profile: int) -> str:
    """Label value of a profile."""
    return PROFILES[profile] if profile < len(PROFILES) else f"profile_{profile}"


def render(reading: PowerProfilesReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Render the samples of one GPU's profiles."""
    for state, profiles in ((REQUESTED, reading.requested), (ENFORCED, reading.enforced)):
        yield from (GPU_POWER_PROFILE_INFO.sample(1, *gpu, name_of(profile), state) for profile in profiles)


POWER_PROFILES = GpuCollector(
    name="power_profiles",
    about="workload power profiles (Blackwell and later)",
    tier=Tier.SLOW,
    reader=lambda _config: read_power_profiles,
    render=render,
)
