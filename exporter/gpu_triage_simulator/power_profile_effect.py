"""Workload power profiles, set by an administrator on a Blackwell board; an effect like those in `effects`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gpu_triage.documents import Range

Profile = Annotated[int, Range(0, 254)]


@dataclass(frozen=True, slots=True)
class PowerProfiles:
    requested: tuple[Profile, ...]  # numbers of NVML_POWER_PROFILE_*
    enforced: tuple[Profile, ...]  # the subset that the driver enforces
