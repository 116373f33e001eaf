"""Metrics that jobs write to files, such as step time and throughput: limits, reading, and metrics about the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from gpu_triage.options.config import Config
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import Sample, Tier, host_gauge, host_info
from gpu_triage.read.metrics.rendering import samples
from gpu_triage.read.metrics.rounds import HostRound

if TYPE_CHECKING:
    from prometheus_client import Metric

PREFIXES: Final = ("gpu_job_",)
"""Prefixes of jobs' metrics. No metric of the exporter and no recording rule has them."""

INSPECTOR_PREFIX: Final = "nccl_"
"""Prefix of the metrics in NCCL Inspector's files."""

OWNER: Final = "owner"
"""Label added to each series of a job."""

MAX_LABELS: Final = 20
MAX_NAME_BYTES: Final = 100
MAX_VALUE_BYTES: Final = 200
"""Limits per series, below those of the chart's scrape config: Prometheus drops a whole page for one label too many."""

MAX_HELP_BYTES: Final = 500
MAX_LINE_BYTES: Final = 16 << 10
"""Limits per line. A line within the other limits is shorter; a longer one would only be slow to parse."""

MAX_FILES: Final = 100
MAX_BYTES: Final = 1 << 20
MAX_SERIES: Final = 5000
"""Limits of the number of files, and per file."""

MAX_TOTAL_BYTES: Final = 2 << 20
MAX_TOTAL_SERIES: Final = 10_000
"""Limits of all files together: a series takes 2 KiB of memory (5 KiB with 20 labels) and 20 µs to encode."""

MAX_AGE_SECONDS: Final = 300.0
"""How long NCCL Inspector may leave a file unchanged. It rewrites the file as long as collectives complete."""

BEING_WRITTEN_SECONDS: Final = 1.0
"""How long NCCL Inspector may take to rewrite a file in place; until then, the previous content counts."""

MALFORMED: Final = "malformed"
TIMESTAMP: Final = "timestamp"
DUPLICATE_SERIES: Final = "duplicate_series"
NAME_NOT_ALLOWED: Final = "name_not_allowed"
LABEL_NOT_ALLOWED: Final = "label_not_allowed"
TOO_MANY_LABELS: Final = "too_many_labels"
NAME_TOO_LONG: Final = "name_too_long"
VALUE_TOO_LONG: Final = "value_too_long"
HELP_TOO_LONG: Final = "help_too_long"
LINE_TOO_LONG: Final = "line_too_long"
TOO_LARGE: Final = "too_large"
TOO_MANY_SERIES: Final = "too_many_series"
TOTAL_TOO_LARGE: Final = "total_too_large"
TOTAL_TOO_MANY_SERIES: Final = "total_too_many_series"
TOO_MANY_FILES: Final = "too_many_files"
FOLDER_NAME: Final = "folder_name"
NOT_A_FILE: Final = "not_a_file"
UNREADABLE: Final = "unreadable"
LINK_OUTSIDE: Final = "link_outside"
UNKNOWN_GPU: Final = "unknown_gpu"
STALE: Final = "stale"

ERRORS: Final = {
    MALFORMED: "write Prometheus's text format",
    TIMESTAMP: "remove the timestamps: Prometheus would ingest the sample at that time, on every scrape",
    DUPLICATE_SERIES: "write each series once, over all files of one owner",
    NAME_NOT_ALLOWED: (
        f"start every metric name with {' or '.join(PREFIXES)} ({INSPECTOR_PREFIX} in NCCL Inspector's files) and use "
        "no colon; for all other metrics use node_exporter's textfile collector"
    ),
    LABEL_NOT_ALLOWED: (
        "remove labels that claim a target, GPU, pod, user or job, such as instance, gpu, pod, user and job_id; the "
        f"exporter adds the label {OWNER}"
    ),
    TOO_MANY_LABELS: f"use at most {MAX_LABELS} labels for each series",
    NAME_TOO_LONG: f"use at most {MAX_NAME_BYTES} characters for the name of a metric or label",
    VALUE_TOO_LONG: f"use at most {MAX_VALUE_BYTES} bytes for a label value",
    HELP_TOO_LONG: f"use at most {MAX_HELP_BYTES} bytes for a HELP text",
    LINE_TOO_LONG: f"use at most {MAX_LINE_BYTES} bytes for a line",
    TOO_LARGE: f"write at most {MAX_BYTES >> 20} MiB into a file",
    TOO_MANY_SERIES: f"write at most {MAX_SERIES} series into a file",
    TOTAL_TOO_LARGE: f"write less or delete old files: all together may have {MAX_TOTAL_BYTES >> 20} MiB",
    TOTAL_TOO_MANY_SERIES: f"write less or delete old files: all together may have {MAX_TOTAL_SERIES} series",
    TOO_MANY_FILES: f"delete old files: at most {MAX_FILES} are read",
    FOLDER_NAME: f"give the sub-folder a printable name of at most {MAX_VALUE_BYTES} bytes without a colon",
    NOT_A_FILE: "write a regular file",
    UNREADABLE: "let the exporter read the file, and rename it into place once it is complete",
    LINK_OUTSIDE: "link only to files in the same folder",
    UNKNOWN_GPU: "delete the file if its job has ended: no GPU of this host has the UUID in its name",
    STALE: (
        f"NCCL completed no collective for {MAX_AGE_SECONDS / 60:.0f} minutes, or its dump interval is longer; delete "
        "the file if the job has ended"
    ),
}
"""Why a file is rejected, worded as a fix for its author."""

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
    """One file of a job, with the user who put it there or its sub-folder as owner.

    The name is its path below the directory, for display: bytes that are not valid text are replaced. `errors` say why
    it is not republished.
    """

    name: str
    owner: str
    modified_at: Annotated[float | None, GPU_EXPORTER_TEXTFILE_MTIME_SECONDS]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextFilesReading:
    """The files of all jobs by name, at most MAX_FILES, and their metric families, each series once."""

    files: tuple[TextFile, ...]
    families: tuple[Metric, ...]


def render(reading: TextFilesReading) -> Iterator[Sample]:
    """Render the samples about the files; their contents are `foreign`."""
    for file in reading.files:
        yield from samples(file, (file.name, file.owner))
        for error in file.errors:
            yield GPU_EXPORTER_TEXTFILE_ERROR_INFO.sample(1, file.name, file.owner, error)


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
