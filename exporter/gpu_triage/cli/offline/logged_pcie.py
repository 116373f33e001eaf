"""PCIe findings from files: errors in the kernel log, and links that only lspci shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from gpu_triage.cli.offline.events import EventKey, EventKind
from gpu_triage.cli.offline.evidence import FilesOfHost
from gpu_triage.cli.offline.logs import Events, LogReading
from gpu_triage.cli.offline.lspci import PciDevice, port_above
from gpu_triage.documents.pcie import BUILT_LANES
from gpu_triage.judge.findings.finding import Finding, of_slot

_SOME_CORRECTABLE: Final = 10
"""Corrected PCIe errors in a log that are reported; a link has one now and then. The kernel rate-limits floods."""


def error_findings(files: FilesOfHost) -> Iterator[Finding]:
    """PCIe errors of GPUs and of the ports above them, from the log or lspci."""
    log = files.log
    assert log is not None  # noqa: S101 - checked by the caller
    gpus = {*files.labels, *(device.bus_id for device in files.devices.values() if device.is_gpu), *log.gpus}
    below: dict[str, list[str]] = defaultdict(list)
    for gpu in sorted(gpus):
        above = port_above(files.ports, gpu)
        port = log.ports.get(gpu, "") if above is None else above.bus_id
        if port:
            below[port].append(gpu)
    reported: dict[str, list[str]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for address, severity, events in _errors(log):
        if severity == "correctable" and events.count < _SOME_CORRECTABLE:
            continue
        said = log.count_and_last(events.count, events)
        if address in gpus:
            reported[address].append(f"{severity} on the GPU, {said}")
            counts[address] += events.count
        for gpu in below.get(address, ()):
            others = f" and {len(below[address]) - 1} others" if len(below[address]) > 1 else ""
            reported[gpu].append(f"{severity} on the port {address} above it{others}, {said}")
            counts[gpu] += events.count
    for gpu, errors in reported.items():
        yield files.about_gpu("pcie.aer", gpu, "; ".join(errors), counts[gpu])


def _errors(log: LogReading) -> Iterator[tuple[str, str, Events]]:
    """Errors by device and severity: as reported by the device, or by its port if the port counted more."""
    for what, events in log.of_kind(EventKind.AER):
        received = log.events.get(EventKey(EventKind.AER_RECEIVED, what.address, what.code))
        yield what.address, what.code, events if received is None or received.count <= events.count else received
    for what, events in log.of_kind(EventKind.AER_RECEIVED):
        if EventKey(EventKind.AER, what.address, what.code) not in log.events:
            yield what.address, what.code, events


def link_findings(files: FilesOfHost, answering: frozenset[str]) -> Iterator[Finding]:
    """Links with missing lanes on GPUs that nvidia-smi doesn't show; a low speed at idle is normal."""
    links = {bus_id: link for bus_id, device in files.devices.items() if (link := _link(files, device)) is not None}
    for device in files.devices.values():
        if not device.is_gpu or device.bus_id in answering:
            continue
        if device.is_dead:
            if device.bus_id not in files.labels:
                measured = "its configuration space reads all ones (lspci: rev ff)"
                yield of_slot("gpu.lost", device.bus_id, measured)
            continue
        lanes, most = links.get(device.bus_id, (0, 0))
        if lanes < most:
            others = [each for bus_id, (each, claim) in links.items() if bus_id != device.bus_id and claim == most]
            built = lanes >= BUILT_LANES and bool(others) and max(others) == lanes
            measured = f"{lanes} of {most} lanes, at {device.bus_id}; whether under load, lspci does not say"
            code = "pcie.width_built" if built else "pcie.width_idle"
            yield files.about_gpu(code, device.bus_id, measured, lanes)


def _link(files: FilesOfHost, device: PciDevice) -> tuple[int, int] | None:
    """The lanes of a GPU's link, and how many its card and slot claim; None if unknown."""
    port = port_above(files.ports, device.bus_id)
    most = [each for each in (device.max_width, None if port is None else port.max_width) if each is not None]
    return None if not device.is_gpu or device.width is None or not most else (device.width, min(most))
