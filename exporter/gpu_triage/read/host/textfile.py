"""Metrics that jobs write to files, such as step time and throughput, and metrics about the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_triage.options.config import Config
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import Sample, Tier, host_gauge, host_info

if TYPE_CHECKING:
    from gpu_triage.read.host.textfile_reader import TextFilesReading

GPU_EXPORTER_TEXTFILE_MTIME_SECONDS = host_gauge(
    "gpu_exporter_textfile_mtime_seconds",
    "Unix time at which a job's file was last written; its metrics have the same owner.",
    labels=("file", "owner"),
    source="--collector.textfile.directory",
)
GPU_EXPORTER_TEXTFILE_ERROR_INFO = host_info(
    "gpu_exporter_textfile_error_info",
    "Why a job's file is rejected, as a named error; absent while the file is accepted.",
    labels=("file", "owner", "error"),
    source="--collector.textfile.directory",
)


def render(reading: TextFilesReading) -> Iterator[Sample]:
    for file in reading.files:
        if file.modified_at is not None:
            yield GPU_EXPORTER_TEXTFILE_MTIME_SECONDS.sample(file.modified_at, file.name, file.owner)
        if file.error:
            yield GPU_EXPORTER_TEXTFILE_ERROR_INFO.sample(1, file.name, file.owner, file.error)


def _reader(config: Config) -> Callable[[HostRound], TextFilesReading]:
    # Imported only if a directory is configured: prometheus_client takes 5 MiB.
    from gpu_triage.read.host.textfile_reader import TextFilesReader  # noqa: PLC0415

    return TextFilesReader(config.collector_textfile_directory or Path()).read


TEXTFILE = HostCollector(
    name="textfile",
    about="metrics that jobs write to files",
    tier=Tier.MEDIUM,
    reader=_reader,
    render=render,
    foreign=lambda reading: reading.families,
    needs="collector_textfile_directory",
)
