"""Recording rules that detect findings from dcgm-exporter's metrics; DCGM exposes little, so few kinds can be detected.

The alerts relay them like an exporter's findings; severity, action and wait are those of the judge's tables.
"""

from collections.abc import Iterator
from typing import Final

from gpu_triage.alerting.rule_source import DcgmFinding, RecordingRule
from gpu_triage.judge.findings.table import BY_CODE

_HOLDS: Final = "instance_gpu_code:gpu_dcgm_fault:holds"
"""1 while a condition with a wait holds. Sound GPUs have none, so that looking back at it costs nothing for them."""


def rules_of(finding: DcgmFinding) -> Iterator[RecordingRule]:
    """The finding, and the value that the alert shows, if any."""
    check, measured = BY_CODE[finding.code], finding.measured
    condition = finding.condition or f"{measured} {finding.fault}"
    expr, code = f"2 * ({condition}) ^ 0", {"code": check.code}
    if finding.xids:
        expr = f'max without (xid) (label_replace({expr}, "code", "xid.$1", "xid", "(.+)"))'
        code = {}
    elif check.wait_seconds and not finding.condition:
        yield RecordingRule(_HOLDS, f"({condition}) ^ 0", labels=code)
        holds = f'max without (code) ({_HOLDS}{{code="{check.code}"}})'
        expr = _confirmed(holds, round(check.wait_seconds / 60))
    name, subject = ("gpu_host_finding", "${target}") if check.of_host else ("gpu_finding", "${target}, gpu, uuid")
    facts = {"severity": check.severity.value, "action": check.action.value, "recorded_from": "dcgm"}
    yield RecordingRule(name, expr, labels=code | facts)
    if check.measure and measured:
        value = f'({measured}) and on ({subject}) {name}{{recorded_from="dcgm", code="{check.code}"}}'
        yield RecordingRule(f"{name}_value", value, labels={**code, "recorded_from": "dcgm"})


def _confirmed(condition: str, minutes: int) -> str:
    """2 (confirmed) once a condition has held for so long, of twice as long, while it did in the last ten minutes."""
    return (
        f"2 * (count_over_time(({condition})[{2 * minutes}m:1m]) >= {minutes}"
        f" and count_over_time(({condition})[10m:1m])) ^ 0"
    )
