"""Recording rules that detect findings and bounds from dcgm-exporter's metrics, generated from the judge's tables.

The alerts relay them like an exporter's findings. DCGM exposes little, so only a few kinds can be detected.
"""

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
_REPLAYS: Final = (
    thresholds.PCIE_BIT_ERROR_RATE * thresholds.PCIE_BITS_PER_SECOND[5] * 16 * thresholds.EVENTS_WINDOW_SECONDS
)
"""The most that any healthy link of today has in 15 minutes: dcgm-exporter's default fields lack speed and width."""
_RECORDED_XIDS: Final = (XidKind.PAGE, XidKind.TICKET)
_SLOWDOWN: Final = f'gpu_temperature_threshold_celsius{{{_DCGM}, threshold="slowdown"}}'
_HOT: Final = f'max by (${{target}}, gpu, uuid) (gpu_temperature_celsius{{{_DCGM}, sensor="gpu"}})'
_HOLDS: Final = "instance_gpu_code:gpu_dcgm_fault:holds"
"""1 while a condition with a wait holds. Sound GPUs have none, so that looking back at it costs nothing for them."""
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
    yield "pcie.replays", f"increase(gpu_pcie_replays_total{{{_DCGM}}}[15m])", f"> {_REPLAYS:.0f}"
    yield "thermal.margin", _MARGIN, f"< {_limit('thermal.margin', 'margin')}"
    for code, reason in (("thermal.hw", "hw_thermal"), ("thermal.sw", "sw_thermal"), ("power.brake", "hw_power_brake")):
        throttled = f'avg_over_time(gpu_throttle_active{{{_DCGM}, reason="{reason}"}}[2m])'
        yield code, f"max without (reason) ({throttled})", f"> {_limit(code, 'share')}"


def _lasting() -> Iterator[tuple[str, str, str]]:
    """Finding codes with a memory of their own: each with its condition and what is measured. One page per host."""
    lost = "${dcgm_lost_count}"
    begun = f"{lost} >= {thresholds.LOST_TOGETHER}"
    yield "gpu.board_lost", f"{begun} or {lost} and ${{dcgm_board}}", lost
    yield "gpu.lost", "${dcgm_lost_without_xid}", ""
    yield "gpu.missing", "${dcgm_missing}", "${dcgm_missing_count}"
    clock = f'max without (clock) (gpu_clock_hertz{{clock="sm", {_DCGM}}})'
    yield "clock.straggler", f"{clock} and on (${{target}}, gpu, uuid) (${{dcgm_straggler}})", clock


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
    lasting = (code for code, _, _ in _lasting())
    xids = (f"xid.{xid.code}" for xid in XID_CODES.values() if xid.kind in _RECORDED_XIDS)
    return frozenset({*(code for code, _, _ in _measures()), *lasting, *xids, "xid.nonfatal", "xid.unlisted"})


def findings() -> Group:
    rules = [
        rule for code, condition, measured in _lasting() for rule in _finding(code, f"2 * ({condition}) ^ 0", measured)
    ]
    for code, measured, fault in _measures():
        if wait_seconds := BY_CODE[code].wait_seconds:
            rules.append(RecordingRule(_HOLDS, f"({measured} {fault}) ^ 0", labels={"code": code}))
            expr = _confirmed(f'max without (code) ({_HOLDS}{{code="{code}"}})', round(wait_seconds / 60))
        else:
            expr = f"2 * ({measured} {fault}) ^ 0"
        rules += _finding(code, expr, measured)
    rules += _xids()
    return Group("gpu-triage-dcgm-findings", "30s", tuple(rules), "What the alerts relay, as far as DCGM can tell.")


def _finding(code: str, expr: str, measured: str) -> Iterator[RecordingRule]:
    """A finding, and the value that the alert shows, if any."""
    check = BY_CODE[code]
    name, subject = ("gpu_host_finding", "${target}") if check.of_host else ("gpu_finding", "${target}, gpu, uuid")
    yield _recorded(name, check, expr)
    if check.measure:
        value = f'({measured}) and on ({subject}) {name}{{{_DCGM}, code="{code}"}}'
        yield _recorded(f"{name}_value", check, value, with_facts=False)


def _xids() -> Iterator[RecordingRule]:
    for kind in _RECORDED_XIDS:
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


def _recorded(name: str, check: Check, expr: str, *, with_facts: bool = True) -> RecordingRule:
    facts = {"severity": check.severity.value, "action": check.action.value} if with_facts else {}
    return RecordingRule(name, expr, labels={"code": check.code, **facts, "recorded_from": "dcgm"})
