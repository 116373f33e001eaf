"""What jobs' files hold: the metric families of one file, checked and made whole, and those of all on one page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_OURS: Final = re.compile(r"gpu_(?!job_)|process_|python_")
"""Names that nobody may take: this exporter's own. Jobs have ``gpu_job_`` and all that does not start with gpu_."""

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_TYPE: Final = re.compile(r"^([^\S\n]*#[^\S\n]+TYPE[^\S\n]+(\S+)[^\S\n]+)(\S+)([^\S\n]*)$", re.MULTILINE)
_TYPES: Final = frozenset({"counter", "gauge", "histogram", "summary", "untyped", "unknown"})
_BARE: Final = "stateset"
"""What the parser is told of a counter without ``_total``, whose samples it would rename."""

_SAMPLES: Final = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "summary": ("", "_sum", "_count", "_created"),
}
"""Endings of the samples that a family of a type has; those of other types have none."""

_CREATED: Final = "_created"
"""Of a gauge that tells since when a counter counts: the text format has it apart, OpenMetrics within its family."""

_ALL: Final = "+Inf"
"""Bound of the bucket that holds all there is."""

TYPE_CONFLICT: Final = "type_conflict"
INCOMPLETE_HISTOGRAM: Final = "incomplete_histogram"
DUPLICATE_SERIES: Final = "duplicate_series"

_Series = tuple[str, tuple[tuple[str, str], ...]]


class Refused(Exception):
    """A file that is not republished; its argument is the reason."""


@dataclass(frozen=True, slots=True)
class Content:
    """What can be used of a file.

    Attributes:
        families: each name once.
        dropped: why some of its families are left out.
    """

    families: tuple[Metric, ...]
    dropped: tuple[str, ...] = ()


class _Page:
    """Families side by side, none of which takes a name of another's samples."""

    def __init__(self) -> None:
        self.families: dict[str, Metric] = {}
        self._owners: dict[str, Metric] = {}

    def takes(self, family: Metric) -> bool:
        """Whether there is room for a family: for its names, or beside others of its name and type."""
        same = self.families.get(family.name)
        if same is not None:
            return (same.type, _is_bare(same)) == (family.type, _is_bare(family))
        return not any(name in self._owners for name in _names(family))

    def add(self, family: Metric) -> None:
        """Take a family for which there is room; the first HELP that says something stays."""
        own = self.families.get(family.name)
        if own is None:
            own = self.families[family.name] = Metric(family.name, "", family.type)
            self._owners.update(dict.fromkeys(_names(family), own))
        own.documentation = own.documentation or family.documentation
        own.samples.extend(family.samples)

    def takes_in(self, family: Metric) -> bool:
        """Give samples to the family that they belong to; whether there is one that lacked just them.

        A family's sample that stands apart from it the parser takes for one without a type, and since when a counter
        counts for a gauge.
        """
        apart = family.type == "unknown" and not family.documentation
        if not apart and not (family.type == "gauge" and family.name.endswith(_CREATED)):
            return False
        own = self._owners.get(family.name)
        if own is None or family.name not in _sample_names(own):
            return False
        own.samples.extend(family.samples)
        return True


def parse(content: bytes) -> Content:
    """The families of a file in the text format.

    Raises:
        Refused: it is not republished at all.
    """
    page, dropped = _Page(), set[str]()
    for family in sorted(_parsed(content), key=lambda family: family.name.endswith(_CREATED)):
        if page.takes_in(family):
            continue
        if page.takes(family):
            page.add(family)
        else:
            dropped.add(TYPE_CONFLICT)
    seen: set[_Series] = set()
    for family in page.families.values():
        for sample in _checked(family):
            if (series := _series(sample)) in seen:
                raise Refused(DUPLICATE_SERIES)
            seen.add(series)
    families = [_whole(family) for family in page.families.values() if family.samples]
    dropped |= {INCOMPLETE_HISTOGRAM} if None in families else set()
    return Content(tuple(family for family in families if family is not None), tuple(sorted(dropped)))


class Merged(NamedTuple):
    """What was made of several files.

    Attributes:
        errors: why each is not republished, or not all of it; empty for those that are.
        families: of those, each name once, each series once.
    """

    errors: tuple[tuple[str, ...], ...]
    families: tuple[Metric, ...]


def merge(answers: Iterable[Content | str]) -> Merged:
    """The files' families in the order of the files; of two that take one name, the later is left out."""
    page, seen, errors = _Page(), set[_Series](), list[tuple[str, ...]]()
    for answer in answers:
        errors.append((answer,) if isinstance(answer, str) else _add(answer, page, seen))
    return Merged(tuple(errors), tuple(page.families.values()))


def _add(content: Content, page: _Page, seen: set[_Series]) -> tuple[str, ...]:
    kept = [family for family in content.families if page.takes(family)]
    series = {_series(sample) for family in kept for sample in family.samples}
    if series & seen:
        return (DUPLICATE_SERIES,)
    seen |= series
    for family in kept:
        page.add(family)
    conflicts = {TYPE_CONFLICT} if len(kept) < len(content.families) else set()
    return tuple(sorted(conflicts.union(content.dropped)))


def _parsed(content: bytes) -> Iterator[Metric]:
    try:
        text = _TYPE.sub(_told, content.decode("utf-8"))
        families = tuple(text_string_to_metric_families(text))
    except Exception as error:
        # The parser raises whatever its string handling happens to: ValueError, IndexError, KeyError, ….
        raise Refused("malformed") from error
    for family in families:
        if family.type == _BARE:
            family.type = "counter"
        yield family


def _told(line: re.Match[str]) -> str:
    before, name, kind, after = line.groups()
    if kind not in _TYPES:
        raise ValueError(kind)
    return f"{before}{_BARE if kind == 'counter' and not name.endswith('_total') else kind}{after}"


def _is_bare(family: Metric) -> bool:
    return family.type == "counter" and any(sample.name == family.name for sample in family.samples)


def _sample_names(family: Metric) -> set[str]:
    suffixes = ("",) if _is_bare(family) else _SAMPLES.get(family.type, ("",))
    return {f"{family.name}{suffix}" for suffix in suffixes}


def _names(family: Metric) -> set[str]:
    """Names that are the family's alone: of its samples, and its own."""
    return {family.name, *_sample_names(family)}


def _checked(family: Metric) -> Iterator[Sample]:
    for sample in family.samples:
        if _OURS.match(sample.name) or _OURS.match(family.name):
            raise Refused("reserved_name")
        if sample.timestamp is not None:
            # Prometheus would take the sample for one of that time, again and again.
            raise Refused("timestamp")
        if not _NAME.fullmatch(sample.name) or not all(map(_LABEL.fullmatch, sample.labels)):
            raise Refused("malformed")
        yield sample


def _whole(family: Metric) -> Metric | None:
    """The family; of a histogram, with a bucket of all for every set of labels, or None where nobody counted all."""
    if family.type != "histogram":
        return family
    by_labels: dict[_Series, list[Sample]] = {}
    for sample in family.samples:
        labels = {label: value for label, value in sample.labels.items() if label != "le"}
        by_labels.setdefault(_series(sample._replace(name="", labels=labels)), []).append(sample)
    whole = Metric(family.name, family.documentation, family.type)
    for samples in by_labels.values():
        buckets = [_bucket(sample) for sample in samples if sample.name == f"{family.name}_bucket"]
        rest = [sample for sample in samples if sample.name != f"{family.name}_bucket"]
        if not any(bucket.labels["le"] == _ALL for bucket in buckets):
            count = next((sample for sample in rest if sample.name == f"{family.name}_count"), None)
            if count is None:
                return None
            buckets.append(Sample(f"{family.name}_bucket", {**count.labels, "le": _ALL}, count.value))
        whole.samples += [*buckets, *rest]
    return whole


def _bucket(sample: Sample) -> Sample:
    """The bucket, the bound of all written in the one way that OpenMetrics has for it."""
    try:
        bound = float(sample.labels["le"])
    except (KeyError, ValueError) as error:
        raise Refused("malformed") from error
    return sample._replace(labels={**sample.labels, "le": _ALL}) if bound == math.inf else sample


def _series(sample: Sample) -> _Series:
    return sample.name, tuple(sorted(sample.labels.items()))
