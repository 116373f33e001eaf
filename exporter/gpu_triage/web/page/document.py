"""The whole page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from gpu_triage.diagnosis.calm import ranges
from gpu_triage.diagnosis.codes import Severity
from gpu_triage.diagnosis.report import Fitness, Report
from gpu_triage.diagnosis.standing import Standing
from gpu_triage.web.page.collectors import collectors_section, duration
from gpu_triage.web.page.findings import REPOSITORY, areas_section, findings_section
from gpu_triage.web.page.gpus import gpus_section
from gpu_triage.web.page.markup import chip, foreign, safe, section
from gpu_triage.web.page.style import ICONS, SCRIPT, STYLE
from gpu_triage.web.page.tones import OF_CLASS, OF_FITNESS
from gpu_triage.web.page.topology import topology_section

VERDICT_PATH: Final = "/api/v1/verdict"
_RELOAD_SECONDS: Final = 10
"""For browsers without scripts; the script is quicker."""


@dataclass(frozen=True, slots=True)
class PageFacts:
    """What the page says of the exporter itself.

    Attributes:
        version: of this program.
        scenario: the simulated scenario's name or path; None on a real host.
        telemetry_path: where the metrics are.
        silence: why what is shown is stale; None while the sampler publishes.
        waiting_for: what the first round still lacks; None where nothing.
        recording: what is replayed; None where nothing is.
    """

    version: str
    scenario: str | None
    telemetry_path: str
    silence: str | None
    waiting_for: str | None
    recording: str | None = None


@dataclass(frozen=True, slots=True)
class _Headline:
    """The first line.

    Attributes:
        state: machine-readable: drain, watch, keep, stale, starting, released or blocked.
        word: the same for people.
        tone: its colour.
        lines: what it means, escaped.
    """

    state: str
    word: str
    tone: str
    lines: tuple[str, ...]


def document(standing: Standing, facts: PageFacts) -> bytes:
    """The page, HTML in UTF-8, every value escaped.

    Args:
        standing: the verdict and its evidence; what is in it comes from the driver and from processes, and is not
            trusted.
        facts: of the exporter.
    """
    report = standing.report
    headline = _headline(standing, facts)
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<noscript><meta http-equiv="refresh" content="{_RELOAD_SECONDS}"></noscript>
<title>{safe(headline.word)}: {safe(report.host)}{" (simulated)" if report.simulated else ""}</title>
<link rel="icon" href="{ICONS[headline.tone]}">
<style>{STYLE}</style>
</head>
<body>
<p id="silent" class="banner sick" role="alert" hidden></p>
<main>
{_simulated(report, facts)}{_top(standing, facts, headline)}
{findings_section(report)}
{gpus_section(standing)}
{topology_section(standing.host)}
{areas_section(report)}
{collectors_section(standing.host.evidence)}
{_links(facts)}
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""
    return page.encode("utf-8", "replace")


def _simulated(report: Report, facts: PageFacts) -> str:
    if not report.simulated:
        return ""
    told = "<strong>Simulated data.</strong> Nothing here or in the metrics describes real hardware."
    if facts.recording is not None:
        told = f"<strong>A recording.</strong> It replays {foreign(facts.recording)}, not this host as it is now."
    elif facts.scenario is not None:
        told += f" The scenario is <strong>{foreign(facts.scenario)}</strong>."
    return f'<p class="banner simulated" role="note">{told}</p>\n'


def _top(standing: Standing, facts: PageFacts, headline: _Headline) -> str:
    report = standing.report
    lines = "".join(f"<p>{line}</p>\n" for line in headline.lines)
    driver = f"driver {safe(report.driver)}" if report.driver else "no driver"
    watched = f"judged over {duration(report.watched_seconds)}"
    return f"""<header id="verdict" class="{headline.tone}" data-state="{headline.state}" \
data-verdict="{safe(report.fitness.value)}">
<h1>{chip(headline.word, headline.tone)} {foreign(report.host)}</h1>
{lines}<p class="soft"><time datetime="{_instant(standing)}">{_clock_time(standing)}</time> · {watched} · {driver} · \
gpu-triage {safe(facts.version)}</p>
</header>"""


def _instant(standing: Standing) -> str:
    return _utc(standing).isoformat(timespec="seconds")


def _clock_time(standing: Standing) -> str:
    return _utc(standing).strftime("%Y-%m-%d %H:%M:%S UTC")


def _utc(standing: Standing) -> datetime:
    return datetime.fromtimestamp(standing.host.evidence.wall, tz=timezone.utc)


def _headline(standing: Standing, facts: PageFacts) -> _Headline:
    report = standing.report
    if facts.silence is not None:
        stale = f"{safe(facts.silence)}: what follows is as old. Look at the exporter's log and restart it."
        return _Headline("stale", "Stale", "sick", (stale,))
    if standing.host.released:
        return _Headline("released", "Released", "idle", (safe(report.blocked or ""),))
    if report.blocked is not None and not (facts.waiting_for and standing.host.driver_error is None):
        return _Headline("blocked", "Could not look", "sick", (safe(report.blocked),))
    if facts.waiting_for is not None:
        return _Headline("starting", "Starting", "idle", (f"Waiting for {safe(facts.waiting_for)}.",))
    fitness = report.fitness
    return _Headline(fitness.value, fitness.value.capitalize(), OF_FITNESS[fitness], tuple(_summary(report)))


def _summary(report: Report) -> Iterator[str]:
    """Who goes on taking work, and what is scarce first, in two lines."""
    if not report.gpus:
        return
    by_fitness: dict[Fitness, list[str]] = defaultdict(list)
    by_class: dict[str, list[str]] = defaultdict(list)
    for gpu in report.gpus:
        by_fitness[gpu.fitness].append(gpu.gpu)
        by_class[gpu.bottleneck.name].append(gpu.gpu)
    order = (Fitness.DRAIN, Fitness.WATCH, Fitness.KEEP)
    fit = [chip(f"{each.value} GPU {ranges(by_fitness[each])}", OF_FITNESS[each]) for each in order if by_fitness[each]]
    yield f"{' '.join(fit)} {safe(_counted(report))}"
    scarce = [chip(f"{name} on GPU {ranges(gpus)}", OF_CLASS[name]) for name, gpus in by_class.items()]
    yield f"Bottleneck: {' '.join(scarce)}"


def _counted(report: Report) -> str:
    counts = {s: sum(1 for f in report.findings if f.check.severity is s) for s in reversed(Severity)}
    return ", ".join(f"{count} {severity.value}" for severity, count in counts.items() if count) or "No finding"


def _links(facts: PageFacts) -> str:
    links = (
        (facts.telemetry_path, "Metrics", "for Prometheus"),
        (VERDICT_PATH, "Verdict", "the same as JSON"),
        ("/-/healthy", "Health", "whether the process should be left running"),
        ("/-/ready", "Readiness", "whether first samples were taken"),
        (f"{REPOSITORY}docs/runbooks", "Runbooks", "what to do about each finding"),
        (f"{REPOSITORY}docs/METRICS.md", "Every metric", "with its source"),
    )
    items = "\n".join(f'<li><a href="{safe(to)}" rel="noreferrer">{name}</a>: {what}</li>' for to, name, what in links)
    return section("links", "More", f"<ul>\n{items}\n</ul>")
