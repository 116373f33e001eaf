"""One-line verdict on a host: ``drain. 8 GPUs: 1 sick (GPU 6), 7 busy; critical: gpu.lost, xid.79``.

It lists the worst findings of the report, also if these are mere information: it must not claim more than they allow.
"""

from collections import defaultdict
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.bottleneck.classes import USE_UNKNOWN
from gpu_triage.judge.evidence.wording import first_few, ranges
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import CLASSES, Verdict
from gpu_triage.judge.report.report import Report

_USE_UNKNOWN: Final = "with unknown usage"
"""Shown in place of a class: the files contain neither processes nor utilization."""

STATES: Final = MappingProxyType({name: each["words"] for name, each in CLASSES.items()})
"""Description of the GPUs in each class, to follow their number: "2 sick, 1 throttled by heat"."""

_STATES: Final = MappingProxyType({**STATES, _USE_UNKNOWN: _USE_UNKNOWN})

UNREMARKABLE: Final = frozenset({"compute", "idle"})
"""Normal classes: their GPUs and reasons are not listed."""
_GROUPS: Final = ("critical", "critical if it lasts", "warnings", "info", "accepted")
_MOST_CODES: Final = 4


def headline(report: Report) -> str:
    """Return what follows the verdict: the number of GPUs in each state, and the codes of the worst findings."""
    return f"{_gpus(report)}{_worst(report)}"


def _gpus(report: Report) -> str:
    if report.blocked is not None:
        return "The GPUs could not be checked"
    count = len(report.gpus)
    if report.files and not count:
        return "No GPU's state in these files"
    indices: dict[str, list[str]] = defaultdict(list)
    for gpu in report.gpus:
        is_unread = (gpu.bottleneck.name, gpu.verdict) == ("unattributed", Verdict.NOT_READ)
        is_known = gpu.bottleneck.unseen != USE_UNKNOWN and not is_unread
        indices[gpu.bottleneck.name if is_known else _USE_UNKNOWN].append(gpu.gpu)
    states = ", ".join(_state(name, indices[name], count) for name in _STATES if name in indices)
    return f"{count or 'no'} GPU{'s' * (count != 1)}{states and ': '}{states}"


def _state(name: str, indices: list[str], count: int) -> str:
    if len(indices) == count:
        return f"{'all ' * (count > 1)}{_STATES[name]}"
    return counted(name, indices)


def counted(name: str, indices: list[str]) -> str:
    """Describe how many GPUs are in a class, and which: ``1 sick (GPU 6)``, ``7 busy``."""
    which = "" if name in UNREMARKABLE else f" (GPU {ranges(indices)})"
    return f"{len(indices)} {_STATES[name]}{which}"


def _worst(report: Report) -> str:
    for name in _GROUPS:
        codes = list(dict.fromkeys(f.check.code for f in report.findings if _group(f) == name))
        if codes:
            return f"; {name}: {first_few(codes, _MOST_CODES)}"
    return ""


def _group(finding: Finding) -> str:
    if finding.accepted is not None:
        return "accepted"
    if finding.urgency is Severity.CRITICAL:
        return "critical"
    if finding.severity is Severity.CRITICAL and finding.state is State.PENDING:
        return "critical if it lasts"
    return "warnings" if finding.urgency is Severity.WARNING else "info"
