"""Metrics that jobs write to files, such as step time and throughput, published alongside the hardware's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpu_triage.options.config import Config
from gpu_triage.read.host import textfile_reading
from gpu_triage.read.host.textfile_reading import TextFilesReading
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import Tier
from gpu_triage.read.metrics.rounds import HostRound


def _reader(config: Config) -> Callable[[HostRound], TextFilesReading]:
    # Imported only if a directory is configured: prometheus_client takes 5 MiB.
    from gpu_triage.read.host.textfile_reader import TextFilesReader  # noqa: PLC0415

    return TextFilesReader(config.collector_textfile_directory or Path()).read


TEXTFILE = HostCollector(
    name="textfile",
    about="metrics that jobs write to files",
    tier=Tier.MEDIUM,
    reader=_reader,
    render=textfile_reading.render,
    foreign=lambda reading: reading.families,
    needs="collector_textfile_directory",
    also_in=(textfile_reading,),
)
