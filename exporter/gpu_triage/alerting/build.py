"""Builds Prometheus rules: fills in the source's placeholders, ``${name}``, with macros and values of the settings."""

import re
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, Union

from gpu_triage.alerting.gpu_hours import GPU_HOURS
from gpu_triage.alerting.rule_source import Alert, RecordingRule, RuleSource, SourceError, read_macros
from gpu_triage.alerting.settings import AlertSettings, Settings, duration_seconds, plain
from gpu_triage.read.registry import GPU_COLLECTORS
from gpu_triage.read.xid.codes import (
    NONFATAL_ACTION,
    NONFATAL_MEANING,
    SLOW_GSP,
    SLOW_GSP_ACTION,
    SLOW_GSP_MEANING,
    XID_CODES,
    XidCode,
    XidKind,
)
from gpu_triage.read.xid.xid_events import MISSED_BY_NVML

PLACEHOLDER: Final = re.compile(r"\$\{([a-z][a-z0-9_]*)\}")
_COMMENT_WIDTH: Final = 118
_FIRST_XIDS: Final = ("79", "95", "64", "140", "48", "94")
"""If several Xids came together, a text is about the first of these, or else about another one."""


def filled_in(where: str, text: str, values: Mapping[str, str]) -> str:
    """Replace every placeholder. Raises SourceError, about `where`, if one is malformed or has no value."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise SourceError(f"{where}: {found[0]} is unknown; known are {', '.join(sorted(values))}")
        return values[found[1]]

    if "${" in PLACEHOLDER.sub("", text):
        raise SourceError(f"{where}: '${{' begins no token; write ${{name}} in lower case")
    return PLACEHOLDER.sub(value, text)


def expanded_expr(expr: str) -> str:
    """Expand shared parts and lists of Xid codes in an expression; placeholders for settings are kept."""
    return _expanded(expr, expression_macros())


def expanded_text(text: str) -> str:
    """Expand the macros in a summary or description; placeholders for settings are kept."""
    return _expanded(text, text_macros())


@cache
def expression_macros() -> Mapping[str, str]:
    """Macros of expressions, by name: lists of Xid codes and of collectors, and parts that several rules share."""
    found = {**xid_lists(), "gpu_collectors": "|".join(collector.name for collector in GPU_COLLECTORS)}
    for name, text in read_macros().expressions.items():
        found[name] = _expanded(text, found)
    return MappingProxyType(found)


@cache
def text_macros() -> Mapping[str, str]:
    """Macros of summaries and descriptions, by name, expanded to Prometheus templates."""
    found = {**xid_lists(), **xid_texts()}
    for name, text in read_macros().macros.items():
        found[name] = _expanded(text, found)
    return MappingProxyType(found)


def xid_lists() -> Mapping[str, str]:
    """Lists of Xid codes as regular expressions for label matchers, ``46|48|…``, by macro."""
    every = XID_CODES.values()
    page = [each for each in every if each.kind is XidKind.PAGE]
    lists: dict[str, Iterable[XidCode]] = {
        **{f"xids_{kind.value}": [each for each in every if each.kind is kind] for kind in XidKind},
        "xids_page_nvlink": [each for each in page if each.nvlink],
        "xids_page_other": [each for each in page if not each.nvlink],
        "xids_page_at_once": [each for each in page if not each.fatal_in_text],
        "xids_fatal_in_text": [each for each in every if each.fatal_in_text],
        "xids_listed": every,
    }
    return {name: "|".join(str(each.code) for each in codes) for name, codes in lists.items()}


def xid_texts() -> Mapping[str, str]:
    """Prometheus templates with the meaning of, or action for, the most important code in ``$codes``, by macro."""
    texts = {}
    for kind in (XidKind.PAGE, XidKind.TICKET):
        codes = [(str(each.code), each.meaning, each.action) for each in XID_CODES.values() if each.kind is kind]
        if kind is XidKind.TICKET:
            codes.append(("nonfatal", NONFATAL_MEANING, NONFATAL_ACTION))
            codes.append((str(SLOW_GSP), SLOW_GSP_MEANING, SLOW_GSP_ACTION))
        texts[f"xid_words_{kind.value}"] = _template((code, meaning) for code, meaning, _ in codes)
        texts[f"xid_action_{kind.value}"] = _template((code, action) for code, _, action in codes)
    *first, last = MISSED_BY_NVML
    texts["xid_slow_gsp"] = str(SLOW_GSP)
    texts["xids_missed_by_nvml"] = f"{', '.join(map(str, first))} and {last}"
    return texts


def _expanded(text: str, macros: Mapping[str, str]) -> str:
    """Replace the placeholders that are macros; the lines of a macro get the indentation of the line that it is in."""

    def value(found: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, found.start()) + 1 :]
        return macros.get(found[1], found[0]).replace("\n", "\n" + " " * (len(line) - len(line.lstrip(" "))))

    return PLACEHOLDER.sub(value, text)


def _template(text_of_code: Iterable[tuple[str, str]]) -> str:
    def place(code: str) -> int:
        return _FIRST_XIDS.index(code) if code in _FIRST_XIDS else len(_FIRST_XIDS)

    codes_by_text: dict[str, list[str]] = {}
    for code, text in sorted(text_of_code, key=lambda each: place(each[0])):
        codes_by_text.setdefault(text, []).append(code)
    branches = [f'if match " ({"|".join(codes)}) " $codes }}}}{t}{{{{ ' for t, codes in codes_by_text.items()]
    return "{{ " + "else ".join(branches) + "end }}"


Fields: TypeAlias = Mapping[str, Union[str, "Fields"]]
"""A rule as in YAML: strings and nested mappings by key, in order."""

_LABEL: Final = re.compile(r"\{\{ ?\$labels\.([a-zA-Z_][a-zA-Z0-9_]*) ?\}\}")
_OF_THE_EXPORTER: Final = r"{{ . | first | label `\1` }}"


class BuiltRule(NamedTuple):
    about: str
    fields: Fields


class BuiltGroup(NamedTuple):
    name: str
    interval: str
    about: str
    rules: tuple[BuiltRule, ...]


def built(source: RuleSource, settings: Settings) -> tuple[BuiltGroup, ...]:
    """The rules of a file by group; without groups of which settings disable all rules."""
    groups = []
    for group in source.groups:
        rules = tuple(found for rule in group.rules if (found := _rule(rule, settings)) is not None)
        groups += [BuiltGroup(group.name, group.interval, group.about, rules)] if rules else []
    return tuple(groups)


def dashboard_link(uid: str, cluster_label: str, *, fleet: bool) -> str:
    """URL path of a Grafana dashboard about the alert's subject; of its default clusters, if that has no label."""
    cluster = f"{{{{ with $labels.{cluster_label} }}}}&var-cluster={{{{ . | urlquery }}}}{{{{ end }}}}"
    job = f"/d/{uid}?var-job={{{{ $labels.job | urlquery }}}}{cluster}"
    if fleet:
        return job
    gpu = "{{ with $labels.gpu }}&var-gpu={{ . | urlquery }}{{ end }}"
    return f"{job}&var-instance={{{{ $labels.instance | urlquery }}}}{gpu}"


def link_elsewhere(url: str, command: str, cluster_label: str, *, fleet: bool) -> str:
    """A template for `url` on an exporter that was up at the last scrape; for `command` if none was.

    An exporter of the alert's cluster and job comes first, since other clusters may be out of the reader's reach. Each
    query returns one series, and the second runs only if the first finds none: hundreds of hosts may be down.
    """
    cluster = f"{cluster_label}=%q,job=%q"
    near, its_own = f"{{{cluster}}}", f"$labels.{cluster_label} $labels.job"
    anywhere = "`topk(1, gpu_exporter_build_info)` | query"
    if not fleet:
        # The exporter may be up right now, but keep crashing.
        near, its_own = f"{{{cluster},instance!=%q}}", f"{its_own} $labels.instance"
        anywhere = "printf `topk(1, gpu_exporter_build_info{instance!=%q})` $labels.instance | query"
    return (
        f"{{{{ with printf `topk(1, gpu_exporter_build_info{near})` {its_own} | query }}}}{url}{{{{ else }}}}"
        f"{{{{ with {anywhere} }}}}{url}{{{{ else }}}}{command}{{{{ end }}}}{{{{ end }}}}"
    )


def _about(rule: RecordingRule) -> str:
    """The comment of a rule, with the definitions of words for GPU hours."""
    text = _expanded(rule.about, {name.replace(" ", "_"): meaning for name, meaning in GPU_HOURS.items()})
    if text == rule.about:
        return text
    return "\n".join(line for part in text.splitlines() for line in textwrap.wrap(part, _COMMENT_WIDTH))


def _rule(rule: RecordingRule | Alert, settings: Settings) -> BuiltRule | None:
    values = {name: getattr(settings, name) for name in ("target", "subject", "fleet", "cluster_label")}
    values |= {name: plain(getattr(settings, name)) for name in ("fleet_hosts", "fleet_share")}
    values["job"] = settings.job.replace("\\", "\\\\").replace('"', '\\"')
    if isinstance(rule, RecordingRule):
        expr = filled_in(rule.name, expanded_expr(rule.expr), values)
        return BuiltRule(
            _about(rule), {"record": rule.name, "expr": expr, **({"labels": rule.labels} if rule.labels else {})}
        )
    chosen = settings.alerts.get(rule.key, AlertSettings())
    hold = rule.hold if chosen.hold is None else chosen.hold
    numbers = {name: plain(chosen.thresholds.get(name, each.value)) for name, each in rule.thresholds.items()}
    values |= {"alertname": rule.name, **numbers}
    fields: Fields = {
        "alert": rule.name,
        "expr": filled_in(f"{rule.key}: expr", expanded_expr(rule.expr), values),
        **({"for": hold} if duration_seconds(hold) else {}),
        **({"keep_firing_for": rule.keep} if rule.keep else {}),
        "labels": {
            "severity": chosen.severity or rule.severity,
            "action": rule.action,
            **rule.labels,
            **settings.labels,
            **chosen.labels,
        },
        "annotations": {
            "summary": filled_in(f"{rule.key}: summary", expanded_text(rule.summary), values),
            "description": filled_in(f"{rule.key}: description", expanded_text(rule.description), values),
            **_links(rule, settings),
            **settings.annotations,
        },
    }
    return BuiltRule(rule.about, fields) if chosen.enables(by_default=rule.enabled) else None


def _links(rule: Alert, settings: Settings) -> dict[str, str]:
    runbook, command = f"{settings.runbook_base_url}/{rule.name}", f"{settings.runbook_command} {rule.name}"
    if not settings.runbook_base_url:
        runbook = command
    elif rule.elsewhere and _LABEL.search(runbook):
        url = _LABEL.sub(_OF_THE_EXPORTER, runbook)
        runbook = link_elsewhere(url, command, settings.cluster_label, fleet=rule.fleet)
    links = {"runbook_url": runbook, "dashboard_uid": rule.dashboard}
    if settings.grafana_base_url:
        links["dashboard_url"] = settings.grafana_base_url + dashboard_link(
            rule.dashboard, settings.cluster_label, fleet=rule.fleet
        )
    return links
