"""The judge, fed with made-up samples for minutes or days, on a virtual clock."""

from collections.abc import Callable, Iterable

from gpu_triage.judge.evidence.history import MetricHistory
from gpu_triage.judge.evidence.past import Memory
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.settings import DEFAULT_SETTINGS
from gpu_triage.judge.host_judge import HostJudge, Judgment
from gpu_triage.judge.report.report import JudgedHost, Report
from gpu_triage.machine import Moment
from gpu_triage.read.gpu.activity import GPU_BUSY_SECONDS_TOTAL, GPU_PERFORMANCE_STATE, GPU_SM_UTILIZATION_RATIO
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore

GPU = ("0", "GPU-a")
WALL = 1_700_000_000.0
MINUTE, HOUR = 60.0, 3600.0


class Fed:
    """A judge and its evidence."""

    def __init__(self, step_seconds: float = 15.0) -> None:
        self.seconds = 0.0  # how long it has run
        self.latest: Judgment | None = None  # the last judgment; None before the first
        self._step_seconds = step_seconds
        self._store = OutcomeStore(["some"])
        window_seconds = max(60.0, 2 * step_seconds)
        self._history = MetricHistory(window_seconds)
        self._judge = HostJudge(JudgedHost("host", continuous=True), window_seconds, DEFAULT_SETTINGS)

    @property
    def memory(self) -> Memory:
        return self._history.memory

    @property
    def report(self) -> Report:
        assert self.latest is not None
        return self.latest.report

    def see(self, samples: Iterable[Sample]) -> None:
        now = Moment(self.seconds, WALL + self.seconds)
        made = tuple(samples)
        self._store.put(Outcome("some", "", made, now))
        self._history.note(self._store, now)
        self.latest = self._judge.judge(self._history.evidence(now))
        self.seconds += self._step_seconds

    def run(self, seconds: float, samples: Callable[[float], Iterable[Sample]]) -> None:
        """Judge what there is at each second, for so long."""
        until = self.seconds + seconds
        while self.seconds < until:
            self.see(samples(self.seconds))

    def states(
        self, code: str, seconds: float, samples: Callable[[float], Iterable[Sample]]
    ) -> list[tuple[float, str]]:
        """As `run`; returns each state that a finding came into, with the second: ``absent``, ``pending``, …"""
        changes: list[tuple[float, str]] = []
        until = self.seconds + seconds
        while self.seconds < until:
            at = self.seconds
            self.see(samples(at))
            state = self.state(code)
            if state != (changes[-1][1] if changes else "absent"):
                changes.append((at, state))
        return changes

    def state(self, code: str) -> str:
        every = (*self.report.findings, *self.report.ended)
        return next((State(each.state).name.lower() for each in every if each.check.code == code), "absent")

    def finding(self, code: str) -> Finding:
        (found,) = (each for each in self.report.findings if each.check.code == code)
        return found

    def codes(self) -> set[str]:
        return {each.check.code for each in self.report.findings}


def after(seconds: float, samples: Callable[[float], Iterable[Sample]], step_seconds: float = 15.0) -> Fed:
    """A judge that has seen this for so long."""
    fed = Fed(step_seconds)
    fed.run(seconds, samples)
    return fed


def loaded(at: float, busy: float = 1.0, gpu: tuple[str, str] = GPU, p_state: int = 0) -> Iterable[Sample]:
    """A GPU that works for this share of the time, and has done so since the beginning."""
    return (
        GPU_UP.sample(1, *gpu),
        GPU_PERFORMANCE_STATE.sample(p_state, *gpu),
        GPU_SM_UTILIZATION_RATIO.sample(busy, *gpu),
        GPU_BUSY_SECONDS_TOTAL.sample(at * busy, *gpu),
    )


class Total:
    """A counter that a test raises.

    Args:
        rate: of seconds, what it gains a second.
    """

    def __init__(self, rate: Callable[[float], float]) -> None:
        self._rate = rate
        self._at = 0.0
        self._value = 0.0

    def at(self, seconds: float) -> float:
        """Its value, second by second summed up."""
        while self._at < seconds:
            step = min(1.0, seconds - self._at)
            self._value += self._rate(self._at) * step
            self._at += step
        return self._value
