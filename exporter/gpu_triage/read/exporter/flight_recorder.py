"""Metrics of the flight recorder: the latest recording written for each GPU."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from gpu_triage.read.exporter.exporter_health import CollectorHealth
from gpu_triage.read.metrics.contract import GpuLabels, OwnSubject
from gpu_triage.read.metrics.metric import Sample, Tier, gpu_gauge

GPU_FLIGHT_RECORDING_TIMESTAMP_SECONDS = gpu_gauge(
    "Unix time of the last flight recording of a critical finding about the GPU, for a day; `file` is its name in "
    "--flight-recorder.directory on the host. Without gpu and uuid: of a finding about the host. Absent if none.",
    labels=("file",),
    source="the flight recorder",
)


class WrittenRecording(NamedTuple):
    file: str  # file name
    at: float  # Unix seconds


FlightReading = Mapping[GpuLabels, WrittenRecording]  # the latest recording of each GPU, and of HOST_LABELS


class FlightWatch(Protocol):
    """The flight recorder's state, as published by the sampler. Never blocks."""

    def reading(self, now: float) -> FlightReading:
        """Recordings to publish; `now` in Unix seconds."""

    def health(self) -> CollectorHealth:
        """Health of the flight recorder, as for collectors."""

    def failures(self) -> tuple[str, ...]:
        """Error names since the last call."""


def render(reading: FlightReading) -> Iterator[Sample]:
    for labels, written in reading.items():
        yield GPU_FLIGHT_RECORDING_TIMESTAMP_SECONDS.sample(written.at, *labels, written.file)


FLIGHT_RECORDER = OwnSubject("recordings of the minutes before a critical finding", Tier.EVENT, render)
