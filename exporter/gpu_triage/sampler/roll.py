"""Who is there: each GPU that NVML counts is asked who it is in a lane of its own, so that one that hangs is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from gpu_triage.errors import DriverUnavailable
from gpu_triage.nvml.session import CurrentCall, DeniedDevice, Identity, identify
from gpu_triage.sampler.driver import STALLED
from gpu_triage.sampler.lanes import Lane, Step
from gpu_triage.subjects.contract import GpuLabels
from gpu_triage.subjects.exporter import DRIVER


@dataclass(frozen=True, slots=True)
class Identified:
    """What NVML said of one of the GPUs that it counts.

    Attributes:
        session: number of the session in which it was asked.
        index: NVML index.
        answer: the GPU, or why there is none; or why there is no driver any more.
    """

    session: int
    index: int
    answer: Identity | DriverUnavailable


class RollCall:
    """Asks every GPU who it is, again and again. Only the sampler's thread calls it; the questions run in lanes.

    Attributes:
        answers: what each index said last in this session.
        news: whether there is anything that was not taken in yet.
    """

    def __init__(self, report: Callable[[Identified], None]) -> None:
        self.answers: dict[int, Identity] = {}
        self.news = False
        self._report = report
        self._session = 0
        self._count = 0
        self._unasked: set[int] = set()
        self._awaited: set[int] = set()

    def begin(self, count: int, *, new_session: bool) -> None:
        """Ask everybody anew.

        Args:
            count: how many GPUs NVML counts.
            new_session: whether the handles of earlier answers are dead.
        """
        if new_session:
            self.end_session()
        self._count = count
        self._unasked = set(range(count))
        self._awaited = set(range(count))
        self.news = True
        self.answers = {index: answer for index, answer in self.answers.items() if index < count}

    def end_session(self) -> None:
        """Forget what was said: there is no session any more."""
        self._session += 1
        self._count = 0
        self.answers, self._unasked, self._awaited, self.news = {}, set(), set(), False

    def ask(self, lane_of: Callable[[int], Lane], labels_by_index: Callable[[], Mapping[int, GpuLabels]]) -> None:
        """Ask those that were not asked yet and whose lanes take a job.

        Args:
            lane_of: the lane of an NVML index.
            labels_by_index: labels of the GPUs that were last seen at an index.
        """
        if not self._unasked:
            return
        labels = labels_by_index()
        for index in sorted(self._unasked):
            lane = lane_of(index)
            if lane.ready():
                self._unasked.discard(index)
                gpu = labels.get(index, GpuLabels(str(index), ""))
                lane.submit(partial(self._identify, self._session, index, lane, gpu))

    def take(self, news: Identified) -> DriverUnavailable | None:
        """Take in an answer; returns why there is no driver any more, if that was the answer."""
        if news.session != self._session or news.index >= self._count:
            return None
        if isinstance(news.answer, DriverUnavailable):
            return news.answer
        self._awaited.discard(news.index)
        self.news = True
        self.answers[news.index] = news.answer
        return None

    def waits_for(self, hangs: Callable[[int], bool]) -> bool:
        """Whether somebody has not answered who still may; `hangs` tells whether the lane of an index is stuck."""
        return any(not hangs(index) for index in self._awaited)

    def conclude(self, lane_of: Callable[[int], Lane]) -> tuple[DeniedDevice, ...]:
        """Take in that nobody is waited for; returns those who are there and did not say who they are."""
        self.news = False
        denied = [answer for answer in self.answers.values() if isinstance(answer, DeniedDevice)]
        # A lane without a thread has asked nothing: that is no fault of the GPU.
        hanging = [index for index in self.silent() if lane_of(index).busy_since is not None]
        return (*denied, *(DeniedDevice(index, STALLED) for index in hanging))

    def silent(self) -> tuple[int, ...]:
        """Indices of those who have not said anything in this session."""
        return tuple(index for index in range(self._count) if index not in self.answers)

    def _identify(self, session: int, index: int, lane: Lane, gpu: GpuLabels) -> None:
        call = CurrentCall()
        lane.mark(Step(DRIVER, gpu, call))
        answer: Identity | DriverUnavailable
        try:
            answer = identify(index, call)
        except DriverUnavailable as unavailable:
            answer = unavailable
        except Exception:  # noqa: BLE001 - as in the rounds: a bug here must not end the sampler
            answer = DeniedDevice(index, "exception")
        self._report(Identified(session, index, answer))
