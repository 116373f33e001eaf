"""A GPU model: its data sheet, read from files under ``models/``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from gpu_triage.documents import Parsed, Pattern, Place, Range, read_value
from gpu_triage.documents.pcie_values import Generation, Width
from gpu_triage_simulator.schema import Amount, Count, Ratio, read_toml

MODELS = Path(__file__).parent / "models"

WITHOUT_APPLICATION_CLOCKS: Final = 590
"""The first driver that no longer reports application clocks (captures; NVML's change log deprecates them in 580)."""

_LEAST_RESERVED_MIB: Final = 32
"""Lower bound for reserved memory: every real card that reports it reserves at least twice as much."""

Feature = Literal[
    "application_clocks",
    "bank_remap",
    "c2c",
    "ecc",
    "energy",
    "event_reason_counters",
    "fabric",
    "gpm",
    "memory_temperature",
    "mig",
    "numa_memory",
    "p2p",
    "pcie_byte_counters",
    "power_average",
    "power_profiles",
    "remapped_rows",
    "retired_pages",
    "serial",
    "tlimit",
]
"""Optional features of a model; without one, NVML returns NOT_SUPPORTED."""

PerformanceState = Annotated[int, Range(0, 15)]
Sentence = Annotated[str, Pattern(r"\S[^\n]*\S", "text on one line")]


@dataclass(frozen=True, slots=True)
class ModelSource:
    # "capture" if recorded from a real card, "documentation" if only from data sheets and manuals
    kind: Literal["capture", "documentation"]
    facts: Sentence  # who published the data, with card and driver
    # data without a source by key, or by table of keys, and why this value; docs/cards.md leaves them out. In every
    # model, heating per watt and idle power noise are assumed, too
    assumed: Mapping[str, Sentence] = field(default_factory=dict)

    @property
    def drivers(self) -> tuple[str, ...]:
        """Versions of the drivers of its captures, such as ``570.148.08``."""
        return tuple(re.findall(r"\b[1-9]\d\d(?:\.\d+){1,2}\b", self.facts))


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks in MHz."""

    sm_max: Count
    sm_idle: Count
    memory_max: Count
    memory_idle: Count
    video_max: Count
    video_idle: Count
    sm_boost: Count | None = None  # SM clock under load; by default the maximum
    memory_load: Count | None = None  # memory clock under load; by default the maximum
    # default application clock, which limits nothing; None for a card without application clocks
    sm_default: Count | None = None

    @property
    def sm_under_load(self) -> int:
        return self.sm_max if self.sm_boost is None else self.sm_boost

    @property
    def memory_under_load(self) -> int:
        return self.memory_max if self.memory_load is None else self.memory_load

    @property
    def sm_target(self) -> int:
        """Application clock of the SMs before a user sets it."""
        return self.sm_max if self.sm_default is None else self.sm_default


@dataclass(frozen=True, slots=True)
class Power:
    """Power in watts: at idle, and the board's limits."""

    idle: Amount
    default_limit: Amount
    min_limit: Amount
    max_limit: Amount
    module_limit: Amount | None = None  # of the module, if the GPU shares it with a Grace CPU
    module_rest: Amount = 0.0  # power drawn by the rest of the module


@dataclass(frozen=True, slots=True)
class Thermal:
    """Temperatures in °C at which the board throttles or shuts down, and its heating per watt."""

    shutdown: float
    slowdown: float
    gpu_max: float
    memory_max: float
    celsius_per_watt: Amount  # steady-state rise above the inlet air
    seconds: Annotated[float, Range(1, 3600)] = 40.0  # time constant of that rise
    gpu_max_reported: bool = True  # whether NVML reports the maximum operating temperature


@dataclass(frozen=True, slots=True)
class Pcie:
    generation: Generation
    width: Width
    idle_generation: Generation = 1
    # width of the driver's byte counters: 32 in every resource manager with public source code
    byte_counter_bits: Literal[32, 64] = 32


@dataclass(frozen=True, slots=True)
class GpuModel:
    name: str
    source: ModelSource  # of these data
    architecture: Annotated[int, Range(2, 15)]  # NVML_DEVICE_ARCH_* number
    compute_capability: tuple[int, int]
    pci_device_id: Count  # PCI device ID in the upper half, 0x10de in the lower half, packed like in NVML
    pci_class: Count  # sysfs's ``class``, 0x030200 for a compute card
    vbios_version: str
    memory_mib: Count  # with the factory ECC setting
    memory_reserved_mib: Count
    bar1_mib: Count
    clocks: Clocks
    power: Power
    thermal: Thermal
    pcie: Pcie
    features: tuple[Feature, ...]
    board_part_number: str | None = None  # None if the driver does not report it, as for most GeForce cards
    memory_without_ecc_mib: Count | None = None  # with ECC off, if that is more
    ecc_on: bool = True  # whether ECC is on from the factory
    row_remap_banks: Count = 0  # banks of memory with remappable rows
    # idle_state, load_state: P-states; most cards idle in P8, those with HBM in P0, and GeForce computes in P2
    idle_state: PerformanceState = 8
    load_state: PerformanceState = 0
    fans: Annotated[int, Range(0, 8)] = 0
    fan_percent: Annotated[int, Range(0, 100)] | None = None  # constant fan speed: 0 on passive cards that report a fan
    nvlinks: Annotated[int, Range(0, 18)] = 0  # number of NVLink links, 0 for none
    nvlink_version: Annotated[int, Range(0, 8)] = 0
    nvlink_bridge: bool = False  # whether the links are unconnected without a bridge
    idle_noise: Ratio = 0.02  # noise of the idle power, as a share of it


def known_models() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in MODELS.glob("*.toml")))


def known_model(name: str) -> str:
    """The name, if there is such a model. Raises ValueError: there is no model of this name."""
    if name not in known_models():
        raise ValueError(f"known models are {', '.join(known_models())}")
    return name


@cache
def load_model(name: str) -> GpuModel:
    """The model in ``models/<name>.toml``, cached because each GPU of a scenario loads its own.

    Raises:
        ValueError: there is no model of this name.
    """
    path = MODELS / f"{known_model(name)}.toml"
    return read_model(read_toml(path), path.name)


def read_model(table: dict[str, Any], name: str) -> GpuModel:
    """The model described by the top-level table of a file; `name` is the file's name.

    Raises:
        DocumentError: a key or a value is invalid, or two of them conflict; names them.
    """
    where = Place(name)
    model = read_value(GpuModel, table, where)
    _check_source(model, where)
    _check_memory(model, where)
    _check_heat_and_power(model, where)
    _check_clocks(model, where)
    if bool(model.row_remap_banks) != ("remapped_rows" in model.features):
        raise where.at("row_remap_banks").error("goes with the feature remapped_rows: give both or neither")
    if bool(model.nvlinks) != bool(model.nvlink_version):
        raise where.at("nvlink_version").error("goes with nvlinks: give both or neither")
    if model.fan_percent is not None and not model.fans:
        raise where.at("fan_percent").error("needs fans")
    return model


def _check_source(model: GpuModel, where: Place) -> None:
    """What a file holds is in its source, or is called assumed."""
    source = model.source
    keys = {each.name for table in (GpuModel, Clocks, Power, Thermal, Pcie) for each in fields(table)}
    if unknown := sorted(source.assumed.keys() - keys):
        raise where.at("source", "assumed").error(f"has no key of a model: {unknown[0]}")
    majors = [int(version.split(".")[0]) for version in source.drivers]
    held = not majors or min(majors) < WITHOUT_APPLICATION_CLOCKS
    if model.clocks.sm_default and not held and not source.assumed.keys() & {"clocks", "sm_default"}:
        raise where.at("clocks", "sm_default").error(
            f"is not in its source: drivers from {WITHOUT_APPLICATION_CLOCKS} on do not report it; cite an older one, "
            "or list it in source.assumed"
        )


def _check_memory(model: GpuModel, where: Place) -> None:
    if not _LEAST_RESERVED_MIB <= model.memory_reserved_mib < model.memory_mib:
        raise where.at("memory_reserved_mib").error(
            f"is {model.memory_reserved_mib}; write what the driver reserves, at least {_LEAST_RESERVED_MIB}"
        )
    without = model.memory_without_ecc_mib
    if without is not None and (without <= model.memory_mib or "ecc" not in model.features or not model.ecc_on):
        raise where.at("memory_without_ecc_mib").error("needs ECC that is on and takes memory")


def _check_heat_and_power(model: GpuModel, where: Place) -> None:
    thermal, power = model.thermal, model.power
    if not thermal.gpu_max < thermal.slowdown < thermal.shutdown:
        raise where.at("thermal").error("needs gpu_max below slowdown below shutdown")
    if not power.min_limit <= power.default_limit <= power.max_limit:
        raise where.at("power").error("needs min_limit, default_limit and max_limit in this order")
    if power.idle >= power.default_limit:
        raise where.at("power", "idle").error("needs to be below default_limit")


def _check_clocks(model: GpuModel, where: Place) -> None:
    clocks = model.clocks
    for name, value, most in (
        ("sm_default", clocks.sm_default, clocks.sm_max),
        ("sm_boost", clocks.sm_boost, clocks.sm_max),
        ("memory_load", clocks.memory_load, clocks.memory_max),
    ):
        if value is not None and value > most:
            raise where.at("clocks", name).error(f"is {value}, which is above the highest, {most}")
    if (clocks.sm_default is not None) != ("application_clocks" in model.features):
        raise where.at("clocks", "sm_default").error("goes with the feature application_clocks: give both or neither")


ModelName = Annotated[str, Parsed(known_model)]
Model = Annotated[GpuModel, Parsed(load_model)]
