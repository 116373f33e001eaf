"""The judge at work on a simulated host: who is in which class, second by second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.rig import Rig, rig

from gpu_triage.config import Config
from gpu_triage.subjects.judgement import GPU_BOTTLENECK

if TYPE_CHECKING:
    from gpu_triage.diagnosis.report.report import Report
    from gpu_triage.simulator import Scenario


class Judged:
    """A running exporter whose judge is looked at after each step.

    Attributes:
        running: the exporter.
        changes: scenario second and class, by GPU, of every class that it entered.
    """

    def __init__(self, running: Rig) -> None:
        self.running = running
        self.changes: dict[str, list[tuple[float, str]]] = {}

    def run_to(self, seconds: float) -> None:
        """Go on to this scenario time."""
        running, interval = self.running, self.running.config.sample_fast_seconds
        while running.elapsed < seconds:
            running.sampler.step()
            running.sampler.publish()
            running.clock.advance(interval)
            running.elapsed += interval
            for gpu, name in self.classes().items():
                entered = self.changes.setdefault(gpu, [])
                if not entered or entered[-1][1] != name:
                    entered.append((running.elapsed, name))
        running.run(0)

    @property
    def report(self) -> Report:
        """The last judgement's."""
        latest = self.running.judge.latest
        assert latest is not None
        return latest.report

    def classes(self) -> dict[str, str]:
        """Class of each GPU by its index, as published."""
        outcome = self.running.sampler.store.get("judge", "")
        samples = () if outcome is None else outcome.samples
        states = GPU_BOTTLENECK.states
        return {s.labels[0]: states[int(s.value)] for s in samples if s.spec is GPU_BOTTLENECK}

    def seconds(self, gpu: str) -> dict[str, float]:
        """Seconds by class of a GPU, but for those that are 0."""
        series = self.running.series("gpu_bottleneck_seconds_total", gpu=gpu)
        return {labels["class"]: value for labels, value in series if value}

    def entered(self, gpu: str, name: str, after: float = 0.0) -> float:
        """Scenario second at which a GPU came into a class, after that time; infinite where it did not."""
        return min((at for at, each in self.changes[gpu] if each == name and at >= after), default=float("inf"))


@contextmanager
def judged(scenario: Scenario, config: Config | None = None) -> Iterator[Judged]:
    """The judge at work on a scenario, for the length of a ``with`` block."""
    with rig(scenario, config) as running:
        yield Judged(running)
