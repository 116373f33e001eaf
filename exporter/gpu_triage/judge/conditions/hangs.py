"""Does a job hang? GPUs of a job that stopped after they worked, and GPUs that spin without moving data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpu_triage.judge.bottleneck.classes import STARVED, Bottleneck, Bottlenecks
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.owners import GpuOwner, owners_of
from gpu_triage.judge.findings.finding import Finding, of_host
from gpu_triage.read.gpu.nvlink import (
    GPU_NVLINK_LINKS_UP,
    GPU_NVLINK_RECEIVE_BYTES_TOTAL,
    GPU_NVLINK_TRANSMIT_BYTES_TOTAL,
)
from gpu_triage.read.gpu.pcie import GPU_PCIE_RECEIVE_BYTES_TOTAL, GPU_PCIE_TRANSMIT_BYTES_TOTAL
from gpu_triage.read.host.infiniband import GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO

_PCIE_TRAFFIC: Final = (GPU_PCIE_TRANSMIT_BYTES_TOTAL, GPU_PCIE_RECEIVE_BYTES_TOTAL)
_NVLINK_TRAFFIC: Final = (GPU_NVLINK_TRANSMIT_BYTES_TOTAL, GPU_NVLINK_RECEIVE_BYTES_TOTAL)


class _Stuck(NamedTuple):
    """GPUs of one job that stopped, and those that spin, each with the seconds for which they have."""

    stopped: dict[GpuEvidence, float]
    spinning: dict[GpuEvidence, float]


def time_in_class(name: str, gpu: GpuEvidence, bottleneck: Bottleneck) -> str:
    """Return why a GPU is in a class, or its recent share of time in it if that is most of it; else ""."""
    if bottleneck.name == name:
        return bottleneck.because
    share = bottleneck.lately.get(name, 0.0) if gpu.up else 0.0
    return f"in class {name} for {share:.0%} of the last minutes" if share > thresholds.CLASS_SHARE else ""


def stopped(host: HostEvidence, gpu: GpuEvidence, bottleneck: Bottleneck) -> str:
    """Return how a GPU stopped directly after it worked; "" if it did not, or if its host explains it."""
    seconds = bottleneck.stopped_seconds
    if seconds < thresholds.STOPPED_SECONDS or not _stands_still(gpu, bottleneck):
        return ""
    saves = host.recent.saves() and seconds < thresholds.UNEXPLAINED_SECONDS
    return "" if saves else f"no work for {seconds:.0f} s, directly after it worked"


def judge_hangs(host: HostEvidence, bottlenecks: Bottlenecks) -> Iterator[Finding]:
    """Yield the GPUs of this host that are stuck in a collective, waiting for a missing rank.

    GPUs of a job are stuck together if none of them works: an evaluation on one of them, or a checkpoint that the host
    saves, makes the others wait as long as it takes. Slow communication would move data; GPUs without traffic counters
    are not known to spin.
    """
    sent = host.rate(GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL) or 0.0
    quiet = sent <= thresholds.SILENT_BYTES_PER_SECOND
    found = [text for gpus in _jobs(host, bottlenecks) if (text := _together(host, gpus, bottlenecks, quiet=quiet))]
    if not found and quiet:
        # Whatever else their job does: nothing that they wait for takes so long.
        spinning = (gpu for gpu, each in bottlenecks.items() if each.spinning_seconds >= thresholds.UNEXPLAINED_SECONDS)
        lasting = [gpu for gpu in spinning if _is_silent(gpu)]
        if len(lasting) >= thresholds.SILENT_GPUS:
            found = [(f"GPU {_names(lasting)}: busy at low power, and no data moves", len(lasting))]
    if found:
        yield of_host("work.collective_hang", "; ".join(text for text, _ in found), sum(count for _, count in found))


def _jobs(host: HostEvidence, bottlenecks: Bottlenecks) -> Iterator[Sequence[GpuEvidence]]:
    """Yield the GPUs of each job with several ranks on this host; all GPUs without a known owner are one job."""
    jobs: dict[tuple[GpuOwner, ...], list[GpuEvidence]] = defaultdict(list)
    for gpu in host.answering:
        if gpu in bottlenecks and not gpu.partitioned and gpu.occupied:
            jobs[owners_of(gpu)].append(gpu)
    for gpus in jobs.values():
        pids = {labels["pid"] for gpu in gpus for labels in gpu.labels_of(GPU_PROCESS_INFO)}
        # One process on several GPUs has no ranks: it may be a notebook.
        if len(gpus) >= thresholds.SILENT_GPUS and len(pids) != 1:
            yield gpus


def _together(
    host: HostEvidence, gpus: Sequence[GpuEvidence], bottlenecks: Bottlenecks, *, quiet: bool
) -> tuple[str, int] | None:
    """Describe and count the stuck GPUs of one job; None if one of them works, or not for long enough."""
    stuck = _Stuck({}, {})
    for gpu in gpus:
        bottleneck = bottlenecks[gpu]
        if bottleneck.stopped_seconds and _stands_still(gpu, bottleneck):
            stuck.stopped[gpu] = bottleneck.stopped_seconds
        elif quiet and bottleneck.spins_after_work and bottleneck.spinning_seconds and _is_silent(gpu):
            stuck.spinning[gpu] = bottleneck.spinning_seconds
        else:
            return None
    seconds = min((*stuck.stopped.values(), *stuck.spinning.values()))
    alone = thresholds.STOPPED_SECONDS if stuck.stopped else thresholds.STUCK_SECONDS
    if seconds < (thresholds.WAITED_FOR_SECONDS if stuck.stopped and stuck.spinning else alone):
        return None
    if host.recent.saves() and seconds < thresholds.UNEXPLAINED_SECONDS:
        return None
    return _text(stuck), len(gpus)


def _text(stuck: _Stuck) -> str:
    stopped_ones, spinning_ones = _names(stuck.stopped), _names(stuck.spinning)
    if stuck.stopped and stuck.spinning:
        return f"GPU {stopped_ones} stopped; GPU {spinning_ones}: busy at low power, and no data moves"
    if stuck.spinning:
        return f"GPU {spinning_ones}: busy at low power, and no data moves"
    return f"GPU {stopped_ones} stopped together, directly after they worked"


def _names(gpus: Sequence[GpuEvidence] | dict[GpuEvidence, float]) -> str:
    return ", ".join(gpu.gpu for gpu in gpus)


def _stands_still(gpu: GpuEvidence, bottleneck: Bottleneck) -> bool:
    """Whether it is idle with memory held, and does not wait for its host."""
    return gpu.held_idle and bottleneck.name not in STARVED


def _is_silent(gpu: GpuEvidence) -> bool:
    """Whether its traffic to other GPUs is counted and does not grow.

    NVLinks that are down carry nothing, so only PCIe traffic counts then.
    """
    counters = (*_PCIE_TRAFFIC, *(_NVLINK_TRAFFIC if gpu.last(GPU_NVLINK_LINKS_UP) else ()))
    rates = [rate for spec in counters if (rate := gpu.rate(spec)) is not None]
    return bool(rates) and max(rates) <= thresholds.SILENT_BYTES_PER_SECOND
