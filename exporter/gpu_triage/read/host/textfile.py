"""Metrics that jobs write to files, such as step time and throughput: their owners, and what the files may contain.

A file can only affect its own series. It holds the job's own metrics, or those of one GPU, which NVIDIA's profiler
plugin for NCCL writes (NCCL Inspector, from NCCL 2.29.3 on with NCCL_INSPECTOR_PROM_DUMP=1). prometheus_client's
parser is not used: it renames counters, and takes seconds for maliciously crafted lines. The library is imported only
if there are files: it takes 5 MiB.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from enum import Enum
from operator import is_not
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from gpu_triage.driver.kernel.job_folder import Folder, LinkOutside, Listing
from gpu_triage.log import fields
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import Tier, host_gauge, host_info
from gpu_triage.read.metrics.rendering import each
from gpu_triage.read.processes.facts import read_user_names

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.samples import Sample

PREFIX: Final = "gpu_job_"
"""Of jobs' metrics. No metric of the exporter and no recording rule has it."""

MAX_LABELS, MAX_NAME_BYTES, MAX_LINE_BYTES = 20, 100, 16 << 10
"""Limits per series, below those of the chart's scrape: Prometheus drops a whole page for one label too many."""

MAX_FILES, MAX_BYTES, MAX_SERIES = 100, 2 << 20, 10_000
"""Limits of all files together: a series takes 2 KiB of memory (5 KiB with 20 labels) and 20 µs to encode."""

MAX_AGE_SECONDS, _BEING_WRITTEN_SECONDS = 300.0, 1.0
"""NCCL Inspector rewrites a file as long as collectives complete, and in place: meanwhile the last content counts."""

GPU_EXPORTER_TEXTFILE_MTIME_SECONDS = host_gauge(
    "Unix time at which a job's file was last written; its metrics have the same owner.",
    labels=("file", "owner"),
    source="--collector.textfile.directory",
)
GPU_EXPORTER_TEXTFILE_ERROR_INFO = host_info(
    "Why a job's file is rejected, as a named error; absent while the file is accepted.",
    labels=("file", "owner", "error"),
    source="--collector.textfile.directory",
)

log = logging.getLogger(__name__)


class Error(Enum):
    """Why a file is rejected, worded as a fix for its author; the label `error` is the name in lower case."""

    MALFORMED = "write Prometheus's text format"
    TIMESTAMP = "remove the timestamps: Prometheus would ingest the sample at that time, on every scrape"
    DUPLICATE_SERIES = "write each series once, over all files of one owner"
    NAME_NOT_ALLOWED = f"use {PREFIX}NAME without a colon; node_exporter's textfile collector takes all other metrics"
    LABEL_NOT_ALLOWED = "remove labels that claim a target, GPU, owner or job, such as instance, gpu, user and job_id"
    TOO_MANY_LABELS = f"use at most {MAX_LABELS} labels for each series"
    NAME_TOO_LONG = f"use at most {MAX_NAME_BYTES} characters for the name of a metric or label"
    LINE_TOO_LONG = f"use at most {MAX_LINE_BYTES} bytes for a line"
    TOO_LARGE = f"write less or delete old files: all together may have {MAX_BYTES >> 20} MiB"
    TOO_MANY_SERIES = f"write less or delete old files: all together may have {MAX_SERIES} series"
    TOO_MANY_FILES = f"delete old files: at most {MAX_FILES} are read"
    NOT_A_FILE = "write a regular file"
    UNREADABLE = "let the exporter read the file, and rename it into place once it is complete"
    LINK_OUTSIDE = "link only to files in the same folder"
    UNKNOWN_GPU = "delete the file if its job has ended: no GPU of this host has the UUID in its name"
    STALE = "NCCL completed no collective for 5 minutes, or its dump interval is longer; delete the file after its job"

    def __str__(self) -> str:
        return self.name.lower()


class _Refused(Exception):
    """A file that is rejected; the argument is an Error."""


class Text(NamedTuple):
    """Parsed content of one file: types and HELP texts by name, and each series once, with the added labels."""

    types: dict[str, str]
    helps: dict[str, str]
    samples: list[Sample]


class TextFile(NamedTuple):
    """A file by its path below the directory. Its owner is the user who put it there, or its sub-folder."""

    name: str
    owner: str
    # Unix seconds; None if it could not be opened
    modified_at: Annotated[float | None, GPU_EXPORTER_TEXTFILE_MTIME_SECONDS]
    error: Annotated[str | None, GPU_EXPORTER_TEXTFILE_ERROR_INFO]  # why it is not republished; None if it is


class TextFilesReading(NamedTuple):
    """The files of all jobs by name, at most MAX_FILES, and their metric families, each series once."""

    files: tuple[TextFile, ...]
    families: tuple[Metric, ...]


class _State(NamedTuple):
    """What a file counts against the total limits (0 if it is never parsed), and its content once it is parsed."""

    modified_at: float | None = None
    answer: Text | Error | None = None
    source: object = None  # what the content depends on: status and labels
    labels: Mapping[str, str] = {}  # added to each series: the owner, and the GPU that it describes
    size: int = 0
    series: int = 0


class TextFilesReader:
    """Reads the ``*.prom`` files in a directory and its sub-folders; only changed files are parsed again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._listing = Listing(directory, ".prom")
        self._known: dict[str, _State] = {}  # by path below the directory
        self._answers: tuple[Text | Error, ...] = ()
        self._merged = merge(())
        self._logged: set[tuple[str, str]] = set()

    def read(self, host: HostRound) -> TextFilesReading:
        owners = self._find(host)
        answers = self._read(owners, host)
        if len(answers) != len(self._answers) or any(map(is_not, answers, self._answers)):
            self._merged = merge(answers)
        self._answers, (errors, families) = answers, self._merged
        found = zip(owners.items(), errors, strict=True)
        files = tuple(TextFile(path, owner, self._known[path].modified_at, error) for (path, owner), error in found)
        rejected = {(file.name, file.error): file.owner for file in files if file.error is not None}
        host.failures.extend(error for _, error in rejected)
        for name, error in sorted(rejected.keys() - self._logged):
            facts = fields(file=name, owner=rejected[name, error], reason=error, remedy=Error[error.upper()].value)
            log.warning("job's file rejected", extra=facts)
        self._logged = set(rejected)
        return TextFilesReading(files, families)

    def _find(self, host: HostRound) -> dict[str, str]:
        paths = (*self._known, *sorted(self._listing.next_paths() - self._known.keys()))
        owners = _owners(self._directory, paths, read_user_names(host.machine.procfs))
        found = _fairly(owners, lambda _path: 1)
        if len(found) > MAX_FILES:
            host.failures.append(str(Error.TOO_MANY_FILES))
        return {path: owners[path] for path in sorted(found[:MAX_FILES])}

    def _read(self, owners: Mapping[str, str], host: HostRound) -> tuple[Text | Error, ...]:
        """The content of each file, or why it is rejected. The room is divided fairly between the owners."""
        before, self._known, answers = self._known, {}, dict[str, Text | Error]()
        size, series = MAX_BYTES, MAX_SERIES
        with ExitStack() as opened:
            folder, descriptors = Folder(self._directory), dict[str, int]()
            opened.callback(folder.close)
            for path, owner in owners.items():
                try:
                    descriptors[path] = folder.open(path)
                    opened.callback(os.close, descriptors[path])
                    state = _look(path, owner, descriptors[path], before.get(path, _State()), host)
                except OSError as error:
                    state = _State(answer=Error.LINK_OUTSIDE if isinstance(error, LinkOutside) else Error.UNREADABLE)
                self._known[path] = state
            shares = {path: max(s.size / MAX_BYTES, s.series / MAX_SERIES) for path, s in self._known.items()}
            for path in _fairly(owners, shares.__getitem__):
                state = self._known[path]
                if state.size > size or state.series > series:
                    answers[path] = Error.TOO_LARGE if state.size > size else Error.TOO_MANY_SERIES
                    self._known[path] = state._replace(answer=None)
                    continue
                answers[path] = state.answer or _parsed(descriptors[path], state)
                self._known[path] = state._replace(answer=answers[path])
                # One that is rejected counts as well: parsing it costs the same.
                size, series = size - state.size, series - state.series
        return tuple(answers[path] for path in owners)


def _owners(directory: Path, paths: Iterable[str], users: Mapping[int, str]) -> dict[str, str]:
    """Owners of the files that exist; users without a name are ``uid:1000``.

    A sub-folder is treated as made for a job, and owns its files, if it belongs to the directory's owner or others
    cannot write to the directory. All else, links too, belongs to the user who made it.
    """
    above, owners = directory.stat(), dict[str, str]()
    for path in paths:
        folder = path.rpartition("/")[0]
        try:
            status = (directory / path).lstat()
            status = (directory / folder).lstat() if folder else status
        except OSError:
            continue  # it is gone
        of_a_job = status.st_uid == above.st_uid or not above.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        owners[path] = folder if folder and of_a_job else users.get(status.st_uid, f"uid:{status.st_uid}")
    return owners


def _fairly(owners: Mapping[str, str], cost_of: Callable[[str], float]) -> list[str]:
    """Sort files by their owner's cumulative cost up to and including each file.

    Filling limited space in this order gives each of n owners 1/n of it, and distributes what some owners do not use.
    """
    taken: dict[str, float] = defaultdict(float)
    cumulative: dict[str, float] = {}
    for path, owner in owners.items():
        cumulative[path] = taken[owner] = taken[owner] + cost_of(path)
    return sorted(cumulative, key=cumulative.__getitem__)


_INSPECTED: Final = re.compile(r"(?:.*/)?nccl_inspector_metrics_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.prom")


def _look(path: str, owner: str, opened: int, before: _State, host: HostRound) -> _State:
    """A file's state before it is parsed. A changed file is read but not parsed, which takes far longer."""
    status, labels = os.fstat(opened), {"owner": owner}
    at, now = status.st_mtime, host.at.wall  # file times are by the wall clock
    if (inspected := _INSPECTED.fullmatch(path)) is not None:
        uuid = f"GPU-{inspected[1]}"
        if uuid not in host.gpus.indices:
            return _State(at, Error.UNKNOWN_GPU if host.gpus.complete else Text({}, {}, []))
        labels |= {"gpu": host.gpus.indices[uuid], "uuid": uuid}
        if abs(now - at) > MAX_AGE_SECONDS:
            return _State(at, Error.STALE)
        being_written = 0 <= now - at < _BEING_WRITTEN_SECONDS
        if being_written and before.labels == labels and now - (before.modified_at or 0.0) <= MAX_AGE_SECONDS:
            return before
    source = (labels, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
    if before.source == source:
        return before
    if not stat.S_ISREG(status.st_mode):
        return _State(at, Error.NOT_A_FILE)
    return _State(at, None, source, labels, *_counted(_content(opened)))


def _parsed(opened: int, state: _State) -> Text | Error:
    try:
        content = _content(opened)
        # Otherwise it is being written to.
        return parse(content, state.labels) if _counted(content) == (state.size, state.series) else Error.UNREADABLE
    except OSError:
        return Error.UNREADABLE
    except _Refused as refused:
        error: Error = refused.args[0]
        return error


def _content(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return file.read(MAX_BYTES + 1)


def _counted(content: bytes) -> tuple[int, int]:
    """The size, and how many lines can be series: those that do not start with ``#``."""
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    return len(content), lines - content.count(b"\n#") - content.startswith(b"#")


_CLAIMS: Final = re.compile(
    r"instance|job|job_?id|cluster|drill|service|endpoint|node|nodename|host|hostname|namespace|replica|prometheus"
    r"|gpu|gpu_?(?:id|index)|minor_number|serial|compute_capability|vbios_version|board_part_number"
    r"|owner|user|user_?name|uid|account|pid|alertname|alertstate|severity|recorded_from"
    r"|(?:exported|prometheus|gpu|mig|pci|pod|container|kubernetes|workload|slurm)_.*|.*uuid|pod|container|workload",
    re.IGNORECASE,
)
"""Labels that would claim a target, a GPU, an owner or an alert. The owner is determined by the file's location."""

_DROPPED: Final = frozenset(
    {
        *("gpu", "gpu_device_id"),  # the CUDA index in the process: GPU0 in each rank that sees only its own GPU
        *("node", "hostname", "cluster", "slurm_job"),
        *("timestamp", "coll_sn"),  # in NCCL 2.29: they change with each write, and would create new series
    }
)
"""Labels of NCCL Inspector that are not published."""

_JOB_ID: Final = "slurm_job_id"
"""A label of NCCL Inspector. A job can write any ID; it is published if the file is in the folder of that job."""

_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_COMMENT: Final = re.compile(r"#[ \t]+(HELP|TYPE)(?:[ \t]+([^ \t]+)[ \t]*(.*))?")
_AFTER_NAME: Final = re.compile(r'(?:[ \t]*\{(.*)\}|[ \t])[ \t]*([^\s{}"]+)(?:[ \t]+([^\s{}"]+))?')
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*(?:,[ \t]*|$)')
_ESCAPE: Final = re.compile(r'\\([\\n"])')

_UNTYPED: Final = "unknown"
_TYPES: Final = frozenset({"counter", "gauge", "histogram", "summary", "untyped", _UNTYPED})
_ENDINGS: Final = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "summary": ("", "_sum", "_count", "_created"),
}
"""Suffixes of the samples of a family, by type; other types have none."""


def _require(fits: bool, error: Error) -> None:  # noqa: FBT001 - reads as a sentence
    if not fits:
        raise _Refused(error)


def parse(content: bytes, added: Mapping[str, str]) -> Text:
    """Parse a file, and add these labels to its series: the owner, and in a file of NCCL Inspector the GPU."""
    from prometheus_client.samples import Sample  # noqa: PLC0415

    text, seen = Text({}, {}, []), set[object]()
    for line in content.split(b"\n"):
        _require(len(line) <= MAX_LINE_BYTES, Error.LINE_TOO_LONG)
        try:
            said = line.decode("utf-8").strip(" \t\r")
        except UnicodeDecodeError as error:
            raise _Refused(Error.MALFORMED) from error
        if said.startswith("#"):
            _read_comment(said, text, added)
        elif said:
            sample = Sample(*_sample(said, added))
            _require(_series(sample) not in seen, Error.DUPLICATE_SERIES)
            seen.add(_series(sample))
            text.samples.append(sample._replace(labels={**sample.labels, **added}))
    return text


def _series(sample: Sample) -> object:
    return sample.name, frozenset(sample.labels.items())


def _read_comment(line: str, text: Text, added: Mapping[str, str]) -> None:
    if (comment := _COMMENT.fullmatch(line)) is not None:
        keyword, name, rest = comment.groups("")
        _check_name(name, added)
        if keyword == "TYPE":
            _require(rest in _TYPES and text.types.setdefault(name, rest) == rest, Error.MALFORMED)
        else:
            text.helps.setdefault(name, _ESCAPE.sub(_unescaped, rest))


def _check_name(name: str, added: Mapping[str, str]) -> None:
    _require(_METRIC.fullmatch(name) is not None, Error.MALFORMED)
    # Colons are reserved for recording rules.
    _require(name.startswith("nccl_" if "uuid" in added else PREFIX) and ":" not in name, Error.NAME_NOT_ALLOWED)
    _require(len(name) <= MAX_NAME_BYTES, Error.NAME_TOO_LONG)


def _sample(line: str, added: Mapping[str, str]) -> tuple[str, dict[str, str], float]:
    start = _METRIC.match(line)
    name = "" if start is None else start[0]
    _check_name(name, added)
    if (rest := _AFTER_NAME.fullmatch(line, len(name))) is None:
        raise _Refused(Error.MALFORMED)
    labels = _labels((rest[1] or "").strip(" \t"), added)
    value, timestamp = (_number(rest[2]), _number(rest[3] or "0"))
    if value is None or timestamp is None:
        raise _Refused(Error.MALFORMED)
    _require(rest[3] is None, Error.TIMESTAMP)
    return name, labels, value


def _labels(text: str, added: Mapping[str, str]) -> dict[str, str]:
    """Parse labels, and return those to publish; the others have to fit the limits as well."""
    labels, place, published = dict[str, str](), 0, {}
    while place < len(text):
        found = _LABEL.match(text, place)
        if found is None or found[1] in labels or found[1].startswith("__"):
            raise _Refused(Error.MALFORMED)
        name, value, place = found[1], _ESCAPE.sub(_unescaped, found[2]), found.end()
        known = "uuid" in added and (name in _DROPPED or name == _JOB_ID)
        _require(known or not _CLAIMS.fullmatch(name), Error.LABEL_NOT_ALLOWED)
        _require(len(name) <= MAX_NAME_BYTES, Error.NAME_TOO_LONG)
        labels[name] = value
        if value and (not known or (name == _JOB_ID and value == added["owner"])):
            published[name] = value
        # The owner does not count.
        _require(len(labels) + len(added) <= MAX_LABELS + 1, Error.TOO_MANY_LABELS)
    return published


def _number(text: str) -> float | None:
    """Parse a number; None for notations that only Python accepts, such as ``1_000`` and non-ASCII digits."""
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def merge(answers: Iterable[Text | Error]) -> tuple[tuple[str | None, ...], tuple[Metric, ...]]:
    """Return why each file is not republished (None if it is), and the families of the others, each name once.

    Of an owner's files with the same series, only the first counts. A family is published without a type if files
    disagree about it, or its name belongs to another one: no file can take another one's series away.
    """
    seen, errors = set[object](), list[str | None]()
    families: dict[tuple[str, str], Metric] = {}
    for answer in answers:
        error = answer if isinstance(answer, Error) else None
        if isinstance(answer, Text):
            if seen.isdisjoint(series := set(map(_series, answer.samples))):
                seen |= series
                _collect(answer, families)
            else:
                error = Error.DUPLICATE_SERIES
        errors.append(None if error is None else str(error))
    claims = Counter(name for family in families.values() for name in _names(family))
    page: dict[str, Metric] = {}
    for family in families.values():
        samples = _ordered(family) if all(claims[name] == 1 for name in _names(family)) else []
        for sample in samples or family.samples:
            name, kind = (family.name, family.type) if samples else (sample.name, _UNTYPED)
            own = page.setdefault(name, _family(name, kind))
            own.documentation = own.documentation or family.documentation
            own.samples.append(sample)
    return tuple(errors), tuple(page.values())


def _family(name: str, kind: str) -> Metric:
    from prometheus_client import Metric  # noqa: PLC0415

    return Metric(name, "", kind)


def _collect(text: Text, families: dict[tuple[str, str], Metric]) -> None:
    """Add the samples of one file to families by name and type; one that no declared type claims has none."""
    # Types with suffixes first: they claim a `_created` that the text format declares separately.
    kinds: dict[str, tuple[str, str]] = {}
    for name, kind in sorted(text.types.items(), key=lambda pair: pair[1] not in _ENDINGS):
        stem = name.removesuffix("_total") if kind == "counter" else name
        for ending in _ENDINGS.get(kind, ("",)):
            kinds.setdefault(f"{stem}{ending}", (stem, kind))
    for sample in text.samples:
        name, kind = kinds.get(sample.name, (sample.name, _UNTYPED))
        own = families.setdefault((name, kind), _family(name, kind))
        own.documentation = own.documentation or text.helps.get(name) or text.helps.get(sample.name, "")
        own.samples.append(sample)


def _names(family: Metric) -> set[str]:
    return {family.name, *(f"{family.name}{ending}" for ending in _ENDINGS.get(family.type, ()))}


def _ordered(family: Metric) -> list[Sample]:
    """The samples in OpenMetrics order; none if it is a histogram without all buckets."""
    bound = {"histogram": "le", "summary": "quantile"}.get(family.type)
    groups: dict[object, list[Sample]] = defaultdict(list)
    for sample in family.samples:
        others = frozenset(pair for pair in sample.labels.items() if pair[0] != bound)
        groups[others if family.type in _ENDINGS else None].append(sample)
    for samples in groups.values() if family.type == "histogram" else ():
        bounds = {sample.labels.get("le", "") for sample in samples if sample.name == f"{family.name}_bucket"}
        if "+Inf" not in bounds or None in map(_number, bounds):
            return []
    return [sample for samples in groups.values() for sample in samples]


TEXTFILE = HostCollector(
    about="metrics that jobs write to files",
    tier=Tier.MEDIUM,
    reader=lambda config: TextFilesReader(config.collector_textfile_directory or Path()).read,
    render=lambda reading: each("name", "owner")(reading.files),
    foreign=lambda reading: reading.families,
    needs="collector_textfile_directory",
)
