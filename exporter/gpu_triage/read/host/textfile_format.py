"""Strict parser for the text format of jobs' files, with limits, and their merging into one page.

A file can only affect its own series.

prometheus_client's parser is not used: it renames counters, and takes seconds for maliciously crafted lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.samples import Sample

from gpu_triage.read.host import textfile as limits
from gpu_triage.read.host.textfile import DUPLICATE_SERIES, MALFORMED
from gpu_triage.read.host.textfile_forms import METRIC_NAME, Form, Refused

_TYPES: Final = frozenset({"counter", "gauge", "histogram", "summary", "untyped", "unknown"})
_BLANK: Final = " \t\r"
_COMMENT: Final = re.compile(r"#[ \t]+(HELP|TYPE)(?:[ \t]+([^ \t]+)[ \t]*(.*))?")
_LABEL: Final = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*(?:,|(?=\}))')
_END: Final = re.compile(r"[ \t]*\}")
_ESCAPE: Final = re.compile(r'\\([\\n"])')
_HELP_ESCAPE: Final = re.compile(r"\\([\\n])")


@dataclass(frozen=True, slots=True)
class Text:
    """Parsed content of one file: types and HELP texts by name, and each series once, with the form's labels added."""

    types: dict[str, str] = field(default_factory=dict)
    helps: dict[str, str] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)


def parse(content: bytes, form: Form) -> Text:
    """Parse a file of this form.

    Raises:
        Refused: the file is rejected as a whole.
    """
    text, seen = Text(), set[object]()
    for line in content.split(b"\n"):
        if len(line) > limits.MAX_LINE_BYTES:
            raise Refused(limits.LINE_TOO_LONG)
        try:
            said = line.decode("utf-8").strip(_BLANK)
        except UnicodeDecodeError as error:
            raise Refused(MALFORMED) from error
        if said.startswith("#"):
            _read_comment(said, text, form)
        elif said:
            sample = _sample(said, form)
            series = (sample.name, frozenset(sample.labels.items()))
            if series in seen:
                raise Refused(limits.DUPLICATE_SERIES)
            seen.add(series)
            text.samples.append(sample._replace(labels={**sample.labels, **form.added}))
    for name in form.helps.keys() & {sample.name for sample in text.samples}:
        text.types.setdefault(name, "gauge")
        text.helps.setdefault(name, form.helps[name])
    return text


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
    """Why each file is not republished (empty if it is), and the families of the others, each name and series once."""

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
    """Combine families by name; drop the type of a family if files disagree about it."""
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
    return {family.name, *(f"{family.name}{ending}" for ending in _ENDINGS.get(family.type, ()))}


def _without_type(family: Metric) -> Iterator[Metric]:
    parts: dict[str, Metric] = {}
    for sample in family.samples:
        part = parts.setdefault(sample.name, Metric(sample.name, family.documentation, _UNTYPED))
        part.samples.append(sample)
    yield from parts.values()


def _read_comment(line: str, text: Text, form: Form) -> None:
    comment = _COMMENT.fullmatch(line)
    if comment is None:
        return
    keyword, name, rest = comment.groups("")
    form.check_name(name)
    if keyword == "TYPE":
        if rest not in _TYPES or text.types.setdefault(name, rest) != rest:
            raise Refused(MALFORMED)
    else:
        said = _HELP_ESCAPE.sub(_unescaped, rest)
        if len(said.encode()) > limits.MAX_HELP_BYTES:
            raise Refused(limits.HELP_TOO_LONG)
        text.helps.setdefault(name, said)


def _sample(line: str, form: Form) -> Sample:
    name = METRIC_NAME.match(line)
    if name is None:
        raise Refused(MALFORMED)
    form.check_name(name[0])
    rest = line[name.end() :]
    labels: dict[str, str] = {}
    if rest.lstrip(_BLANK).startswith("{"):
        labels, rest = _labels(rest.lstrip(_BLANK), form)
    elif not rest.startswith((" ", "\t")):
        raise Refused(MALFORMED)
    value, *more = rest.split() or [""]
    if len(more) > 1:
        raise Refused(MALFORMED)
    number = _number(value)
    if more:
        _number(more[0])
        raise Refused(limits.TIMESTAMP)
    return Sample(name[0], labels, number)


def _labels(text: str, form: Form) -> tuple[dict[str, str], str]:
    """Parse the labels at the start of a text; return those to publish and the rest. Empty labels are dropped."""
    labels: dict[str, str] = {}
    place = 1
    while (found := _LABEL.match(text, place)) is not None:
        name, value, place = found[1], _ESCAPE.sub(_unescaped, found[2]), found.end()
        if name in labels:
            raise Refused(MALFORMED)
        labels[name] = value if form.keeps(name, value) else ""
        if len(labels) > form.most_labels:
            raise Refused(limits.TOO_MANY_LABELS)
    end = _END.match(text, place)
    if end is None:
        raise Refused(MALFORMED)
    return {name: value for name, value in labels.items() if value}, text[end.end() :]


def _number(text: str) -> float:
    """Parse a number; notations that only Python accepts, such as ``1_000`` and non-ASCII digits, are rejected."""
    if not text.isascii() or "_" in text:
        raise Refused(MALFORMED)
    try:
        return float(text)
    except ValueError as error:
        raise Refused(MALFORMED) from error


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]
