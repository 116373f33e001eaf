"""Jobs' own metrics, republished."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import HostCollector
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.textfile import TextFilesReader, TextFilesReading


def render(reading: TextFilesReading) -> Iterator[Sample]:
    """Samples about the files; what is in them is `foreign`."""
    for file in reading.files:
        yield from present(catalogue.EXPORTER_TEXTFILE_MTIME, file.modified_at, file.name)
        if file.error is not None:
            yield catalogue.EXPORTER_TEXTFILE_ERROR_INFO.sample(1, file.name, file.error)


TEXTFILE = HostCollector(
    name="textfile",
    about="metrics that jobs write to files",
    tier=Tier.MEDIUM,
    metrics=(catalogue.EXPORTER_TEXTFILE_MTIME, catalogue.EXPORTER_TEXTFILE_ERROR_INFO),
    reader=lambda config: TextFilesReader(config.collector_textfile_directory or Path()).read,
    render=render,
    foreign=lambda reading: reading.families,
    needs="collector_textfile_directory",
)
