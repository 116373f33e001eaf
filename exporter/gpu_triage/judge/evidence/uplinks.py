"""Shared uplinks of PCIe switches above the GPUs, and how heavily they are loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.read.gpu.pcie import GPU_PCIE_RECEIVE_BYTES_TOTAL, GPU_PCIE_TRANSMIT_BYTES_TOTAL
from gpu_triage.read.host.pcie_uplinks import (
    GPU_HOST_PCIE_UPLINK_INFO,
    GPU_HOST_PCIE_UPLINK_RATIO,
    bytes_per_second,
    devices_behind,
)


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
