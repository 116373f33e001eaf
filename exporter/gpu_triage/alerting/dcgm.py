"""Recording rules that detect findings and bounds from dcgm-exporter's metrics, generated from the judge's tables.

The alerts relay them like an exporter's findings. DCGM exposes little, so only a few kinds can be detected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_triage.alerting.rule_source import Group, RecordingRule
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.judge.findings.table import BY_CODE, Check
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK, GPU_COMPUTE_BOUND
from gpu_triage.read.gpu.activity import GPU_DRAM_ACTIVE_RATIO, GPU_TENSOR_ACTIVE_RATIO
from gpu_triage.read.xid.codes import XID_CODES, XidKind

_DCGM: Final = 'recorded_from="dcgm"'
_XID: Final = f"gpu_xid_last_timestamp_seconds{{{_DCGM}"
_XID_SECONDS: Final = 3600
"""How long an Xid counts as a finding."""
_RECORDED_XIDS: Final = (XidKind.PAGE, XidKind.TICKET)
_SLOWDOWN: Final = f'gpu_temperature_threshold_celsius{{{_DCGM}, threshold="slowdown"}}'
_HOT: Final = f'max by (${{target}}, gpu, uuid) (gpu_temperature_celsius{{{_DCGM}, sensor="gpu"}})'
_MARGIN: Final = f"max without (threshold) ({_SLOWDOWN} - on (${{target}}, gpu, uuid) group_left () {_HOT})"


def _measures() -> Iterator[tuple[str, str, str]]:
    """Finding codes, each with the measured expression and the condition for a fault."""
    yield (
        "ecc.uncorrected",
        f'max without (severity) (gpu_ecc_volatile_errors_total{{{_DCGM}, severity="uncorrected"}})',
        "> 0",
    )
    yield "memory.row_remap_failure", f"gpu_row_remap_failure{{{_DCGM}}}", "== 1"
    yield "memory.row_remap_pending", f"gpu_row_remap_pending{{{_DCGM}}}", "== 1"
    yield "memory.retired_pages_pending", f"gpu_retired_pages_pending{{{_DCGM}}}", "> 0"
    yield "pcie.replays", f"increase(gpu_pcie_replays_total{{{_DCGM}}}[15m])", f"> {_limit('pcie.replays', 'count')}"
    yield "thermal.margin", _MARGIN, f"< {_limit('thermal.margin', 'margin')}"


def _limit(code: str, name: str) -> str:
    return f"{LIMITS[code][name].value:g}"


def bounds() -> Group:
    """gpu_compute_bound of GPUs that our exporter watches, and that have no GPM."""
    averages = {
        f"gpu_{name}_active_ratio": f"avg_over_time(gpu_{name}_active_ratio{{{_DCGM}}}[2m])"
        for name in ("tensor", "fp64", "fp32", "fp16", "dram")
    }
    memory, tensor = averages.pop(GPU_DRAM_ACTIVE_RATIO.name), averages[GPU_TENSOR_ACTIVE_RATIO.name]
    busiest = " or ".join(f"{average} >= {thresholds.ARITHMETIC_BOUND_SHARE}" for average in averages.values())
    expr = (
        f"(2 * ({memory} >= bool {thresholds.MEMORY_BOUND_SHARE})"
        " + on (${target}, gpu, uuid) group_left ()"
        f" max by (${{target}}, gpu, uuid) (({busiest}) ^ 0 or {tensor} * 0))"
        f" and on (${{target}}, gpu, uuid) gpu_bottleneck == {GPU_BOTTLENECK.value_of('compute')}"
        ' unless on (${target}, gpu, uuid) gpu_compute_bound{recorded_from!="dcgm"}'
    )
    rule = RecordingRule(GPU_COMPUTE_BOUND.name, expr, labels={"recorded_from": "dcgm"})
    return Group(
        "gpu-triage-dcgm-bound", "30s", (rule,), "What bounds a busy GPU without GPM that our exporter watches."
    )


def recorded_codes() -> frozenset[str]:
    xids = (f"xid.{xid.code}" for xid in XID_CODES.values() if xid.kind in _RECORDED_XIDS)
    return frozenset({*(code for code, _, _ in _measures()), *xids, "xid.unlisted"})


def findings() -> Group:
    rules = []
    for code, measured, fault in _measures():
        check = BY_CODE[code]
        rules.append(_recorded("gpu_finding", check, _confirmed(f"{measured} {fault}", check.wait_seconds)))
        if check.measure:
            value = f'({measured}) and on (${{target}}, gpu, uuid) gpu_finding{{{_DCGM}, code="{code}"}}'
            rules.append(_recorded("gpu_finding_value", check, value, with_facts=False))
    rules += _xids()
    return Group("gpu-triage-dcgm-findings", "30s", tuple(rules), "What the alerts relay, as far as DCGM can tell.")


def _xids() -> Iterator[RecordingRule]:
    for kind in _RECORDED_XIDS:
        codes = [str(xid.code) for xid in XID_CODES.values() if xid.kind is kind]
        yield _recorded_xid(BY_CODE[f"xid.{codes[0]}"], f'{_XID}, xid=~"{"|".join(codes)}"}}', "xid.$1")
    listed = "|".join(map(str, XID_CODES))
    yield _recorded_xid(BY_CODE["xid.unlisted"], f'{_XID}, xid!~"{listed}"}}', "xid.unlisted")


def _recorded_xid(check: Check, selected: str, code: str) -> RecordingRule:
    """A rule for the Xids of one severity, recorded with their own codes."""
    recent = f"{selected} > time() - {_XID_SECONDS}"
    expr = f'max without (xid) (label_replace(2 * ({recent}) ^ 0, "code", "{code}", "xid", "(.+)"))'
    labels = {"severity": check.severity.value, "action": check.action.value, "recorded_from": "dcgm"}
    return RecordingRule("gpu_finding", expr, labels=labels)


def _confirmed(condition: str, wait_seconds: float) -> str:
    """An expression that is 2 (confirmed) once a condition has held for this time."""
    if not wait_seconds:
        return f"2 * ({condition}) ^ 0"
    minutes = round(wait_seconds / 60)
    return f"2 * (count_over_time(({condition})[{minutes}m:1m]) >= {minutes}) ^ 0"


def _recorded(name: str, check: Check, expr: str, *, with_facts: bool = True) -> RecordingRule:
    facts = {"severity": check.severity.value, "action": check.action.value} if with_facts else {}
    return RecordingRule(name, expr, labels={"code": check.code, **facts, "recorded_from": "dcgm"})
