"""NVML functions of workload power profiles."""

from __future__ import annotations

from typing import Any, Final

from gpu_triage_simulator.nvml_calls import OUT, Function, at
from gpu_triage_simulator.nvml_library import POWER_PROFILES, POWER_PROFILES_VERSION
from gpu_triage_simulator.nvml_session import Device
from gpu_triage_simulator.power_profile_effect import PowerProfiles

_BITS: Final = 32


def _current(device: Device, out: int | None) -> None:
    profiles: Any = at(POWER_PROFILES, out, POWER_PROFILES_VERSION)
    now = device.host.timeline.latest(PowerProfiles, device.state.index, device.state.seconds)
    requested, enforced = ((), ()) if now is None else (now.requested, now.enforced)
    for mask, numbers in ((profiles.requestedProfilesMask, requested), (profiles.enforcedProfilesMask, enforced)):
        mask.mask[:] = [sum(1 << n % _BITS for n in numbers if n // _BITS == word) for word in range(len(mask.mask))]


FUNCTIONS: Final = (
    Function("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", (OUT,), _current, since=570, feature="power_profiles"),
)
