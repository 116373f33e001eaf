"""What could not be read, and what that hides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.evidence import Track
from gpu_triage.diagnosis.view import HostView

_FOUND: Final = frozenset({"lost", "reset_required"})
"""Errors that are findings already."""


def _goes_on(errors: Track, host: HostView) -> bool:
    """Whether the errors go on; those of a collector whose rounds are further apart than the window may."""
    interval = host.evidence.last(catalogue.EXPORTER_COLLECTOR_INTERVAL, collector=errors.labels["collector"])
    return errors.increase > 0 or interval is None or interval >= host.evidence.seconds


def blind_spots(host: HostView) -> tuple[str, ...]:
    """A line for each, with the next step."""
    return tuple(_blind_spots(host))


def _blind_spots(host: HostView) -> Iterator[str]:
    sources = {t.labels["source"]: t.last for t in host.evidence.series(catalogue.EXPORTER_XID_SOURCE_UP)}
    if sources.get("kmsg") == 0:
        yield (
            "the kernel log: Xids from before this look are not seen; run as root or with CAP_SYSLOG, "
            "or give --path.kmsg"
        )
    if host.answering and sources.get("nvml") == 0:
        yield "NVML's events: an Xid of now is seen in the kernel log only"
    if host.driver_error is None:
        failed: dict[str, set[str]] = defaultdict(set)
        for track in host.evidence.series(catalogue.EXPORTER_ERRORS):
            if track.labels["error"] not in _FOUND and _goes_on(track, host):
                failed[track.labels["collector"]].add(track.labels["error"])
        for collector, errors in failed.items():
            yield f"{collector}: {', '.join(sorted(errors))}; the log has the cause (check: --verbose)"
    nameless = [t for t in host.evidence.series(catalogue.PROCESS_INFO) if not t.labels["process"]]
    if nameless:
        yield f"{len(nameless)} processes by name: in a container, give it the host's PID namespace"
    if not host.evidence.series(catalogue.HOST_PRESSURE_SECONDS):
        yield "pressure stall information: this kernel has none, so starvation shows in iowait, disks and CPUs only"
