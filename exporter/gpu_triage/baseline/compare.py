"""What differs between a baseline and now, field by field.

GPUs are the same if their UUID is; a GPU that the baseline does not know stands for the recorded one in whose slot
it is. What one of the two sides does not report is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage.baseline.facts import GpuFacts, HostFacts

Aspects = Mapping[str, str]
"""What a field says, by aspect: a clock, an adapter, a peer; "" where it has only one."""

PeerNames = Mapping[str, str]
"""What peers are called on both sides, by UUID."""

ABSENT: Final = "absent"


@dataclass(frozen=True, slots=True)
class GpuPair:
    """A GPU as recorded and as it is.

    Attributes:
        recorded: the recorded one; None where the baseline has none for it.
        now: the one there is; None where none answers.
    """

    recorded: GpuFacts | None
    now: GpuFacts | None

    @property
    def known(self) -> GpuFacts:
        """The GPU as it is, else as it was."""
        gpu = self.now or self.recorded
        assert gpu is not None  # noqa: S101 - a pair of nothing is never made
        return gpu


@dataclass(frozen=True, slots=True)
class Verdict:
    """One field of the host or of one GPU, compared.

    Attributes:
        field: its name; the label of gpu_baseline_mismatch.
        gpu: whose it is; None for the host.
        was: what was recorded, of the aspects that differ; "" where none does.
        now: what there is, likewise.
        differs: whether there is a difference.
    """

    field: str
    gpu: GpuPair | None
    was: str
    now: str
    differs: bool


@dataclass(frozen=True, slots=True)
class _Field:
    """How a field is compared.

    Attributes:
        name: its name.
        aspects: what it says of a GPU, its peers called by these names; None where not reported.
        whole: whether an aspect that only one side has is a difference; else it is not compared.
    """

    name: str
    aspects: Callable[[GpuFacts, PeerNames], Aspects | None]
    whole: bool = False


def _one(value: object | None) -> Aspects | None:
    return None if value is None else {"": str(value)}


def _truth(value: bool | None) -> Aspects | None:  # noqa: FBT001 - a fact, not a mode
    return None if value is None else {"": "on" if value else "off"}


def _width(gpu: GpuFacts, _names: PeerNames) -> Aspects | None:
    return {"": f"x{gpu.link.width}"} if gpu.link and gpu.link.width is not None else None


def _generation(gpu: GpuFacts, _names: PeerNames) -> Aspects | None:
    return {"": f"generation {gpu.link.generation}"} if gpu.link and gpu.link.generation is not None else None


def _p2p(gpu: GpuFacts, names: PeerNames) -> Aspects | None:
    peers = (gpu.peers or {}).items()
    return {f"{name} to {names[u]}": status for u, peer in peers if u in names for name, status in peer.p2p.items()}


def _topology(gpu: GpuFacts, names: PeerNames) -> Aspects | None:
    peers = (gpu.peers or {}).items()
    return {f"to {names[uuid]}": peer.level for uuid, peer in peers if uuid in names and peer.level is not None}


def _nvlink(gpu: GpuFacts, _names: PeerNames) -> Aspects | None:
    return None if gpu.nvlinks_up is None else {f"link {number}": "up" for number in gpu.nvlinks_up}


def _power(gpu: GpuFacts, _names: PeerNames) -> Aspects | None:
    return {limit: f"{watts:.0f} W" for limit, watts in (gpu.power_watts or {}).items()}


def _clocks(gpu: GpuFacts, _names: PeerNames) -> Aspects | None:
    tables = {"max": gpu.clock_max_hertz, "target": gpu.clock_target_hertz, "default": gpu.clock_default_hertz}
    return {
        f"{kind} {clock}": f"{hertz / 1e6:.0f} MHz"
        for kind, table in tables.items()
        for clock, hertz in (table or {}).items()
    }


_FIELDS: Final = (
    _Field("gpu_model", lambda gpu, _: _one(gpu.name or None)),
    _Field("pcie_generation", _generation),
    _Field("pcie_width", _width),
    _Field("numa_node", lambda gpu, _: _one(gpu.numa_node)),
    _Field("nic_affinity", lambda gpu, _: gpu.nics, whole=True),
    _Field("p2p", _p2p),
    _Field("topology", _topology),
    _Field("nvlink", _nvlink, whole=True),
    _Field("vbios_version", lambda gpu, _: _one(gpu.vbios_version)),
    _Field("power_limit", _power),
    _Field("clocks", _clocks),
    _Field("persistence_mode", lambda gpu, _: _truth(gpu.persistence_mode)),
    _Field("ecc_mode", lambda gpu, _: _truth(gpu.ecc_mode)),
)

GPU_FIELDS: Final = tuple(field.name for field in _FIELDS)
HOST_FIELDS: Final = ("gpu_count", "driver_version", "iommu")


def compare(recorded: HostFacts, now: HostFacts) -> Iterator[Verdict]:
    """Every field that both sides report, the host's first, then the GPUs' by slot; differing or not.

    A GPU that only one side has differs in ``gpu_model`` where it is there, and in ``gpu_count``.
    """
    yield from _host_verdict("gpu_count", _one(recorded.gpu_count), _one(now.gpu_count))
    yield from _host_verdict("driver_version", _one(recorded.driver_version), _one(now.driver_version))
    yield from _host_verdict("iommu", _truth(recorded.iommu_active), _truth(now.iommu_active))
    pairs = match(recorded.gpus, now.gpus)
    names_then = {pair.recorded.uuid: _place(pair.recorded) for pair in pairs if pair.recorded and pair.now}
    names_now = {pair.now.uuid: _place(pair.recorded) for pair in pairs if pair.recorded and pair.now}
    for pair in pairs:
        if pair.now is not None and pair.recorded is None:
            yield Verdict("gpu_model", pair, ABSENT, pair.now.name, differs=True)
        elif pair.now is not None and pair.recorded is not None:
            for field in _FIELDS:
                before, after = field.aspects(pair.recorded, names_then), field.aspects(pair.now, names_now)
                yield from _verdict(field.name, pair, before, after, whole=field.whole)


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
    return tuple(sorted(pairs, key=lambda pair: (pair.known.pci_bus_id, pair.known.uuid)))


def _place(gpu: GpuFacts) -> str:
    return gpu.pci_bus_id or gpu.uuid


def _host_verdict(field: str, before: Aspects | None, after: Aspects | None) -> Iterator[Verdict]:
    return _verdict(field, None, before, after, whole=False)


def _verdict(
    field: str, pair: GpuPair | None, before: Aspects | None, after: Aspects | None, *, whole: bool
) -> Iterator[Verdict]:
    if before is None or after is None:
        return
    both = sorted(before.keys() & after.keys())
    compared = sorted(before.keys() | after.keys()) if whole else both
    if not compared and not whole:
        return
    changed = [aspect for aspect in compared if before.get(aspect) != after.get(aspect)]
    yield Verdict(field, pair, _shown(changed, before), _shown(changed, after), differs=bool(changed))


def _shown(aspects: Iterable[str], said: Aspects) -> str:
    return ", ".join(f"{aspect} {said.get(aspect, ABSENT)}".strip() for aspect in aspects)
