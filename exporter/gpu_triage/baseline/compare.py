"""What differs between a baseline and now, field by field.

GPUs are the same if their UUID is; a GPU that the baseline does not know stands for the recorded one in whose slot
it is. What one of the two sides does not report is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.baseline.facts import LEVEL, P2P, GpuFacts, HostFacts

Aspects = Mapping[str, str]  # what a field says, by aspect: a clock, an adapter, a peer; "" where it has only one

PeerNames = Mapping[str, str]  # what peers are called on both sides, by UUID

ABSENT: Final = "absent"
BOARD: Final = "uuid"
SLOT: Final = "pci_bus_id"  # fields that only `changes` knows: another board in a slot, and a board in another slot


@dataclass(frozen=True, slots=True)
class GpuPair:
    """A GPU as recorded and as it is; None on the side that does not have it."""

    recorded: GpuFacts | None
    now: GpuFacts | None

    @property
    def latest(self) -> GpuFacts:
        """The GPU as it is, else as it was."""
        gpu = self.now or self.recorded
        assert gpu is not None  # noqa: S101 - a pair of nothing is never made
        return gpu


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field of the host or of one GPU, compared."""

    field: str  # the label of gpu_baseline_mismatch, or BOARD or SLOT
    gpu: GpuPair | None  # whose it is; None for the host
    was: str  # what the two sides say, of the aspects that differ; "" where none does
    now: str

    @property
    def differs(self) -> bool:
        """Whether there is a difference."""
        return self.was != self.now


class _Field(NamedTuple):
    name: str
    aspects: Callable[[GpuFacts, PeerNames], Aspects | None]
    """What it says of a GPU, its peers called by these names; None where not reported."""
    whole: bool = False  # whether an aspect that only one side has is a difference; else it is not compared


def _one(value: object | None, form: str = "{}") -> Aspects | None:
    return None if value is None else {"": form.format(value)}


def _switch(value: bool | None) -> Aspects | None:  # noqa: FBT001 - a fact, not a mode
    return None if value is None else {"": "on" if value else "off"}


def _p2p(gpu: GpuFacts, names: PeerNames) -> Aspects:
    peers = (gpu.peers or {}).items()
    statuses = ((uuid, key, status) for uuid, peer in peers if uuid in names for key, status in peer.items())
    return {f"{key.removeprefix(P2P)} to {names[uuid]}": status for uuid, key, status in statuses if key != LEVEL}


def _topology(gpu: GpuFacts, names: PeerNames) -> Aspects:
    peers = (gpu.peers or {}).items()
    return {f"to {names[uuid]}": peer[LEVEL] for uuid, peer in peers if uuid in names and LEVEL in peer}


def _nvlink(gpu: GpuFacts, _names: PeerNames) -> Aspects | None:
    return None if gpu.nvlinks_up is None else {f"link {number}": "up" for number in gpu.nvlinks_up}


def _power(gpu: GpuFacts, _names: PeerNames) -> Aspects:
    return {limit: f"{watts:.0f} W" for limit, watts in (gpu.power_watts or {}).items()}


def _clocks(gpu: GpuFacts, _names: PeerNames) -> Aspects:
    return {
        f"{kind.removesuffix('_hertz')} {clock}": f"{hertz / 1e6:.0f} MHz"
        for kind, table in (gpu.clocks or {}).items()
        for clock, hertz in table.items()
    }


_FIELDS: Final = (
    _Field("gpu_model", lambda gpu, _: _one(gpu.name or None)),
    _Field("pcie_generation", lambda gpu, _: _one(gpu.link and gpu.link.generation, "generation {}")),
    _Field("pcie_width", lambda gpu, _: _one(gpu.link and gpu.link.width, "x{}")),
    _Field("numa_node", lambda gpu, _: _one(gpu.numa_node)),
    _Field("nic_affinity", lambda gpu, _: gpu.nics, whole=True),
    _Field("p2p", _p2p),
    _Field("topology", _topology),
    _Field("nvlink", _nvlink, whole=True),
    _Field("vbios_version", lambda gpu, _: _one(gpu.vbios_version)),
    _Field("power_limit", _power),
    _Field("clocks", _clocks),
    _Field("persistence_mode", lambda gpu, _: _switch(gpu.persistence_mode)),
    _Field("ecc_mode", lambda gpu, _: _switch(gpu.ecc_mode)),
)

GPU_FIELDS: Final = tuple(field.name for field in _FIELDS)
HOST_FIELDS: Final = ("gpu_count", "driver_version", "iommu")


def compare(recorded: HostFacts, now: HostFacts) -> Iterator[Comparison]:
    """Every field that both sides report, the host's first, then the GPUs' by slot; differing or not.

    A GPU that only one side has differs in ``gpu_model`` where it is there, and in ``gpu_count``.
    """
    yield from _compared("gpu_count", None, _one(recorded.gpu_count), _one(now.gpu_count))
    yield from _compared("driver_version", None, _one(recorded.driver_version), _one(now.driver_version))
    yield from _compared("iommu", None, _switch(recorded.iommu_active), _switch(now.iommu_active))
    pairs = match(recorded.gpus, now.gpus)
    names_then = {pair.recorded.uuid: _place(pair.recorded) for pair in pairs if pair.recorded and pair.now}
    names_now = {pair.now.uuid: _place(pair.recorded) for pair in pairs if pair.recorded and pair.now}
    for pair in pairs:
        if pair.now is not None and pair.recorded is None:
            yield Comparison("gpu_model", pair, ABSENT, pair.now.name)
        elif pair.now is not None and pair.recorded is not None:
            for field in _FIELDS:
                before, after = field.aspects(pair.recorded, names_then), field.aspects(pair.now, names_now)
                yield from _compared(field.name, pair, before, after, whole=field.whole)


def changes(recorded: HostFacts, now: HostFacts) -> tuple[Comparison, ...]:
    """What differs: the host's fields first, then board, slot and fields of each GPU, by slot."""
    differing = [each for each in compare(recorded, now) if each.differs]
    found = [each for each in differing if each.gpu is None]
    for pair in match(recorded.gpus, now.gpus):
        then, since = pair.recorded, pair.now
        board = Comparison(BOARD, pair, then.uuid if then else ABSENT, since.uuid if since else ABSENT)
        found += [board] if board.differs else []
        if then is not None and since is not None and then.pci_bus_id != since.pci_bus_id:
            found.append(Comparison(SLOT, pair, then.pci_bus_id or ABSENT, since.pci_bus_id or ABSENT))
        found += [each for each in differing if each.gpu == pair]
    return tuple(found)


def match(recorded: Iterable[GpuFacts], now: Iterable[GpuFacts]) -> tuple[GpuPair, ...]:
    """GPUs of the two sides, paired by UUID, then by slot; by slot, those that are gone included."""
    before = {gpu.uuid: gpu for gpu in recorded}
    after = {gpu.uuid: gpu for gpu in now}
    pairs = [GpuPair(gpu, after[uuid]) for uuid, gpu in before.items() if uuid in after]
    gone = {gpu.pci_bus_id: gpu for uuid, gpu in before.items() if uuid not in after}
    for uuid, gpu in after.items():
        if uuid not in before:
            pairs.append(GpuPair(gone.pop(gpu.pci_bus_id, None) if gpu.pci_bus_id else None, gpu))
    matched = {pair.recorded.uuid for pair in pairs if pair.recorded}
    pairs += [GpuPair(gpu, None) for uuid, gpu in before.items() if uuid not in matched]
    return tuple(sorted(pairs, key=lambda pair: (pair.latest.pci_bus_id, pair.latest.uuid)))


def _place(gpu: GpuFacts) -> str:
    return gpu.pci_bus_id or gpu.uuid


def _compared(
    field: str, pair: GpuPair | None, before: Aspects | None, after: Aspects | None, *, whole: bool = False
) -> Iterator[Comparison]:
    if before is None or after is None:
        return
    aspects = sorted(before.keys() | after.keys() if whole else before.keys() & after.keys())
    if aspects or whole:
        changed = [aspect for aspect in aspects if before.get(aspect) != after.get(aspect)]
        yield Comparison(field, pair, _shown(changed, before), _shown(changed, after))


def _shown(aspects: Iterable[str], said: Aspects) -> str:
    return ", ".join(f"{aspect} {said.get(aspect, ABSENT)}".strip() for aspect in aspects)
