"""Power drawn, the cap on it, and the energy it adds up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.integrals import Continued
from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.plausible import BoundedCounter, CounterLimit
from gpu_triage.hardware.rounds import GpuRound

AVERAGE_FIELD: Final = 185
INSTANT_FIELD: Final = 186
"""NVML_FI_DEV_POWER_AVERAGE and _INSTANT, milliwatts, scope 0: the GPU's board."""

_MOST_WATTS: Final = 100_000.0

_ENERGY_LIMIT: Final = CounterLimit(per_second=10_000.0, most=10_000.0 * 10 * 365 * 86_400)
"""Joules: far more than any board draws, and that for ten years."""


@dataclass(frozen=True, slots=True)
class PowerReading:
    """Power of one board; None where not reported.

    Attributes:
        power_watts: drawn now, else over the last second.
        limit_watts: the cap that applies now.
        energy_joules: used since the driver was loaded.
    """

    power_watts: float | None
    limit_watts: float | None
    energy_joules: float | None


class PowerReader:
    """Reads power; carries the energy counter on over driver reloads."""

    def __init__(self) -> None:
        self._energy = BoundedCounter(_ENERGY_LIMIT, Continued())

    def read(self, gpu: GpuRound) -> PowerReading:
        """Power now (fields 185, 186, nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetTotalEnergyConsumption)."""
        inquiry = gpu.inquiry
        energy_mj = inquiry.ask("nvmlDeviceGetTotalEnergyConsumption")
        return PowerReading(
            power_watts=_power_watts(inquiry),
            # Boards whose power is not managed by the driver, as in laptops and under WSL, answer with no watts at all.
            limit_watts=watts(inquiry, inquiry.ask("nvmlDeviceGetEnforcedPowerLimit")) or None,
            energy_joules=self._energy.add(inquiry, None if energy_mj is None else energy_mj / 1000, gpu.at.monotonic),
        )


def watts(inquiry: Inquiry, milliwatts: float | None) -> float | None:
    """Watts of an answer in milliwatts; None when there is none or it cannot be."""
    return inquiry.within(None if milliwatts is None else milliwatts / 1000, 0, _MOST_WATTS)


def _power_watts(inquiry: Inquiry) -> float | None:
    values = inquiry.fields((INSTANT_FIELD, AVERAGE_FIELD))
    # A powered board draws something: 0 in a field is how some drivers say they do not have it.
    milliwatts = values.get(INSTANT_FIELD) or values.get(AVERAGE_FIELD)
    return watts(inquiry, milliwatts or inquiry.ask("nvmlDeviceGetPowerUsage"))
