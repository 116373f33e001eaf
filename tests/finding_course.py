"""One finding from judgment to judgment, as tests of its life look at it."""

from dataclasses import dataclass, field, replace

from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.states import FindingStates, Life
from gpu_triage.judge.findings.table import BY_CODE

WAIT, HOLD, WINDOW = 600.0, 900.0, 60.0
ABSENT, ENDED, PENDING, CONFIRMED = None, State.ENDED, State.PENDING, State.CONFIRMED

CHECK = replace(BY_CODE["thermal.hw"], wait_seconds=WAIT, hold_seconds=HOLD)
HOT = Finding(CHECK, "hot", "0", "GPU-a", value=0.5)
LATCHED = Finding(replace(CHECK, wait_seconds=0.0), "hot", "0", "GPU-a")
EPSILON = 0.25


@dataclass
class Course:
    """The states of one host, and the second that it is there."""

    states: FindingStates = field(default_factory=FindingStates)
    now: float = 1000.0
    ended: tuple[Life, ...] = ()

    def look(
        self, *found: Finding, after: float = 0.0, blind: bool = False, reset_at: float | None = None
    ) -> State | None:
        """Judge after some seconds; returns the state of HOT.

        Args:
            after: seconds since the last look.
            blind: what was not found could not be observed.
        """
        self.now += after
        present, self.ended = self.states.judge(found, lambda _finding: not blind, self.now, lambda _finding: reset_at)
        lives = [life for life in (*present, *self.ended) if life.key == self.key]
        assert len(lives) <= 1
        return lives[0].state if lives else None

    @property
    def key(self) -> tuple[str, str]:
        return "GPU-a", CHECK.code

    @property
    def life(self) -> Life:
        (life,) = (life for life in self.states.lives if life.key == self.key)
        return life


def confirmed() -> Course:
    course = Course()
    course.look(HOT)
    assert course.look(HOT, after=WAIT) is CONFIRMED
    return course


def restarted(course: Course, down_seconds: float) -> Course:
    """The course of another exporter that was started later in this boot."""
    states = FindingStates(WINDOW)
    states.restore(course.states.lives)
    return Course(states, course.now + down_seconds)
