"""Facts about a host that change only by hand or by faults, and their JSON file (``docs/baseline.schema.json``)."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, cast

from gpu_triage.documents import AtMost, Key, Parsed, Pattern, Place, Range, parse_json, read_file, read_value
from gpu_triage.documents.files import unwritable, write_file
from gpu_triage.documents.pcie_values import BUILT_LANES, Generation, Width
from gpu_triage.errors import BaselineError, DocumentError
from gpu_triage.read.gpu.ecc import MEMORY_REPAIR
from gpu_triage.read.gpu.identity import IDENTITY
from gpu_triage.read.gpu.modes import MODES
from gpu_triage.read.gpu.nvlink import NVLINK, NvlinkReading
from gpu_triage.read.gpu.pcie import PCIE, PCIE_LIMITS, PcieLimitsReading, expectation_of
from gpu_triage.read.gpu.power import CLOCK_TARGETS, LIMITS, POWER
from gpu_triage.read.gpu.topology import NIC_TOPOLOGY, TOPOLOGY, TopologyReading
from gpu_triage.read.host.platform import PLATFORM
from gpu_triage.read.metrics.contract import GpuCollector, known

R = TypeVar("R")
F = TypeVar("F")

GPU_SOURCES: Final = (
    *(IDENTITY, PCIE, PCIE_LIMITS, TOPOLOGY, NIC_TOPOLOGY, NVLINK),
    *(LIMITS, CLOCK_TARGETS, POWER, MODES, MEMORY_REPAIR),
)
HOST_SOURCES: Final = (PLATFORM,)

MOST_BYTES: Final = 4 << 20  # a host of 64 GPUs that are all peers takes half of it
_FORMAT: Final = "gpu-triage-baseline"
_VERSION: Final = 1
_MOST_GPUS: Final = 256
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_MOST_ENTRIES: Final = 1024
_MOST_CHARACTERS: Final = 256
LEVEL: Final = "level"
P2P: Final = "p2p_"


def _printable(text: str) -> str:
    if len(text) > _MOST_CHARACTERS or not text.isprintable():
        raise ValueError(f"write text of at most {_MOST_CHARACTERS} printable characters")
    return text


def _parse_time(text: str) -> float:
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=timezone.utc).timestamp()
    except ValueError as error:
        raise ValueError("write it as 2026-01-15T00:00:00Z") from error


Name = Annotated[str, Parsed(_printable)]
Names = Annotated[Mapping[Name, Name], AtMost(_MOST_ENTRIES)]
Amounts = Annotated[Mapping[Name, Annotated[float, Range(0, 1e18)]], AtMost(_MOST_ENTRIES)]
Peer = dict[Annotated[str, Pattern(f"{LEVEL}|{P2P}.+", f"{LEVEL}, or a key that starts with {P2P}")], Name]
"""A GPU's connection to another: LEVEL is their nearest common ancestor (internal, pix, pxb, phb, node, sys); P2P plus
a capability (read, write, nvlink, atomics, prop) is the capability's status (ok, chipset_not_supported, …)."""

ClockTable = Literal["max_hertz", "target_hertz", "default_hertz"]


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """Maximum of a PCIe link: overall (card, slot and system), of the card alone, and of the slot (its port) alone."""

    generation: Generation | None = None
    width: Width | None = None
    device_generation: Generation | None = None
    device_width: Width | None = None
    slot_generation: Generation | None = None
    slot_width: Width | None = None
    trained_width: Width | None = None  # what it had when recorded, if less than `width`, as the board is built


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU in its slot; None for what isn't reported."""

    uuid: Name  # identifies the board, in any slot
    pci_bus_id: Name = ""  # identifies the slot, with any board, in sysfs notation; "" if the driver doesn't report it
    name: Name = ""
    vbios_version: Name | None = None
    pcie: LinkFacts | None = None
    numa_node: Annotated[int, Range(-1, 1 << 16)] | None = None  # of the slot, -1 if the firmware doesn't report it
    nics: Names | None = None  # topology level (pix, …, sys) by NIC name
    # numbers of the NVLink links that are up; unknown while the GPU is partitioned with MIG
    nvlinks_up: tuple[Annotated[int, Range(0, 63)], ...] | None = None
    power_watts: Amounts | None = None  # by limit: enforced, default, min, max
    clocks: Mapping[ClockTable, Amounts] | None = None  # each by clock (graphics, sm, memory, video)
    persistence_mode: bool | None = None
    ecc_mode: bool | None = None
    peers: Annotated[Mapping[Name, Peer], AtMost(_MOST_ENTRIES)] | None = None  # other GPUs by UUID


@dataclass(frozen=True, slots=True)
class HostValues:
    """Facts that the GPUs of a host share. GPU count and driver version are None while the driver is unavailable."""

    gpu_count: Annotated[int, Range(0, _MOST_GPUS)] | None
    driver_version: Name | None = None
    iommu_active: bool | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host at a Unix time, with the GPUs that answer, by slot."""

    at: Annotated[float, Key("recorded"), Parsed(_parse_time, str)]
    host: HostValues
    gpus: Annotated[tuple[GpuFacts, ...], AtMost(_MOST_GPUS)]


def expected_p2p(facts: HostFacts) -> bool | None:
    """Whether GPUs of the same model can access each other's memory directly; None if only some can, or no pair is."""
    names = {gpu.uuid: gpu.name for gpu in facts.gpus}
    reached = {
        peer.get(f"{P2P}read") == peer.get(f"{P2P}write") == "ok"
        for gpu in facts.gpus
        for uuid, peer in (gpu.peers or {}).items()
        if names.get(uuid) == gpu.name and peer.keys() - {LEVEL}
    }
    return reached.pop() if len(reached) == 1 else None


_Levels = Mapping[frozenset[str], str]  # nearest common ancestor by the UUIDs of two GPUs


class GpuReadings(NamedTuple):
    """A GPU that answers, with its latest readings; `pci_bus_id` in sysfs notation, None if the driver has none."""

    uuid: str
    pci_bus_id: str | None
    reading_of: Callable[[str], object | None]  # the latest reading of a collector by its name

    def fact(self, collector: GpuCollector[R], of: Callable[[R], F | None]) -> F | None:
        reading = cast("R | None", self.reading_of(collector.name))
        return None if reading is None else of(reading)


def host_facts(at: float, shared: HostValues, gpus: Iterable[GpuReadings]) -> HostFacts:
    """The facts of a host at this Unix time."""
    everyone = sorted(gpus, key=lambda gpu: (gpu.pci_bus_id or "", gpu.uuid))
    split = frozenset(gpu.uuid for gpu in everyone if gpu.fact(MODES, lambda modes: modes.mig))
    # The driver is queried only once for each pair.
    levels = {
        frozenset((gpu.uuid, peer.uuid)): peer.level
        for gpu in everyone
        for peer in gpu.fact(TOPOLOGY, lambda topology: topology.peers) or ()
        if peer.level is not None
    }
    facts = [_gpu_facts(gpu, levels, split) for gpu in everyone]
    links = [gpu.pcie for gpu in facts if gpu.pcie is not None]
    trained = tuple(replace(gpu, pcie=gpu.pcie and _as_trained(gpu.pcie, links)) for gpu in facts)
    return HostFacts(at, shared, trained)


def _as_trained(link: LinkFacts, links: Iterable[LinkFacts]) -> LinkFacts:
    """The link with its present lanes only if the board gives all links like it fewer lanes than they claim.

    If the board gives one of them more, this link lost lanes, and its claim stays what is expected of it. A link with
    too few lanes to be built that way is not recorded: a baseline must neither excuse it nor expect what it never had.
    """
    has, claims = link.trained_width, link.width
    alike = [each.trained_width or 0 for each in links if each.width == claims]
    if has is None or claims is None or has >= claims or max(alike) > has:
        return replace(link, trained_width=None)
    return link if has >= BUILT_LANES else replace(link, width=None, trained_width=None)


def _gpu_facts(gpu: GpuReadings, levels: _Levels, split: frozenset[str]) -> GpuFacts:
    clocks: dict[ClockTable, Mapping[str, float] | None] = {
        "max_hertz": gpu.fact(LIMITS, lambda limits: limits.clock_max_hertz),
        "target_hertz": gpu.fact(CLOCK_TARGETS, lambda targets: targets.hertz),
        "default_hertz": gpu.fact(LIMITS, lambda limits: limits.clock_default_hertz),
    }
    watts = {
        "enforced": gpu.fact(POWER, lambda power: power.limit_watts),
        "default": gpu.fact(LIMITS, lambda limits: limits.power_default_watts),
        "min": gpu.fact(LIMITS, lambda limits: limits.power_min_watts),
        "max": gpu.fact(LIMITS, lambda limits: limits.power_max_watts),
    }
    return GpuFacts(
        uuid=gpu.uuid,
        pci_bus_id=gpu.pci_bus_id or "",
        name=gpu.fact(IDENTITY, lambda identity: identity.name) or "",
        vbios_version=gpu.fact(IDENTITY, lambda identity: identity.vbios_version) or None,
        pcie=gpu.fact(PCIE_LIMITS, lambda link: _link_facts(link.limits, gpu.fact(PCIE, lambda now: now.width))),
        numa_node=gpu.fact(TOPOLOGY, lambda topology: topology.numa_node),
        nics=gpu.fact(NIC_TOPOLOGY, lambda nics: dict(nics.levels)),
        peers=gpu.fact(TOPOLOGY, lambda topology: _peers(gpu.uuid, topology, levels, split)),
        nvlinks_up=gpu.fact(NVLINK, _links_up),
        power_watts=known(watts) or None,
        clocks=known(clocks) or None,
        persistence_mode=gpu.fact(MODES, lambda modes: modes.persistence),
        ecc_mode=gpu.fact(MEMORY_REPAIR, lambda repair: repair.ecc_mode),
    )


def _link_facts(limits: PcieLimitsReading, width: int | None) -> LinkFacts:
    """The hardware's limits and the present width; no expectations, which must not be compared with themselves."""
    link = expectation_of(limits)
    device, slot = (limits.device_generation, limits.device_width), (limits.slot_generation, limits.slot_width)
    return LinkFacts(link.generation, link.width, *device, *slot, width)


def _links_up(nvlink: NvlinkReading) -> tuple[int, ...] | None:
    return tuple(sorted(each for each, link in nvlink.links.items() if link.is_up)) if nvlink.reported else None


def _peers(uuid: str, topology: TopologyReading, levels: _Levels, split: frozenset[str]) -> dict[str, Peer]:
    """Connections of a GPU to the others. If MIG partitions either GPU of a pair, P2P is off by design, so omit it."""
    found: dict[str, Peer] = {}
    for peer in topology.peers:
        pair = frozenset((uuid, peer.uuid))
        found[peer.uuid] = {LEVEL: levels[pair]} if pair in levels else {}
        found[peer.uuid] |= {f"{P2P}{name}": status for name, status in peer.p2p.items() if not pair & split}
    return found


@dataclass(frozen=True, slots=True)
class Baseline:
    """The facts in a file, and what is expected because of them."""

    facts: HostFacts
    sha256: str  # of the file in hexadecimal, as printed by sha256sum
    p2p: bool | None  # as of `expected_p2p`


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file; raises DocumentError, as `decode`."""
    # Imported only when there is a baseline: hashlib loads OpenSSL, which takes 4 MiB.
    import hashlib  # noqa: PLC0415

    content = read_file(path, MOST_BYTES)
    facts = decode(content, str(path))
    return Baseline(facts, hashlib.sha256(content).hexdigest(), expected_p2p(facts))


def write_baseline(path: Path, facts: HostFacts) -> None:
    """Write a file atomically, replacing an existing one; raises BaselineError."""
    try:
        write_file(path, encode(facts).encode())
    except OSError as error:
        reason, message = unwritable(path, error, "FILE or --state.directory")
        raise BaselineError(message, reason=reason) from error


def encode(facts: HostFacts) -> str:
    gpus = [asdict(gpu) | {"peers": gpu.peers and dict(sorted(gpu.peers.items()))} for gpu in facts.gpus]
    head = {"format": _FORMAT, "version": _VERSION, "recorded": timestamp(facts.at)}
    return _pretty({**head, "host": asdict(facts.host), "gpus": gpus}) + "\n"


def decode(content: bytes, file: str) -> HostFacts:
    """Parse a file's content, for error messages named `file`; raises DocumentError, which names the invalid key."""
    where = Place(file)
    document = parse_json(content, file)
    table = dict(document) if isinstance(document, dict) else {}
    if table.pop("format", None) != _FORMAT:
        raise where.at("format").error(f"is not {_FORMAT!r}; write the file with gpu-triage baseline write")
    if (version := table.pop("version", None)) != _VERSION:
        message = f"{where.at('version')}: is {version!r:.80}, and this program reads {_VERSION}; record it again"
        raise DocumentError(message, reason="unknown_version")
    table.pop("$schema", None)
    facts = read_value(HostFacts, table, where)
    if facts.host.gpu_count is None:
        raise where.at("host", "gpu_count").error("has no value; write the number of GPUs")
    if len({gpu.uuid for gpu in facts.gpus} - {""}) < len(facts.gpus):
        raise where.at("gpus").error("one of them has no uuid, or that of another; give each its own")
    return facts


def timestamp(seconds: float) -> str:
    """A time in the file's format: ``2026-01-15T00:00:00Z``."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(_TIME)


def _pretty(value: Any, indent: str = "") -> str:
    """JSON indented by two spaces, without unreported values, and with plain values of a list or object on one line."""
    if isinstance(value, dict):
        value = {key: each for key, each in value.items() if each is not None and each != ""}
    inside = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list)) or not any(isinstance(each, (dict, list, tuple)) for each in inside):
        return json.dumps(value)
    inner = f"{indent}  "
    lines = [_pretty(each, inner) for each in inside]
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {line}" for key, line in zip(value, lines, strict=True)]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{inner}" + f",\n{inner}".join(lines) + f"\n{indent}{last}"
