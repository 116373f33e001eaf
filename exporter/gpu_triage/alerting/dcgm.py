"""Recording rules that detect findings from dcgm-exporter's metrics: those of the source, and of Xids.

The alerts relay them like an exporter's findings; severity, action and wait are those of the judge's tables. DCGM
exposes little, so only a few kinds can be detected.
"""

from collections.abc import Iterator
from typing import Final

from gpu_triage.alerting.rule_source import DcgmFinding, RecordingRule
from gpu_triage.judge.findings.table import BY_CODE, Check
from gpu_triage.read.xid.codes import XID_CODES, XidKind

_DCGM: Final = 'recorded_from="dcgm"'
_XID: Final = f"gpu_xid_last_timestamp_seconds{{{_DCGM}"
_XID_SECONDS: Final = 3600
"""How long an Xid counts as a finding."""
RECORDED_XIDS: Final = (XidKind.PAGE, XidKind.TICKET)
_HOLDS: Final = "instance_gpu_code:gpu_dcgm_fault:holds"
"""1 while a condition with a wait holds. Sound GPUs have none, so that looking back at it costs nothing for them."""


def rules_of(finding: DcgmFinding) -> Iterator[RecordingRule]:
    """The finding, and the value that the alert shows, if any."""
    check, measured = BY_CODE[finding.code], finding.measured
    condition = finding.condition or f"{measured} {finding.fault}"
    expr = f"2 * ({condition}) ^ 0"
    if check.wait_seconds and not finding.condition:
        yield RecordingRule(_HOLDS, f"({condition}) ^ 0", labels={"code": check.code})
        holds = f'max without (code) ({_HOLDS}{{code="{check.code}"}})'
        expr = _confirmed(holds, round(check.wait_seconds / 60))
    name, subject = ("gpu_host_finding", "${target}") if check.of_host else ("gpu_finding", "${target}, gpu, uuid")
    yield _recorded(name, check, expr)
    if check.measure:
        value = f'({measured}) and on ({subject}) {name}{{{_DCGM}, code="{check.code}"}}'
        yield RecordingRule(f"{name}_value", value, labels={"code": check.code, "recorded_from": "dcgm"})


def xids() -> Iterator[RecordingRule]:
    for kind in RECORDED_XIDS:
        code = next(xid.code for xid in XID_CODES.values() if xid.kind is kind)
        standing = (
            "(${dcgm_fatal_xid}) unless ${dcgm_board}"
            if kind is XidKind.PAGE
            else _recent(f'=~"${{xids_{kind.value}}}"')
        )
        yield _recorded_xid(BY_CODE[f"xid.{code}"], standing, "xid.$1")
    # DCGM does not say whether these are fatal.
    recent = _recent('=~"${xids_fatal_in_text}"')
    unknown = f"{recent} unless on (${{target}}, gpu, uuid) (${{dcgm_fatal_xid}})"
    yield _recorded("gpu_finding", BY_CODE["xid.nonfatal"], f"max without (xid) (2 * ({unknown}) ^ 0)")
    yield _recorded_xid(BY_CODE["xid.unlisted"], _recent('!~"${xids_listed}"'), "xid.unlisted")


def _recent(matched: str) -> str:
    return f"{_XID}, xid{matched}}} > time() - {_XID_SECONDS}"


def _recorded_xid(check: Check, standing: str, code: str) -> RecordingRule:
    """A rule for the Xids of one severity, recorded with their own codes."""
    expr = f'max without (xid) (label_replace(2 * ({standing}) ^ 0, "code", "{code}", "xid", "(.+)"))'
    labels = {"severity": check.severity.value, "action": check.action.value, "recorded_from": "dcgm"}
    return RecordingRule("gpu_finding", expr, labels=labels)


def _confirmed(condition: str, minutes: int) -> str:
    """2 (confirmed) once a condition has held for so long, of twice as long, while it did in the last ten minutes."""
    return (
        f"2 * (count_over_time(({condition})[{2 * minutes}m:1m]) >= {minutes}"
        f" and count_over_time(({condition})[10m:1m])) ^ 0"
    )


def _recorded(name: str, check: Check, expr: str) -> RecordingRule:
    facts = {"code": check.code, "severity": check.severity.value, "action": check.action.value}
    return RecordingRule(name, expr, labels={**facts, "recorded_from": "dcgm"})
