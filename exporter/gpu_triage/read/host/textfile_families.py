"""Merge the metric families of jobs' files into one page, so that no file affects another's series."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.samples import Sample

from gpu_triage.read.host.textfile_format import Text
from gpu_triage.read.host.textfile_limits import DUPLICATE_SERIES

_ENDINGS: Final = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "summary": ("", "_sum", "_count", "_created"),
}
"""Suffixes of the samples of a family, by type; other types have none."""

_UNTYPED: Final = "unknown"
_BOUNDS: Final = {"histogram": "le", "summary": "quantile"}
"""Labels that distinguish the samples within one histogram or summary."""


class Merged(NamedTuple):
    """Result of merging several files.

    Attributes:
        errors: for each file, why it is not republished; empty if it is.
        families: from the republished files, each name and each series once.
    """

    errors: tuple[tuple[str, ...], ...]
    families: tuple[Metric, ...]


def merge(answers: Iterable[Text | str]) -> Merged:
    """Merge families in the order of the files; of an owner's files with the same series, only the first counts."""
    seen, errors, families = set[object](), list[tuple[str, ...]](), list[Metric]()
    for answer in answers:
        if isinstance(answer, str):
            errors.append((answer,))
            continue
        series = {(sample.name, frozenset(sample.labels.items())) for sample in answer.samples}
        if series & seen:
            errors.append((DUPLICATE_SERIES,))
            continue
        seen |= series
        errors.append(())
        families += _families(answer)
    return Merged(tuple(errors), _page(families))


def _families(text: Text) -> list[Metric]:
    """Metric families of one file; a sample that matches no declared type becomes an untyped family."""
    # Types with suffixes first: they claim a `_created` that the text format declares separately.
    declared = sorted(text.types.items(), key=lambda pair: pair[1] not in _ENDINGS)
    kinds: dict[str, tuple[str, str]] = {}
    for name, kind in declared:
        stem = name.removesuffix("_total") if kind == "counter" else name
        for ending in _ENDINGS.get(kind, ("",)):
            kinds.setdefault(f"{stem}{ending}", (stem, kind))
    families: dict[tuple[str, str], Metric] = {}
    for sample in text.samples:
        name, kind = kinds.get(sample.name, (sample.name, _UNTYPED))
        own = families.setdefault((name, kind), Metric(name, "", kind))
        own.documentation = own.documentation or text.helps.get(name) or text.helps.get(sample.name, "")
        own.samples.append(sample)
    return [part for family in families.values() for part in _fitting(family)]


def _fitting(family: Metric) -> Iterable[Metric]:
    """Put the family into OpenMetrics order; drop its type if it is a histogram without all buckets."""
    if family.type not in _ENDINGS:
        return [family]
    bound = _BOUNDS.get(family.type)
    groups: dict[frozenset[tuple[str, str]], list[Sample]] = defaultdict(list)
    for sample in family.samples:
        groups[frozenset(pair for pair in sample.labels.items() if pair[0] != bound)].append(sample)
    if family.type == "histogram" and not all(_is_complete(family.name, samples) for samples in groups.values()):
        return _without_type(family)
    family.samples = [sample for samples in groups.values() for sample in samples]
    return [family]


def _is_complete(name: str, samples: list[Sample]) -> bool:
    bounds = [sample.labels.get("le", "") for sample in samples if sample.name == f"{name}_bucket"]
    return "+Inf" in bounds and all(map(_is_number, bounds))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _page(families: list[Metric]) -> tuple[Metric, ...]:
    """Combine families by name; drop the types of a family that has different types in different files."""
    claims: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for family in families:
        for name in _names(family):
            claims[name].add((family.name, family.type))
    page: dict[str, Metric] = {}
    for family in families:
        agreed = all(len(claims[name]) == 1 for name in _names(family))
        for part in [family] if agreed else _without_type(family):
            own = page.setdefault(part.name, Metric(part.name, "", part.type))
            own.documentation = own.documentation or part.documentation
            own.samples.extend(part.samples)
    return tuple(page.values())


def _names(family: Metric) -> set[str]:
    """All names that belong to the family: its own and those of its samples."""
    return {family.name, *(f"{family.name}{ending}" for ending in _ENDINGS.get(family.type, ()))}


def _without_type(family: Metric) -> Iterator[Metric]:
    """Split a family into an untyped family per sample name."""
    parts: dict[str, Metric] = {}
    for sample in family.samples:
        part = parts.setdefault(sample.name, Metric(sample.name, family.documentation, _UNTYPED))
        part.samples.append(sample)
    yield from parts.values()
