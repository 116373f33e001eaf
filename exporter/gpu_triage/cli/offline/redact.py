"""Redacts a report for sharing: removes user, host and program names, UUIDs and network addresses."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from typing import Final

from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.report.report import AreaVerdict, FileRead, GpuVerdict, Report
from gpu_triage.record.masking import Masker

_PROCESS: Final = re.compile(r"[^\s,;]{1,80} \((\d{1,9})\)")
"""A process as findings name it: name and PID."""


def redacted(report: Report) -> Report:
    """The report with UUIDs and addresses replaced consistently, and without names.

    PCI bus addresses stay, since findings refer to them.
    """
    masker = Masker(secrets.token_bytes(16))

    def plain(text: str) -> str:
        return _PROCESS.sub(r"process (\1)", masker.text(text))

    def of_finding(finding: Finding) -> Finding:
        return replace(finding, measured=plain(finding.measured), uuid=plain(finding.uuid))

    def of_area(area: AreaVerdict) -> AreaVerdict:
        summary = None if area.summary is None else plain(area.summary)
        return replace(area, summary=summary, findings=tuple(map(of_finding, area.findings)))

    def of_gpu(gpu: GpuVerdict) -> GpuVerdict:
        because = gpu.bottleneck._replace(because=plain(gpu.bottleneck.because))
        return replace(gpu, uuid=plain(gpu.uuid), bottleneck=because)

    return replace(
        report,
        host="a host",
        recording=None if report.recording is None else "a recording",
        areas=tuple(map(of_area, report.areas)),
        gpus=tuple(map(of_gpu, report.gpus)),
        not_read=tuple(map(plain, report.not_read)),
        files=tuple(_of_file(place, file) for place, file in enumerate(report.files, start=1)),
    )


def _of_file(place: int, file: FileRead) -> FileRead:
    return replace(file, name=f"file {place}")
