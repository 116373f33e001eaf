"""One GPU of nvidia-smi's output as the readings of our own subjects: what was not said, they do not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from gpu_triage.gpu.activity import ActivityReading
from gpu_triage.gpu.clock_targets import ClockTargetsReading
from gpu_triage.gpu.clocks import ClocksReading
from gpu_triage.gpu.fabric import FABRIC_JOINED, FABRIC_UNHEALTHY, GPU_FABRIC_HEALTH, GPU_FABRIC_STATE, FabricReading
from gpu_triage.gpu.identity import IdentityReading
from gpu_triage.gpu.media import MediaReading
from gpu_triage.gpu.modes import ModesReading
from gpu_triage.gpu.pcie import PcieReading
from gpu_triage.gpu.pcie_limits import PcieLimitsReading
from gpu_triage.gpu.recovery import DRAIN_AND_RESET, GPU_RECOVERY_ACTION, NO_RECOVERY, RecoveryReading
from gpu_triage.kernel.pci_bus import normalise_bus_id
from gpu_triage.machine import Workload
from gpu_triage.offline import smi_values as values
from gpu_triage.offline.smi_clocks import read_clocks, read_limits, read_power, read_thermal, read_throttle
from gpu_triage.offline.smi_facts import Facts
from gpu_triage.offline.smi_memory import read_ecc, read_memory, read_memory_repair
from gpu_triage.offline.smi_text import RawGpu, RawProcess
from gpu_triage.pcie import MOST_GENERATION, WIDTHS
from gpu_triage.processes.on_gpu import Locality, ProcessesReading, ProcessReading
from gpu_triage.processes.pids import Owner, ProcessFacts

_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"C": "compute", "G": "graphics", "C+G": "compute_graphics", "M": "mps", "M+C": "mps"}
)
_FAILED_ENOUGH: Final = 6  # facts that a GPU that answers never fails to give, all at once
_RECOVERY: Final[Mapping[str, int]] = MappingProxyType(
    {
        "none": NO_RECOVERY,
        "reset": GPU_RECOVERY_ACTION.value_of("GPU reset"),
        "gpu reset": GPU_RECOVERY_ACTION.value_of("GPU reset"),
        "reboot": GPU_RECOVERY_ACTION.value_of("node reboot"),
        "node reboot": GPU_RECOVERY_ACTION.value_of("node reboot"),
        "drain p2p": GPU_RECOVERY_ACTION.value_of("drain peer-to-peer work"),
        "drain and reset": DRAIN_AND_RESET,
    }
)
_FABRIC_STATES: Final = {"not started": 1, "in progress": 2, "completed": FABRIC_JOINED}
assert set(_FABRIC_STATES.values()) == set(GPU_FABRIC_STATE.states)  # noqa: S101 - of constants, when it is loaded
_FABRIC_HEALTH: Final = {name: state for state, name in GPU_FABRIC_HEALTH.states.items()}


@dataclass(frozen=True, slots=True)
class SmiGpu:
    """One GPU at the time of one output.

    Attributes:
        bus_id: as sysfs writes it; "" where unknown.
        error: why it does not answer, as gpu_error_info names it; None when it does.
        failed: what the driver could not tell of a GPU that answers, in nvidia-smi's words.
        on_virtual_machine: whether it says so itself.
    """

    bus_id: str
    uuid: str
    error: str | None
    failed: tuple[str, ...]
    on_virtual_machine: bool
    identity: IdentityReading
    limits: PcieLimitsReading
    link: PcieReading
    readings: tuple[object, ...]
    processes: ProcessesReading


def read_gpu(raw: RawGpu, *, with_names: bool = True) -> SmiGpu:
    """The readings of one GPU; `with_names`: whether its processes keep their names."""
    facts = Facts(raw.facts)
    bus_id = _bus_id(raw.bus_id or facts.get("pci/bus id", "pci/pci_bus_id") or "")
    failed = tuple(path for path, value in raw.facts.items() if values.words(value) in values.FAILED)
    error = _error(raw, failed)
    return SmiGpu(
        bus_id=bus_id,
        uuid=_uuid(facts.get("gpu uuid", "uuid")),
        error=error,
        failed=failed if error is None else (),
        on_virtual_machine=values.words(
            facts.get("gpu virtualization mode/virtualization mode", "gpu_virtualization_mode/virtualization_mode")
        )
        in ("pass-through", "vgpu"),
        identity=_identity(facts, bus_id),
        limits=_pcie_limits(facts),
        link=_pcie(facts),
        readings=tuple(_readings(facts)),
        processes=_processes(raw, with_names=with_names),
    )


def _bus_id(text: str) -> str:
    try:
        return normalise_bus_id(text)
    except ValueError:
        return ""


def _uuid(value: str | None) -> str:
    return value if value is not None and value.startswith("GPU-") else ""


def _error(raw: RawGpu, failed: tuple[str, ...]) -> str | None:
    said = {values.words(value) for value in raw.facts.values()}
    if said & values.LOST:
        return "lost"
    if said & values.RESET_REQUIRED:
        return "reset_required"
    return "unknown" if len(failed) >= _FAILED_ENOUGH else None


def _identity(facts: Facts, bus_id: str) -> IdentityReading:
    return IdentityReading(
        name=facts.text("product name", "product_name"),
        pci_bus_id=bus_id,
        serial=facts.text("serial number", "serial"),
        architecture=facts.text("product architecture", "product_architecture").lower().replace(" ", "_"),
        compute_capability="",
        vbios_version=facts.text("vbios version", "vbios_version"),
        board_part_number=facts.text("board part number", "board_part_number"),
        minor_number=facts.text("minor number", "minor_number"),
    )


def _generation(facts: Facts, *paths: str) -> int | None:
    found = facts.count(*paths)
    return found if found is not None and 1 <= found <= MOST_GENERATION else None


def _width(facts: Facts, *paths: str) -> int | None:
    found = facts.count(*paths)
    return found if found in WIDTHS else None


_LINK: Final = ("pci/gpu link info/", "pci/pci_gpu_link_info/")


def _pcie(facts: Facts) -> PcieReading:
    text, xml = _LINK
    return PcieReading(
        generation=_generation(facts, text + "pcie generation/current", xml + "pcie_gen/current_link_gen"),
        width=_width(facts, text + "link width/current", xml + "link_widths/current_link_width"),
        generation_transitions=None,
        width_transitions=None,
        transmit_bytes=None,
        receive_bytes=None,
        replays=facts.count("pci/replays since reset", "pci/replay counter", "pci/replay_counter"),
    )


def _pcie_limits(facts: Facts) -> PcieLimitsReading:
    text, xml = _LINK
    return PcieLimitsReading(
        device_generation=_generation(facts, text + "pcie generation/device max", xml + "pcie_gen/max_device_link_gen"),
        device_width=None,
        slot_generation=_generation(facts, text + "pcie generation/host max", xml + "pcie_gen/max_host_link_gen"),
        slot_width=None,
        system_generation=_generation(facts, text + "pcie generation/max", xml + "pcie_gen/max_link_gen"),
        system_width=_width(facts, text + "link width/max", xml + "link_widths/max_link_width"),
    )


def _readings(facts: Facts) -> Iterator[object]:
    yield ActivityReading(
        sm_utilization_ratio=facts.within(0, 1, "utilization/gpu", "utilization/gpu_util"),
        memory_utilization_ratio=facts.within(0, 1, "utilization/memory", "utilization/memory_util"),
        busy_seconds=None,
        performance_state=_performance_state(facts),
    )
    yield MediaReading(
        facts.within(0, 1, "utilization/encoder", "utilization/encoder_util"),
        facts.within(0, 1, "utilization/decoder", "utilization/decoder_util"),
        facts.count("encoder stats/active sessions", "encoder_stats/session_count"),
    )
    yield read_throttle(facts)
    yield read_power(facts)
    yield read_thermal(facts)
    yield read_limits(facts)
    yield ClocksReading(read_clocks(facts, "clocks"))
    yield ClockTargetsReading(read_clocks(facts, "applications clocks", "applications_clocks", least=1.0))
    yield read_memory(facts)
    yield read_ecc(facts)
    yield read_memory_repair(facts)
    yield ModesReading(
        persistence=facts.flag("persistence mode", "persistence_mode"),
        mig=facts.flag("mig mode/current", "mig_mode/current_mig"),
        compute=facts.text("compute mode", "compute_mode").lower().replace("exclusive process", "exclusive_process")
        or None,
    )
    yield RecoveryReading(_recovery(facts))
    yield _fabric(facts)


def _performance_state(facts: Facts) -> int | None:
    state = facts.text("performance state", "performance_state").removeprefix("P")
    return int(state) if state.isdecimal() and int(state) <= 15 else None  # noqa: PLR2004 - the slowest there is


def _recovery(facts: Facts) -> int | None:
    action = values.words(facts.get("gpu recovery action", "gpu_recovery_action"))
    if action in _RECOVERY:
        return _RECOVERY[action]
    # Drivers 530 to 565 say the same in two flags.
    if facts.flag("gpu reset status/reset required", "gpu_reset_status/reset_required"):
        return _RECOVERY["reset"]
    if facts.flag("gpu reset status/drain and reset recommended", "gpu_reset_status/drain_and_reset_recommended"):
        return DRAIN_AND_RESET
    return None


def _fabric(facts: Facts) -> FabricReading:
    state = _FABRIC_STATES.get(values.words(facts.get("fabric/state")))
    health = _FABRIC_HEALTH.get(values.words(facts.get("fabric/health/summary")))
    status = values.words(facts.get("fabric/status"))
    if state == FABRIC_JOINED and status not in ("success", "", "n/a"):
        health = FABRIC_UNHEALTHY
    return FabricReading(state, health if state is not None else None)


def _processes(raw: RawGpu, *, with_names: bool) -> ProcessesReading:
    if not raw.lists_processes:
        return ProcessesReading({}, (), 0, locality_known=False)
    counts = dict.fromkeys(("compute", "graphics"), 0)
    shown = []
    for process in raw.processes:
        kind = _KINDS.get(process.kind.strip().upper())
        if kind is None or not process.pid.isdecimal():
            continue
        counts[kind] = counts.get(kind, 0) + 1
        shown.append(_process(process, kind, with_names=with_names))
    shown.sort(key=lambda each: -(each.memory_bytes or 0.0))
    return ProcessesReading(counts, tuple(shown[:32]), max(0, len(shown) - 32), locality_known=False)


def _process(process: RawProcess, kind: str, *, with_names: bool) -> ProcessReading:
    # nvidia-smi prints the whole command line of some: only the program's name is anybody's business.
    name = PurePosixPath(values.text(process.name).split(" ")[0].replace("\\", "/")).name if with_names else ""
    facts = ProcessFacts(name, "", None, Owner("", "", "")) if name else None
    return ProcessReading(
        pid=int(process.pid[:9]),
        is_compute=kind != "graphics",
        memory_bytes=values.number(process.memory),
        sm_utilization_ratio=None,
        facts=facts,
        locality=Locality.UNKNOWN,
        workload=Workload("", "", ""),
    )
