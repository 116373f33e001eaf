"""Power drawn, the cap on it, and the energy it adds up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.nvml.inquiry import Inquiry
from gpu_triage.subjects.contract import GpuCollector
from gpu_triage.subjects.integrals import Continued
from gpu_triage.subjects.metric import Tier, gpu_counter, gpu_gauge
from gpu_triage.subjects.plausible import BoundedCounter, CounterLimit
from gpu_triage.subjects.rounds import GpuRound

AVERAGE_FIELD: Final = 185
INSTANT_FIELD: Final = 186
"""NVML_FI_DEV_POWER_AVERAGE and _INSTANT, milliwatts, scope 0: the GPU's board."""

_MOST_WATTS: Final = 100_000.0

_ENERGY_LIMIT: Final = CounterLimit(per_second=10_000.0, most=10_000.0 * 10 * 365 * 86_400)
"""Joules: far more than any board draws, and that for ten years."""

GPU_POWER_WATTS = gpu_gauge(
    "gpu_power_watts",
    "Power drawn by the board: instantaneous where the driver offers it, else its one-second average.",
    source="field 186 (instant), else 185 (average), else nvmlDeviceGetPowerUsage",
)
GPU_POWER_LIMIT_WATTS = gpu_gauge(
    "gpu_power_limit_watts",
    "The power cap that applies now, out-of-band limits included.",
    source="nvmlDeviceGetEnforcedPowerLimit",
)
GPU_ENERGY_JOULES_TOTAL = gpu_counter(
    "gpu_energy_joules_total",
    "Energy used, as the driver counts it since it was loaded. Volta and later.",
    source="nvmlDeviceGetTotalEnergyConsumption",
)


@dataclass(frozen=True, slots=True)
class PowerReading:
    """Power of one board; None where not reported."""

    power_watts: Annotated[float | None, GPU_POWER_WATTS]
    limit_watts: Annotated[float | None, GPU_POWER_LIMIT_WATTS]
    energy_joules: Annotated[float | None, GPU_ENERGY_JOULES_TOTAL]


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


POWER = GpuCollector(
    name="power",
    about="power, power cap and energy",
    tier=Tier.FAST,
    reader=lambda _config: PowerReader().read,
)
