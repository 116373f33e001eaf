"""The answer as sentences and rows; as text, as JSON, and as one self-contained HTML page for a ticket."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from statistics import fmean
from typing import Any, Final

import click

from gpu_triage.cli.fleet.fleet_text import COLOR_OF
from gpu_triage.cli.fleet.fleet_view import HostKey, finding_json
from gpu_triage.cli.fleet.review_page import standalone_page
from gpu_triage.cli.job.advice import Advice, Comparison, Standing
from gpu_triage.cli.job.job_facts import Pace
from gpu_triage.cli.job.job_runs import Run
from gpu_triage.cli.job.job_view import Job, JobFinding, JobGpu, places_in_words, shares_of
from gpu_triage.documents import printable
from gpu_triage.judge.evidence.wording import length_of_time, ranges
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.report.headline import STATES
from gpu_triage.judge.report.text import Line, wrapped
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.serve.page import markup
from gpu_triage.serve.page.markup import OF_SEVERITY, bar, chip, class_chip, foreign, row, safe, section, table
from gpu_triage.serve.page.style import ICONS

_HOUR: Final = 3600.0
_WAITING: Final = "waiting for others"
_WORTH_A_ROW: Final = 0.01
_SHARE: Final = "{:.0%}".format
_ALIKE_SHARE: Final = 0.05
"""Ranks of a synchronous job make the same number of steps, and scrapes are not at the same instant."""


@dataclass(frozen=True, slots=True)
class JobReport:
    job: Job
    comparison: Comparison
    advice: Advice
    notes: tuple[str, ...]
    source: str  # URL of the server
    warnings: tuple[str, ...]  # warnings returned by the server
    limit: int  # most findings, and most hosts, to show
    gpu_hour_price: float | None = None  # in any currency

    @property
    def cost(self) -> float | None:
        """What the lost GPU hours cost, in the currency of the price; None if either is not known."""
        loss, price = self.job.loss, self.gpu_hour_price
        return None if loss is None or price is None else price * loss.gpu_seconds / _HOUR


def headline(shown: JobReport) -> str:
    """The answer as one line: the job, its owner, and what slows it down."""
    return f"{shown.job.found.run}: {shown.advice.slow}"


def duration(job: Job) -> str:
    run, window = job.found.run, job.window
    began = f"{'' if job.start_known and job.end_known else 'at least '}{length_of_time(run.end - run.start)}"
    state = f"running for {began}, since {markup.date_time(run.start)}"
    if not job.found.ongoing:
        state = f"ran for {began}, from {markup.date_time(run.start)} to {markup.date_time(run.end)}"
    part = f"; this is the part from {markup.date_time(window.start)} on" if window.start > run.start else ""
    return f"{state}{part}"


def size(job: Job) -> str:
    """Its hosts and GPUs: ``4 hosts, 32 GPUs: 32 x NVIDIA H100 80GB HBM3``."""
    models = Counter(gpu.name or "unknown model" for gpu in job.gpus).most_common()
    named = ", ".join(f"{count} x {name}" for name, count in models)
    hosts, gpus = len(job.hosts), len(job.gpus)
    return f"{hosts} host{'s' * (hosts != 1)}, {gpus} GPU{'s' * (gpus != 1)}: {named}"


def class_rows(job: Job) -> Iterator[tuple[str, str, float, float]]:
    """Yield each class, what the GPUs were, for how many seconds, and its share of the total."""
    time = job.time
    total = time.total or 1.0
    for name, seconds in time.by_class.items():
        yield name, STATES[name], seconds, seconds / total
    if time.unknown >= job.window.step_seconds:
        yield "no data", "not known", time.unknown, time.unknown / total


def lost_words(shown: JobReport) -> Iterator[str]:
    """What the job loses, in all and now, and what that costs."""
    loss, total = shown.job.loss, shown.job.time.total
    if loss is None:
        yield "not known: its pace is recorded by the rules (gpu-triage rules), from half an hour after its start on"
        return
    price = shown.gpu_hour_price
    cost = "" if shown.cost is None else f", which cost {shown.cost:,.2f}"
    share = loss.gpu_seconds / total if total else 0.0
    yield f"{hours(loss.gpu_seconds)} of {hours(total)}, {share:.0%}{cost}"
    if loss.pace is not None and loss.gpus is not None:
        rate = f", {price * loss.gpus:,.2f} an hour" if price else ""
        end = "now" if shown.job.found.ongoing else "at its end"
        yield f"{end} at {loss.pace:.0%} of its best hour: that is {loss.gpus:.1f} of {len(shown.job.gpus)} GPUs{rate}"


def hours(seconds: float) -> str:
    """GPU hours with one decimal, or GPU minutes below two hours."""
    return f"{seconds / _HOUR:,.1f} GPU h" if seconds >= 2 * _HOUR else f"{seconds / 60:.0f} GPU min"


def compared_with(standing: Standing) -> str:
    count, what = standing.others_count, "host" if standing.is_host else "GPU"
    out = "" if standing.reasons else ": no slower than they differ anyway"
    return f"{standing.subject}, against the median of {count} other {what}{'s' * (count != 1)}{out}"


def reading_rows(standing: Standing) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name of each known reading, its value, the median of the others, and the difference."""
    own, others = standing.own, standing.others
    for name, value, median, shown in (
        ("SM clock", own.clock_hertz, others.clock_hertz, lambda hertz: f"{hertz / 1e6:.0f} MHz"),
        ("power", own.power_watts, others.power_watts, "{:.0f} W".format),
        ("busy", own.busy_ratio, others.busy_ratio, _SHARE),
        (_WAITING, own.waiting_ratio, others.waiting_ratio, _SHARE),
    ):
        if value is not None and (name != _WAITING or max(value, median or 0.0) >= _WORTH_A_ROW):
            known = "not known" if median is None else shown(median)
            # A share of 2 % against one of 1 % has not doubled in any way that matters.
            yield name, shown(value), known, "" if shown is _SHARE else _difference(value, median)


def _difference(value: float, median: float | None) -> str:
    if not median:
        return ""
    ratio = value / median - 1
    return "the same" if abs(ratio) < 0.005 else f"{abs(ratio):.0%} {'below' if ratio < 0 else 'above'}"  # noqa: PLR2004


def pace_lines(job: Job) -> Iterator[str]:
    pace = job.pace
    if pace is None:
        yield "not known: the job does not count them (gpu_job_steps_total, docs/textfile.md)"
        return
    yield _pace_now(pace, job)
    if pace.slowest is None:
        return
    rank, median, lacking = pace.slowest
    if lacking > _ALIKE_SHARE:
        yield f"slowest: {rank.subject} with {rank.per_second:.3g} a second, the median is {median:.3g}"
    else:
        yield f"all {len(pace.ranks)} counters advance alike, as those of a synchronous job do"
    by_host = groupby(pace.ranks, attrgetter("host"))
    paces = {host: fmean(each.per_second for each in ranks) for host, ranks in by_host}
    slow = min(paces, key=lambda host: paces[host])
    if len(paces) > 1 and median and paces[slow] < (1 - _ALIKE_SHARE) * median:
        yield f"slowest host: {slow} with {paces[slow]:.3g} a second"


def _pace_now(pace: Pace, job: Job) -> str:
    if pace.stopped_seconds:
        until = "now" if job.found.ongoing else "its end"
        best = f"; before that up to {pace.best:.3g} a second" if pace.best else ""
        return f"none for {length_of_time(pace.stopped_seconds)} until {until}{best}"
    if pace.recent is None:
        return "too few scrapes at its end to tell"
    if pace.best is None or pace.below_best is None:
        return f"{pace.recent:.3g} a second"
    stretch = "hour" if pace.stretch_seconds == _HOUR else f"{pace.stretch_seconds // 60} minutes"
    below = "as in" if pace.below_best < _ALIKE_SHARE else f"{pace.below_best:.0%} below"
    return f"{pace.recent:.3g} a second, {below} its best {stretch} ({pace.best:.3g})"


def finding_rows(job: Job) -> list[tuple[JobFinding, str, str]]:
    """Findings with the same code and state: the one that began first, what they are about, and when they were."""
    groups: dict[tuple[object, ...], list[JobFinding]] = {}
    for each in job.findings:
        groups.setdefault((each.code, each.urgency, each.state, each.lasts, not each.gpu), []).append(each)
    rows = []
    for members in groups.values():
        first, last = min(members, key=lambda each: each.first), max(each.last for each in members)
        pending = "pending " if first.pending else ""
        until = "" if first.lasts else f", until {markup.date_time(last)}"
        from_start = first.first <= job.window.start + job.window.step_seconds
        since = "from its start" if from_start else f"from {markup.date_time(first.first)}"
        when = f"{pending}for {length_of_time(last - first.first)}, {since}{until}"
        rows.append((first, places_in_words((each.host, each.gpu or each.uuid) for each in members), when))
    return rows


def measured(finding: JobFinding) -> str:
    """What was measured: ``throttled 34% of the time``; "" if nothing was."""
    check = finding.check
    if finding.value is None or check is None or check.measure is None:
        return ""
    return check.measure.said(finding.value)


def by_host_rows(job: Job) -> Iterator[tuple[HostKey, tuple[JobGpu, ...]]]:
    yield from sorted(job.hosts.items(), key=lambda each: (-sum(gpu.own_cause for gpu in each[1]), each[0]))


def main_classes(gpus: tuple[JobGpu, ...]) -> str:
    """What GPUs spent most of their time with: ``busy 92%, waiting for storage 8%``."""
    shown = [f"{STATES[name]} {share:.0%}" for name, share in shares_of(gpus).items() if share >= _WORTH_A_ROW]
    return ", ".join(shown[:3]) or "no data"


FORMAT: Final = "gpu-triage-job"
VERSION: Final = 1  # incremented when a key changes meaning or is removed, but not for new keys


def render_text(shown: JobReport, columns: int | None = None) -> str:
    """The answer as colored text; the writer strips the colors if unwanted. Wrapped as in `check`."""
    return "".join(f"{line}\n" for each in _lines(shown) for line in wrapped(each, columns))


def _lines(shown: JobReport) -> Iterator[Line]:
    job, advice = shown.job, shown.advice
    color = "yellow" if advice.remarkable else "green"
    made_up = " (SIMULATED)" if job.simulated else ""
    yield Line(f"{click.style(printable(str(job.found.run)), fg=color, bold=True)}{made_up}: ", advice.slow, indent=4)
    yield Line(f"{duration(job)}, from {printable(shown.source)}")
    yield Line("", size(job), indent=4)
    for warning in shown.warnings:
        yield Line(click.style("incomplete: ", fg="yellow", bold=True), warning)
    yield Line("")
    about = f"{advice.about}: " if advice.about else ""
    yield Line(f"{click.style('do first', bold=True)}  ", f"{about}{advice.first}")
    yield from _time(shown)
    yield from _slowest(shown)
    yield from (Line(""), Line("steps:"), *(Line("    ", line) for line in pace_lines(job)))
    yield from _findings(shown)
    yield from _hosts(shown)
    if shown.notes:
        yield from (Line(""), Line("notes:"), *(Line("    ", note) for note in shown.notes))


def _time(shown: JobReport) -> Iterator[Line]:
    yield from (Line(""), Line("lost:"), *(Line("    ", line) for line in lost_words(shown)))
    yield from (Line(""), Line("time by bottleneck class:"))
    for name, words, seconds, share in class_rows(shown.job):
        yield Line(f"    {name:<16}{hours(seconds):>12}{share:>6.0%}  ", words)


def _slowest(shown: JobReport) -> Iterator[Line]:
    comparison = shown.comparison
    yield Line("")
    if comparison.gpu is None:
        alone = "it has one GPU" if len(shown.job.gpus) == 1 else "no two of its GPUs are of one model"
        yield Line(f"slowest GPU: {alone}, so there is nothing to compare")
        return
    for title, standing in (("slowest GPU: ", comparison.gpu), ("slowest host: ", comparison.host)):
        if standing is not None:
            yield Line(title, compared_with(standing), indent=4)
            for name, own, others, difference in reading_rows(standing):
                yield Line(f"    {name:<20}", ", ".join(filter(None, (own, f"median {others}", difference))))


def _findings(shown: JobReport) -> Iterator[Line]:
    rows = finding_rows(shown.job)
    yield from (Line(""), Line("findings while it ran:" if rows else "findings while it ran: none"))
    for finding, subject, when in rows[: shown.limit]:
        severity = click.style(printable(finding.urgency), fg=COLOR_OF.get(finding.urgency))
        text = "; ".join((": ".join(filter(None, (subject, measured(finding)))), when))
        yield Line(f"    {severity} {click.style(printable(finding.code), bold=True)}  ", text, indent=8)
        if finding.check is not None and finding.rank >= Severity.WARNING.rank:
            yield Line("        do    ", finding.check.advice.anywhere)
    if len(rows) > shown.limit:
        yield Line(f"    and {len(rows) - shown.limit} more: raise --limit to see them")


def _hosts(shown: JobReport) -> Iterator[Line]:
    yield from (Line(""), Line("hosts:"))
    hosts = list(by_host_rows(shown.job))
    for host, gpus in hosts[: shown.limit]:
        indices = ranges(gpu.gpu or gpu.uuid for gpu in gpus)
        yield Line(f"    {printable(str(host))}  GPU {printable(indices)}  ", main_classes(gpus))
    if len(hosts) > shown.limit:
        yield Line(f"    and {len(hosts) - shown.limit} more: raise --limit to see them")


def render_json(shown: JobReport) -> str:
    """The answer as JSON; the format is described in docs/jobs.md."""
    job, comparison = shown.job, shown.comparison
    time = job.time
    document = {
        "format": FORMAT,
        "version": VERSION,
        "source": shown.source,
        "summary": headline(shown),
        "do_first": {
            "about": shown.advice.about or None,
            "code": shown.advice.code or None,
            "text": shown.advice.first,
        },
        "remarkable": shown.advice.remarkable,
        "warnings": list(shown.warnings),
        "notes": list(shown.notes),
        "simulated": job.simulated,
        "job": run_json(job.found.run),
        "running": job.found.ongoing,
        "start_known": job.start_known,
        "end_known": job.end_known,
        "from": round(job.window.start, 3),
        "to": round(job.window.end, 3),
        "step_seconds": job.window.step_seconds,
        "gpu_seconds": {
            "total": time.total,
            "lost": None if job.loss is None else job.loss.gpu_seconds,
            "unknown": time.unknown,
            "by_class": dict(time.by_class),
        },
        "loss": _loss_json(shown),
        "slowest_gpu": _standing_json(comparison.gpu),
        "slowest_host": _standing_json(comparison.host),
        "steps": _pace_json(job.pace),
        "findings": [_finding_json(each) for each in job.findings],
        "gpus": [_gpu_json(each) for each in job.gpus],
    }
    return json.dumps(document, indent=2) + "\n"


def run_json(run: Run) -> dict[str, Any]:
    key = run.key
    return {
        "kind": key.kind.value,
        "name": key.name,
        "cluster": key.cluster or None,
        "namespace": key.namespace or None,
        "pods": sorted(run.pods),
        "users": sorted(run.users),
        "accounts": sorted(run.accounts),
        "start": round(run.start, 3),
        "end": round(run.end, 3),
    }


def _standing_json(standing: Standing | None) -> dict[str, Any] | None:
    if standing is None:
        return None
    gpu = standing.gpus[0]
    return {
        **standing.host._asdict(),
        **({} if standing.is_host else {"gpu": gpu.gpu, "uuid": gpu.uuid}),
        "stands_out": bool(standing.reasons),
        "by": list(standing.reasons),
        "own": standing.own._asdict(),
        "median_of_others": standing.others._asdict(),
        "others": standing.others_count,
    }


def _loss_json(shown: JobReport) -> dict[str, Any] | None:
    loss = shown.job.loss
    if loss is None:
        return None
    return {
        "pace": loss.pace,
        "gpus": loss.gpus,
        "gpu_seconds": loss.gpu_seconds,
        "cost": shown.cost,
        "waits_for": [
            each.document() | {"gpu_seconds": seconds, "since": loss.since.get(each), "at_end": each in loss.at_end}
            for each, seconds in loss.awaited.items()
        ],
    }


def _pace_json(pace: Pace | None) -> dict[str, Any] | None:
    if pace is None:
        return None
    return {
        "recent_per_second": pace.recent,
        "best_per_second": pace.best,
        "best_over_seconds": pace.stretch_seconds,
        "stopped_seconds": pace.stopped_seconds,
        "ranks": [
            {**each.host._asdict(), "job_name": each.job_name, "rank": each.rank or None}
            | {"per_second": each.per_second, "last_step": each.moved}
            for each in pace.ranks
        ],
    }


def _finding_json(finding: JobFinding) -> dict[str, Any]:
    return {
        **finding.host._asdict(),
        **finding_json(finding),
        "value": finding.value,
        "first": round(finding.first, 3),
        "last": round(finding.last, 3),
        "at_end": finding.lasts,
    }


def _gpu_json(gpu: JobGpu) -> dict[str, Any]:
    return {
        **gpu.host._asdict(),
        "gpu": gpu.gpu,
        "uuid": gpu.uuid,
        "name": gpu.name or None,
        "first": round(gpu.first, 3),
        "last": round(gpu.last, 3),
        "seconds": dict(gpu.seconds),
        "clock_hertz": gpu.clock_hertz,
        "power_watts": gpu.power_watts,
        "busy_ratio": gpu.busy_ratio,
        "mig_part": gpu.is_part,
        "shared_with": [
            {"namespace": each.namespace or None, "pod": each.pod or None, "slurm_job_id": each.slurm_job_id or None}
            | {"seconds": seconds}
            for each, seconds in gpu.neighbors.items()
        ],
    }


_SHEET: Final = ".words td { white-space: normal; }"
_UNKNOWN: Final = "&ndash;"


def render_html(shown: JobReport) -> bytes:
    """The page, without scripts or external resources."""
    parts = (
        _page_head(shown),
        _time_section(shown),
        _slowest_section(shown),
        section("steps", "Steps", _list(pace_lines(shown.job))),
        _findings_section(shown),
        _gpus_section(shown),
        section("notes", "Notes", _list(shown.notes)) if shown.notes else "",
    )
    tone = "held" if shown.advice.remarkable else "well"
    return standalone_page(headline(shown), ICONS[tone], _SHEET, parts)


def _page_head(shown: JobReport) -> str:
    job, advice = shown.job, shown.advice
    about = f"{safe(advice.about)}: " if advice.about else ""
    made_up = '<p class="banner simulated">Simulated data.</p>\n' if job.simulated else ""
    warnings = "".join(f"<p>Incomplete: {safe(each)}</p>\n" for each in shown.warnings)
    return (
        f'{made_up}<header class="{"held" if advice.remarkable else "well"}">\n<h1>{safe(headline(shown))}</h1>\n'
        f"<p><strong>Do first:</strong> {about}{safe(advice.first)}</p>\n"
        f"<p>{safe(duration(job))}</p>\n<p>{safe(size(job))}</p>\n"
        f'<p class="soft">From {safe(shown.source)}, {safe(markup.date_time(job.found.asked_at))}</p>\n'
        f"{warnings}</header>"
    )


def _time_section(shown: JobReport) -> str:
    lost = " ".join(f"{line[0].upper()}{line[1:]}." for line in lost_words(shown))
    rows = (
        row(
            class_chip(name) if name in BOTTLENECK_CLASSES else safe(name),
            (safe(words), safe(hours(seconds)), f"{share:.0%}{bar(share)}"),
        )
        for name, words, seconds, share in class_rows(shown.job)
    )
    heads = ("Class", "GPUs were", "Time", "Share")
    said = f"<p>Lost: {safe(lost)}</p>\n"
    return section("time", "GPU time by bottleneck", said + table("GPU time by bottleneck", heads, rows))


def _slowest_section(shown: JobReport) -> str:
    comparison = shown.comparison
    if comparison.gpu is None:
        return section("slowest", "Slowest GPU and host", "<p>There is nothing to compare.</p>")
    parts = []
    for title, standing in (("Slowest GPU", comparison.gpu), ("Slowest host", comparison.host)):
        if standing is not None:
            rows = (row(safe(name), map(safe, cells)) for name, *cells in reading_rows(standing))
            readings = table(title, ("Reading", "Its own", "Median of the others", "Difference"), rows)
            parts.append(f"<h3>{safe(title)}</h3>\n<p>{safe(compared_with(standing))}</p>\n{readings}")
    return section("slowest", "Slowest GPU and host", "\n".join(parts))


def _list(lines: Iterator[str] | tuple[str, ...]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{safe(line)}</li>" for line in lines) + "\n</ul>"


def _findings_section(shown: JobReport) -> str:
    found = finding_rows(shown.job)
    if not found:
        return section("findings", "Findings while it ran", "<p>None.</p>")
    rows, tones = [], {severity.value: OF_SEVERITY[severity] for severity in Severity}
    for finding, subject, when in found[: shown.limit]:
        do = finding.check.advice.anywhere if finding.check else ""
        cells = (foreign(finding.code), safe(subject), safe(measured(finding)), safe(when), safe(do))
        rows.append(row(chip(finding.urgency, tones.get(finding.urgency, "idle")), cells))
    heads = ("Severity", "Finding", "Where", "Measured", "When", "What to do")
    more = len(found) - shown.limit
    note = f"<p>And {more} more.</p>" if more > 0 else ""
    return section("findings", "Findings while it ran", table("Findings", heads, rows, "words") + note)


def _gpus_section(shown: JobReport) -> str:
    hosts = list(by_host_rows(shown.job))
    rows = []
    for gpu in (gpu for _, gpus in hosts[: shown.limit] for gpu in gpus):
        cells = (
            safe(gpu.gpu),
            safe(gpu.name) or _UNKNOWN,
            _UNKNOWN if gpu.clock_hertz is None else f"{gpu.clock_hertz / 1e6:.0f} MHz",
            _UNKNOWN if gpu.power_watts is None else f"{gpu.power_watts:.0f} W",
            _UNKNOWN if gpu.busy_ratio is None else f"{gpu.busy_ratio:.0%}",
            safe(main_classes((gpu,))),
        )
        rows.append(row(foreign(gpu.host), cells))
    heads = ("Host", "GPU", "Model", "SM clock", "Power", "Busy", "Time")
    more = len(hosts) - shown.limit
    note = f"<p>And {more} more hosts.</p>" if more > 0 else ""
    return section("gpus", "GPUs", table("GPUs", heads, rows, "words") + note)
