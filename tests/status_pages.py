"""The status page of made-up evidence."""

import re

from tests.evidence import evidence_of

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.host_judge import HostJudge, Judgment
from gpu_triage.judge.report.report import JudgedHost
from gpu_triage.read.gpu.power import GPU_POWER_WATTS
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.serve.page.document import PageFacts, document

Series = tuple[MetricSpec, float, tuple[str, ...]]

WALL = 1_800_000_000.0
FACTS = PageFacts("1.2.3", "gpu-7", None, "/metrics", None, None, judge_failed=False)
GPU = ("0", "GPU-1")


def seen(*series: Series, seconds: float = 60.0) -> HostEvidence:
    """Evidence of series that did not change for so long."""
    samples = [spec.sample(value, *labels) for spec, value, labels in series]
    return evidence_of((0.0, samples), (seconds, samples), wall=WALL)


def judged(*series: Series, error: str | None = None, recording: str | None = None, host: str = "gpu-7") -> Judgment:
    return HostJudge(JudgedHost(host, recording, continuous=True)).judge(seen(*series), error)


def page_of(latest: Judgment | None, facts: PageFacts = FACTS) -> str:
    return document(latest, facts).decode()


def body_of(latest: Judgment | None, facts: PageFacts = FACTS) -> str:
    """The page without its style sheet."""
    return page_of(latest, facts).partition("</style>")[2]


def up(gpu: tuple[str, str] = GPU, *, answers: bool = True) -> Series:
    return (GPU_UP, float(answers), gpu)


def read(gpu: tuple[str, str] = GPU) -> tuple[Series, ...]:
    """A GPU of which something was read."""
    return up(gpu), (GPU_POWER_WATTS, 60.0, gpu)


def headline(page: str) -> tuple[str, str, str]:
    """Tone, state and verdict of the first line."""
    found = re.search(r'<header id="verdict" class="(\w+)" data-state="(\w+)" data-verdict="(\w+)">', page)
    assert found is not None
    return found[1], found[2], found[3]
