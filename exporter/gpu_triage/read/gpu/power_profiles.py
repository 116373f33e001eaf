"""Workload power profiles of Blackwell boards, which trade clocks for power depending on the kind of work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from gpu_triage.driver.nvml.structs import power_profile_masks
from gpu_triage.read.metrics.contract import GpuCollector, GpuLabels
from gpu_triage.read.metrics.metric import ANY, Sample, Tier, gpu_info
from gpu_triage.read.metrics.rounds import GpuRound

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
    "Workload power profiles that were requested for the GPU, and those that are enforced after the driver settled "
    "conflicts between them. A profile may hold clocks or power below the board's defaults. One that is not known by "
    "name is profile_N. Absent without any, and on cards before Blackwell.",
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
