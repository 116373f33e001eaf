"""What was measured of the rules over a fleet, and the page that tells of it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean

SCALED_HOSTS = 1000
ALLOWED_SHARE = 0.1


@dataclass
class Seen:
    """Evaluation times in seconds of one group or rule, as Prometheus reports them at each look.

    Attributes:
        times: of those that count.
        first: of the first one, which does not: it reads its windows from disk, as once after a restart.
        last: when the last one was.
        interval: between evaluations.
        rules: how many a group has.
    """

    times: list[float] = field(default_factory=list)
    first: float = 0.0
    last: str = ""
    interval: float = 0.0
    rules: int = 0

    def note(self, at: str, seconds: float, *, counts: bool) -> None:
        """Take in the last evaluation, which was at this time; once, however often it is seen."""
        if not seconds or at == self.last:
            return
        if not self.last:
            self.first = seconds
        elif counts:
            self.times.append(seconds)
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
    scrapes: Scrapes
    groups: Mapping[str, Seen]
    rules: Mapping[str, Seen]
    review: list[tuple[float, str]]


def scaled_share(seen: Seen, hosts: int) -> float:
    """The longest evaluation as a share of the interval, if all hosts of the fleet that is scaled to were there."""
    return max(seen.times) / seen.interval * SCALED_HOSTS / hosts


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
            f" {SCALED_HOSTS / fleet.hosts:g}. The aim is less than {ALLOWED_SHARE:.0%} of the interval at"
            f" {SCALED_HOSTS:,} hosts. `make bench-rules` writes this page; do not edit it."
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
            f" reach and as dense as scrapes and rules leave them, and was watched for {fleet.minutes:.0f} minutes.",
            point=True,
        ),
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
    return [
        f"| group | rules | interval | mean | longest | share of the interval | scaled to {SCALED_HOSTS:,} hosts |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {name} | {seen.rules} | {seen.interval:.0f} s | {mean(seen.times):.2f} s | {max(seen.times):.2f} s | "
            f"{max(seen.times) / seen.interval:.1%} | {scaled_share(seen, fleet.hosts):.1%} |"
            for name, seen in fleet.groups.items()
            if seen.times
        ),
        "",
        *_text(
            "Shares are those of the longest evaluation. Left out is the first one of each group, which reads its"
            f" windows from disk, as once after a restart: at most {cold.first:.1f} s, of {cold_name},"
            f" {cold.first / cold.interval:.0%} of its interval."
        ),
        "",
    ]


def _rules(fleet: Fleet) -> list[str]:
    slowest = sorted(((mean(seen.times), name) for name, seen in fleet.rules.items() if seen.times), reverse=True)[:10]
    return [
        "The slowest rules:",
        "",
        "| rule | mean | longest |",
        "|---|---:|---:|",
        *(f"| {name} | {seconds:.2f} s | {max(fleet.rules[name].times):.2f} s |" for seconds, name in slowest),
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
