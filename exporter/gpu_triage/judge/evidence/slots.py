"""What the path of a GPU through PCIe can carry: its slot, and the uplinks that it shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.read.gpu.pcie import (
    GPU_PCIE_LINK_DEVICE_MAX_GENERATION,
    GPU_PCIE_LINK_DEVICE_MAX_WIDTH,
    GPU_PCIE_LINK_EXPECTED_GENERATION,
    GPU_PCIE_LINK_EXPECTED_WIDTH,
    GPU_PCIE_LINK_SLOT_MAX_GENERATION,
    GPU_PCIE_LINK_SLOT_MAX_WIDTH,
    GPU_PCIE_LINK_WIDTH,
    GPU_PCIE_RECEIVE_BYTES_TOTAL,
    GPU_PCIE_THROUGHPUT_BYTES_PER_SECOND,
    GPU_PCIE_TRANSMIT_BYTES_TOTAL,
)
from gpu_triage.read.host.pcie_uplinks import (
    GPU_HOST_PCIE_UPLINK_INFO,
    GPU_HOST_PCIE_UPLINK_RATIO,
    bytes_per_second,
    devices_behind,
)
from gpu_triage.read.metrics.metric import MetricSpec


class PcieSpeed(NamedTuple):
    """A generation and a number of lanes."""

    generation: float
    lanes: float

    @property
    def bytes_per_second(self) -> float:
        """In one direction, before packet headers."""
        return bytes_per_second(int(self.generation), int(self.lanes))

    @property
    def text(self) -> str:
        """As shown to people: ``PCIe 4 x16 (31.5 GB/s)``."""
        return f"PCIe {self.generation:.0f} x{self.lanes:.0f} ({self.bytes_per_second / 1e9:.1f} GB/s)"

    def at_most(self, other: PcieSpeed) -> PcieSpeed:
        return PcieSpeed(min(self.generation, other.generation), min(self.lanes, other.lanes))


class LesserSlot(NamedTuple):
    """A slot that gives its GPU less than another slot of the host gives, or would give it."""

    gives: PcieSpeed
    better: PcieSpeed
    in_slots_of: tuple[str, ...]  # indices of the GPUs with the better slots


def lesser_slot(host: HostEvidence, gpu: GpuEvidence) -> LesserSlot | None:
    """Compare a GPU's slot with those of GPUs of its model, else with those of other models.

    Of one model, the most common link counts, the fastest of them in a tie. A GPU of another model has a better slot if
    this card would have a faster link in it.
    """
    gives = _speed(gpu, GPU_PCIE_LINK_EXPECTED_GENERATION, GPU_PCIE_LINK_EXPECTED_WIDTH)
    if gives is None or not gpu.name:
        return None
    peers = [
        (other.gpu, speed)
        for other in host.answering
        if other.name == gpu.name
        and (speed := _speed(other, GPU_PCIE_LINK_EXPECTED_GENERATION, GPU_PCIE_LINK_EXPECTED_WIDTH)) is not None
    ]
    counts = Counter(speed for _, speed in peers)
    usual = max(counts, key=lambda speed: (counts[speed], speed.bytes_per_second))
    if gives.bytes_per_second < usual.bytes_per_second:
        return LesserSlot(gives, usual, tuple(index for index, speed in peers if speed == usual))
    return _of_other_models(host, gpu)


def _of_other_models(host: HostEvidence, gpu: GpuEvidence) -> LesserSlot | None:
    card = _speed(gpu, GPU_PCIE_LINK_DEVICE_MAX_GENERATION, GPU_PCIE_LINK_DEVICE_MAX_WIDTH)
    slot = _slot(gpu)
    if card is None or slot is None:
        return None
    gives = card.at_most(slot)
    would = [
        (card.at_most(other_slot), other.gpu)
        for other in host.answering
        if other.name and other.name != gpu.name and (other_slot := _slot(other)) is not None
    ]
    best = max((speed for speed, _ in would), key=lambda speed: speed.bytes_per_second, default=gives)
    if best.bytes_per_second <= gives.bytes_per_second:
        return None
    return LesserSlot(gives, best, tuple(index for speed, index in would if speed == best))


def link_speed(gpu: GpuEvidence) -> PcieSpeed | None:
    """Return what the link can do now: the generation that it reaches under load, with the lanes that it has."""
    speed = _speed(gpu, GPU_PCIE_LINK_EXPECTED_GENERATION, GPU_PCIE_LINK_EXPECTED_WIDTH)
    lanes = gpu.last(GPU_PCIE_LINK_WIDTH)
    return speed if speed is None or lanes is None else PcieSpeed(speed.generation, min(speed.lanes, lanes))


def traffic_text(gpu: GpuEvidence) -> str:
    """Describe what the GPU moves over PCIe, ``receives 6.1 and sends 1.2 GB/s``; "" if that is not counted."""
    received = _rate(gpu, GPU_PCIE_RECEIVE_BYTES_TOTAL, "receive")
    sent = _rate(gpu, GPU_PCIE_TRANSMIT_BYTES_TOTAL, "transmit")
    if received is None or sent is None:
        return ""
    return f"receives {received / 1e9:.1f} and sends {sent / 1e9:.1f} GB/s"


def _rate(gpu: GpuEvidence, counter: MetricSpec, direction: str) -> float | None:
    rate = gpu.rate(counter)
    if rate is not None:
        return rate
    sampled = gpu.one(GPU_PCIE_THROUGHPUT_BYTES_PER_SECOND, direction=direction)
    return None if sampled is None else sampled.mean


def _slot(gpu: GpuEvidence) -> PcieSpeed | None:
    return _speed(gpu, GPU_PCIE_LINK_SLOT_MAX_GENERATION, GPU_PCIE_LINK_SLOT_MAX_WIDTH)


def _speed(gpu: GpuEvidence, generation_of: MetricSpec, lanes_of: MetricSpec) -> PcieSpeed | None:
    generation, lanes = gpu.last(generation_of), gpu.last(lanes_of)
    return None if generation is None or lanes is None else PcieSpeed(generation, lanes)


def short_uplinks(host: HostEvidence) -> Iterator[tuple[float, Mapping[str, str]]]:
    """Yield the uplinks slower than both ends allow: the share of that bandwidth, and the labels of the info metric.

    A low generation only counts while a GPU behind it is loaded: at rest, it saves power.
    """
    for uplink in host.labels_of(GPU_HOST_PCIE_UPLINK_INFO):
        ratio = host.recent.one(GPU_HOST_PCIE_UPLINK_RATIO, bridge=uplink["bridge"], port=uplink["port"])
        narrow = int(uplink["width"]) < int(uplink["expected_width"])
        if ratio is not None and ratio.high < 1 and (narrow or any(gpu.recent.loaded for gpu in _behind(host, uplink))):
            yield ratio.high, uplink


def full_uplink(host: HostEvidence, uplink: Mapping[str, str]) -> str | None:
    """Describe how heavily the GPUs behind an uplink load it; None if it is not full or no traffic is reported.

    Traffic between two of these GPUs counts too, though it may stay within the switch.
    """
    most = bytes_per_second(int(uplink["generation"]), int(uplink["width"]))
    gpus = _behind(host, uplink)
    for spec, moved in ((GPU_PCIE_RECEIVE_BYTES_TOTAL, "receive"), (GPU_PCIE_TRANSMIT_BYTES_TOTAL, "send")):
        total = sum(gpu.recent.rate(spec) or 0.0 for gpu in gpus)
        if total >= thresholds.FULL_UPLINK_SHARE * most:
            who = ", ".join(gpu.gpu for gpu in gpus)
            return f"GPU {who} {moved} {total / 1e9:.1f} of {most / 1e9:.1f} GB/s"
    return None


def narrow_uplink_that_is_full(host: HostEvidence, gpu: GpuEvidence) -> str | None:
    """Describe the uplink above a GPU that is full and slower than it could be, or None."""
    for _, uplink in short_uplinks(host):
        if gpu.pci_bus_id in devices_behind(uplink) and (full := full_uplink(host, uplink)) is not None:
            return f"uplink of switch {uplink['bridge']} short of bandwidth: {full}"
    return None


def _behind(host: HostEvidence, uplink: Mapping[str, str]) -> list[GpuEvidence]:
    behind = devices_behind(uplink)
    return [gpu for gpu in host.answering if gpu.pci_bus_id in behind]
