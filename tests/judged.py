"""The judge at work on a simulated host: which class each GPU is in and which findings there are, second by second."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.rig import Rig, rig

from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.report.report import Report
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK, GPU_FINDING, GPU_HOST_FINDING
from gpu_triage.read.metrics.metric import Sample
from gpu_triage_simulator import Scenario

HOST = ""
"""The subject of a finding about the host, where that of one about a GPU is its index."""

Subject = str
Code = str


class Judged:
    """A running exporter whose judge is looked at after each step."""

    def __init__(self, running: Rig) -> None:
        self.running = running  # the exporter
        # Scenario second and class, by GPU, of every class that it entered.
        self.changes: dict[str, list[tuple[float, str]]] = {}
        # Scenario second and state of every change of a finding, by its subject and code; None for absent.
        self.lives: dict[tuple[Subject, Code], list[tuple[float, State | None]]] = {}

    def run_to(self, seconds: float) -> None:
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
            self._note(self.findings())
        running.run(0)

    def _note(self, findings: Mapping[tuple[Subject, Code], State]) -> None:
        for key in findings.keys() | self.lives.keys():
            life, state = self.lives.setdefault(key, []), findings.get(key)
            if (life[-1][1] if life else None) is not state:
                life.append((self.running.elapsed, state))

    @property
    def report(self) -> Report:
        return self.running.report

    def classes(self) -> dict[str, str]:
        states = GPU_BOTTLENECK.states
        return {s.labels[0]: states[int(s.value)] for s in self._published() if s.spec is GPU_BOTTLENECK}

    def findings(self) -> dict[tuple[Subject, Code], State]:
        found = {}
        for sample in self._published():
            if sample.spec is GPU_FINDING:
                found[sample.labels[0], sample.labels[GPU_FINDING.labels.index("code")]] = State(int(sample.value))
            elif sample.spec is GPU_HOST_FINDING:
                found[HOST, sample.labels[0]] = State(int(sample.value))
        return found

    def _published(self) -> tuple[Sample, ...]:
        outcome = self.running.sampler.store.get("judge", "")
        return () if outcome is None else outcome.samples

    def seconds(self, gpu: str) -> dict[str, float]:
        """Seconds by class of a GPU, but for those that are 0."""
        series = self.running.series("gpu_bottleneck_seconds_total", gpu=gpu)
        return {labels["class"]: value for labels, value in series if value}

    def entered(self, gpu: str, name: str, after: float = 0.0) -> float:
        """Scenario second at which a GPU came into a class, after that time; infinite where it did not."""
        return min((at for at, each in self.changes[gpu] if each == name and at >= after), default=float("inf"))

    def told(self, subject: Subject, code: Code) -> list[tuple[float, float]]:
        """When a finding was confirmed and until when, one pair an incident; until infinity if it still is."""
        incidents = []
        for at, state in self.lives.get((subject, code), []):
            if state is State.CONFIRMED:
                incidents.append((at, float("inf")))
            elif incidents and incidents[-1][1] == float("inf"):
                incidents[-1] = incidents[-1][0], at
        return incidents


@contextmanager
def judged(scenario: Scenario, config: Config | None = None) -> Iterator[Judged]:
    """The judge at work on a scenario, for the length of a ``with`` block."""
    with rig(scenario, config) as running:
        yield Judged(running)
