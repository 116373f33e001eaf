"""Area summaries of what was read, beside those that a live host gets; they never claim health."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from gpu_triage.cli.offline.events import EventKind
from gpu_triage.cli.offline.evidence import FilesOfHost
from gpu_triage.cli.offline.logs import LogReading
from gpu_triage.cli.offline.snapshot import Snapshot
from gpu_triage.judge.findings.table import Area
from gpu_triage.read.gpu.nvlink_counters import CRC
from gpu_triage.read.metrics.contract import GpuLabels

_MOST_LINKS: Final = 8
_VERSION: Final = re.compile(r" {1,3}(\d{3}\.\d{1,3}(?:\.\d{1,3})?) ")


def summaries(area: Area, files: FilesOfHost, *, found: bool) -> Iterator[str]:
    """Summaries of an area from logs and lspci, where nvidia-smi has none; `found`: whether it has findings."""
    match area:
        case Area.DRIVER:
            yield from _on_the_bus(files)
        case Area.HEALTH if files.log is not None:
            yield _xids(files.log)
        case Area.PCIE:
            yield from _links(files)
        case Area.HOST if files.log is not None and not found:
            yield f"no killed or hung processes, storage or hardware errors in {_lines(files.log)}"
        case _:
            return


def _on_the_bus(files: FilesOfHost) -> Iterator[str]:
    gpus = [device for device in files.devices.values() if device.is_gpu]
    on_bus = Counter(f"{device.model} (driver in use: {device.driver or 'none'})" for device in gpus)
    if on_bus:
        yield f"on the bus: {', '.join(f'{count} x {gpu}' for gpu, count in on_bus.items())}"
    version = files.driver_version or _loaded_version(files.log)
    if version:
        yield f"kernel module {version}"


def _loaded_version(log: LogReading | None) -> str:
    """The driver version that was loaded last according to the log; "" if unknown."""
    loads = [] if log is None else [events.last for _, events in log.of_kind(EventKind.LOADED)]
    found = _VERSION.search(loads[0].text) if loads and loads[0] is not None else None
    return "" if found is None else found[1]


def _xids(log: LogReading) -> str:
    codes = sorted({what.code for what, _ in log.of_kind(EventKind.XID) if what.code}, key=int)
    found = f"Xid errors {', '.join(codes)}" if codes else "no Xid errors"
    return f"{found} in {_lines(log)}"


def _links(files: FilesOfHost) -> Iterator[str]:
    links = Counter(
        f"gen {device.generation} x{device.width}"
        for device in files.devices.values()
        if device.is_gpu and not device.is_dead and device.generation is not None and device.width is not None
    )
    if links:
        yield f"by lspci: {', '.join(f'{count} x {link}' for link, count in sorted(links.items()))}"


def _lines(log: LogReading) -> str:
    return f"{log.lines} line{'s' * (log.lines != 1)} of log"


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
        if key in labels and (errors := _link_errors(link.errors))
    ]
    if counted:
        more = f"; {len(faulty) - _MOST_LINKS} more links" if len(faulty) > _MOST_LINKS else ""
        yield f"NVLink errors since the driver was loaded: {'; '.join(faulty[:_MOST_LINKS]) or 'none'}{more}"


def _link_errors(counts: Mapping[str, float]) -> str:
    words = {kind: "CRC" if kind == CRC else kind for kind in counts}
    return ", ".join(f"{count:.0f} {words[kind]}" for kind, count in counts.items() if count)


def _is_first(index: str, peer: str) -> bool:
    """Whether this GPU reports the pair's connection, so that each pair counts once."""
    return index.isdecimal() and peer.isdecimal() and int(index) < int(peer)
