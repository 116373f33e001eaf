"""What a fleet was measured to cost, and the lines through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from deploy.generate.fleet import federated, remote_written
from tests.bench.fleet_disk import Block
from tests.bench.rules_page import Scrapes
from tests.bench.straight_line import Line, line_through

PLAIN, EVERYTHING = "plain", "everything"
RECORDED, CHOSEN, DASHBOARDS = "recorded", "chosen", "dashboards"
_REPOSITORY = Path(__file__).resolve().parents[2]


def sent() -> Mapping[str, str]:
    """Which metrics each queue of remote write sends, as a regular expression; one more sends everything."""
    raw = {
        name: "|".join(each for each in names if ":" not in each and each != "ALERTS")
        for name, names in ((CHOSEN, federated(_REPOSITORY)), (DASHBOARDS, remote_written(_REPOSITORY)))
    }
    return {RECORDED: ".+:.+|ALERTS", **raw}


BUSY_LOAD_PER_CPU = 2.0
ALLOWED_DRIFT = 0.1
MONTH_SECONDS = 30 * 86400


@dataclass(frozen=True, slots=True)
class Write:
    """What one queue of remote write sent."""

    name: str  # recorded, chosen, dashboards or everything
    # samples_per_second, bytes_per_second: compressed bodies of requests, without HTTP headers
    samples_per_second: float
    bytes_per_second: float
    failed: int  # samples that were lost
    # samples that it read, of those that were scraped and recorded meanwhile; not 1 while it is behind or catches up
    read_share: float

    @property
    def kept_up(self) -> bool:
        return abs(self.read_share - 1) <= ALLOWED_DRIFT and not self.failed


@dataclass(frozen=True, slots=True)
class Victoria:
    """What VictoriaMetrics took for everything that a run sent."""

    memory_bytes: int  # resident at the end
    samples: int  # that it has


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run cost a Prometheus."""

    hosts: int  # of eight GPUs
    profile: str  # of the metrics that they serve
    kind: str  # EVERYTHING if all series were sent on, else PLAIN
    page_series: int  # of one host's page
    series: int  # in the head
    samples_per_second: float  # scraped and recorded
    memory_bytes: int  # highest resident memory while it counted
    peak_bytes: int  # highest ever, that of writing a block included
    cores: float  # that it kept busy
    evaluation: tuple[float, str]  # the longest evaluation as a share of its group's interval, and the group
    scrapes: Scrapes  # how they went
    writes: tuple[Write, ...]  # what each queue sent
    load: float  # average of the machine over one minute, at the end
    victoria: Victoria | None = None  # what took everything; None for PLAIN

    def write(self, name: str) -> Write | None:
        return next((each for each in self.writes if each.name == name), None)


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A size that this machine cannot measure, and why."""

    hosts: int
    profile: str
    reason: str


@dataclass(frozen=True)
class FleetCosts:
    """All that was measured, and the lines through it."""

    scrape_seconds: int  # between two scrapes of a host
    minutes: float  # that each run counted
    costs: Sequence[Cost]  # of the runs
    not_measured: Sequence[NotMeasured]  # sizes that did not fit
    blocks: Mapping[str, tuple[Block, Block]]  # disk by profile, as simulated and with noise
    took_minutes: float  # all of it
    cpus: int  # of the machine

    @cached_property
    def plain(self) -> list[Cost]:
        """Runs that sent only recorded and chosen series: they are comparable with each other."""
        return [cost for cost in self.costs if cost.kind == PLAIN]

    @cached_property
    def everything(self) -> Cost | None:
        return next((cost for cost in self.costs if cost.kind == EVERYTHING), None)

    @cached_property
    def memory(self) -> Line | None:
        """Highest memory in bytes, a block being written included, by series in the head."""
        return line_through([(cost.series, cost.peak_bytes) for cost in self.plain])

    @cached_property
    def cores(self) -> Line | None:
        """Cores by samples per second."""
        return line_through([(cost.samples_per_second, cost.cores) for cost in self.calm])

    @cached_property
    def evaluation(self) -> Line | None:
        return line_through([(cost.hosts, cost.evaluation[0]) for cost in self.calm])

    @cached_property
    def calm(self) -> list[Cost]:
        """Runs on a machine that was not so busy that Prometheus had to wait for a CPU."""
        return [cost for cost in self.plain if cost.load <= self.busy_load]

    @property
    def busy_load(self) -> float:
        """Load average above which CPU and evaluation times say more about the machine than about the fleet."""
        return BUSY_LOAD_PER_CPU * self.cpus

    def write_bits(self, name: str, hosts: float) -> float | None:
        """Bits per second of a queue, in proportion to the largest run in which it kept up; None if it did in none."""
        found = [(cost.hosts, cost.write(name)) for cost in self.costs]
        kept_up = [(size, write.bytes_per_second) for size, write in found if write and write.kept_up]
        if not kept_up:
            return None
        size, bytes_per_second = max(kept_up)
        return bytes_per_second * 8 / size * hosts

    def page_series(self, profile: str) -> int:
        return self._largest(profile).page_series

    def series_per_host(self, profile: str) -> float:
        """In the head, recorded ones included, as the largest run of this profile had it."""
        largest = self._largest(profile)
        return largest.series / largest.hosts

    def samples_per_host(self, profile: str) -> float:
        """Per second, recorded ones included."""
        largest = self._largest(profile)
        return largest.samples_per_second / largest.hosts

    def disk_bytes(self, profile: str, hosts: float) -> tuple[float, float]:
        """Of Prometheus in a month of 30 days: as simulated, and with noise."""
        samples = self.samples_per_host(profile) * hosts * MONTH_SECONDS
        plain, noisy = self.blocks[profile]
        return samples * plain.bytes_per_sample, samples * noisy.bytes_per_sample

    def everything_bits(self, profile: str, hosts: float) -> float | None:
        """Bits per second for remote write of every series: bytes per sample of the run that sent them."""
        sent = self.everything.write(EVERYTHING) if self.everything else None
        if sent is None or not sent.kept_up:
            return None
        return sent.bytes_per_second / sent.samples_per_second * self.samples_per_host(profile) * hosts * 8

    def _largest(self, profile: str) -> Cost:
        return max((cost for cost in self.plain if cost.profile == profile), key=lambda cost: cost.hosts)
