"""Renders a fleet's state as text and JSON."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from gpu_triage.cli.fleet.fleet_view import LAST_SCRAPED_MINUTES, Fleet, FleetFinding, FleetHost, finding_json, shared
from gpu_triage.cli.fleet.job_pace import JobName, SlowJob
from gpu_triage.documents import printable
from gpu_triage.judge.conditions.health import kind_in_words
from gpu_triage.judge.evidence.owners import GpuOwner, owners_text
from gpu_triage.judge.evidence.wording import first_few, length_of_time, ranges
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import COLORS, Verdict
from gpu_triage.judge.report.headline import counted
from gpu_triage.judge.report.text import SEVERITY_COLORS, Line, wrapped
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.serve.page.markup import date_time

FORMAT: Final = "gpu-triage-fleet"
VERSION: Final = 1  # incremented when a key changes meaning or is removed, but not for new keys

_IN_WORDS: Final = {Verdict.DRAIN: "to drain", Verdict.WATCH: "to watch", Verdict.KEEP: "to keep"}
_MOST_NAMED: Final = 3
COLOR_OF: Final = {severity.value: color for severity, color in SEVERITY_COLORS.items()}


@dataclass(frozen=True, slots=True)
class FleetReport:
    fleet: Fleet
    source: str  # URL of the server
    warnings: Sequence[str]  # warnings returned by the server
    limit: int  # most hosts, jobs and boards to show
    jobs: Sequence[SlowJob] = ()  # which lose GPUs, the one that loses most first


def render_text(shown: FleetReport, columns: int | None = None) -> str:
    """The fleet as colored text; the writer strips the colors if unwanted. Wrapped as in `check`."""
    return "".join(f"{line}\n" for each in _lines(shown) for line in wrapped(each, columns))


def summary(fleet: Fleet) -> str:
    """Number of hosts by verdict: ``1 host to drain, 2 to watch, 1 does not answer, 12 to keep``."""
    parts = [(len(fleet.with_verdict(verdict)), words) for verdict, words in _IN_WORDS.items()]
    unread = fleet.with_verdict(Verdict.NOT_READ)
    silent = sum(not each.answers for each in unread)
    parts[2:2] = [(silent, "not answering"), (len(unread) - silent, "not read")]
    parts.append((sum(each.maintenance is not None for each in fleet.hosts), "in maintenance"))
    counts = ", ".join(f"{count} {words}" for count, words in parts if count)
    return f"{len(fleet.hosts)} host{'s' * (len(fleet.hosts) != 1)}: {counts}"


def _lines(shown: FleetReport) -> Iterator[Line]:
    fleet = shown.fleet
    worst = fleet.hosts[0].verdict if fleet.hosts else Verdict.NOT_READ
    yield Line(click.style(summary(fleet), fg=COLORS[worst].terminal, bold=True))
    yield Line(f"{date_time(fleet.at)}, from {printable(shown.source)}")
    for warning in shown.warnings:
        yield Line(click.style("incomplete: ", fg="yellow", bold=True), warning)
    yield Line("")
    for host in fleet.hosts[: shown.limit]:
        yield from _host(host, fleet.at)
    if rest := fleet.hosts[shown.limit :]:
        yield Line(f"and {len(rest)} more, {_counts(rest)}: raise --limit to see them")
    if by_dcgm := sum(host.by_dcgm for host in fleet.hosts):
        yield Line(
            f"hosts with dcgm-exporter alone: {by_dcgm}; gpu-triage there adds what limits each GPU, whose job it is, "
            "most findings, and whether to keep the host"
        )
    jobs = []
    for each in shown.jobs:
        named = first_few([f"{one.subject} ({one.why})" for one in each.waits_for], _MOST_NAMED)
        waits = f"; waits for {named}" if named else ""
        jobs.append(f"{each.name}: {each.lost:.1f} of {each.gpus} GPUs, at {each.pace:.0%} of its best hour{waits}")
    yield from _listed("jobs that lose GPUs:", jobs, shown.limit)
    offenders = [
        f"{each.key} GPU {each.gpu}, board {each.board}: {kind_in_words(each.kind)}, {each.times} times in 30 days"
        for each in fleet.offenders
    ]
    yield from _listed("boards that fail again and again:", offenders, shown.limit)
    yield from _listed("drain:", [str(each.key) for each in fleet.with_verdict(Verdict.DRAIN)], shown.limit)


def _listed(title: str, entries: Sequence[str], limit: int) -> Iterator[Line]:
    if entries:
        yield from (Line(""), Line(title), *(Line("    ", each) for each in entries[:limit]))
    if len(entries) > limit:
        yield Line(f"    and {len(entries) - limit} more")


def _counts(hosts: Sequence[FleetHost]) -> str:
    words = {**_IN_WORDS, Verdict.NOT_READ: "not read"}
    counted = ((sum(each.verdict is verdict for each in hosts), said) for verdict, said in words.items())
    return ", ".join(f"{count} {said}" for count, said in counted if count)


def _host(host: FleetHost, now: float) -> Iterator[Line]:
    verdict = click.style(f"{host.verdict.text:<9}", fg=COLORS[host.verdict].terminal)
    made_up = " (SIMULATED)" if host.simulated else ""
    yield Line(f"{verdict} {click.style(printable(str(host.key)), bold=True)}{made_up}  ", _state(host), indent=14)
    if host.maintenance is not None:
        yield Line("    in maintenance ", str(host.maintenance))
    for finding, gpus in shared(host.findings):
        yield from _finding(finding, gpus, now)
    if host.owners and host.verdict is not Verdict.KEEP:
        yield Line("    hits      ", owners_text(host.owners))


def _state(host: FleetHost) -> str:
    if not host.answers:
        old = "" if host.verdict is Verdict.NOT_READ else f"; this is from the last {LAST_SCRAPED_MINUTES} min"
        return f"its exporter does not answer: Prometheus cannot scrape it{old}"
    indices: dict[str, list[str]] = defaultdict(list)
    for gpu in host.gpus:
        indices[gpu.bottleneck].append(gpu.gpu)
    states = ", ".join(counted(name, indices[name]) for name in BOTTLENECK_CLASSES if name in indices)
    count = len(host.gpus)
    told = ", from dcgm-exporter's metrics alone" if host.by_dcgm else ""
    return f"{count or 'no'} GPU{'s' * (count != 1)}{states and ': '}{states}{told}"


def _finding(finding: FleetFinding, gpus: tuple[str, ...], now: float) -> Iterator[Line]:
    severity = click.style(printable(finding.urgency), fg=COLOR_OF.get(finding.urgency))
    subject = f"GPU {ranges(gpus)}" if gpus else "host"
    lasting = f"{'pending ' if finding.pending else ''}for {length_of_time(max(0.0, now - finding.since))}"
    follows = "; critical if it lasts" if finding.urgency != finding.severity else ""
    follows = f"; accepted {printable(finding.accepted)}" if finding.accepted else follows
    start = f"    {severity} {click.style(printable(finding.code), bold=True)}  "
    yield Line(start, f"{subject}, {lasting}{follows}", indent=8)
    if finding.check is not None and finding.urgency == Severity.CRITICAL.value:
        yield Line("        do    ", finding.check.advice.anywhere)


def render_json(shown: FleetReport) -> str:
    """The fleet as JSON; the format is described in docs/fleet.md."""
    fleet = shown.fleet
    document = {
        "format": FORMAT,
        "version": VERSION,
        "source": shown.source,
        "at": round(fleet.at, 3),
        "summary": summary(fleet),
        "warnings": list(shown.warnings),
        "hosts_total": len(fleet.hosts),
        "hosts": [_host_json(each) for each in fleet.hosts[: shown.limit]],
        "drain": [each.key._asdict() for each in fleet.with_verdict(Verdict.DRAIN)],
        "slow_jobs": [
            _known(each.name)
            | {"pace": each.pace, "lost_gpus": each.lost, "gpus": each.gpus}
            | {"waits_for": [one.document() for one in each.waits_for]}
            for each in shown.jobs[: shown.limit]
        ],
        "offenders": [
            {**each.key._asdict(), "gpu": each.gpu, "uuid": each.uuid, "serial": each.serial or None, "kind": each.kind}
            | {"days": 30, "count": each.times}
            for each in fleet.offenders[: shown.limit]
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _host_json(host: FleetHost) -> dict[str, Any]:
    return {
        **host.key._asdict(),
        "verdict": host.verdict.value,
        "answers": host.answers,
        "simulated": host.simulated,
        "by_dcgm": host.by_dcgm,
        "maintenance": host.maintenance and host.maintenance._asdict(),
        "held_by": [_known(each) for each in host.owners],
        "gpus": [
            {
                "gpu": each.gpu,
                "uuid": each.uuid,
                "name": each.name or None,
                "serial": each.serial or None,
                "verdict": each.verdict.value,
                "bottleneck": each.bottleneck or None,
                "held_by": [_known(owner) for owner in each.owners],
            }
            for each in host.gpus
        ],
        "findings": [
            finding_json(each) | {"since": round(each.since, 3), "accepted": each.accepted or None}
            for each in host.findings
        ],
    }


def _known(fields: GpuOwner | JobName) -> dict[str, str | None]:
    return {name: value or None for name, value in fields._asdict().items()}
