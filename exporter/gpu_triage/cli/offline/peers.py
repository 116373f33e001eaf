"""Summary of GPU interconnects from nvidia-smi output: topology and NVLink errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from gpu_triage.cli.offline.snapshot import Snapshot
from gpu_triage.read.gpu.nvlink import CRC
from gpu_triage.read.metrics.contract import GpuLabels

_MOST_LINKS = 8


def peers_told(last: Snapshot, labels: Mapping[str, GpuLabels]) -> Iterator[str]:
    """Parts of the summary; nothing if no such output was read."""
    pairs = Counter(
        level
        for key, gpu in last.gpus.items()
        for peer, level in gpu.peers.items()
        if key in labels and _is_first(labels[key].gpu, peer)
    )
    if pairs:
        yield "topology: " + ", ".join(f"{count} x {level}" for level, count in sorted(pairs.items()))
    counted = [
        (key, number, link) for key, gpu in last.gpus.items() for number, link in gpu.links.items() if link.errors
    ]
    faulty = [
        f"GPU {labels[key].gpu} link {number}: {errors}"
        for key, number, link in counted
        if key in labels and (errors := _errors(link.errors))
    ]
    if counted:
        more = f"; {len(faulty) - _MOST_LINKS} more links" if len(faulty) > _MOST_LINKS else ""
        yield f"NVLink errors since the driver was loaded: {'; '.join(faulty[:_MOST_LINKS]) or 'none'}{more}"


def _errors(counts: Mapping[str, float]) -> str:
    words = {kind: "CRC" if kind == CRC else kind for kind in counts}
    return ", ".join(f"{count:.0f} {words[kind]}" for kind, count in counts.items() if count)


def _is_first(index: str, peer: str) -> bool:
    """Whether this GPU reports the pair's connection, so that each pair counts once."""
    return index.isdecimal() and peer.isdecimal() and int(index) < int(peer)
