"""Converts one GPU of nvidia-smi output to the exporter's readings; facts not printed stay unset.

A fact has one name in text and in XML output where they differ only in the underscores of tags.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from gpu_triage.cli.offline import smi_facts
from gpu_triage.cli.offline.smi_facts import BYTES, CELSIUS, HERTZ, RATIO, SECONDS, WATTS, RawGpu, RawProcess
from gpu_triage.cli.offline.smi_links import ADAPTER, MEMORY_IS_NODE, NUMA_NODE, P2P, PEER, grouped, links_of
from gpu_triage.documents.pcie_values import MOST_GENERATION, WIDTHS
from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.driver.nvml.structs import VGPU_MODE
from gpu_triage.machine import Holder
from gpu_triage.read.gpu import activity, device_memory, ecc, fabric, identity, modes, pcie, power, throttle
from gpu_triage.read.metrics.contract import known
from gpu_triage.read.processes.facts import Owner, ProcessFacts
from gpu_triage.read.processes.on_gpu import ProcessesReading, ProcessReading

_WORDS: Final = smi_facts.WORDS
_FEWEST_SAMPLES: Final = 3
_FAILED_ENOUGH: Final = 6  # a GPU that answers never fails to report this many facts at once
_OF_LIFE: Final = [frozenset({"performance state", f"temperature/{name}"}) for name in ("gpu current temp", "gpu temp")]
"""What the driver can always read of a GPU that answers."""
_RECOVERY: Final = {
    **{name.lower(): action for action, name in modes.GPU_RECOVERY_ACTION.states.items()},
    "none": modes.NO_RECOVERY,
    "reset": modes.GPU_RECOVERY_ACTION.value_of("GPU reset"),
    "reboot": modes.GPU_RECOVERY_ACTION.value_of("node reboot"),
    "drain p2p": modes.GPU_RECOVERY_ACTION.value_of("drain peer-to-peer work"),
}
_FABRIC_STATES: Final = {name: state for state, name in fabric.GPU_FABRIC_STATE.states.items()} | {"not supported": 0}
_FABRIC_HEALTH: Final = {name: state for state, name in fabric.GPU_FABRIC_HEALTH.states.items()}
_FABRIC_STATUSES: Final = {"success": True, "nvml_success": True} | dict.fromkeys(_WORDS["fabric-failures"], False)
"""NVML's result strings for joining the fabric, and whether each means success."""

_COMPUTE_MODES: Final = {
    words: name for name in modes.COMPUTE_MODES.values() for words in (name, name.replace("_", " "))
}
_BUS_ID: Final = ("pci/bus id", "pci/pci bus id")
_ADDRESS: Final = ("pci/domain", "pci/bus", "pci/device")
UUID: Final = ("gpu uuid", "uuid")
_UUID: Final = re.compile(r"GPU-[\w-]{1,80}")
_P_STATES: Final = {f"p{state}": state for state in range(16)}


class SmiGpu:
    """One GPU, in the exporter's readings; `with_names`: whether to keep the names of processes."""

    def __init__(self, raw: RawGpu, *, with_names: bool = True) -> None:
        self.bus_id = address_of(raw)  # in sysfs notation; "" if unknown
        raw.parsed(uuid_of, *UUID)  # the roster has it; here, one in an unknown form is noticed
        failed = tuple(path for path, value in raw.facts.items() if smi_facts.normalized(value) in smi_facts.FAILED)
        self.error = _error(raw, failed)  # why it doesn't answer, as a value of gpu_error_info; None if it does
        # facts that the driver failed to read from a GPU that answers, in nvidia-smi's words
        self.failed = failed if self.error is None else ()
        self.identity = _identity(raw)
        self.limits = _pcie_limits(raw)
        self.readings = tuple(_readings(raw))
        self.processes, unread_processes = _processes(raw, with_names=with_names)
        self.links = links_of(raw)  # NVLinks by number
        self.numa_node = raw.count(NUMA_NODE)  # the NUMA node it is attached to; None if not printed
        self.mig_pending = _mig_pending(raw)  # the MIG mode after the next reset; None if unknown or as now
        # connections as printed by ``nvidia-smi topo``: to other GPUs by their index, and to adapters by their name
        self.peers = {name: raw.facts[path] for name, path in raw.below(PEER)}
        self.adapters = {name: raw.facts[path] for name, path in raw.below(ADAPTER)}
        self.p2p = grouped(raw, P2P)  # status of peer access, by the peer's index and the capability
        self.width = _pcie(raw).width  # lanes of its PCIe link now
        # utilization (0-1) and power (W) of each second, by dmon; empty if its samples are too few to show how it works
        self.watched = tuple(raw.samples) if len(raw.samples) >= _FEWEST_SAMPLES else ()
        # facts that could not be parsed, as ``label : value``
        unread = (f"{path.rpartition('/')[2]} : {value}" for path, value in raw.unread.items())
        self.unread = (*unread, *unread_processes)


def known_names() -> tuple[set[str], tuple[str, ...]]:
    """The names looked up for any GPU, and the sections looked up as a whole."""
    gpu = RawGpu()
    _identity(gpu)
    _pcie_limits(gpu)
    tuple(_readings(gpu))
    return gpu.asked, tuple(gpu.sections)


def address_of(gpu: RawGpu) -> str:
    """A GPU's PCI address in sysfs notation; "" if not printed."""
    bus_id = bus_id_of(gpu.bus_id) or gpu.parsed(bus_id_of, *_BUS_ID)
    parts = [gpu.text(path).lower().removeprefix("0x") for path in _ADDRESS]
    return bus_id or (bus_id_of("{}:{}:{}.0".format(*parts)) if all(parts) else None) or ""


def bus_id_of(text: str) -> str | None:
    """A PCI address in sysfs notation; None if invalid."""
    try:
        return normalize_bus_id(text)
    except ValueError:
        return None


def uuid_of(text: str) -> str | None:
    """A GPU UUID; None if invalid."""
    return text if _UUID.fullmatch(text) else None


def _error(gpu: RawGpu, failed: tuple[str, ...]) -> str | None:
    said = {smi_facts.normalized(value) for value in gpu.facts.values()}
    if said & smi_facts.LOST:
        return "lost"
    if said & smi_facts.RESET_REQUIRED:
        return "reset_required"
    is_silent = len(failed) >= _FAILED_ENOUGH or any(of_life.issubset(failed) for of_life in _OF_LIFE)
    return "unknown" if is_silent else None


def _identity(gpu: RawGpu) -> identity.IdentityReading:
    return identity.IdentityReading(
        name=gpu.text("product name"),
        pci_bus_id=address_of(gpu),
        serial=gpu.text("serial number", "serial"),
        architecture=gpu.text("product architecture").lower().replace(" ", "_"),
        vbios_version=gpu.text("vbios version"),
        board_part_number=gpu.text("board part number"),
        minor_number=gpu.text("minor number"),
    )


_LINK, _XML_LINK = "pci/gpu link info/", "pci/pci gpu link info/"


def _generation(gpu: RawGpu, label: str, tag: str, *alone: str) -> int | None:
    def parse(value: str) -> int | None:
        found = smi_facts.count_of(value.lower().removeprefix("gen"))
        return found if found is not None and 1 <= found <= MOST_GENERATION else None

    name = f"pcie generation/{label}"
    return gpu.parsed(parse, f"{_LINK}{name}", f"{_XML_LINK}pcie gen/{tag} link gen", name, *alone)


def _width(gpu: RawGpu, label: str, *alone: str) -> int | None:
    def parse(value: str) -> int | None:
        return found if (found := smi_facts.count_of(value.removeprefix("x"))) in WIDTHS else None

    name = f"link width/{label}"
    return gpu.parsed(parse, f"{_LINK}{name}", f"{_XML_LINK}link widths/{label} link width", name, *alone)


def _pcie(gpu: RawGpu) -> pcie.PcieReading:
    return pcie.PcieReading(
        generation=_generation(gpu, "current", "current", "link generation"),
        width=_width(gpu, "current", "link width"),
        replays=gpu.count("pci/replays since reset", "pci/replay counter"),
    )


def _pcie_limits(gpu: RawGpu) -> pcie.PcieLimitsReading:
    return pcie.PcieLimitsReading(
        device_generation=_generation(gpu, "device max", "max device"),
        slot_generation=_generation(gpu, "host max", "max host"),
        system_generation=_generation(gpu, "max", "max"),
        system_width=_width(gpu, "max"),
        slot_hidden=_virtualization(gpu) in modes.IN_VIRTUAL_MACHINES,
    )


def _readings(gpu: RawGpu) -> Iterator[object]:
    def share(what: str) -> float | None:
        return gpu.within(0, 1, RATIO, f"utilization/{what}", f"utilization/{what} util")

    yield activity.ActivityReading(
        sm_utilization_ratio=share("gpu"),
        memory_utilization_ratio=share("memory"),
        performance_state=gpu.choice(_P_STATES, "performance state"),
    )
    sessions = gpu.count("encoder stats/active sessions", "encoder stats/session count")
    yield activity.MediaReading(share("encoder"), share("decoder"), sessions)
    yield _throttle(gpu)
    yield _power(gpu)
    yield _thermal(gpu)
    yield _limits(gpu)
    yield power.ClocksReading(_clocks(gpu, "clocks"))
    yield power.ClockTargetsReading(_clocks(gpu, "applications clocks", least=1.0))
    yield _memory(gpu)
    yield ecc.EccReading(_errors(gpu, "volatile"), _errors(gpu, "aggregate"))
    yield _memory_repair(gpu)
    yield modes.ModesReading(
        persistence=gpu.flag("persistence mode"),
        mig=gpu.flag("mig mode/current", "mig mode/current mig"),
        compute=gpu.choice(_COMPUTE_MODES, "compute mode"),
        virtualization=_virtualization(gpu),
        memory_os_managed=gpu.choice({"yes": True, "no": False}, MEMORY_IS_NODE),
    )
    yield modes.RecoveryReading(_recovery(gpu))
    yield _fabric(gpu)
    yield _license(gpu)
    yield _pcie(gpu)


def _mig_pending(gpu: RawGpu) -> bool | None:
    now, then = (gpu.flag(f"mig mode/{when}", f"mig mode/{when} mig") for when in ("current", "pending"))
    return None if now is None or then == now else then


def _recovery(gpu: RawGpu) -> int | None:
    action = gpu.choice(_RECOVERY, "gpu recovery action")
    # Drivers 530 to 565 report this in two flags.
    if action is None and gpu.flag("gpu reset status/reset required"):
        return _RECOVERY["reset"]
    if action is None and gpu.flag("gpu reset status/drain and reset recommended"):
        return modes.DRAIN_AND_RESET
    return action


def _fabric(gpu: RawGpu) -> fabric.FabricReading:
    state = gpu.choice(_FABRIC_STATES, "fabric/state") or None
    health = gpu.choice(_FABRIC_HEALTH, "fabric/health/summary")
    if gpu.choice(_FABRIC_STATUSES, "fabric/status") is False and state == fabric.FABRIC_JOINED:
        health = fabric.FABRIC_UNHEALTHY
    return fabric.FabricReading(state, health if state is not None else None)


REASONS_OF_CLOCKS: Final[Mapping[str, tuple[str, str]]] = _WORDS["clock-reasons"]


def _throttle(gpu: RawGpu) -> throttle.ThrottleReading:
    """Active throttle reasons, and how long each has been active if the driver counts that."""
    active: dict[str, bool | None] = {}
    for reason, (label, tag) in REASONS_OF_CLOCKS.items():
        # If pasting lost the indentation, a cause of HW slowdown no longer appears below it.
        kinds, tag = ("event", "throttle"), tag.replace("_", " ")  # noqa: PLW2901 - as it is in a path
        paths = [f"clocks {kind} reasons/{name}" for kind in kinds for name in (label, label.rpartition("/")[2])]
        # With grep, the heading is missing.
        paths += [label, label.rpartition("/")[2]] if label.startswith(("hw ", "sw ")) else []
        active[reason] = gpu.flag(*paths, *(f"clocks {kind} reasons/clocks {kind} reason {tag}" for kind in kinds))
    if active["sw_power_cap"] is None:
        # What grep leaves, or a query of some reasons, does not show that none is active.
        active = {reason: is_active for reason, is_active in active.items() if is_active}
    seconds: dict[str, float] = {}
    for name, path in gpu.below("clocks event reasons counters/", "clocks throttle reasons counters/"):
        counter = next((reason for stem, reason in _WORDS["clock-reason-counters"].items() if stem in name), None)
        counted = None if counter is None else gpu.within(0.0, 1e10, SECONDS, path)
        if counter is not None and counted is not None:
            seconds[counter] = counted
    return throttle.ThrottleReading(known(active) or None, seconds)


def _watts(gpu: RawGpu, *labels: str) -> float | None:
    """The first of these: their section was renamed once, and driver 610 moved the limits to a subsection."""
    sections = ("gpu power readings", "gpu power readings/gpu ceiling power limit", "power readings")
    return gpu.within(0.01, 1e5, WATTS, *(f"{section}/{label}" for label in labels for section in sections))


def _power(gpu: RawGpu) -> power.PowerReading:
    drawn = ("instantaneous power draw", "instant power draw")
    limit_watts = _watts(gpu, "current power limit", "enforced power limit", "power limit")
    return power.PowerReading(
        _watts(gpu, *drawn, "power draw", "average power draw"),
        limit_watts,
        requested_limit_watts=power.other_limit(_watts(gpu, "requested power limit"), limit_watts),
        module_watts=gpu.within(0.01, 1e5, WATTS, *(f"module power readings/{label}" for label in drawn)),
        module_limit_watts=gpu.within(0.01, 1e5, WATTS, "module power readings/current power limit"),
    )


def _thermal(gpu: RawGpu) -> power.ThermalReading:
    def celsius(low: float, *names: str) -> float | None:
        return gpu.within(low, 200, CELSIUS, *(f"temperature/{name}" for name in names))

    return power.ThermalReading(
        gpu_celsius=celsius(-100, "gpu current temp", "gpu temp"),
        memory_celsius=celsius(1, "memory current temp", "memory temp"),
        # The second is that of driver 610 and later.
        margin_celsius=celsius(-200, "gpu t.limit temp", "gpu current t.limit temp", "gpu temp tlimit"),
        fan_ratios=known({"0": gpu.within(0, 2, RATIO, "fan speed")}),
    )


def _limits(gpu: RawGpu) -> power.LimitsReading:
    celsius, margins = {}, {}
    for name, (label, tag) in _WORDS["temperature-thresholds"].items():
        of_threshold = f"temperature/{label} temp", f"temperature/gpu temp {tag} threshold"
        of_margin = f"temperature/{label} t.limit temp", f"temperature/gpu temp {tag} tlimit threshold"
        celsius[name] = gpu.within(20, 200, CELSIUS, *of_threshold)
        margins[name] = gpu.within(-100, 100, CELSIUS, *of_margin)
    return power.LimitsReading(
        clock_max_hertz=_clocks(gpu, "max clocks", least=1.0),
        clock_default_hertz=_clocks(gpu, "default applications clocks", least=1.0),
        power_default_watts=_watts(gpu, "default power limit"),
        power_min_watts=_watts(gpu, "min power limit"),
        power_max_watts=_watts(gpu, "max power limit"),
        threshold_celsius=known(celsius),
        margin_threshold_celsius=known(margins),
    )


def _clocks(gpu: RawGpu, section: str, least: float = 0.0) -> dict[str, float]:
    """Frequency in hertz by clock; values below `least` mean unset."""
    tags = {"graphics": "graphics", "sm": "sm", "memory": "mem", "video": "video"}
    found = {
        label: gpu.within(0.0, 20e9, HERTZ, f"{section}/{label}", f"{section}/{tag} clock")
        for label, tag in tags.items()
        if label != "video" or "applications" not in section
    }
    return {label: hertz for label, hertz in known(found).items() if hertz >= least}


def _memory(gpu: RawGpu) -> device_memory.DeviceMemoryReading:
    parts = ("fb memory usage", ("total", "used", "free", "reserved")), ("bar1 memory usage", ("total", "used"))
    names = [f"{section}/{name}" for section, names in parts for name in names]
    return device_memory.DeviceMemoryReading(*(gpu.within(0, 2.0**50, BYTES, name) for name in names))


def _errors(gpu: RawGpu, span: str) -> dict[str, float]:
    """Errors by severity: the sum over all memories, or for drivers before Turing the printed total."""
    totals: dict[str, float] = {}
    parts: dict[str, float] = {}
    for name, path in gpu.below(f"ecc errors/{span}/"):
        severity = _severity(name)
        if (counted := gpu.count(path) if severity else None) is not None:
            # With a total, the memories below the same heading are part of it.
            sums = parts if name.startswith(_BITS) and not name.endswith("/total") else totals
            sums[severity] = sums.get(severity, 0.0) + counted
    return {**parts, **totals}


_BITS: Final = ("single bit", "double bit")


def _severity(name: str) -> str:
    """Severity of the errors under this name; "" if they aren't errors."""
    if "uncorrectable" in name or name.startswith("double bit"):
        return "uncorrected"
    return "corrected" if "correctable" in name or name.startswith("single bit") else ""


def _memory_repair(gpu: RawGpu) -> ecc.MemoryRepairReading:
    rows = {
        "correctable": gpu.count("remapped rows/correctable error", "remapped rows/remapped row corr"),
        "uncorrectable": gpu.count("remapped rows/uncorrectable error", "remapped rows/remapped row unc"),
    }
    pages = {
        "single_bit": gpu.count(
            "retired pages/single bit ecc", "retired pages/multiple single bit retirement/retired count"
        ),
        "double_bit": gpu.count("retired pages/double bit ecc", "retired pages/double bit retirement/retired count"),
    }
    banks = {
        name: gpu.count(
            f"remapped rows/bank remap availability histogram/{name}",
            f"remapped rows/row remapper histogram/row remapper histogram {name}",
        )
        for name in ecc.BANK_AVAILABILITIES
    }
    pending_pages = ("pending page blacklist", "pending", "pending blacklist", "pending retirement")
    return ecc.MemoryRepairReading(
        ecc_mode=gpu.flag("ecc mode/current", "ecc mode/current ecc"),
        ecc_mode_pending=gpu.flag("ecc mode/pending", "ecc mode/pending ecc"),
        sram_threshold_exceeded=gpu.flag("ecc errors/aggregate/sram threshold exceeded"),
        retired_pages=known(pages),
        retired_pages_pending=gpu.flag(*(f"retired pages/{name}" for name in pending_pages)),
        remapped_rows=known(rows),
        row_remap_pending=gpu.flag("remapped rows/pending", "remapped rows/remapped row pending"),
        row_remap_failure=gpu.flag("remapped rows/remapping failure occurred", "remapped rows/remapped row failure"),
        row_remap_banks=known(banks),
        repair_pending=known({part: gpu.flag(f"ecc errors/{part} repair pending") for part in ecc.REPAIRED_PARTS}),
        memory_unrepairable=gpu.flag("ecc errors/unrepairable memory"),
    )


_LICENSES: Final = {
    "unlicensed": modes.GPU_VGPU_LICENSE_STATE.value_of("unlicensed"),
    "unlicensed (unrestricted)": modes.GPU_VGPU_LICENSE_STATE.value_of("unlicensed, not yet restricted"),
    "unlicensed (restricted)": modes.GPU_VGPU_LICENSE_STATE.value_of("unlicensed, restricted"),
}
_VIRTUALIZATION: Final = dict(zip(("none", "pass-through", "vgpu", "host vgpu", "host vsga"), range(5), strict=True))
"""NVML's modes, which count up in this order."""


def _virtualization(gpu: RawGpu) -> int | None:
    return gpu.choice(_VIRTUALIZATION, "gpu virtualization mode/virtualization mode")


def _license(gpu: RawGpu) -> modes.VgpuLicenseReading:
    """The vGPU license; a GPU passed through as a whole needs none to run at full speed."""
    sections = ("vgpu software licensed product", "grid licensed product")
    status = gpu.parsed(_license_state, *(f"{section}/license status" for section in sections))
    names = ("product name", "licensed product name")
    product = gpu.text(*(f"{section}/{name}" for name in names for section in sections))
    is_vgpu = _virtualization(gpu) in (None, VGPU_MODE)
    return modes.VgpuLicenseReading({product: status} if status is not None and is_vgpu else {})


def _license_state(value: str) -> int | None:
    plain = smi_facts.normalized(value)
    return modes.LICENSED if plain.startswith("licensed") else _LICENSES.get(plain)


_KINDS: Final = {"C": "compute", "G": "graphics", "C+G": "compute_graphics", "M": "mps", "M+C": "mps"}
_OTHER: Final = "O"  # A process that holds memory without a compute or graphics context; driver 590 and later

_MOST_SHOWN: Final = 32


def _processes(raw: RawGpu, *, with_names: bool) -> tuple[ProcessesReading, tuple[str, ...]]:
    """The processes, and those that could not be parsed; if there are any, the count is unknown."""
    if not raw.lists_processes:
        return ProcessesReading({}, ()), ()
    counts = dict.fromkeys(("compute", "graphics"), 0)
    shown, unread = [], []
    for process in raw.processes:
        letters = process.kind.strip().upper() if process.pid.isdecimal() else ""
        if (kind := _KINDS.get(letters)) is not None:
            counts[kind] = counts.get(kind, 0) + 1
            shown.append(_process(process, kind, with_names=with_names))
        elif letters != _OTHER:
            unread.append(f"process {process.pid or '?'}, type : {process.kind or '?'}")
    shown.sort(key=lambda each: -(each.memory_bytes or 0.0))
    more = None if unread else max(0, len(shown) - _MOST_SHOWN)
    return ProcessesReading({} if unread else counts, tuple(shown[:_MOST_SHOWN]), more), tuple(unread)


def _process(process: RawProcess, kind: str, *, with_names: bool) -> ProcessReading:
    # nvidia-smi prints the full command line of some processes, which may be private: keep only the program's name.
    name = PurePosixPath(smi_facts.text_of(process.name).split(" ")[0].replace("\\", "/")).name if with_names else ""
    facts = ProcessFacts(name, "", None, Owner("", "", "")) if name else None
    return ProcessReading(
        pid=int(process.pid[:9]),
        is_compute=kind != "graphics",
        memory_bytes=smi_facts.number(process.memory, BYTES),
        sm_utilization_ratio=smi_facts.number(process.sm, RATIO),
        facts=facts,
        workload=Holder(),
    )
