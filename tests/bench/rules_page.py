"""What was measured of the rules over a fleet, and the section of docs/benchmarks.md about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from statistics import mean

from tests.bench.markdown import paragraph, row, table

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
    """The section."""
    return "\n".join(["## Rules", "", *_conditions(fleet, head), *_groups(fleet), *_slowest(fleet)])


def _conditions(fleet: Fleet, head: list[str]) -> Iterator[str]:
    ran = fleet.scrapes
    missed = "no scrape was missed" if ran.complete else "SCRAPES WERE MISSED, so these figures count for nothing"
    yield from paragraph(
        f"""{fleet.hosts:,} simulated hosts of eight H100 in a real Prometheus, scraped every {fleet.scrape_seconds} s:
        what each group of rules takes while nothing is wrong (*calm*), and while all GPUs of every tenth host are too
        hot (*hot*). What is scaled to {SCALED_HOSTS:,} hosts is what was measured, multiplied by {
            SCALED_HOSTS / fleet.hosts:g}. The aim is at most {
            ALLOWED_SHARE[Phase.CALM]:.0%} of the interval when calm and
        {ALLOWED_SHARE[Phase.HOT]:.0%} when hot. `python -m tests.bench rules` measures it."""
    )
    yield from head
    yield from paragraph(
        f"""{fleet.minutes:.0f} minutes, after {fleet.past_samples:,} samples of the past, which fill the windows of the
        rules; {missed}.""",
        point=True,
    )
    yield from paragraph(
        f"""{fleet.series:,} series in memory, {fleet.scraped + fleet.recorded:,} per host of which the rules record
        {fleet.recorded}, {fleet.memory_bytes / 2**30:.1f} GiB resident, {fleet.cores:.2f} cores busy. At the end
        {fleet.alerts:,} alerts fired, one per hot GPU.""",
        point=True,
    )
    yield ""


def _groups(fleet: Fleet) -> Iterator[str]:
    phases = [f"{phase.value}: {what}" for phase in ALLOWED_SHARE for what in ("mean", "longest", "scaled")]
    yield from table("group<", "rules", "interval", *phases)
    for name, seen in fleet.groups.items():
        if seen.times:
            yield row(name, str(seen.rules), f"{seen.interval:.0f} s", *_times(seen, fleet.hosts))
    yield ""


def _times(seen: Seen, hosts: int) -> Iterator[str]:
    for phase in ALLOWED_SHARE:
        if phase in seen.times:
            yield f"{mean(seen.times[phase]):.2f} s"
            yield f"{max(seen.times[phase]):.2f} s"
            yield f"{scaled_share(seen, hosts, phase):.1%}"
        else:
            yield from ("-", "-", "-")


def _slowest(fleet: Fleet) -> Iterator[str]:
    cold_name, cold = max(fleet.groups.items(), key=lambda item: item[1].first / item[1].interval)
    means = {name: max(map(mean, seen.times.values())) for name, seen in fleet.rules.items() if seen.times}
    slowest = max(means, key=means.__getitem__)
    seconds, panel = fleet.review[0]
    yield from paragraph(
        f"""*Scaled* is the longest evaluation, as a share of the interval. The first one of each group is left out: it
        reads its windows from disk, as after a restart, and takes at most {cold.first:.1f} s ({cold_name}). The
        slowest rule is {slowest}, with {means[slowest]:.2f} s on average. The slowest of the {len(fleet.review)}
        queries of the dashboard *GPU capacity review* over 30 days ({panel}) takes {seconds:.2f} s; the aim is 2 s."""
    )
