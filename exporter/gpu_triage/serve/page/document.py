"""The complete status page."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import COLORS, WORST_FIRST, Verdict
from gpu_triage.judge.host_judge import Judgment
from gpu_triage.judge.report.report import Report
from gpu_triage.serve.messages import HEALTHY_PATH, READY_PATH, VERDICT_PATH
from gpu_triage.serve.page import markup, sections, style

_RELOAD_SECONDS: Final = 10
"""Reload interval for browsers without scripts; the script refreshes more often."""


@dataclass(frozen=True, slots=True)
class PageFacts:
    version: str
    host: str  # name of the host or of the scenario
    scenario: str | None  # the simulated scenario's name or path; None on a real host
    telemetry_path: str  # URL path of the metrics
    silence: str | None  # why the page is out of date; None while the sampler publishes
    waiting_for: str | None  # what the first round is still waiting for; None if nothing
    judge_failed: bool  # whether the judge failed in its last round
    scenario_progress: str | None = None  # what happens next in the scenario, as a sentence


class _Headline(NamedTuple):
    """Header of the page: state, as an attribute and as a word; color; explanation and next steps, both escaped."""

    state: str
    word: str
    tone: str
    lines: tuple[str, ...] = ()
    steps: str = ""


def document(latest: Judgment | None, facts: PageFacts) -> bytes:
    """Render the page as HTML; every value is escaped, as `latest` (None before the first) is not trusted."""
    headline = _headline(latest, facts)
    banner, origin = _origin(latest, facts)
    body = f"""<p id="silent" class="banner sick" role="alert" hidden></p>
<main>
{banner}{_top(latest, facts, headline)}
{_sections(latest)}{_links(facts)}
</main>
<script>{style.SCRIPT}</script>"""
    reload = f'<noscript><meta http-equiv="refresh" content="{_RELOAD_SECONDS}"></noscript>\n'
    return markup.whole_page(
        f"{headline.word}: {facts.host}{origin}", style.ICONS[headline.tone], style.STYLE, body, reload
    )


def _sections(latest: Judgment | None) -> str:
    if latest is None:
        return ""
    report, now = latest.report, latest.at.wall
    shown = (
        sections.overview_section(report.gpus, now, report.words),
        sections.findings_section(report, now, sections.recordings_of(latest.host)),
        sections.gpus_section(latest),
        sections.repeat_offenders_section(latest.host),
        sections.listed("repairs", "Repairs", report.repairs),
        sections.areas_section(report),
        sections.listed("settings", "Settings that are not the defaults", (each.text for each in report.settings)),
        sections.collectors_section(latest.host),
    )
    return "".join(f"{each}\n" for each in shown if each)


def _origin(latest: Judgment | None, facts: PageFacts) -> tuple[str, str]:
    """Banner and title suffix if the page shows a recording or simulated data instead of the live host."""
    recording = None if latest is None else latest.report.recording
    if recording is not None:
        banner = f"This page replays {markup.foreign(recording)}, not the current state of this host."
        return f'<p class="banner recording" role="note"><strong>Recording.</strong> {banner}</p>\n', " (recording)"
    if facts.scenario is None and not (latest is not None and latest.report.simulated):
        return "", ""
    banner = "<strong>Simulated data.</strong> Nothing on this page or in the metrics describes real hardware."
    if facts.scenario is not None:
        banner += f" Scenario: <strong>{markup.foreign(facts.scenario)}</strong>."
    if facts.scenario_progress is not None:
        banner += f" {markup.foreign(facts.scenario_progress)}"
    return f'<p class="banner simulated" role="note">{banner}</p>\n', " (simulated)"


def _top(latest: Judgment | None, facts: PageFacts, headline: _Headline) -> str:
    verdict = Verdict.NOT_READ if latest is None else latest.report.verdict
    lines = "".join(f"<p>{line}</p>\n" for line in headline.lines)
    return f"""<header id="verdict" class="{headline.tone}" data-state="{headline.state}" \
data-verdict="{markup.safe(verdict.value)}">
<h1>{markup.chip(headline.word, headline.tone)} {markup.foreign(facts.host)}</h1>
{lines}{headline.steps}<p class="soft">{" · ".join(_circumstances(latest, facts))}</p>
</header>"""


def _circumstances(latest: Judgment | None, facts: PageFacts) -> Iterator[str]:
    if latest is not None:
        yield markup.moment(latest.at.wall)
        yield f"judged over {markup.window(latest.report.measured_seconds)}"
        if latest.report.driver:
            yield f"driver {markup.safe(latest.report.driver)}"
        elif latest.host.driver_error is not None and not latest.host.released:
            yield "no driver"
    yield f"gpu-triage {markup.safe(facts.version)}"


def _headline(latest: Judgment | None, facts: PageFacts) -> _Headline:
    broken = _broken(latest, facts)
    if broken is not None:
        return broken
    gray = COLORS[Verdict.NOT_READ].tone
    if latest is None:
        return _Headline("starting", "Starting", gray, (_waiting(facts.waiting_for or "the first judgment"),))
    report, waiting = latest.report, facts.waiting_for
    tone = COLORS[report.verdict].tone
    if latest.host.released:
        return _Headline("released", "Released", tone, (markup.safe(report.blocked or ""),))
    if report.blocked is not None and not (waiting and latest.host.driver_error is None):
        return _Headline("blocked", "Could not look", tone, (markup.safe(report.blocked),))
    lines: tuple[str, ...] = () if waiting is None else (_waiting(waiting),)
    if report.maintenance is not None:
        lines += (f"<strong>In maintenance</strong> {markup.foreign(report.maintenance)}; no pages, no drains.",)
    if waiting is not None and report.verdict in {Verdict.NOT_READ, Verdict.KEEP}:
        return _Headline("starting", "Starting", gray, lines)
    word = report.words.verdicts[report.verdict].capitalize()
    return _Headline(report.verdict.value, word, tone, (_summary(report), *lines), sections.first_steps(report))


def _waiting(what: str) -> str:
    return f"Waiting for {markup.safe(what)}."


def _broken(latest: Judgment | None, facts: PageFacts) -> _Headline | None:
    """The headline of an exporter that no longer judges; None if it does."""
    since = "" if latest is None else f" The rest of this page is from {markup.date_time(latest.at.wall)}."
    if facts.silence is not None:
        banner = f"Out of date: {markup.safe(facts.silence)}.{since} Check the exporter's log, then restart it."
        return _Headline("stale", "Stale", COLORS[Verdict.DRAIN].tone, (banner,))
    if facts.judge_failed:
        banner = (
            f"The exporter could not judge its last samples; its log has the cause.{since} The metrics are current."
        )
        return _Headline("judge_failed", "Judge failed", COLORS[Verdict.DRAIN].tone, (banner,))
    return None


def _summary(report: Report) -> str:
    """Which GPUs to keep, watch or drain, and the number of findings."""
    by_verdict: dict[Verdict, list[str]] = defaultdict(list)
    for gpu in report.gpus:
        by_verdict[gpu.verdict].append(gpu.gpu)
    chips = [
        markup.chip(_share(report, verdict, by_verdict[verdict]), COLORS[verdict].tone)
        for verdict in WORST_FIRST
        if by_verdict[verdict]
    ]
    return " ".join((*chips, markup.safe(_counted(report))))


def _share(report: Report, verdict: Verdict, indices: list[str]) -> str:
    gpus, word = f"GPU {ranges(indices)}", report.words.verdicts[verdict]
    return f"{word} {gpus}" if report.words.drains else f"{gpus}: {word}"


def _counted(report: Report) -> str:
    pending = State.PENDING.text
    counts = dict.fromkeys([*(severity.value for severity in reversed(Severity)), pending, "accepted"], 0)
    for finding in report.findings:
        state = finding.severity.value if finding.state is State.CONFIRMED else pending
        counts["accepted" if finding.accepted is not None else state] += 1
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "no findings"


def _links(facts: PageFacts) -> str:
    links = (
        (f".{facts.telemetry_path}", "Metrics", "for Prometheus"),
        (f".{VERDICT_PATH}", "Verdict", "this judgment as JSON"),
        (f".{HEALTHY_PATH}", "Health", "liveness probe"),
        (f".{READY_PATH}", "Readiness", "readiness probe"),
        ("runbooks/", "Runbooks", "what to do about each alert and each finding"),
        ("runbooks/playbook", "Playbook", "what to ask in which order, how to drain and reset"),
        ("runbooks/xids", "Xid codes", "what each one means"),
        ("runbooks/metrics", "Metrics reference", "every metric and its source"),
    )
    items = "\n".join(f'<li><a href="{markup.safe(to)}">{name}</a>: {what}</li>' for to, name, what in links)
    return markup.section("links", "More", f"<ul>\n{items}\n</ul>")
