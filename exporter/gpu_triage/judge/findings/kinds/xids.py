"""Xids: a row for each code of read/xid/codes.py, and rows for cases that codes do not cover."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.judge.findings.check import MINUTES, Action, Advice, Area, Check, Measure, Severity, Unit
from gpu_triage.read.xid.codes import (
    NONFATAL_ACTION,
    NONFATAL_MEANING,
    UNLISTED_ACTION,
    UNLISTED_MEANING,
    XID_CODES,
    XidCode,
    XidKind,
)

_HOLD_SECONDS: Final = 5 * MINUTES


_TIMES: Final = Measure(Unit.COUNT, "times reported: {}")


class _Answer(NamedTuple):
    """What all Xids of one kind have in common."""

    topic: str
    severity: Severity
    action: Action
    alert: str | None
    hold_seconds: float
    page: str = ""


_ANSWERS: Final[Mapping[XidKind, _Answer]] = MappingProxyType(
    {
        # Longer than findings that a reset ends at the same time, so that none of those pages when this one ends.
        XidKind.PAGE: _Answer("sick", Severity.CRITICAL, Action.DRAIN, "GpuXidCritical", 8 * MINUTES),
        XidKind.TICKET: _Answer("xid", Severity.WARNING, Action.RESET, "GpuXidContained", 6 * MINUTES),
        XidKind.APPLICATION: _Answer("xid", Severity.INFO, Action.FIX_JOB, "GpuXidApplication", 15 * MINUTES),
        XidKind.INFORMATION: _Answer("xid", Severity.INFO, Action.NONE, None, _HOLD_SECONDS, page="GpuXidUnlisted"),
    }
)


def _advice(meaning: str, action: str) -> Advice:
    # Meanings in the table of Xids are sentence fragments.
    return Advice(f"{meaning[0].upper()}{meaning[1:]}.", action)


def _check(xid: XidCode) -> Check:
    answer = _ANSWERS[xid.kind]
    return Check(
        code=f"xid.{xid.code}",
        area=Area.HEALTH,
        topic=answer.topic,
        severity=answer.severity,
        action=answer.action,
        alert=answer.alert,
        page=answer.page,
        title=f"Xid {xid.code}, {xid.meaning}",
        advice=_advice(xid.meaning, xid.action),
        measure=_TIMES,
        hold_seconds=answer.hold_seconds,
    )


XIDS: Final = (
    *(_check(xid) for kind in XidKind for xid in XID_CODES.values() if xid.kind is kind),
    Check(
        code="xid.unlisted",
        area=Area.HEALTH,
        topic="xid",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuXidUnlisted",
        title="an Xid that NVIDIA does not document",
        advice=_advice(UNLISTED_MEANING, UNLISTED_ACTION),
        measure=_TIMES,
        hold_seconds=_HOLD_SECONDS,
    ),
    Check(
        code="xid.nonfatal",
        area=Area.HEALTH,
        topic="xid",
        severity=Severity.WARNING,
        action=Action.RESET,
        alert="GpuXidContained",
        title="an Xid that the kernel log calls nonfatal",
        advice=_advice(NONFATAL_MEANING, NONFATAL_ACTION),
        measure=_TIMES,
        hold_seconds=_HOLD_SECONDS,
    ),
    Check(
        code="xid.earlier",
        area=Area.HEALTH,
        topic="xid",
        severity=Severity.INFO,
        action=Action.NONE,
        page="GpuXidCritical",
        title="had a critical Xid earlier",
        advice=Advice(
            "A critical Xid happened earlier, and the kernel log still holds it.",
            "Make sure that it was dealt with: if not, reset the GPU.",
        ),
        measure=_TIMES,
    ),
    Check(
        code="xid.same_unit",
        area=Area.HEALTH,
        topic="xid",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuXidSameUnit",
        title="programs keep failing in the same place of the chip",
        advice=Advice(
            "Different programs fail in one place of this GPU's chip: the board is at fault, not the programs.",
            "Drain the GPU when its job ends, run dcgmi diag -r 3, and have the board replaced.",
        ),
        measure=Measure(Unit.COUNT, "processes that failed there: {}"),
        hold_seconds=_HOLD_SECONDS,
    ),
)
