"""Converts one GPU of nvidia-smi output to the exporter's readings; facts not printed stay unset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from gpu_triage.cli.offline import smi_facts
from gpu_triage.cli.offline.smi_facts import Facts, RawGpu, Unit
from gpu_triage.cli.offline.smi_links import NUMA_NODE, PEER, Links, links_of
from gpu_triage.cli.offline.smi_readings import (
    read_clocks,
    read_ecc,
    read_license,
    read_limits,
    read_memory,
    read_memory_repair,
    read_power,
    read_processes,
    read_thermal,
    read_throttle,
)
from gpu_triage.documents.pcie_values import MOST_GENERATION, WIDTHS
from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.read.gpu.activity import ActivityReading, MediaReading
from gpu_triage.read.gpu.clocks_and_limits import ClocksReading, ClockTargetsReading
from gpu_triage.read.gpu.fabric import (
    FABRIC_JOINED,
    FABRIC_UNHEALTHY,
    GPU_FABRIC_HEALTH,
    GPU_FABRIC_STATE,
    FabricReading,
)
from gpu_triage.read.gpu.identity import IdentityReading
from gpu_triage.read.gpu.modes import COMPUTE_MODES, ModesReading
from gpu_triage.read.gpu.pcie import PcieLimitsReading, PcieReading
from gpu_triage.read.gpu.recovery import DRAIN_AND_RESET, GPU_RECOVERY_ACTION, NO_RECOVERY, RecoveryReading
from gpu_triage.read.processes.on_gpu import ProcessesReading

_FAILED_ENOUGH: Final = 6  # a GPU that answers never fails to report this many facts at once
_RECOVERY: Final[Mapping[str, int]] = MappingProxyType(
    {
        **{name.lower(): action for action, name in GPU_RECOVERY_ACTION.states.items()},
        "none": NO_RECOVERY,
        "reset": GPU_RECOVERY_ACTION.value_of("GPU reset"),
        "reboot": GPU_RECOVERY_ACTION.value_of("node reboot"),
        "drain p2p": GPU_RECOVERY_ACTION.value_of("drain peer-to-peer work"),
    }
)
_FABRIC_STATES: Final = {"not started": 1, "in progress": 2, "completed": FABRIC_JOINED, "not supported": 0}
assert set(_FABRIC_STATES.values()) - {0} == set(GPU_FABRIC_STATE.states)  # noqa: S101 - checks constants at import
_FABRIC_HEALTH: Final = {name: state for state, name in GPU_FABRIC_HEALTH.states.items()}
_FABRIC_STATUSES: Final[Mapping[str, bool]] = MappingProxyType(
    {
        "success": True,
        "nvml_success": True,
        **dict.fromkeys(
            (
                "gpu is lost",
                "in use",
                "insufficient resources",
                "internal error",
                "invalid argument",
                "invalid state",
                "not found",
                "not ready",
                "reset required",
                "timeout",
                "uninitialized",
                "unknown error",
            ),
            False,
        ),
    }
)
"""NVML's result strings for joining the fabric, and whether each means success."""

_COMPUTE_MODES: Final = {name.replace("_", " "): name for name in COMPUTE_MODES.values()}
_UUID: Final = re.compile(r"GPU-[\w-]{1,80}")
_P_STATE: Final = re.compile(r"P(1[0-5]|\d)")


@dataclass(frozen=True, slots=True)
class SmiGpu:
    """One GPU in one output.

    Attributes:
        bus_id: in sysfs notation; "" if unknown.
        error: why it doesn't answer, as a value of gpu_error_info; None if it does.
        failed: facts that the driver failed to read from a GPU that answers, in nvidia-smi's words.
        unread: facts that could not be parsed, as ``label : value``.
        links: NVLinks by number.
        numa_node: the NUMA node it is attached to; None if not printed.
        peers: connection to other GPUs, by their index, as printed by ``nvidia-smi topo``.
    """

    bus_id: str
    uuid: str
    error: str | None
    failed: tuple[str, ...]
    unread: tuple[str, ...]
    identity: IdentityReading
    limits: PcieLimitsReading
    link: PcieReading
    readings: tuple[object, ...]
    processes: ProcessesReading
    links: Links
    numa_node: int | None
    peers: Mapping[str, str]


def read_gpu(raw: RawGpu, *, with_names: bool = True) -> SmiGpu:
    """Convert one GPU; `with_names`: whether to keep process names."""
    facts = Facts(raw.facts)
    bus_id = bus_id_of(raw.bus_id) or facts.parsed(bus_id_of, "pci/bus id", "pci/pci_bus_id") or ""
    failed = tuple(path for path, value in raw.facts.items() if smi_facts.normalized(value) in smi_facts.FAILED)
    error = _error(raw, failed)
    uuid = facts.parsed(uuid_of, "gpu uuid", "uuid") or ""
    identity, limits, link = _identity(facts, bus_id), _pcie_limits(facts), _pcie(facts)
    readings = tuple(_readings(facts))
    processes, unread_processes = read_processes(raw, with_names=with_names)
    unread = (f"{path.rpartition('/')[2]} : {value}" for path, value in facts.unread.items())
    return SmiGpu(
        bus_id=bus_id,
        uuid=uuid,
        error=error,
        failed=failed if error is None else (),
        unread=(*unread, *unread_processes),
        identity=identity,
        limits=limits,
        link=link,
        readings=readings,
        processes=processes,
        links=links_of(raw.facts),
        numa_node=facts.count(NUMA_NODE),
        peers={path.removeprefix(PEER): level for path, level in raw.facts.items() if path.startswith(PEER)},
    )


@cache
def known_names() -> tuple[frozenset[str], frozenset[str]]:
    """The names looked up for any GPU, and the sections looked up as a whole."""
    facts = Facts({})
    _identity(facts, "")
    _pcie_limits(facts)
    _pcie(facts)
    tuple(_readings(facts))
    return frozenset(facts.asked), frozenset(facts.sections)


def bus_id_of(text: str) -> str | None:
    """A PCI address in sysfs notation; None if invalid."""
    try:
        return normalize_bus_id(text)
    except ValueError:
        return None


def uuid_of(text: str) -> str | None:
    """A GPU UUID; None if invalid."""
    return text if _UUID.fullmatch(text) else None


def _error(raw: RawGpu, failed: tuple[str, ...]) -> str | None:
    said = {smi_facts.normalized(value) for value in raw.facts.values()}
    if said & smi_facts.LOST:
        return "lost"
    if said & smi_facts.RESET_REQUIRED:
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


def _generation(value: str) -> int | None:
    found = smi_facts.count(value)
    return found if found is not None and 1 <= found <= MOST_GENERATION else None


def _width(value: str) -> int | None:
    found = smi_facts.count(value)
    return found if found in WIDTHS else None


_LINK: Final = ("pci/gpu link info/", "pci/pci_gpu_link_info/")


def _pcie(facts: Facts) -> PcieReading:
    text, xml = _LINK
    return PcieReading(
        generation=facts.parsed(_generation, text + "pcie generation/current", xml + "pcie_gen/current_link_gen"),
        width=facts.parsed(_width, text + "link width/current", xml + "link_widths/current_link_width"),
        generation_transitions=None,
        width_transitions=None,
        transmit_bytes=None,
        receive_bytes=None,
        replays=facts.count("pci/replays since reset", "pci/replay counter", "pci/replay_counter"),
    )


def _pcie_limits(facts: Facts) -> PcieLimitsReading:
    text, xml = _LINK
    generation = text + "pcie generation/", xml + "pcie_gen/"
    return PcieLimitsReading(
        device_generation=facts.parsed(
            _generation, generation[0] + "device max", generation[1] + "max_device_link_gen"
        ),
        device_width=None,
        slot_generation=facts.parsed(_generation, generation[0] + "host max", generation[1] + "max_host_link_gen"),
        slot_width=None,
        system_generation=facts.parsed(_generation, generation[0] + "max", generation[1] + "max_link_gen"),
        system_width=facts.parsed(_width, text + "link width/max", xml + "link_widths/max_link_width"),
    )


def _readings(facts: Facts) -> Iterator[object]:
    def share(*paths: str) -> float | None:
        return facts.within(0, 1, Unit.RATIO, *paths)

    yield ActivityReading(
        sm_utilization_ratio=share("utilization/gpu", "utilization/gpu_util"),
        memory_utilization_ratio=share("utilization/memory", "utilization/memory_util"),
        busy_seconds=None,
        performance_state=facts.parsed(_performance_state, "performance state", "performance_state"),
    )
    yield MediaReading(
        share("utilization/encoder", "utilization/encoder_util"),
        share("utilization/decoder", "utilization/decoder_util"),
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
        compute=facts.parsed(_compute_mode, "compute mode", "compute_mode"),
    )
    yield RecoveryReading(_recovery(facts))
    yield _fabric(facts)
    yield read_license(facts)


def _performance_state(value: str) -> int | None:
    found = _P_STATE.fullmatch(value)
    return None if found is None else int(found[1])


def _compute_mode(value: str) -> str | None:
    return _COMPUTE_MODES.get(smi_facts.normalized(value).replace("_", " "))


def _recovery(facts: Facts) -> int | None:
    action = facts.choice(_RECOVERY, "gpu recovery action", "gpu_recovery_action")
    if action is not None:
        return action
    # Drivers 530 to 565 report this in two flags.
    if facts.flag("gpu reset status/reset required", "gpu_reset_status/reset_required"):
        return _RECOVERY["reset"]
    if facts.flag("gpu reset status/drain and reset recommended", "gpu_reset_status/drain_and_reset_recommended"):
        return DRAIN_AND_RESET
    return None


def _fabric(facts: Facts) -> FabricReading:
    state = facts.choice(_FABRIC_STATES, "fabric/state") or None
    health = facts.choice(_FABRIC_HEALTH, "fabric/health/summary")
    if facts.choice(_FABRIC_STATUSES, "fabric/status") is False and state == FABRIC_JOINED:
        health = FABRIC_UNHEALTHY
    return FabricReading(state, health if state is not None else None)
