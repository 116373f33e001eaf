"""A sampler over a simulated host on a virtual clock: the whole path from driver to page, a step at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from gpu_triage.cli.machines import judged_host
from gpu_triage.documents import parse_toml
from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.judge.report.report import Report
from gpu_triage.machine import Machine
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_SIMULATED
from gpu_triage.read.exporter.flight_recorder import FlightWatch
from gpu_triage.read.registry import ALL_COLLECTORS, GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.read.selection import Selection
from gpu_triage.sampler.lanes import InlineLane, LaneMaker
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.serve.exposition.page import Exposition
from gpu_triage_simulator import Scenario, SimulatedMachine, VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.scenario_file import SCENARIOS, read_scenario
from gpu_triage_simulator.schema import read_toml

Labels = dict[str, str]


def only(*collectors: str, **options: Any) -> Config:
    """A configuration with these collectors alone, for tests that look at what few of them publish.

    All together they cost four times as much as reading a power and a temperature does.
    """
    named = {each.name: each.name in collectors for each in ALL_COLLECTORS}
    assert set(collectors) <= named.keys(), collectors
    return Config(collectors=named, **options)


class Rig:
    """A running exporter without threads and sockets."""

    def __init__(
        self,
        simulated: SimulatedMachine,
        clock: VirtualClock,
        config: Config,
        machine: Machine | None = None,
        make_lane: LaneMaker | None = None,
        *,
        flight: FlightWatch | None = None,
    ) -> None:
        config = simulated.remembering(config)
        self.simulated = simulated
        self.clock = clock
        self.config = config
        self.judge = DaemonJudge(config, replace(judged_host(config, continuous=True), simulated=True))
        self.sampler = Sampler(
            machine or simulated.machine,
            config,
            make_lane or (lambda name: InlineLane(clock, name)),
            GPU_COLLECTORS,
            HOST_COLLECTORS,
            judge=self.judge,
            flight=flight,
            writes_state=True,
            constants=(GPU_EXPORTER_SIMULATED.sample(1),),
        )
        self.exposition = Exposition(self.sampler, Selection(config))
        self.elapsed = 0.0
        self._parsed: list[tuple[str, Labels, float]] | None = None

    def run(self, seconds: float) -> None:
        self._parsed = None
        interval = self.config.sample_fast_seconds
        for _ in range(round(seconds / interval)):
            self.sampler.step()
            self.sampler.publish()
            self.clock.advance(interval)
            self.elapsed += interval
        self.sampler.step()
        self.sampler.publish()
        self.exposition.refresh()

    def run_to(self, seconds: float) -> None:
        self.run(seconds - self.elapsed)

    @property
    def report(self) -> Report:
        """That of the last judgment."""
        assert self.judge.latest is not None
        return self.judge.latest.report

    def page(self) -> str:
        return self.exposition.page("", (), gzipped=False).body.decode()

    def series(self, name: str, **labels: str) -> list[tuple[Labels, float]]:
        if self._parsed is None:
            families = text_string_to_metric_families(self.page())
            self._parsed = [(s.name, s.labels, s.value) for family in families for s in family.samples]
        wanted = labels.items()
        return [(had, value) for found, had, value in self._parsed if found == name and wanted <= had.items()]

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the one series with these labels; None if there is none."""
        series = self.series(name, **labels)
        assert len(series) <= 1, series
        return series[0][1] if series else None

    @property
    def kmsg(self) -> Path:
        path = self.simulated.machine.kmsg
        assert path is not None
        return path

    def kernel_logs(self, sequence: int, text: str, ago: float = 0.0) -> None:
        """Write to the kernel log what the simulated kernel does not, as if so many seconds ago."""
        stamp = round((self.clock.now().monotonic - ago) * 1e6)
        with self.kmsg.open("a") as log:
            log.write(f"4,{sequence},{stamp},-;{text}\n")

    def error_of(self, gpu: str) -> str | None:
        """Why a GPU does not answer."""
        series = self.series("gpu_error_info", gpu=gpu)
        return series[0][0]["error"] if series else None


def scenario_with(tmp_path: Path, base: str, *events: str) -> Scenario:
    """A shipped scenario with more events, each the body of an ``[[event]]`` table."""
    text, table = _shipped(base)
    path = tmp_path / f"{base}-changed.toml"
    more = "".join(f"\n[[event]]\n{event}\n" for event in events)
    path.write_text(text + more)
    # Most of the time went into reading the shipped text again.
    added = parse_toml(more.encode(), str(path))
    events_of_both = [*table.get("event", []), *added.get("event", [])]
    return read_scenario({**table, **added, "event": events_of_both}, path.name)


@cache
def _shipped(base: str) -> tuple[str, dict[str, Any]]:
    path = SCENARIOS / f"{base}.toml"
    return path.read_text(), read_toml(path)


def pair(base: str) -> Scenario:
    """A shipped scenario cut down to its first two GPUs, where more of them would prove nothing."""
    return _first_gpus(load_scenario(base), 2)


def three(base: str) -> Scenario:
    """As `pair`, with a third GPU."""
    return _first_gpus(load_scenario(base), 3)


def pair_with(tmp_path: Path, base: str, *events: str) -> Scenario:
    """As `scenario_with`, cut down to the first two GPUs: what happens to one and not to the other is seen on two."""
    return _first_gpus(scenario_with(tmp_path, base, *events), 2)


def three_with(tmp_path: Path, base: str, *events: str) -> Scenario:
    """As `scenario_with`, cut down to the first three GPUs: two that are in trouble, and one that is not."""
    return _first_gpus(scenario_with(tmp_path, base, *events), 3)


def _first_gpus(scenario: Scenario, count: int) -> Scenario:
    processes = tuple(process for process in scenario.processes if process.gpu < count)
    events = tuple(
        replace(event, gpus=tuple(gpu for gpu in event.gpus if gpu < count))
        for event in scenario.events
        if not event.gpus or min(event.gpus) < count
    )
    jobs = tuple(
        replace(job, ranks=tuple(each if each.gpu < count else each._replace(host="another") for each in job.ranks))
        for job in scenario.jobs
    )
    return replace(scenario, gpus=scenario.gpus[:count], processes=processes, events=events, jobs=jobs)


@contextmanager
def rig(scenario: Scenario, config: Config | None = None) -> Iterator[Rig]:
    """A rig over a scenario, for the length of a ``with`` block."""
    clock = VirtualClock()
    with simulated_machine(scenario, clock=clock, when_looked_at=True) as simulated:
        yield Rig(simulated, clock, config or Config())
