"""Compares a baseline with the present state, field by field.

GPUs are matched by UUID; a GPU unknown to the baseline is matched with the recorded GPU in the same slot. Values that
only one side reports are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.read.baseline.facts import LEVEL, P2P, GpuFacts, HostFacts

Aspects = Mapping[str, str]  # values of a field by aspect: a clock, a NIC, a peer; key "" if there is only one

PeerNames = Mapping[str, str]  # names of the peers that both sides have, by UUID

ABSENT: Final = "absent"
BOARD: Final = "uuid"
SLOT: Final = "pci_bus_id"  # these two occur only in `changes`: a different board in a slot, a board in another slot


@dataclass(frozen=True, slots=True)
class GpuPair:
    """A GPU as recorded and as it is now; None on the side that lacks it."""

    recorded: GpuFacts | None
    now: GpuFacts | None

    @property
    def latest(self) -> GpuFacts:
        """The present GPU, or else the recorded one."""
        gpu = self.now or self.recorded
        assert gpu is not None  # noqa: S101 - a pair has at least one side
        return gpu


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one field of the host or of a GPU."""

    field: str  # the label of gpu_baseline_mismatch, or BOARD or SLOT
    gpu: GpuPair | None  # None for the host
    was: str  # `was` and `now` hold the values of the aspects that differ; "" if none do
    now: str

    @property
    def differs(self) -> bool:
        """Whether the values differ."""
        return self.was != self.now


class _Field(NamedTuple):
    name: str
    aspects: Callable[[GpuFacts, PeerNames], Aspects | None]
    """The field's values for a GPU, with these names for its peers; None if not reported."""
    whole: bool = False  # whether an aspect on only one side counts as a difference; otherwise it is ignored


def _one(value: object | None, form: str = "{}") -> Aspects | None:
    return None if value is None else {"": form.format(value)}


def _switch(value: bool | None) -> Aspects | None:  # noqa: FBT001 - data, not a mode switch
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
    """Compare every field that both sides report, the host's first, then the GPUs' by slot; equal fields are included.

    A GPU on only one side counts as a difference in ``gpu_model``, and in ``gpu_count``.
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
    """The differences: the host's fields first, then board, slot and fields of each GPU, by slot."""
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
    """Pair the GPUs of both sides by UUID, then by slot; sorted by slot, including missing GPUs."""
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
