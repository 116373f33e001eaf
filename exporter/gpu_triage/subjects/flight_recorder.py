"""What the flight recorder has written: which recording shows the fault of which GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from gpu_triage.subjects.contract import GpuLabels
from gpu_triage.subjects.exporter import CollectorHealth
from gpu_triage.subjects.metric import Sample, Tier, gpu_gauge

NAME: Final = "flight_recorder"
ABOUT: Final = "recordings of the minutes before a critical finding"
TIER: Final = Tier.EVENT

THE_HOST: Final = GpuLabels("", "")
"""Labels of a finding about the host; to Prometheus an empty label is none."""

GPU_FLIGHT_RECORDING_TIMESTAMP_SECONDS = gpu_gauge(
    "gpu_flight_recording_timestamp_seconds",
    "Unix time of the last recording that the flight recorder wrote because of a critical finding about the GPU; the "
    "label file is its name in --flight-recorder.directory on the host. Without gpu and uuid: because of a finding "
    "about the host. Published for a day, and absent while there is none.",
    labels=("file",),
    source="the flight recorder",
)


class WrittenRecording(NamedTuple):
    """A recording in the directory."""

    file: str  # its name there
    at: float  # Unix seconds


FlightReading = Mapping[GpuLabels, WrittenRecording]
"""The last recording for each GPU, and for THE_HOST."""


class FlightWatch(Protocol):
    """What the sampler publishes of the flight recorder. Never waits."""

    def reading(self, now: float) -> FlightReading:
        """What was written, as of `now` in Unix seconds."""

    def health(self) -> CollectorHealth:
        """How it fares."""

    def failures(self) -> tuple[str, ...]:
        """Names of what failed since the last call."""


def render(reading: FlightReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for labels, written in reading.items():
        yield GPU_FLIGHT_RECORDING_TIMESTAMP_SECONDS.sample(written.at, *labels, written.file)
