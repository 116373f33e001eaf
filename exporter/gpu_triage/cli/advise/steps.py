"""The step time of a running job, from the counter that it writes: `gpu_job_steps_total`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, cast

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.read.host.textfile import TEXTFILE
from gpu_triage.sampler.outcomes import HOST, OutcomeStore

if TYPE_CHECKING:
    from gpu_triage.read.host.textfile_reader import TextFilesReading

STEPS: Final = "gpu_job_steps_total"
_LABELS_SHOWN: Final = 4

_Labels = tuple[tuple[str, str], ...]


class _Point(NamedTuple):
    written_at: float  # Unix seconds
    steps: float


class StepTime(NamedTuple):
    """A step time with its derivation; `seconds` is None, and `words` say why, if it cannot be used."""

    seconds: float | None
    words: str


class StepWatch:
    """Follows the counters of all jobs through a measurement.

    A job writes its counter every few steps. So the steps between two contents of a file are divided by the time
    between its modifications, not by the time of the measurement.
    """

    def __init__(self) -> None:
        self._points: dict[_Labels, tuple[_Point, _Point]] = {}  # first and last by labels

    def note(self, store: OutcomeStore) -> None:
        """Note the counters as they are now."""
        outcome = store.get(TEXTFILE.name, HOST)
        if outcome is None or outcome.reading is None:
            return
        reading = cast("TextFilesReading", outcome.reading)
        written: dict[str, float] = {}
        for file in reading.files:
            written[file.owner] = max(written.get(file.owner, 0.0), file.modified_at or 0.0)
        for family in reading.families:
            for sample in family.samples:
                if sample.name == STEPS:
                    key = tuple(sorted(sample.labels.items()))
                    self._note(key, _Point(written.get(sample.labels.get("owner", ""), 0.0), sample.value))

    def _note(self, key: _Labels, point: _Point) -> None:
        first, last = self._points.get(key, (point, point))
        if point.steps < last.steps:
            first = last = point  # the job restarted
        elif point.steps > last.steps:
            last = point
        self._points[key] = first, last

    def step_time(self, host: HostEvidence) -> StepTime:
        """Return the step time of the one job that makes steps, if it runs on one GPU."""
        moving = {
            key: (last.written_at - first.written_at, last.steps - first.steps)
            for key, (first, last) in self._points.items()
            if last.steps > first.steps and last.written_at > first.written_at
        }
        if not self._points:
            return StepTime(None, f"no job writes {STEPS}")
        if not moving:
            return StepTime(None, f"{STEPS} did not rise during the measurement: measure longer with --for")
        if len(moving) > 1:
            names = "; ".join(_name(key) for key in list(moving)[:_LABELS_SHOWN])
            return StepTime(None, f"{len(moving)} jobs make steps ({names}): give the time of one with --step-time")
        (key, (seconds, steps)), *_ = moving.items()
        busy = [gpu.gpu for gpu in host.answering if gpu.occupied]
        words = f"{STEPS} of {_name(key)}: {steps:,.0f} steps in {seconds:.1f} s"
        if len(busy) > 1:
            return StepTime(None, f"{words}, but on GPU {ranges(busy)}: give the time on one GPU with --step-time")
        return StepTime(seconds / steps, words)


def _name(key: _Labels) -> str:
    labels = dict(key)
    return labels.get("job_name") or ", ".join(f"{name}={value}" for name, value in key)
