"""Enumeration: each GPU is identified in its own lane, so that a GPU that hangs does not block the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gpu_triage.driver.nvml.session import CurrentCall, DeniedDevice, Identity, identify
from gpu_triage.errors import DriverUnavailable
from gpu_triage.read.exporter.exporter_health import DRIVER
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.sampler.driver import STALLED
from gpu_triage.sampler.host_gpus import HostGpus
from gpu_triage.sampler.lanes import Lane, Step


@dataclass(frozen=True, slots=True)
class Identified:
    """Result of identifying one GPU."""

    session: int  # number of the session in which it was queried
    index: int  # NVML index
    answer: Identity | DriverUnavailable  # the GPU, or why it was denied; or why the driver is no longer available


class Enumeration:
    """Identifies all GPUs, repeatedly. Only the sampler's thread calls it; the queries run in lanes."""

    def __init__(self, host_gpus: HostGpus, report: Callable[[Identified], None]) -> None:
        self._host_gpus = host_gpus
        self.answers: dict[int, Identity] = {}  # the latest result for each index in this session
        self.news = False  # whether there are results that have not been processed yet
        self._report = report
        self._session = 0
        self._count = 0
        self._unqueried: set[int] = set()
        self._pending: set[int] = set()

    def begin(self, count: int, *, new_session: bool) -> None:
        """Start identifying this many GPUs; in a `new_session`, the handles of earlier results are invalid."""
        if new_session:
            self.end_session()
        self._count = count
        self._unqueried = set(range(count))
        self._pending = set(range(count))
        self.news = True
        self.answers = {index: answer for index, answer in self.answers.items() if index < count}

    def end_session(self) -> None:
        """Discard all results, because the session has ended."""
        self._session += 1
        self._count = 0
        self.answers, self._unqueried, self._pending, self.news = {}, set(), set(), False

    def submit(self) -> None:
        """Query the indices that were not queried yet, where the lane is ready."""
        if not self._unqueried:
            return
        labels = self._host_gpus.labels_by_index()
        for index in sorted(self._unqueried):
            lane = self._host_gpus.lane_of(index)
            if lane.ready():
                self._unqueried.discard(index)
                gpu = labels.get(index, GpuLabels(str(index), ""))
                lane.submit(partial(self._identify, self._session, index, lane, gpu))

    def take(self, news: Identified) -> DriverUnavailable | None:
        """Store a result; returns the error if the driver is no longer available."""
        if news.session != self._session or news.index >= self._count:
            return None
        if isinstance(news.answer, DriverUnavailable):
            return news.answer
        self._pending.discard(news.index)
        self.news = True
        self.answers[news.index] = news.answer
        return None

    def waits_for(self, hangs: Callable[[int], bool]) -> bool:
        """Whether a result is still pending; `hangs` returns whether the lane of an index is stuck."""
        return any(not hangs(index) for index in self._pending)

    def conclude(self) -> tuple[DeniedDevice, ...]:
        """Complete the enumeration; returns the GPUs that could not be identified."""
        self.news = False
        denied = [answer for answer in self.answers.values() if isinstance(answer, DeniedDevice)]
        # A lane without a thread has not queried anything, so it does not count against the GPU.
        hanging = [index for index in self.unanswered() if self._host_gpus.lane_of(index).busy_since is not None]
        return (*denied, *(DeniedDevice(index, STALLED) for index in hanging))

    def unanswered(self) -> tuple[int, ...]:
        """Indices without a result in this session."""
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
