"""All shipped rules: those below ``source/``, and what is generated from the table of findings.

These are the alerts that relay findings, and the rules that detect the few kinds for which DCGM has metrics.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from textwrap import indent
from typing import Final

from gpu_triage.alerting.macros import choice, expanded, macros
from gpu_triage.alerting.rule_source import SOURCE, Alert, DcgmFinding, Group, RecordingRule, RuleSource, read_sources
from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Area, Check, Unit

GROUP: Final = "gpu-triage-findings"
"""Rule group of these alerts; it follows the recording rules that they use."""

_CONFIRMED: Final = "instance_gpu_code:gpu_finding:confirmed"
_MEASURED: Final = "instance_gpu_code:gpu_finding_value:confirmed"
_HOLDS: Final = "instance_gpu_code:gpu_dcgm_fault:holds"
"""1 while a condition with a wait holds. Sound GPUs have none, so that looking back at it costs nothing for them."""

NOT_OF_SERVERS: Final = frozenset({"work.hung", "work.allocated_idle", "cpu.starved"})
"""Findings that don't apply to inference servers, which may be idle, and may keep a CPU busy polling for requests."""

OF_JOBS: Final = frozenset({"work.hung", "work.collective_hang", "work.low_power"})
"""Findings that say nothing new on hosts of a job with an alert of its own (see ``alerts-jobs.yml``)."""

OF_SLOW_JOBS: Final = frozenset({"memory.starved", "storage.starved", "cpu.starved", "network.starved"})
"""Findings that add nothing on hosts of jobs with GpuJobSlow, which is earlier and names what they wait for."""

_OF_CHASSIS: Final = frozenset(
    {
        *("gpu.board_lost", "gpu.lost", "gpu.missing"),
        *("thermal.hw", "thermal.sw", "thermal.margin", "power.brake", "power.hw_slowdown"),
    }
)
"""Findings that a failed fan or power supply, or warm air, may explain: their texts say what the chassis reports."""

_BESIDE_DETAIL: Final = frozenset({Unit.RATIO, Unit.BYTES_PER_SECOND})
_CAUSES: Final = {"storage.starved": BY_CODE["storage.not_responding"]}


def relays(handwritten: Collection[str]) -> tuple[Alert, ...]:
    """The alerts in table order; those named in `handwritten` have rules of their own."""
    rows: dict[tuple[str, str, str], list[Check]] = {}
    for check in CHECKS:
        if check.alert and check.alert not in handwritten:
            rows.setdefault((check.alert, check.severity.value, check.action.value), []).append(check)
    found: list[Alert] = []
    for (name, severity, action), together in rows.items():
        main = next((each for each in found if each.name == name), None)
        variant = "" if main is None else severity if severity != main.severity else action
        found.append(_relay(name, variant, together))
    return tuple(found)


def _relay(name: str, variant: str, checks: Sequence[Check]) -> Alert:
    first = checks[0]
    heat = "${heat}" if first.code == "clock.straggler" else ""
    return Alert(
        name=name,
        variant=variant,
        expr=_expression(checks),
        severity=first.severity.value,
        action=first.action.value,
        summary=_summary(checks),
        description="${finding}${about}"
        + _by_code(checks, [_fact(check) for check in checks])
        + f"${{since}}. {_by_code(checks, [_advice(check) for check in checks])}{heat}",
        dashboard="gpu-triage-fleet" if first.area is Area.SETTINGS else "gpu-triage-diagnosis",
        codes=tuple(check.code for check in checks),
        enabled=any(check.relayed for check in checks),
    )


def _expression(checks: Sequence[Check]) -> str:
    series = _MEASURED if any(check.measure for check in checks) else _CONFIRMED
    matched = {
        ', workload!="serving"': [check.code for check in checks if check.code in NOT_OF_SERVERS],
        "": [check.code for check in checks if check.code not in NOT_OF_SERVERS],
    }
    known = " or ".join(f"{series}{{{_matcher(codes)}{more}}}" for more, codes in matched.items() if codes)
    if all(check.code in OF_JOBS for check in checks):
        return f"{known} unless on (${{target}}) last_over_time(instance:gpu_hang:affected[1m])"
    if all(check.code in OF_SLOW_JOBS for check in checks):
        # GpuJobSlow goes on for longer than its own evaluations are apart.
        return f"({known}) unless on (${{target}}) last_over_time(instance:gpu_slow_job:affected[3m])"
    return known


def _matcher(codes: Sequence[str]) -> str:
    if len(codes) == 1:
        return f'code="{codes[0]}"'
    return f'code=~"{"|".join(code.replace(".", "[.]") for code in codes)}"'


def _summary(checks: Sequence[Check]) -> str:
    where = {check.of_host: "${host}: " if check.of_host else "${host} ${gpu}: " for check in checks}
    texts = [check.title + _fact(check) for check in checks]
    if len(where) == 1:
        return "${finding}" + where[checks[0].of_host] + _by_code(checks, texts) + "${since}"
    texts = [where[check.of_host] + text for check, text in zip(checks, texts, strict=True)]
    return "${finding}" + _by_code(checks, texts) + "${since}"


def _fact(check: Check) -> str:
    """The part that it is about, and what was measured unless that only counts the parts."""
    measured = check.measure.template if check.measure else ""
    if check.measure and check.measure.unit in _BESIDE_DETAIL:
        return f": {{{{ with $detail }}}}{{{{ . }}}}, {{{{ end }}}}{measured}"
    if measured:
        return f": {{{{ with $detail }}}}{{{{ . }}}}{{{{ else }}}}{measured}{{{{ end }}}}"
    return "{{ with $detail }}: {{ . }}{{ end }}"


def _advice(check: Check) -> str:
    """Meaning and action: those of its cause instead while that is confirmed, too."""
    beside = "${chassis}" if check.code in _OF_CHASSIS else ""
    text = f"{check.advice.meaning}{beside} {check.advice.anywhere}"
    if check.code not in _CAUSES:
        return text
    cause = _CAUSES[check.code]
    confirmed = f"printf `{_CONFIRMED}{{${{match}},code=%q}}` ${{args}} `{cause.code}` | query"
    return f"{{{{ if {confirmed} }}}}{cause.advice.meaning} {cause.advice.anywhere}{{{{ else }}}}{text}{{{{ end }}}}"


def _by_code(checks: Sequence[Check], texts: Sequence[str]) -> str:
    """A template that selects the text for the alert's finding code."""
    if len(set(texts)) == 1:
        return texts[0]
    return choice((f'eq $labels.code "{check.code}"', text) for check, text in zip(checks, texts, strict=True))


@cache
def shipped_sources() -> tuple[RuleSource, ...]:
    """All sources of the shipped rules, with macros expanded. Cached, because reading takes half a second."""
    sources = read_sources(SOURCE)
    handwritten = {alert.name for source in sources for alert in source.alerts}
    return tuple(
        replace(source, groups=tuple(_completed(group, handwritten) for group in source.groups)) for source in sources
    )


def _completed(group: Group, handwritten: set[str]) -> Group:
    rules = [*group.rules, *(rule for each in group.dcgm_findings for rule in _from_dcgm(each))]
    if group.name == GROUP:
        # An alert that only mutes others comes last, so that it never ends first.
        rules += relays(handwritten)
        rules.sort(key=lambda rule: isinstance(rule, Alert) and rule.severity == "none")
    return replace(group, rules=tuple(map(_completed_rule, rules)))


def _from_dcgm(finding: DcgmFinding) -> Iterator[RecordingRule]:
    """The finding, with severity, action and wait of the judge's tables; and the value that the alert shows, if any."""
    check, measured = BY_CODE[finding.code], finding.measured
    condition = finding.condition or f"{measured} {finding.fault}"
    expr, code = f"2 * ({condition}) ^ 0", {"code": check.code}
    if finding.xids:
        expr = f'max without (xid) (label_replace({expr}, "code", "xid.$1", "xid", "(.+)"))'
        code = {}
    elif check.wait_seconds and not finding.condition:
        yield RecordingRule(_HOLDS, f"({condition}) ^ 0", labels=code)
        holds, minutes = f'max without (code) ({_HOLDS}{{code="{check.code}"}})', round(check.wait_seconds / 60)
        # Confirmed if it held for the wait out of twice the wait, and at some time in the last ten minutes.
        long_enough = f"count_over_time(({holds})[{2 * minutes}m:1m]) >= {minutes}"
        expr = f"2 * ({long_enough} and count_over_time(({holds})[10m:1m])) ^ 0"
    name, subject = ("gpu_host_finding", "${target}") if check.of_host else ("gpu_finding", "${target}, gpu, uuid")
    facts = {"severity": check.severity.value, "action": check.action.value, "recorded_from": "dcgm"}
    yield RecordingRule(name, expr, labels=code | facts)
    if check.measure and measured:
        value = f'({measured}) and on ({subject}) {name}{{recorded_from="dcgm", code="{check.code}"}}'
        yield RecordingRule(f"{name}_value", value, labels={**code, "recorded_from": "dcgm"})


def _completed_rule(rule: RecordingRule | Alert) -> RecordingRule | Alert:
    """With macros expanded; an alert about a host is quiet while that is in maintenance, and others leave it out."""
    if isinstance(rule, RecordingRule):
        return replace(rule, expr=expanded(rule.expr, macros()), about=expanded(rule.about, macros()))
    expr = rule.expr
    if not rule.fleet:
        expr = f"(\n{indent(expr.rstrip(), '  ')}\n)\nunless on (${{target}})\ninstance:gpu_maintenance:until\n"
    return replace(
        rule,
        expr=expanded(expr, macros()),
        summary=expanded(rule.summary, macros()),
        description=expanded(rule.description, macros()),
        codes=rule.codes or tuple(check.code for check in CHECKS if check.alert == rule.name),
    )
