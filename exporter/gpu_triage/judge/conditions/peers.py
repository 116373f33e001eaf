"""Does the way to a GPU, or from one GPU to another, give less than it could? Slots and peer access."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.owners import owners_of
from gpu_triage.judge.evidence.pcie_paths import link_speed, traffic_text
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.findings.finding import Finding, of_gpu, of_host
from gpu_triage.read.gpu.nvlink import GPU_NVLINK_UP
from gpu_triage.read.gpu.presence import GPU_P2P_EXPECTED
from gpu_triage.read.gpu.topology import GPU_P2P_STATUS


class _Path(NamedTuple):
    """The access of one GPU to another."""

    gpu: GpuEvidence
    peer: GpuEvidence
    status: str
    kind: tuple[str, str | None, str]  # model, topology level and capability

    @property
    def works(self) -> bool:
        return self.status in ("ok", "unknown")


def judge_peers(host: HostEvidence) -> Iterator[Finding]:
    """Yield slots that give less than others, and GPUs that do not reach each other directly."""
    for gpu, lesser in host.lesser_slots.items():
        moves = traffic_text(gpu)
        measured = (
            f"its slot gives {lesser.gives.text}, that of GPU {ranges(lesser.in_slots_of)} {lesser.better.text}"
            f"{moves and f'; it {moves}'}"
        )
        yield of_gpu("pcie.below_peers", gpu, measured, value=lesser.gives.lanes)
    if host.last(GPU_P2P_EXPECTED) == 0:
        return
    paths = list(_paths(host))
    refused = _refused(host, paths)
    for gpu, peers in refused.items():
        words = ", ".join(f"GPU {peer}: {status}" for peer, status in peers.items())
        yield of_gpu("p2p.unavailable", gpu, words, value=len(peers))
    yield from _through_host([path for path in paths if path.gpu not in refused and path.peer not in refused])


def _paths(host: HostEvidence) -> Iterator[_Path]:
    whole = {(gpu.gpu, gpu.uuid): gpu for gpu in host.answering if gpu.uuid and not gpu.partitioned}
    levels = host.topology_levels()
    for capability in ("read", "write"):
        for labels in host.labels_of(GPU_P2P_STATUS, capability=capability):
            gpu = whole.get((labels["gpu"], labels["uuid"]))
            peer = whole.get((labels["peer_gpu"], labels["peer_uuid"]))
            if gpu is not None and peer is not None:
                kind = (gpu.name, levels.get(frozenset((gpu.uuid, peer.uuid))), capability)
                yield _Path(gpu, peer, labels["status"], kind)


def _refused(host: HostEvidence, paths: list[_Path]) -> Mapping[GpuEvidence, Mapping[str, str]]:
    """Return pairs of GPUs of one model without direct access that they should have.

    Access is expected if it is declared, if an equally close pair has it, and, for access disabled by an administrator,
    between GPUs with NVLink.
    """
    declared = host.last(GPU_P2P_EXPECTED) == 1
    paths = [path for path in paths if path.gpu.name == path.peer.name]
    linked = {gpu for path in paths for gpu in (path.gpu, path.peer) if gpu.has(GPU_NVLINK_UP)}
    able = {path.kind for path in paths if path.status == "ok" and path.kind[1] is not None}
    refused: dict[GpuEvidence, dict[str, str]] = defaultdict(dict)
    for path in paths:
        forbidden = path.status == "disabled_by_regkey" and path.gpu in linked and path.peer in linked
        if not path.works and (declared or path.kind in able or forbidden):
            refused[path.gpu][path.peer.gpu] = path.status
    return refused


def _busy(gpu: GpuEvidence) -> bool:
    return (gpu.busy_share or 0.0) >= thresholds.BUSY_SHARE


def _through_host(paths: list[_Path]) -> Iterator[Finding]:
    """Yield one finding for all busy GPUs that reach each other only through host memory.

    GPUs of different owners exchange nothing.
    """
    slow = [path for path in paths if not path.works and _busy(path.gpu) and _busy(path.peer)]
    owners = {gpu: set(owners_of(gpu)) for gpu in {gpu for path in slow for gpu in (path.gpu, path.peer)}}
    apart = [
        path for path in slow if not owners[path.gpu] or not owners[path.peer] or owners[path.gpu] & owners[path.peer]
    ]
    gpus = {path.gpu.gpu: path.gpu for path in apart}
    if len(gpus) < 2:  # noqa: PLR2004 - a pair
        return
    statuses = ", ".join(sorted({path.status for path in apart}))
    measured = f"GPU {ranges(gpus)} exchange data through host memory ({statuses}){_cost(gpus.values())}"
    yield of_host("p2p.through_host", measured, value=len(gpus))


def _cost(gpus: Iterable[GpuEvidence]) -> str:
    """Describe the slowest link between these GPUs and the host; "" if no link is known."""
    speeds = [(speed, gpu) for gpu in gpus if (speed := link_speed(gpu)) is not None]
    if not speeds:
        return ""
    speed, slowest = min(speeds, key=lambda each: each[0].bytes_per_second)
    moves = traffic_text(slowest)
    if all(each == speed for each, _ in speeds):
        return f"; each over {speed.text}{moves and f'; GPU {slowest.gpu} {moves}'}"
    return f"; the slowest link on that way is GPU {slowest.gpu}'s, {speed.text}{moves and f', which {moves}'}"
