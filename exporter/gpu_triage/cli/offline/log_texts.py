"""Wording shared by log findings: the affected GPU, how often something happened, and when."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_triage.cli.offline.logs import Events, LogReading, when
from gpu_triage.judge.findings.finding import Finding, of_slot
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.metrics.contract import GpuLabels


def about_gpu(
    code: str, address: str, labels: Mapping[str, GpuLabels], measured: str, value: float | None = None
) -> Finding:
    """A finding about the GPU at an address, labeled with its index if known."""
    known = labels.get(address)
    if known is not None:
        return Finding(BY_CODE[code], measured, known.gpu, known.uuid, value=value)
    return of_slot(code, address, measured, value)


def last_of(events: Events, log: LogReading) -> str:
    """When the latest of the events happened."""
    last = events.last
    return "at an unknown time" if last is None else when(last, log)


def count_and_last(count: int, events: Events, log: LogReading) -> str:
    """The number of events and the time of the latest."""
    times = "once" if count == 1 else f"{count} times, last"
    return f"{times} {last_of(events, log)}"
