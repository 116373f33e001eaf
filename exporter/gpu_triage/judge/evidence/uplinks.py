"""Shared uplinks of PCIe switches above the GPUs, and how heavily they are loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.read.gpu.pcie import GPU_PCIE_RECEIVE_BYTES_TOTAL, GPU_PCIE_TRANSMIT_BYTES_TOTAL
from gpu_triage.read.host.pcie_uplinks import GPU_HOST_PCIE_UPLINK_INFO, bytes_per_second


def behind(host: HostEvidence, uplink: Mapping[str, str]) -> Iterator[GpuEvidence]:
    """Yield the GPUs behind an uplink, given the labels of its info metric."""
    bus_ids = {each.rpartition(" ")[2] for each in uplink["behind"].split(", ")}
    yield from (gpu for gpu in host.answering if gpu.pci_bus_id in bus_ids)


def full_uplink(host: HostEvidence, uplink: Mapping[str, str]) -> str | None:
    """Describe how heavily the GPUs behind an uplink load it; None if it is not full or no traffic is reported.

    Traffic between two of these GPUs counts too, though it may stay within the switch.
    """
    most = bytes_per_second(int(uplink["generation"]), int(uplink["width"]))
    gpus = list(behind(host, uplink))
    for spec, moved in ((GPU_PCIE_RECEIVE_BYTES_TOTAL, "receive"), (GPU_PCIE_TRANSMIT_BYTES_TOTAL, "send")):
        total = sum(gpu.recent.rate(spec) or 0.0 for gpu in gpus)
        if total >= thresholds.FULL_UPLINK_SHARE * most:
            who = ", ".join(gpu.gpu for gpu in gpus)
            return f"GPU {who} {moved} {total / 1e9:.1f} of {most / 1e9:.1f} GB/s"
    return None


def narrow_uplink_that_is_full(host: HostEvidence, gpu: GpuEvidence) -> str | None:
    """Describe the uplink above a GPU that is full and slower than it could be; None if there is none."""
    for labels in host.labels_of(GPU_HOST_PCIE_UPLINK_INFO):
        short = labels["width"] != labels["expected_width"] or labels["generation"] != labels["expected_generation"]
        if short and gpu.pci_bus_id and gpu.pci_bus_id in labels["behind"]:
            full = full_uplink(host, labels)
            if full is not None:
                return f"uplink of switch {labels['bridge']} short of bandwidth: {full}"
    return None
