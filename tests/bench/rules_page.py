"""What was measured of the rules over a fleet, and the page that tells of it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from statistics import mean

SCALED_HOSTS = 1000


class Phase(Enum):
    """What the fleet does: nothing that counts yet, nothing at all, or 800 of 8,000 GPUs are too hot."""

    SETTLING = "settling"
    CALM = "calm"
    HOT = "hot"


ALLOWED_SHARE = {Phase.CALM: 0.05, Phase.HOT: 0.1}


@dataclass
class Seen:
    """Evaluation times in seconds of one group or rule, as Prometheus reports them at each look.

    Attributes:
        times: of those that count, by phase.
        first: of the first one, which does not: it reads its windows from disk, as once after a restart.
        last: when the last one was.
        interval: between evaluations.
        rules: how many a group has.
    """

    times: dict[Phase, list[float]] = field(default_factory=dict)
    first: float = 0.0
    last: str = ""
    interval: float = 0.0
    rules: int = 0

    def note(self, at: str, seconds: float, phase: Phase) -> None:
        """Take in the last evaluation, which was at this time; once, however often it is seen."""
        if not seconds or at == self.last:
            return
        if not self.last:
            self.first = seconds
        elif phase is not Phase.SETTLING:
            self.times.setdefault(phase, []).append(seconds)
        self.last = at


@dataclass(frozen=True, slots=True)
class Scrapes:
    """How the scrapes went while it counted.

    Attributes:
        hosts: that were scraped.
        due: scrapes of each.
        fewest: that any had.
        failed: of all.
        longest_seconds: that one took.
    """

    hosts: int
    due: int
    fewest: int
    failed: int
    longest_seconds: float

    @property
    def complete(self) -> bool:
        """Whether none was missed; at the edges of a window one may fall outside."""
        return self.hosts > 0 and self.fewest >= self.due - 1 and self.failed == 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """What ran.

    Attributes:
        hosts: simulated hosts of eight GPUs.
        scrape_seconds: between two scrapes of one.
        series: that Prometheus held, recorded ones included.
        scraped, recorded: series of one host.
        memory_bytes: resident memory of Prometheus at the end.
        cores: that Prometheus kept busy on average.
        past_samples: of history that it began with.
        minutes: that rules were watched.
        alerts: that fired at the end, of hot GPUs.
        scrapes: how they went.
        groups, rules: evaluation times by name.
        review: seconds of each query of the capacity review, longest first.
    """

    hosts: int
    scrape_seconds: int
    series: int
    scraped: int
    recorded: int
    memory_bytes: int
    cores: float
    past_samples: int
    minutes: float
    alerts: int
    scrapes: Scrapes
    groups: Mapping[str, Seen]
    rules: Mapping[str, Seen]
    review: list[tuple[float, str]]


def scaled_share(seen: Seen, hosts: int, phase: Phase) -> float:
    """The longest evaluation as a share of the interval, if all hosts of the fleet that is scaled to were there."""
    return max(seen.times[phase]) / seen.interval * SCALED_HOSTS / hosts


def too_slow(seen: Seen, hosts: int) -> bool:
    """Whether a group takes more of its interval than it may."""
    return any(scaled_share(seen, hosts, phase) > ALLOWED_SHARE[phase] for phase in seen.times)


def document(fleet: Fleet, head: list[str]) -> str:
    """The page."""
    return "\n".join([*_conditions(fleet, head), *_groups(fleet), *_rules(fleet), *_review(fleet)])


def _text(text: str, *, point: bool = False) -> list[str]:
    return textwrap.wrap(text, 118, initial_indent="- " if point else "", subsequent_indent="  " if point else "")


def _conditions(fleet: Fleet, head: list[str]) -> list[str]:
    kib = fleet.memory_bytes / max(1, fleet.series) / 1024
    ran = fleet.scrapes
    missed = "no scrape was missed" if ran.complete else "SCRAPES WERE MISSED, so these figures count for nothing"
    return [
        "# Benchmarks: the rules over a fleet",
        "",
        *_text(
            f"{fleet.hosts:,} simulated hosts of eight H100 in a real Prometheus, each scraped every"
            f" {fleet.scrape_seconds} s: what each group of rules takes, and which share of its interval that is."
            f" What is scaled to {SCALED_HOSTS:,} hosts is what was measured, multiplied by"
            f" {SCALED_HOSTS / fleet.hosts:g}. The aim at {SCALED_HOSTS:,} hosts is at most"
            f" {ALLOWED_SHARE[Phase.CALM]:.0%} of the interval while nothing is wrong, and"
            f" {ALLOWED_SHARE[Phase.HOT]:.0%} while all GPUs of every tenth host are too hot, 800 in all."
            " `make bench-rules` writes this page; do not edit it."
        ),
        "",
        *head,
        *_text(
            f"Each host serves all {fleet.scraped:,} series of its exporter; the rules record {fleet.recorded} more.",
            point=True,
        ),
        *_text(
            f"{ran.hosts:,} hosts were scraped at least {ran.fewest} times each in the time that counts, {ran.failed}"
            f" scrapes failed, the longest took {ran.longest_seconds:.2f} s: {missed}.",
            point=True,
        ),
        *_text(
            f"Prometheus began with {fleet.past_samples:,} samples of their past, as far back as the rules' windows"
            f" reach and as dense as scrapes and rules leave them, and was watched for {fleet.minutes:.0f} minutes,"
            " the second half of them with hot GPUs.",
            point=True,
        ),
        *_text(f"At the end {fleet.alerts:,} alerts fired, one for each hot GPU.", point=True),
        *_text(
            f"It held {fleet.series:,} series in memory, recorded ones included ({fleet.series / fleet.hosts:,.0f} a"
            f" host), in {fleet.memory_bytes / 2**30:.1f} GiB resident: {kib:.1f} KiB a series. It kept"
            f" {fleet.cores:.2f} cores busy, scrapes and rules together.",
            point=True,
        ),
        "",
    ]


def _groups(fleet: Fleet) -> list[str]:
    cold_name, cold = max(fleet.groups.items(), key=lambda item: item[1].first / item[1].interval)
    phases = " | ".join(f"{phase.value}: mean | longest | scaled to {SCALED_HOSTS:,} hosts" for phase in ALLOWED_SHARE)
    return [
        f"| group | rules | interval | {phases} |",
        "|---|" + "---:|" * (2 + 3 * len(ALLOWED_SHARE)),
        *(
            f"| {name} | {seen.rules} | {seen.interval:.0f} s | {_times(seen, fleet.hosts)} |"
            for name, seen in fleet.groups.items()
            if seen.times
        ),
        "",
        *_text(
            "What is scaled is the longest evaluation, as a share of the interval. Left out is the first one of each"
            f" group, which reads its windows from disk, as once after a restart: at most {cold.first:.1f} s, of"
            f" {cold_name}, {cold.first / cold.interval:.0%} of its interval."
        ),
        "",
    ]


def _times(seen: Seen, hosts: int) -> str:
    return " | ".join(
        f"{mean(seen.times[phase]):.2f} s | {max(seen.times[phase]):.2f} s | {scaled_share(seen, hosts, phase):.1%}"
        if phase in seen.times
        else "- | - | -"
        for phase in ALLOWED_SHARE
    )


def _rules(fleet: Fleet) -> list[str]:
    longest = sorted(
        ((mean(seen.times[phase]), name, phase) for name, seen in fleet.rules.items() for phase in seen.times),
        key=lambda row: row[0],
        reverse=True,
    )[:10]
    return [
        "The slowest rules:",
        "",
        "| rule | while | mean | longest |",
        "|---|---|---:|---:|",
        *(
            f"| {name} | {phase.value} | {seconds:.2f} s | {max(fleet.rules[name].times[phase]):.2f} s |"
            for seconds, name, phase in longest
        ),
        "",
    ]


def _review(fleet: Fleet) -> list[str]:
    return [
        *_text(
            "The dashboard GPU capacity review over 30 days, all hosts: its longest queries, one after the other."
            " The aim is 2 s. What is told by GPU or host is of the last day; the lines over a month are sums that the"
            " rules recorded."
        ),
        "",
        "| panel | time |",
        "|---|---:|",
        *(f"| {name} | {seconds:.2f} s |" for seconds, name in fleet.review[:6]),
        f"| all {len(fleet.review)} queries together | {sum(seconds for seconds, _ in fleet.review):.2f} s |",
        "",
    ]
