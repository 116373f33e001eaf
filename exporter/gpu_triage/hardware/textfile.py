"""Metrics that jobs write to files: step time and throughput, beside the hardware that explains them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from gpu_triage.errors import HostReadFailed
from gpu_triage.hardware.kernel_files import read_names
from gpu_triage.hardware.rounds import HostRound

MAX_FILES: Final = 100
MAX_BYTES: Final = 1 << 20
MAX_SERIES: Final = 5000
"""Bounds on what jobs may publish: files in the directory, bytes and series of one file."""

_OURS: Final = re.compile(r"gpu_(?!job_)|process_|python_")
"""Names that nobody may take: this exporter's own. Jobs have ``gpu_job_`` and all that does not start with gpu_."""

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_TYPES: Final = frozenset({"counter", "gauge", "histogram", "summary", "unknown"})

_Identity = tuple[int, int, int]
_Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class TextFile:
    """One file of a job.

    Attributes:
        name: of the file, for people: what is no text in it is replaced.
        modified_at: Unix seconds; None when it could not be told.
        error: why it is not republished (``malformed``, ``reserved_name``, …); None when it is.
    """

    name: str
    modified_at: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class TextFilesReading:
    """The files of all jobs.

    Attributes:
        files: by name, at most MAX_FILES.
        families: what they publish, each family once, each series once.
    """

    files: tuple[TextFile, ...]
    families: tuple[Metric, ...]


class _Refused(Exception):
    """A file that is not republished; its argument is the reason."""


class TextFilesReader:
    """Reads ``*.prom`` files; parses a file again only when it was replaced or changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._parsed: dict[str, tuple[_Identity, tuple[Metric, ...] | str]] = {}

    def read(self, host: HostRound) -> TextFilesReading:
        """The files now.

        Raises:
            HostReadFailed: the directory is missing or cannot be read.
        """
        names = read_names(self._directory)
        if names is None:
            raise HostReadFailed("missing", self._directory, "no such directory; jobs' metrics are not published")
        wanted = sorted(name for name in names if name.endswith(".prom") and not name.startswith("."))
        merged = _Merged()
        files = []
        parsed = {}
        for name in wanted[:MAX_FILES]:
            modified_at, identity, answer = self._read_file(name)
            if identity is not None:
                parsed[name] = (identity, answer)
            error = answer if isinstance(answer, str) else merged.add(answer)
            files.append(TextFile(os.fsencode(name).decode("utf-8", "replace"), modified_at, error))
        host.failures.extend(file.error for file in files if file.error is not None)
        host.failures.extend(["too_many_files"] * bool(wanted[MAX_FILES:]))
        self._parsed = parsed
        return TextFilesReading(tuple(files), merged.families())

    def _read_file(self, name: str) -> tuple[float | None, _Identity | None, tuple[Metric, ...] | str]:
        try:
            # A link could name a file that only this process may read; a pipe would not return.
            descriptor = os.open(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None, None, "unreadable"
        try:
            status = os.fstat(descriptor)
            identity = (status.st_ino, status.st_mtime_ns, status.st_size)
            known = self._parsed.get(name)
            if known is not None and known[0] == identity:
                return status.st_mtime, identity, known[1]
            return status.st_mtime, identity, _parse(_content(descriptor, status.st_mode))
        except _Refused as refused:
            return status.st_mtime, identity, str(refused)
        except OSError:
            return None, None, "unreadable"
        finally:
            os.close(descriptor)


class _Merged:
    """Families of several files put together."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}
        self._seen: set[_Series] = set()

    def add(self, families: Iterable[Metric]) -> str | None:
        """Add a file's families, all or none; returns why none."""
        families = tuple(families)
        series = {_series(sample.name, sample.labels) for family in families for sample in family.samples}
        known = self._families
        if any(family.name in known and known[family.name].type != family.type for family in families):
            return "type_conflict"
        if series & self._seen:
            return "duplicate_series"
        self._seen |= series
        for family in families:
            if family.name not in known:
                known[family.name] = Metric(family.name, family.documentation, family.type)
            known[family.name].samples.extend(family.samples)
        return None

    def families(self) -> tuple[Metric, ...]:
        """What was added."""
        return tuple(self._families.values())


def _content(descriptor: int, mode: int) -> bytes:
    """What is in a file, or one byte more than is allowed."""
    if not stat.S_ISREG(mode):
        raise _Refused("not_a_file")
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(MAX_BYTES + 1)


def _parse(content: bytes) -> tuple[Metric, ...]:
    if len(content) > MAX_BYTES:
        raise _Refused("too_large")
    try:
        families = tuple(text_string_to_metric_families(content.decode("utf-8")))
    except Exception as error:
        # The parser raises whatever its string handling happens to: ValueError, IndexError, KeyError, ….
        raise _Refused("malformed") from error
    seen: set[_Series] = set()
    for family in families:
        for name, labels in _checked_samples(family):
            series = _series(name, labels)
            if series in seen:
                raise _Refused("duplicate_series")
            seen.add(series)
    if len(seen) > MAX_SERIES:
        raise _Refused("too_many_series")
    return families


def _checked_samples(family: Metric) -> Iterator[tuple[str, dict[str, str]]]:
    if family.type not in _TYPES:
        raise _Refused("malformed")
    for sample in family.samples:
        if _OURS.match(sample.name) or _OURS.match(family.name):
            raise _Refused("reserved_name")
        if sample.timestamp is not None:
            # Prometheus would take the sample for one of that time, again and again.
            raise _Refused("timestamp")
        if not _NAME.fullmatch(sample.name) or not all(map(_LABEL.fullmatch, sample.labels)):
            raise _Refused("malformed")
        yield sample.name, sample.labels


def _series(name: str, labels: dict[str, str]) -> _Series:
    return name, tuple(sorted(labels.items()))
