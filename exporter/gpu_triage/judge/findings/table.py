"""The table of all kinds of findings, from the rows in `kinds/`: a file for each area, in the playbook's order.

The keys of a row are fields of `Check`, with `wait` and `hold` as in the settings (``5m``). What a row leaves out: its
topic is the first part of the code, it is a warning, and it is about the host in ``host.toml``, about a GPU elsewhere.
``xid.page`` is the row of each Xid of that kind, without its words.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from gpu_triage.documents import packaged_toml
from gpu_triage.judge.findings.check import Action, Area, Check, Limit, Measure, Severity, Unit
from gpu_triage.options.values import parse_duration
from gpu_triage.read.xid import codes

__all__ = ("BY_CODE", "CHECKS", "EXPLAINED_BY", "Action", "Area", "Check", "Measure", "Severity", "Unit", "xid_check")

_WORDS_OF_XIDS: Final = {
    "xid.unlisted": (codes.UNLISTED_MEANING, codes.UNLISTED_REMEDY),
    "xid.nonfatal": (codes.NONFATAL_MEANING, codes.NONFATAL_ACTION),
    "xid.gsp_slow": (codes.SLOW_GSP_MEANING, codes.SLOW_GSP_ACTION),
}


def _rows() -> Iterator[Check]:
    for area in Area:
        for code, row in packaged_toml(__package__, f"kinds/{area.name.lower()}.toml").items():
            usual = {"topic": code.partition(".")[0], "severity": "warning", "of_host": area is Area.HOST}
            facts = {**usual, "area": area.name, **row}
            if code in _WORDS_OF_XIDS:
                facts |= _words(*_WORDS_OF_XIDS[code])
            xids = [xid for xid in codes.XID_CODES.values() if f"xid.{xid.kind.value}" == code]
            for xid in xids:
                title = {"title": f"Xid {xid.code}, {xid.meaning}"}
                yield _check(f"xid.{xid.code}", facts | title | _words(xid.meaning, xid.remedy))
            if not xids:
                yield _check(code, facts)


def _words(meaning: str, decision: str) -> dict[str, str]:
    """Meanings in the table of Xids are fragments."""
    return {"meaning": f"{meaning[0].upper()}{meaning[1:]}.", "decision": decision}


def _check(code: str, facts: Mapping[str, Any]) -> Check:
    values = {
        **facts,
        "area": Area[facts["area"].upper()],
        "severity": Severity(facts["severity"]),
        "action": Action(facts["action"]),
        "measure": Measure(**_with_unit(facts["measure"])) if "measure" in facts else None,
        "limits": {name: Limit(**_with_unit(limit)) for name, limit in facts.get("limits", {}).items()},
        "explained_by": tuple(facts.get("explained_by", ())),
    }
    values |= {f"{name}_seconds": parse_duration(values.pop(name)) for name in ("wait", "hold") if name in facts}
    return Check(code=code, **values)


def _with_unit(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "unit": Unit[values["unit"].upper()]}


CHECKS: Final = tuple(_rows())
"""All rows, in the playbook's order."""

EXPLAINED_BY: Final = MappingProxyType({check.code: check.explained_by for check in CHECKS if check.explained_by})
"""Findings caused by another one about the same GPU, or both about the host.

The judge holds a finding back while a cause that alerts as urgently is pending or confirmed: an alert fires for the
cause, and none for a symptom that is known earlier. Alertmanager inhibits what Prometheus judges.
"""

BY_CODE: Final = MappingProxyType({check.code: check for check in CHECKS})
_FATAL_IN_TEXT: Final = frozenset(str(xid.code) for xid in codes.XID_CODES.values() if xid.fatal_in_text)


def xid_check(xid: str, fatal: str = "") -> Check:
    """Return the check for an Xid, by code and severity in the kernel log (`fatal`: ``true``, ``false`` or empty)."""
    if xid in _FATAL_IN_TEXT and fatal != "true":
        return BY_CODE["xid.nonfatal"]
    return BY_CODE.get(f"xid.{xid}", BY_CODE["xid.unlisted"])
