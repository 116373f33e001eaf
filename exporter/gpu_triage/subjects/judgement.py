"""The judge's word on each GPU and on the host, as samples; `diagnosis` makes the reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.subjects.contract import GpuLabels
from gpu_triage.subjects.metric import Sample, Tier, gpu_counter, gpu_gauge, host_gauge
from gpu_triage.subjects.rendering import samples

NAME = "judge"
ABOUT = "what limits each GPU, and whether it should go on taking work"
TIER = Tier.MEDIUM

BOTTLENECK_CLASSES: Final = (
    "sick",
    "thermal",
    "power_brake",
    "pcie_link",
    "power_cap",
    "clock_cap",
    "hung",
    "memory",
    "storage",
    "cpu",
    "network",
    "numa",
    "communication",
    "compute",
    "unattributed",
    "idle",
)
"""What can limit a GPU, in the order of the playbook: the first class that matches is the GPU's."""

_VERDICTS: Final = {0: "keep", 1: "watch", 2: "drain"}

GPU_BOTTLENECK = gpu_gauge(
    "gpu_bottleneck",
    "Which resource limits the GPU first, judged over the last minute: {states}. One series per GPU, whatever "
    "state it is in.",
    states=dict(enumerate(BOTTLENECK_CLASSES, 1)),
    source="the judge",
)
GPU_BOTTLENECK_SECONDS_TOTAL = gpu_counter(
    "gpu_bottleneck_seconds_total",
    "Seconds that the GPU spent in each class of gpu_bottleneck since the exporter started or first saw it; all "
    "classes exist from the start. The classes of a GPU add up to the time for which it was evaluated; time while "
    "the exporter was stopped is not included.",
    labels={"class": BOTTLENECK_CLASSES},
    source="the judge",
)
GPU_VERDICT = gpu_gauge(
    "gpu_verdict",
    "Whether the GPU should go on taking work: {states}. Drain with a critical finding, watch with a warning. Absent "
    "while the GPU cannot be read and nothing was found.",
    states=_VERDICTS,
    source="the judge",
)
GPU_HOST_VERDICT = host_gauge(
    "gpu_host_verdict",
    "Whether the host should go on taking work: {states}. The worst verdict of its GPUs and of the host's own "
    "findings. Absent while nothing can be read and nothing was found.",
    states=_VERDICTS,
    source="the judge",
)
GPU_FINDING_SINCE_TIMESTAMP_SECONDS = gpu_gauge(
    "gpu_finding_since_timestamp_seconds",
    "Unix time at which a current finding began, as seen by this process. A finding that comes back within five "
    "minutes keeps its start time; absent while there is none.",
    labels=("code", "severity", "action"),
    source="the judge",
)
GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS = host_gauge(
    "gpu_host_finding_since_timestamp_seconds",
    "Unix time at which a current finding about the host began; see gpu_finding_since_timestamp_seconds.",
    labels=("code", "severity", "action"),
    source="the judge",
)


@dataclass(frozen=True, slots=True)
class PresentFinding:
    """A finding that is there now.

    Attributes:
        gpu: the labels of the GPU it is about; None for the host.
        code, severity, action: as the table of findings has them.
        since: Unix seconds at which it began.
    """

    gpu: GpuLabels | None
    code: str
    severity: str
    action: str
    since: float


@dataclass(frozen=True, slots=True)
class JudgedGpu:
    """One GPU as judged.

    Attributes:
        labels: its index and UUID.
        bottleneck: its class.
        verdict: None while it was not read.
    """

    labels: GpuLabels
    bottleneck: Annotated[str, GPU_BOTTLENECK]
    seconds: Annotated[Mapping[str, float], GPU_BOTTLENECK_SECONDS_TOTAL]
    verdict: Annotated[str | None, GPU_VERDICT]


@dataclass(frozen=True, slots=True)
class JudgementReading:
    """What was judged.

    Attributes:
        gpus: every GPU that the exporter knows.
        host_verdict: None while nothing was read.
        findings: each subject and code once.
    """

    gpus: tuple[JudgedGpu, ...]
    host_verdict: Annotated[str | None, GPU_HOST_VERDICT]
    findings: tuple[PresentFinding, ...]


def render(reading: JudgementReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for gpu in reading.gpus:
        yield from samples(gpu, gpu.labels)
    yield from samples(reading)
    for finding in reading.findings:
        facts = (finding.code, finding.severity, finding.action)
        if finding.gpu is None:
            yield GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS.sample(finding.since, *facts)
        else:
            yield GPU_FINDING_SINCE_TIMESTAMP_SECONDS.sample(finding.since, *finding.gpu, *facts)
