"""Line rates of the links of GPUs, as read: PCIe generation and width, NVLinks by what they lead to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.pcie_paths import link_speed
from gpu_triage.read.gpu.nvlink import GPU_NVLINK_BANDWIDTH_BYTES_PER_SECOND, GPU_NVLINK_LINKS, GPU_NVLINK_LINKS_UP
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_GENERATION
from gpu_triage.read.host.pcie_uplinks import GPU_HOST_PCIE_UPLINK_INFO, bytes_per_second, devices_behind


class Link(NamedTuple):
    """A link that a path uses."""

    owner: str  # ``GPU 3``, or the switch below an uplink
    words: str  # ``PCIe 4.0 x16``
    line_rate: float  # bytes per second and direction


def pcie_link(gpu: GpuEvidence) -> Link | None:
    """Return the GPU's PCIe link as it is now; None if it is not reported.

    An idle GPU lowers its generation, so that of an idle link is the one to reach under load.
    """
    speed = link_speed(gpu)
    if speed is None:
        return None
    if gpu.recent.loaded:
        speed = speed._replace(generation=gpu.last(GPU_PCIE_LINK_GENERATION) or speed.generation)
    return Link(f"GPU {gpu.gpu}", f"PCIe {speed.generation:.0f}.0 x{speed.lanes:.0f}", speed.bytes_per_second)


def slowest_nvlink(host: HostEvidence, group: tuple[GpuEvidence, ...]) -> Link | None:
    """Return the NVLinks of the GPU of a group with the lowest rate to the others; None if a GPU reports none.

    Links to a switch, or to an unnamed far end, serve any peer. Of links that lead to GPUs, only those into the group
    count.
    """
    members = {gpu.key for gpu in group}
    outside = {gpu.pci_bus_id for gpu in host.gpus if gpu.pci_bus_id and gpu.key not in members}
    links = [_nvlinks(gpu, outside) for gpu in group]
    known = [link for link in links if link is not None]
    return min(known, key=lambda link: link.line_rate) if len(known) == len(group) else None


def _nvlinks(gpu: GpuEvidence, outside: set[str]) -> Link | None:
    """Return the NVLinks of a GPU, without those that lead to these addresses."""
    series = gpu.series(GPU_NVLINK_BANDWIDTH_BYTES_PER_SECOND)
    total = sum(each.last for each in series)
    rate = sum(each.last for each in series if each.labels["far_end"] not in outside)
    up, lead_somewhere = gpu.last(GPU_NVLINK_LINKS_UP) or 0.0, gpu.last(GPU_NVLINK_LINKS) or 0.0
    if not rate or not up:
        return None
    # Links that lead elsewhere are not missing.
    of = "" if rate < total or up == lead_somewhere else f" of {lead_somewhere:.0f}"
    return Link(f"GPU {gpu.gpu}", f"{up * rate / total:.0f}{of} links of {total / up / 1e9:.1f} GB/s", rate)


def uplink_shares(host: HostEvidence, group: tuple[GpuEvidence, ...], *, direct: bool) -> Iterator[Link]:
    """Yield what each GPU of a group gets of the links above PCIe switches that the group's data pass.

    With peer access (`direct`), data between GPUs behind one switch stay below it, and a ring crosses its uplink once.
    Through host memory, the data of each GPU behind it pass it. At rest, a link's generation is the one to reach under
    load.
    """
    for labels in host.labels_of(GPU_HOST_PCIE_UPLINK_INFO):
        addresses = devices_behind(labels)
        behind = [gpu for gpu in host.answering if gpu.pci_bus_id in addresses]
        count = sum(gpu in behind for gpu in group)
        if not count or (direct and count == len(group)):
            continue
        loaded = any(gpu.recent.loaded for gpu in behind)
        generation, width = int(labels["generation" if loaded else "expected_generation"]), int(labels["width"])
        flows = 1 if direct else count
        shared = f", shared by {flows} GPUs" if flows > 1 else ""
        yield Link(
            f"the uplink of switch {labels['bridge']}",
            f"PCIe {generation}.0 x{width}{shared}",
            bytes_per_second(generation, width) / flows,
        )
