"""The judge's word on each GPU and on the host, as samples; `diagnosis` makes the reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample
from gpu_triage.collectors.contract import GpuLabels

NAME = "judge"
METRICS = (
    catalogue.BOTTLENECK,
    catalogue.BOTTLENECK_SECONDS,
    catalogue.VERDICT,
    catalogue.HOST_VERDICT,
    catalogue.FINDING_SINCE,
    catalogue.HOST_FINDING_SINCE,
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
        seconds: spent in each class.
        verdict: a state of gpu_verdict; None while it was not read.
    """

    labels: GpuLabels
    bottleneck: str
    seconds: Mapping[str, float]
    verdict: str | None


@dataclass(frozen=True, slots=True)
class JudgementReading:
    """What was judged.

    Attributes:
        gpus: every GPU that the exporter knows.
        host_verdict: a state of gpu_host_verdict; None while nothing was read.
        findings: each subject and code once.
    """

    gpus: tuple[JudgedGpu, ...]
    host_verdict: str | None
    findings: tuple[PresentFinding, ...]


def render(reading: JudgementReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for gpu in reading.gpus:
        yield catalogue.BOTTLENECK.sample(catalogue.BOTTLENECK.value_of(gpu.bottleneck), *gpu.labels)
        for name, seconds in gpu.seconds.items():
            yield catalogue.BOTTLENECK_SECONDS.sample(seconds, *gpu.labels, name)
        if gpu.verdict is not None:
            yield catalogue.VERDICT.sample(catalogue.VERDICT.value_of(gpu.verdict), *gpu.labels)
    if reading.host_verdict is not None:
        yield catalogue.HOST_VERDICT.sample(catalogue.HOST_VERDICT.value_of(reading.host_verdict))
    for finding in reading.findings:
        facts = (finding.code, finding.severity, finding.action)
        if finding.gpu is None:
            yield catalogue.HOST_FINDING_SINCE.sample(finding.since, *facts)
        else:
            yield catalogue.FINDING_SINCE.sample(finding.since, *finding.gpu, *facts)
