"""What a kind of GPU is: its data sheet, as files under ``models/`` tell it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from gpu_triage.documents import Between, Parsed, Place, read_value
from gpu_triage.pcie import Generation, Width
from gpu_triage.simulator.schema import Amount, Count, Ratio, read_toml

MODELS = Path(__file__).parent / "models"

Feature = Literal[
    "application_clocks",
    "ecc",
    "energy",
    "event_reason_counters",
    "fabric",
    "gpm",
    "memory_temperature",
    "mig",
    "p2p",
    "pcie_byte_counters",
    "remapped_rows",
    "retired_pages",
    "serial",
    "tlimit",
]
"""What a model may have beyond the basics; NVML answers NOT_SUPPORTED where it does not."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks in MHz: highest, at idle, and the defaults of the application clocks."""

    sm_max: Count
    sm_idle: Count
    memory_max: Count
    memory_idle: Count
    video_max: Count
    video_idle: Count
    sm_default: Count


@dataclass(frozen=True, slots=True)
class Power:
    """Power in watts: at idle, and the board's limits."""

    idle: Amount
    default_limit: Amount
    min_limit: Amount
    max_limit: Amount


@dataclass(frozen=True, slots=True)
class Thermal:
    """Temperatures in °C at which the board slows or stops, and how warm a watt makes it.

    Attributes:
        celsius_per_watt: rise over the inlet air in the long run.
        seconds: time constant of that rise.
    """

    shutdown: float
    slowdown: float
    gpu_max: float
    memory_max: float
    celsius_per_watt: Amount
    seconds: Annotated[float, Between(1, 3600)] = 40.0


@dataclass(frozen=True, slots=True)
class Pcie:
    """The card's own link."""

    generation: Generation
    width: Width
    idle_generation: Generation = 1
    byte_counter_bits: Literal[32, 64] = 64


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A kind of GPU.

    Attributes:
        architecture: NVML_DEVICE_ARCH_* number.
        pci_device_id: PCI device id in the upper, 0x10de in the lower half, as NVML packs it.
        pci_class: sysfs's ``class``, 0x030200 for a compute card.
        nvlinks: number of NVLink links, 0 for none.
        idle_noise: share by which the idle power wanders.
    """

    name: str
    architecture: Annotated[int, Between(2, 15)]
    compute_capability: tuple[int, int]
    pci_device_id: Count
    pci_class: Count
    vbios_version: str
    board_part_number: str
    memory_mib: Count
    memory_reserved_mib: Count
    bar1_mib: Count
    clocks: Clocks
    power: Power
    thermal: Thermal
    pcie: Pcie
    features: tuple[Feature, ...]
    fans: Annotated[int, Between(0, 8)] = 0
    nvlinks: Annotated[int, Between(0, 18)] = 0
    nvlink_version: Annotated[int, Between(0, 8)] = 0
    idle_noise: Ratio = 0.02


def known_model(name: str) -> str:
    """The name of a model that there is.

    Raises:
        ValueError: there is none of this name.
    """
    known = sorted(path.stem for path in MODELS.glob("*.toml"))
    if name not in known:
        raise ValueError(f"known models are {', '.join(known)}")
    return name


@cache
def load_model(name: str) -> GpuModel:
    """The model in ``models/<name>.toml``, read once: each GPU of a scenario asks for its own.

    Raises:
        ValueError: there is none of this name.
    """
    path = MODELS / f"{known_model(name)}.toml"
    return read_value(GpuModel, read_toml(path), Place(path.name))


ModelName = Annotated[str, Parsed(known_model)]
Model = Annotated[GpuModel, Parsed(load_model)]
