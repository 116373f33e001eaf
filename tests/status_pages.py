"""The status page of made-up evidence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpu_triage import catalogue
from gpu_triage.diagnosis.evidence import History
from gpu_triage.diagnosis.judge import HostJudge, Judgement
from gpu_triage.diagnosis.report import Subject
from gpu_triage.machine import Moment
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore
from gpu_triage.web.page.document import PageFacts, document

if TYPE_CHECKING:
    from gpu_triage.catalogue import MetricSpec
    from gpu_triage.diagnosis.evidence import Evidence

    Series = tuple[MetricSpec, float, tuple[str, ...]]

WALL = 1_800_000_000.0
FACTS = PageFacts("1.2.3", "gpu-7", None, "/metrics", None, None, judge_failed=False)
GPU = ("0", "GPU-1")


def seen(*series: Series, seconds: float = 60.0) -> Evidence:
    """Evidence of series that did not change for so long."""
    store, history = OutcomeStore(["some"]), History(60.0)
    samples = tuple(spec.sample(value, *labels) for spec, value, labels in series)
    for at in (0.0, seconds):
        now = Moment(at, WALL - seconds + at)
        store.put(Outcome("some", "subject", samples, success=True, errors=(), duration_seconds=0.0, finished_at=now))
        history.note(store, now)
    return history.evidence(Moment(seconds, WALL))


def judged(*series: Series, error: str | None = None, recording: str | None = None, host: str = "gpu-7") -> Judgement:
    return HostJudge(Subject(host, recording, continuous=True)).judge(seen(*series), error)


def page_of(latest: Judgement | None, facts: PageFacts = FACTS) -> str:
    return document(latest, facts).decode()


def body_of(latest: Judgement | None, facts: PageFacts = FACTS) -> str:
    """The page without its style sheet."""
    return page_of(latest, facts).partition("</style>")[2]


def up(gpu: tuple[str, str] = GPU, *, answers: bool = True) -> Series:
    return (catalogue.UP, float(answers), gpu)


def read(gpu: tuple[str, str] = GPU) -> tuple[Series, ...]:
    """A GPU of which something was read."""
    return up(gpu), (catalogue.POWER, 60.0, gpu)


def headline(page: str) -> tuple[str, str, str]:
    """Tone, state and verdict of the first line."""
    found = re.search(r'<header id="verdict" class="(\w+)" data-state="(\w+)" data-verdict="(\w+)">', page)
    assert found is not None
    return found[1], found[2], found[3]
