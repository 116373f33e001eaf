"""The reading of job files, and the metrics about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from gpu_triage.read.host.textfile_limits import OWNER
from gpu_triage.read.metrics.metric import Sample, host_gauge, host_info
from gpu_triage.read.metrics.rendering import samples

if TYPE_CHECKING:
    from prometheus_client import Metric

GPU_EXPORTER_TEXTFILE_MTIME_SECONDS = host_gauge(
    "gpu_exporter_textfile_mtime_seconds",
    "Unix time at which a job's file was last written; its metrics are that old, and have the same owner: the user who "
    "put the file there, or the sub-folder it is in.",
    labels=("file", OWNER),
    source="--collector.textfile.directory",
)
GPU_EXPORTER_TEXTFILE_ERROR_INFO = host_info(
    "gpu_exporter_textfile_error_info",
    "Why a job's file is rejected, as a named error; absent while the file is accepted.",
    labels=("file", OWNER, "error"),
    source="--collector.textfile.directory",
)


@dataclass(frozen=True, slots=True)
class TextFile:
    """One file of a job.

    Attributes:
        name: path below the directory, for display: bytes that are not valid text are replaced.
        owner: the user who put it there, or the sub-folder it is in.
        errors: why it is not republished, from `textfile_limits.ERRORS`; empty if it is.
    """

    name: str
    owner: str
    modified_at: Annotated[float | None, GPU_EXPORTER_TEXTFILE_MTIME_SECONDS]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextFilesReading:
    """The files of all jobs.

    Attributes:
        files: by name, at most `textfile_limits.MAX_FILES`.
        families: metric families from the files, each family and each series once.
    """

    files: tuple[TextFile, ...]
    families: tuple[Metric, ...]


def render(reading: TextFilesReading) -> Iterator[Sample]:
    """Render the samples about the files; their contents are `foreign`."""
    for file in reading.files:
        yield from samples(file, (file.name, file.owner))
        for error in file.errors:
            yield GPU_EXPORTER_TEXTFILE_ERROR_INFO.sample(1, file.name, file.owner, error)
