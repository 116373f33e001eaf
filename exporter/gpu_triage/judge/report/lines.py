"""The report for shell scripts: one line each for the host, GPUs and findings, with tab-separated fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_triage.judge.report.life_cycle import life_cycle_of
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import printable

NOTHING: Final = "-"
"""Placeholder for empty fields."""
_HOLDS: Final = {True: "yes", False: "no", None: ""}


def render_lines(report: Report) -> str:
    """Return the report as lines; docs/check.md describes the format."""
    return "".join("\t".join(printable(field) or NOTHING for field in fields) + "\n" for fields in _records(report))


def _records(report: Report) -> Iterator[tuple[str, ...]]:
    yield "host", report.verdict.value, report.host, report.blocked or ""
    for gpu in report.gpus:
        yield "gpu", gpu.gpu, gpu.pci_bus_id, gpu.verdict.value, gpu.bottleneck.name, ",".join(gpu.codes)
    for finding in report.findings:
        check, subject = finding.check, (finding.gpu or "", finding.pci_bus_id)
        facts = (finding.urgency.value, check.code, check.action.value, finding.measured)
        life_cycle = life_cycle_of(finding)
        times = (_seconds(life_cycle.lasted_seconds), _seconds(life_cycle.wait_seconds))
        yield ("finding", *subject, *facts, life_cycle.state, *times, _HOLDS[life_cycle.holds])


def _seconds(time: float | None) -> str:
    return "" if time is None else f"{time:.0f}"
