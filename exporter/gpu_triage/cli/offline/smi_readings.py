"""Readings of a GPU from nvidia-smi's facts: clocks, heat, power, memory and its repair, license, processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from gpu_triage.cli.offline import smi_facts
from gpu_triage.cli.offline.smi_facts import Facts, RawGpu, RawProcess, Unit
from gpu_triage.machine import Workload
from gpu_triage.read.gpu.clocks_and_limits import LimitsReading
from gpu_triage.read.gpu.device_memory import DeviceMemoryReading
from gpu_triage.read.gpu.ecc import BANK_AVAILABILITIES, EccReading, MemoryRepairReading
from gpu_triage.read.gpu.modes import GPU_VGPU_LICENSE_STATE, LICENSED, VgpuLicenseReading
from gpu_triage.read.gpu.power import PowerReading, other_limit
from gpu_triage.read.gpu.thermal import ThermalReading
from gpu_triage.read.gpu.throttle import ThrottleReading
from gpu_triage.read.processes.facts import Owner, ProcessFacts
from gpu_triage.read.processes.locality import Locality
from gpu_triage.read.processes.on_gpu import ProcessesReading, ProcessReading

REASONS_OF_CLOCKS: Final = (
    ("idle", "idle", "gpu_idle"),
    ("applications_clocks", "applications clocks setting", "applications_clocks_setting"),
    ("sw_power_cap", "sw power cap", "sw_power_cap"),
    ("hw_slowdown", "hw slowdown", "hw_slowdown"),
    ("hw_thermal", "hw slowdown/hw thermal slowdown", "hw_thermal_slowdown"),
    ("hw_power_brake", "hw slowdown/hw power brake slowdown", "hw_power_brake_slowdown"),
    ("sync_boost", "sync boost", "sync_boost"),
    ("sw_thermal", "sw thermal slowdown", "sw_thermal_slowdown"),
    ("display_clocks", "display clock setting", "display_clocks_setting"),
)
"""Our label, then its names in text and XML output, without the section prefix."""

_COUNTERS: Final = (
    ("sw_power_cap", ("sw power cap", "sw_power_cap")),
    ("sync_boost", ("sync boost", "sync_boost")),
    ("sw_thermal", ("sw therm", "sw_therm")),
    ("hw_thermal", ("hw therm", "hw_therm")),
    ("hw_power_brake", ("hw power brak", "hw_power_brak")),
)
_COUNTER_SECTIONS: Final = (
    "clocks event reasons counters/",
    "clocks throttle reasons counters/",
    "clocks_event_reasons_counters/",
    "clocks_throttle_reasons_counters/",
)


def read_throttle(facts: Facts) -> ThrottleReading:
    """Active throttle reasons, and how long each has been active if the driver counts that."""
    active: dict[str, bool] = {}
    for reason, label, tag in REASONS_OF_CLOCKS:
        held = facts.flag(
            *(
                f"clocks {kind} reasons/{name}"
                for kind in ("event", "throttle")
                # If pasting lost the indentation, a cause of HW slowdown no longer appears below it.
                for name in dict.fromkeys((label, label.rpartition("/")[2]))
            ),
            f"clocks_event_reasons/clocks_event_reason_{tag}",
            f"clocks_throttle_reasons/clocks_throttle_reason_{tag}",
        )
        if held is not None:
            active[reason] = held
    seconds: dict[str, float] = {}
    for name, path in facts.below(*_COUNTER_SECTIONS):
        counter = next((r for r, stems in _COUNTERS if any(stem in name for stem in stems)), None)
        counted = None if counter is None else facts.within(0.0, 1e10, Unit.SECONDS, path)
        if counter is not None and counted is not None:
            seconds[counter] = counted
    return ThrottleReading(active or None, seconds)


def read_power(facts: Facts) -> PowerReading:
    """Power draw and power limit."""
    drawn = (
        *_of_power("instantaneous power draw", "instant_power_draw"),
        *_of_power("power draw"),
        *_of_power("average power draw"),
    )
    limits = (*_of_power("current power limit"), *_of_power("enforced power limit"), *_of_power("power limit"))
    limit_watts = facts.within(0.01, 1e5, Unit.WATTS, *limits)
    requested_watts = facts.within(0.01, 1e5, Unit.WATTS, *_of_power("requested power limit"))
    return PowerReading(
        facts.within(0.01, 1e5, Unit.WATTS, *drawn),
        limit_watts,
        energy_joules=None,
        requested_limit_watts=other_limit(requested_watts, limit_watts),
        module_watts=facts.within(
            0.01,
            1e5,
            Unit.WATTS,
            "module power readings/instantaneous power draw",
            "module_power_readings/instant_power_draw",
        ),
        module_limit_watts=facts.within(
            0.01,
            1e5,
            Unit.WATTS,
            "module power readings/current power limit",
            "module_power_readings/current_power_limit",
        ),
    )


def _of_power(label: str, tag: str = "") -> Iterator[str]:
    """Paths of one power reading: its section was renamed once, and driver 610 moved the limits to a subsection."""
    tag = tag or label.replace(" ", "_")
    yield f"gpu power readings/{label}"
    yield f"gpu power readings/gpu ceiling power limit/{label}"
    yield f"gpu_power_readings/{tag}"
    yield f"gpu_power_readings/gpu_ceiling_power_limit/{tag}"
    yield f"power readings/{label}"
    yield f"power_readings/{tag}"


def read_thermal(facts: Facts) -> ThermalReading:
    """Temperatures, thermal margin and fan."""
    fan = facts.within(0, 2, Unit.RATIO, "fan speed", "fan_speed")
    return ThermalReading(
        gpu_celsius=facts.within(-100, 200, Unit.CELSIUS, "temperature/gpu current temp", "temperature/gpu_temp"),
        memory_celsius=facts.within(1, 200, Unit.CELSIUS, "temperature/memory current temp", "temperature/memory_temp"),
        margin_celsius=facts.within(
            -200,
            200,
            Unit.CELSIUS,
            "temperature/gpu t.limit temp",
            "temperature/gpu current t.limit temp",  # driver 610 and later
            "temperature/gpu_temp_tlimit",
        ),
        fan_ratios={} if fan is None else {"0": fan},
    )


def read_limits(facts: Facts) -> LimitsReading:
    """Clock and power limits, and temperature thresholds."""
    thresholds = {
        "shutdown": ("temperature/gpu shutdown temp", "temperature/gpu_temp_max_threshold"),
        "slowdown": ("temperature/gpu slowdown temp", "temperature/gpu_temp_slow_threshold"),
        "memory_max": ("temperature/memory max operating temp", "temperature/gpu_temp_max_mem_threshold"),
        "gpu_max": ("temperature/gpu max operating temp", "temperature/gpu_temp_max_gpu_threshold"),
    }
    margins = {
        "shutdown": ("temperature/gpu shutdown t.limit temp", "temperature/gpu_temp_max_tlimit_threshold"),
        "slowdown": ("temperature/gpu slowdown t.limit temp", "temperature/gpu_temp_slow_tlimit_threshold"),
        "memory_max": (
            "temperature/memory max operating t.limit temp",
            "temperature/gpu_temp_max_mem_tlimit_threshold",
        ),
        "gpu_max": ("temperature/gpu max operating t.limit temp", "temperature/gpu_temp_max_gpu_tlimit_threshold"),
    }
    celsius = {name: facts.within(20, 200, Unit.CELSIUS, *paths) for name, paths in thresholds.items()}
    left = {name: facts.within(-100, 100, Unit.CELSIUS, *paths) for name, paths in margins.items()}
    return LimitsReading(
        clock_max_hertz=read_clocks(facts, "max clocks", "max_clocks", least=1.0),
        clock_default_hertz=read_clocks(facts, "default applications clocks", "default_applications_clocks", least=1.0),
        power_default_watts=facts.within(0.01, 1e5, Unit.WATTS, *_of_power("default power limit")),
        power_min_watts=facts.within(0.01, 1e5, Unit.WATTS, *_of_power("min power limit")),
        power_max_watts=facts.within(0.01, 1e5, Unit.WATTS, *_of_power("max power limit")),
        threshold_celsius={name: limit for name, limit in celsius.items() if limit is not None},
        margin_threshold_celsius={name: margin for name, margin in left.items() if margin is not None},
    )


def read_clocks(facts: Facts, *sections: str, least: float = 0.0) -> dict[str, float]:
    """Frequency in hertz by clock, from the first section that has it; values below `least` mean unset."""
    table = {"graphics": "graphics_clock", "sm": "sm_clock", "memory": "mem_clock", "video": "video_clock"}
    if sections[0] != "clocks" and "max" not in sections[0]:
        del table["video"]
    paths = {label: [f"{s}/{name}" for s in sections for name in (label, tag)] for label, tag in table.items()}
    found = {label: facts.within(0.0, 20e9, Unit.HERTZ, *each) for label, each in paths.items()}
    return {label: hertz for label, hertz in found.items() if hertz is not None and hertz >= least}


def read_memory(facts: Facts) -> DeviceMemoryReading:
    """Device memory and BAR1 usage."""

    def read(section: str, what: str) -> float | None:
        return facts.within(0, 2.0**50, Unit.BYTES, f"{section}/{what}", f"{section.replace(' ', '_')}/{what}")

    frame_buffer, aperture = "fb memory usage", "bar1 memory usage"
    return DeviceMemoryReading(
        total_bytes=read(frame_buffer, "total"),
        used_bytes=read(frame_buffer, "used"),
        free_bytes=read(frame_buffer, "free"),
        reserved_bytes=read(frame_buffer, "reserved"),
        bar1_total_bytes=read(aperture, "total"),
        bar1_used_bytes=read(aperture, "used"),
    )


def read_ecc(facts: Facts) -> EccReading:
    """ECC errors since driver load, and over the lifetime of the board."""
    return EccReading(_errors(facts, "volatile"), _errors(facts, "aggregate"))


def _errors(facts: Facts, span: str) -> dict[str, float]:
    """Errors by severity: the sum over all memories, or for drivers before Turing the printed total."""
    totals: dict[str, float] = {}
    for name, path in facts.below(f"ecc errors/{span}/", f"ecc_errors/{span}/"):
        severity = _severity(name.replace("_", " "))
        counted = facts.count(path) if severity else None
        if counted is not None:
            totals[severity] = totals.get(severity, 0.0) + counted
    return totals


def _severity(name: str) -> str:
    """Severity of the errors under this name; "" if they are part of another count, or aren't errors."""
    if name.startswith(("single bit", "double bit")):
        severity = "corrected" if name.startswith("single") else "uncorrected"
        return severity if name.endswith("/total") else ""
    if "uncorrectable" in name:
        return "uncorrected"
    return "corrected" if "correctable" in name else ""


def read_memory_repair(facts: Facts) -> MemoryRepairReading:
    """ECC mode, retired pages, and remapped rows."""
    rows = {
        "correctable": facts.count("remapped rows/correctable error", "remapped_rows/remapped_row_corr"),
        "uncorrectable": facts.count("remapped rows/uncorrectable error", "remapped_rows/remapped_row_unc"),
    }
    pages = {
        "single_bit": facts.count(
            "retired pages/single bit ecc", "retired_pages/multiple_single_bit_retirement/retired_count"
        ),
        "double_bit": facts.count("retired pages/double bit ecc", "retired_pages/double_bit_retirement/retired_count"),
    }
    banks = {
        name: facts.count(
            f"remapped rows/bank remap availability histogram/{name}",
            f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{name}",
        )
        for name in BANK_AVAILABILITIES
    }
    return MemoryRepairReading(
        ecc_mode=facts.flag("ecc mode/current", "ecc_mode/current_ecc"),
        ecc_mode_pending=facts.flag("ecc mode/pending", "ecc_mode/pending_ecc"),
        sram_threshold_exceeded=facts.flag(
            "ecc errors/aggregate/sram threshold exceeded", "ecc_errors/aggregate/sram_threshold_exceeded"
        ),
        retired_pages=_known(pages),
        retired_pages_pending=facts.flag(
            "retired pages/pending page blacklist",
            "retired pages/pending",
            "retired_pages/pending_blacklist",
            "retired_pages/pending_retirement",
        ),
        remapped_rows=_known(rows),
        row_remap_pending=facts.flag("remapped rows/pending", "remapped_rows/remapped_row_pending"),
        row_remap_failure=facts.flag("remapped rows/remapping failure occurred", "remapped_rows/remapped_row_failure"),
        row_remap_banks=_known(banks),
    )


def _known(found: Mapping[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in found.items() if value is not None}


_LICENSES: Final = {
    f"unlicensed{words}": GPU_VGPU_LICENSE_STATE.value_of(state)
    for words, state in (
        ("", "unlicensed"),
        (" (unrestricted)", "unlicensed, not yet restricted"),
        (" (restricted)", "unlicensed, restricted"),
    )
}
_IS_VGPU: Final = {"vgpu": True, "none": False, "pass-through": False, "host vgpu": False, "host vsga": False}


def read_license(facts: Facts) -> VgpuLicenseReading:
    """The vGPU license; a GPU passed through as a whole needs none to run at full speed."""
    is_vgpu = facts.choice(
        _IS_VGPU, "gpu virtualization mode/virtualization mode", "gpu_virtualization_mode/virtualization_mode"
    )
    sections = ("vgpu software licensed product", "grid licensed product")
    status = facts.parsed(
        _license_state,
        *(f"{section}/license status" for section in sections),
        *(f"{section.replace(' ', '_')}/license_status" for section in sections),
    )
    product = facts.text(
        *(f"{section}/product name" for section in sections),
        *(f"{section.replace(' ', '_')}/licensed_product_name" for section in sections),
    )
    if status is None or is_vgpu is False:
        return VgpuLicenseReading({})
    return VgpuLicenseReading({product: status})


def _license_state(value: str) -> int | None:
    plain = smi_facts.normalized(value)
    return LICENSED if plain.startswith("licensed") else _LICENSES.get(plain)


_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"C": "compute", "G": "graphics", "C+G": "compute_graphics", "M": "mps", "M+C": "mps"}
)
_OTHER: Final = "O"
"""A process that holds memory without a compute or graphics context; driver 590 and later."""

_MOST_SHOWN: Final = 32


def read_processes(raw: RawGpu, *, with_names: bool) -> tuple[ProcessesReading, tuple[str, ...]]:
    """The processes, and those that could not be parsed; `with_names`: whether to keep process names.

    If one could not be parsed, the process count is unknown.
    """
    if not raw.lists_processes:
        return ProcessesReading({}, (), 0, locality_known=False), ()
    counts = dict.fromkeys(("compute", "graphics"), 0)
    shown, unread = [], []
    for process in raw.processes:
        kind = _KINDS.get(process.kind.strip().upper())
        if kind is not None and process.pid.isdecimal():
            counts[kind] = counts.get(kind, 0) + 1
            shown.append(_process(process, kind, with_names=with_names))
        elif process.kind.strip().upper() != _OTHER or not process.pid.isdecimal():
            unread.append(f"process {process.pid or '?'}, type : {process.kind or '?'}")
    shown.sort(key=lambda each: -(each.memory_bytes or 0.0))
    more = max(0, len(shown) - _MOST_SHOWN)
    return (
        ProcessesReading({} if unread else counts, tuple(shown[:_MOST_SHOWN]), more, locality_known=False),
        tuple(unread),
    )


def _process(process: RawProcess, kind: str, *, with_names: bool) -> ProcessReading:
    # nvidia-smi prints the full command line of some processes, which may be private: keep only the program's name.
    name = PurePosixPath(smi_facts.text(process.name).split(" ")[0].replace("\\", "/")).name if with_names else ""
    facts = ProcessFacts(name, "", None, Owner("", "", "")) if name else None
    return ProcessReading(
        pid=int(process.pid[:9]),
        is_compute=kind != "graphics",
        memory_bytes=smi_facts.number(process.memory, Unit.BYTES),
        sm_utilization_ratio=None,
        facts=facts,
        locality=Locality.UNKNOWN,
        workload=Workload("", "", ""),
    )
