"""The paths of GPUs through PCIe: lanes that a link lacks, what a slot gives, and the uplinks that GPUs share.

On a board that splits the lanes of one slot over two, card and slot claim 16 lanes and the CPU gives 8 to each. Cloud
instances do the same: card and driver of an A10G or a T4 claim 16, and each has 8. Errors of the
link, and the lanes that it had earlier in this boot, tell the two apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import product
from typing import Final, NamedTuple

from gpu_triage.documents.pcie_values import BUILT_LANES, is_built_for_laptop
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.series import Evidence, many
from gpu_triage.read.gpu import pcie
from gpu_triage.read.host import pcie_uplinks
from gpu_triage.read.metrics.metric import MetricSpec


def many_replays(gpu: GpuEvidence) -> float | None:
    """Return how often the link replayed packets lately; None unless that is more than a healthy link has."""
    rate = thresholds.PCIE_BITS_PER_SECOND.get(int(gpu.last(pcie.GPU_PCIE_LINK_GENERATION) or 0), 0.0)
    bits = rate * (gpu.last(pcie.GPU_PCIE_LINK_WIDTH) or 0) * thresholds.EVENTS_WINDOW_SECONDS
    most = max(gpu.limit("pcie.replays", "count"), thresholds.PCIE_BIT_ERROR_RATE * bits)
    return many(gpu.risen(pcie.GPU_PCIE_REPLAYS_TOTAL, thresholds.EVENTS_REMEMBERED_SECONDS), most)


_AER_SECONDS: Final = {
    thresholds.EVENTS_REMEMBERED_SECONDS: ("correctable",),
    thresholds.SEVERE_AER_SECONDS: ("nonfatal", "fatal"),
}
"""For how long errors of a link count, with their severities."""


def aer_errors(gpu: GpuEvidence) -> Mapping[float, Mapping[str, float]]:
    """Return how many link errors of which sort matter, by the seconds over which they count."""
    found: dict[float, dict[str, float]] = defaultdict(dict)
    for seconds, severities in _AER_SECONDS.items():
        for device, severity in product(("gpu", "port"), severities):
            rise = gpu.risen(pcie.GPU_PCIE_AER_ERRORS_TOTAL, seconds, device=device, severity=severity)
            count = many(rise, gpu.limit("pcie.aer", "count")) if severity == "correctable" else rise.amount
            if count:
                found[seconds][f"{severity} on the {device}"] = count
    return found


class Shortage(Enum):
    """How a link came to have fewer lanes than card and slot claim."""

    LOST = "lost"  # it, its siblings or the baseline had more, or it has errors
    BUILT = "built"  # it and all its siblings have had these since boot, and they are enough
    FROM_BOOT = "from boot"  # it has had no more since boot, and nothing explains it


class MissingLanes(NamedTuple):
    """A link with fewer lanes than it should have."""

    kind: Shortage
    lanes: float
    expected: float
    siblings: tuple[GpuEvidence, ...]  # other GPUs of the host with links that claim as much

    @property
    def text(self) -> str:
        return f"{self.lanes:.0f} of {self.expected:.0f} lanes"


def missing_lanes(gpu: GpuEvidence, gpus: Sequence[GpuEvidence]) -> MissingLanes | None:
    """Return what the link of one of a host's GPUs lacks; None unless it did throughout the last part of the window."""
    width, expected = gpu.recent.one(pcie.GPU_PCIE_LINK_WIDTH), gpu.last(pcie.GPU_PCIE_LINK_EXPECTED_WIDTH)
    if expected is None:
        expected = _widest(gpu)  # as in a virtual machine, which does not show what the slot gives
    if width is None or width.high >= expected:
        return None
    # A GPU that does not respond has no readings, but had a link that is known.
    siblings = tuple(
        other
        for other in gpus
        if other.key != gpu.key
        and (other.last(pcie.GPU_PCIE_LINK_EXPECTED_WIDTH) == expected if other.up else _widest(other) > 0)
    )
    kind = _kind(gpu, width.high, siblings)
    if kind is not Shortage.LOST and is_built_for_laptop(gpu.name, width.high):
        return None
    return MissingLanes(kind, width.last, expected, siblings)


def _kind(gpu: GpuEvidence, lanes: float, siblings: tuple[GpuEvidence, ...]) -> Shortage:
    has_errors = many_replays(gpu) is not None or aer_errors(gpu)
    if gpu.last(pcie.GPU_PCIE_LINK_EXPECTED_WIDTH_DECLARED) or _widest(gpu) > lanes or has_errors:
        return Shortage.LOST
    if any(gpu.name and other.name == gpu.name and _widest(other) > lanes for other in siblings):
        return Shortage.LOST
    shared = max(map(_widest, siblings), default=0.0) == lanes
    return Shortage.BUILT if shared and lanes >= BUILT_LANES else Shortage.FROM_BOOT


def _widest(gpu: GpuEvidence) -> float:
    """Return the most lanes that the link has had since boot, as far as was seen; 0 if not reported."""
    width = gpu.one(pcie.GPU_PCIE_LINK_WIDTH)
    return max(0.0 if width is None else width.high, gpu.memory.widest.of(gpu.key, gpu.pci_bus_id))


class PcieSpeed(NamedTuple):
    """A generation and a number of lanes."""

    generation: float
    lanes: float

    @property
    def bytes_per_second(self) -> float:
        """In one direction, before packet headers."""
        return pcie_uplinks.bytes_per_second(int(self.generation), int(self.lanes))

    @property
    def text(self) -> str:
        """As shown to people: ``PCIe 4 x16 (31.5 GB/s)``."""
        return f"PCIe {self.generation:.0f} x{self.lanes:.0f} ({self.bytes_per_second / 1e9:.1f} GB/s)"

    def at_most(self, other: PcieSpeed) -> PcieSpeed:
        return PcieSpeed(min(self.generation, other.generation), min(self.lanes, other.lanes))


_DIRECTIONS: Final = (
    ("receive", pcie.GPU_PCIE_RECEIVE_BYTES_TOTAL, "receive"),
    ("send", pcie.GPU_PCIE_TRANSMIT_BYTES_TOTAL, "transmit"),
)
"""What a GPU does, the counter of it, and the direction of the samples that NVML takes where it has no counter."""


class LesserSlot(NamedTuple):
    """A slot that gives its GPU less than another slot of the host gives, or would give it."""

    gives: PcieSpeed
    better: PcieSpeed
    in_slots_of: tuple[str, ...]  # indices of the GPUs with the better slots


def lesser_slots(gpus: Sequence[GpuEvidence]) -> dict[GpuEvidence, LesserSlot]:
    """Compare each GPU's slot with those of GPUs of its model, else with those of other models.

    Of one model, the most common link counts, the fastest of them in a tie. A GPU of another model has a better slot if
    this card would have a faster link in it.
    """
    models: dict[str, dict[GpuEvidence, PcieSpeed]] = defaultdict(dict)
    for gpu in gpus:
        speed = _speed(gpu, pcie.GPU_PCIE_LINK_EXPECTED_GENERATION, pcie.GPU_PCIE_LINK_EXPECTED_WIDTH)
        if gpu.name and speed is not None:
            models[gpu.name][gpu] = speed
    lesser = {}
    for peers in models.values():
        counts = Counter(peers.values())
        usual = max(counts, key=lambda speed: (counts[speed], speed.bytes_per_second))
        with_usual = tuple(peer.gpu for peer, speed in peers.items() if speed == usual)
        for gpu, gives in peers.items():
            slower = gives.bytes_per_second < usual.bytes_per_second
            slot = LesserSlot(gives, usual, with_usual) if slower else _of_other_models(gpu, gpus)
            if slot is not None:
                lesser[gpu] = slot
    return lesser


def _of_other_models(gpu: GpuEvidence, gpus: Sequence[GpuEvidence]) -> LesserSlot | None:
    card = _speed(gpu, pcie.GPU_PCIE_LINK_DEVICE_MAX_GENERATION, pcie.GPU_PCIE_LINK_DEVICE_MAX_WIDTH)
    slot = _slot(gpu)
    if card is None or slot is None:
        return None
    gives = card.at_most(slot)
    would = [
        (card.at_most(other_slot), other.gpu)
        for other in gpus
        if other.name and other.name != gpu.name and (other_slot := _slot(other)) is not None
    ]
    best = max((speed for speed, _ in would), key=lambda speed: speed.bytes_per_second, default=gives)
    if best.bytes_per_second <= gives.bytes_per_second:
        return None
    return LesserSlot(gives, best, tuple(index for speed, index in would if speed == best))


def link_speed(gpu: GpuEvidence) -> PcieSpeed | None:
    """Return what the link can do now: the generation that it reaches under load, with the lanes that it has."""
    speed = _speed(gpu, pcie.GPU_PCIE_LINK_EXPECTED_GENERATION, pcie.GPU_PCIE_LINK_EXPECTED_WIDTH)
    lanes = gpu.last(pcie.GPU_PCIE_LINK_WIDTH)
    return speed if speed is None or lanes is None else PcieSpeed(speed.generation, min(speed.lanes, lanes))


def full_link(gpu: GpuEvidence, ease: float = 1.0) -> str | None:
    """Describe how the GPU fills its link as it is now, narrow or not; None if it does not."""
    generation, lanes = gpu.one(pcie.GPU_PCIE_LINK_GENERATION), gpu.one(pcie.GPU_PCIE_LINK_WIDTH)
    if generation is None or lanes is None:
        return None
    link = PcieSpeed(generation.high, lanes.high)
    for does, counter, direction in _DIRECTIONS:
        rate = _rate(gpu, counter, direction)
        if rate is not None and rate >= thresholds.FULL_LINK_SHARE * ease * link.bytes_per_second > 0:
            return f"{does}s {rate / 1e9:.1f} GB/s over {link.text}"
    return None


def traffic_known(gpu: GpuEvidence) -> bool:
    """Whether the GPU reports how much it moves over PCIe, if only as counters with a single reading so far."""
    counters = (counter for _, counter, _ in _DIRECTIONS)
    return any(map(gpu.has, (*counters, pcie.GPU_PCIE_THROUGHPUT_BYTES_PER_SECOND)))


def traffic_text(gpu: GpuEvidence) -> str:
    """Describe what the GPU moves over PCIe, ``receives 6.1 and sends 1.2 GB/s``; "" if that is not counted."""
    received, sent = (_rate(gpu, counter, direction) for _, counter, direction in _DIRECTIONS)
    if received is None or sent is None:
        return ""
    return f"receives {received / 1e9:.1f} and sends {sent / 1e9:.1f} GB/s"


def _rate(gpu: GpuEvidence, counter: MetricSpec, direction: str) -> float | None:
    rate = gpu.rate(counter)
    if rate is not None:
        return rate
    sampled = gpu.one(pcie.GPU_PCIE_THROUGHPUT_BYTES_PER_SECOND, direction=direction)
    return None if sampled is None else sampled.mean


def _slot(gpu: GpuEvidence) -> PcieSpeed | None:
    return _speed(gpu, pcie.GPU_PCIE_LINK_SLOT_MAX_GENERATION, pcie.GPU_PCIE_LINK_SLOT_MAX_WIDTH)


def _speed(gpu: GpuEvidence, generation_of: MetricSpec, lanes_of: MetricSpec) -> PcieSpeed | None:
    generation, lanes = gpu.last(generation_of), gpu.last(lanes_of)
    return None if generation is None or lanes is None else PcieSpeed(generation, lanes)


class ShortUplink(NamedTuple):
    """The uplink of a switch that is slower than both ends allow."""

    ratio: float  # share of the bandwidth that both ends allow
    labels: Mapping[str, str]  # of its info metric
    gpus: tuple[GpuEvidence, ...]  # those behind it
    full: str  # how heavily they load it; "" if it is not full or no traffic is reported


def short_uplinks(recent: Evidence, gpus: Sequence[GpuEvidence]) -> Iterator[ShortUplink]:
    """Yield them, as of the last part of the window; at rest, a low generation saves power and does not count."""
    for labels in recent.labels_of(pcie_uplinks.GPU_HOST_PCIE_UPLINK_INFO):
        ratio = recent.one(pcie_uplinks.GPU_HOST_PCIE_UPLINK_RATIO, bridge=labels["bridge"], port=labels["port"])
        devices = pcie_uplinks.devices_behind(labels)
        behind = tuple(gpu for gpu in gpus if gpu.pci_bus_id in devices)
        narrow = int(labels["width"]) < int(labels["expected_width"])
        if ratio is not None and ratio.high < 1 and (narrow or any(gpu.recent.loaded for gpu in behind)):
            yield ShortUplink(ratio.high, labels, behind, _full(labels, behind))


def _full(uplink: Mapping[str, str], gpus: Sequence[GpuEvidence]) -> str:
    """Describe how heavily the GPUs behind an uplink load it, with traffic that may stay within the switch."""
    most = pcie_uplinks.bytes_per_second(int(uplink["generation"]), int(uplink["width"]))
    for does, counter, direction in _DIRECTIONS:
        total = sum(_rate(gpu.recent, counter, direction) or 0.0 for gpu in gpus)
        if total >= thresholds.FULL_LINK_SHARE * most:
            who = ", ".join(gpu.gpu for gpu in gpus)
            return f"GPU {who} {does} {total / 1e9:.1f} of {most / 1e9:.1f} GB/s"
    return ""
