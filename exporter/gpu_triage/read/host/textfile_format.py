"""Strict parser for the text format of jobs' files, with limits, so that a file can only affect its own series.

prometheus_client's parser is not used: it renames counters, and takes seconds for maliciously crafted lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.samples import Sample

from gpu_triage.read.host import textfile_limits as limits
from gpu_triage.read.host.textfile_limits import MALFORMED, OWNER

_CLAIMS: Final = re.compile(
    r"instance|job|job_?id|cluster|drill|service|endpoint|node|nodename|host|hostname|namespace|replica|prometheus"
    r"|gpu|gpu_?(?:id|index)|minor_number|serial|compute_capability|vbios_version|board_part_number"
    r"|owner|user|user_?name|uid|account|pid"
    r"|alertname|alertstate|severity"
    r"|(?:exported|prometheus|gpu|mig|pci|pod|container|kubernetes|workload|slurm)_.*|.*uuid|pod|container|workload",
    re.IGNORECASE,
)
"""Labels that would claim a target, a GPU, an owner or an alert. The owner is determined by the file's location."""

_TYPES: Final = frozenset({"counter", "gauge", "histogram", "summary", "untyped", "unknown"})
_BLANK: Final = " \t\r"
_COMMENT: Final = re.compile(r"#[ \t]+(HELP|TYPE)(?:[ \t]+([^ \t]+)[ \t]*(.*))?")
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*(?:,|(?=\}))')
_END: Final = re.compile(r"[ \t]*\}")
_ESCAPE: Final = re.compile(r'\\([\\n"])')
_HELP_ESCAPE: Final = re.compile(r"\\([\\n])")


class Refused(Exception):
    """A file that is not republished; its argument is the reason, from `textfile_limits.ERRORS`."""


@dataclass(frozen=True, slots=True)
class Text:
    """Parsed content of one file.

    Attributes:
        types: declared types, by name.
        helps: HELP texts, by name.
        samples: each series once, in the file's order, with the owner label added.
    """

    types: dict[str, str] = field(default_factory=dict)
    helps: dict[str, str] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)


def parse(content: bytes, owner: str) -> Text:
    """Parse a file of this owner.

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
            _read_comment(said, text)
        elif said:
            sample = _sample(said)
            series = (sample.name, frozenset(sample.labels.items()))
            if series in seen:
                raise Refused(limits.DUPLICATE_SERIES)
            seen.add(series)
            text.samples.append(sample._replace(labels={**sample.labels, OWNER: owner}))
    return text


def _read_comment(line: str, text: Text) -> None:
    comment = _COMMENT.fullmatch(line)
    if comment is None:
        return
    keyword, name, rest = comment.groups("")
    _check_name(name)
    if keyword == "TYPE":
        if rest not in _TYPES or text.types.setdefault(name, rest) != rest:
            raise Refused(MALFORMED)
    else:
        said = _HELP_ESCAPE.sub(_unescaped, rest)
        if len(said.encode()) > limits.MAX_HELP_BYTES:
            raise Refused(limits.HELP_TOO_LONG)
        text.helps.setdefault(name, said)


def _sample(line: str) -> Sample:
    name = _NAME.match(line)
    if name is None:
        raise Refused(MALFORMED)
    _check_name(name[0])
    rest = line[name.end() :]
    labels: dict[str, str] = {}
    if rest.lstrip(_BLANK).startswith("{"):
        labels, rest = _labels(rest.lstrip(_BLANK))
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


def _labels(text: str) -> tuple[dict[str, str], str]:
    """Parse the labels at the start of a text; return them and the rest. Empty labels are dropped."""
    labels: dict[str, str] = {}
    place = 1
    while (found := _LABEL.match(text, place)) is not None:
        name, value, place = found[1], _ESCAPE.sub(_unescaped, found[2]), found.end()
        if name in labels:
            raise Refused(MALFORMED)
        _check_label(name, value)
        labels[name] = value
        if len(labels) > limits.MAX_LABELS:
            raise Refused(limits.TOO_MANY_LABELS)
    end = _END.match(text, place)
    if end is None:
        raise Refused(MALFORMED)
    return {name: value for name, value in labels.items() if value}, text[end.end() :]


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Refused(MALFORMED)
    # Colons are reserved for recording rules.
    if not name.startswith(limits.PREFIXES) or ":" in name:
        raise Refused(limits.NAME_NOT_ALLOWED)
    if len(name) > limits.MAX_NAME_BYTES:
        raise Refused(limits.NAME_TOO_LONG)


def _check_label(name: str, value: str) -> None:
    if name.startswith("__"):
        raise Refused(MALFORMED)
    if _CLAIMS.fullmatch(name):
        raise Refused(limits.LABEL_NOT_ALLOWED)
    if len(name) > limits.MAX_NAME_BYTES:
        raise Refused(limits.NAME_TOO_LONG)
    if len(value.encode()) > limits.MAX_VALUE_BYTES:
        raise Refused(limits.VALUE_TOO_LONG)


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
