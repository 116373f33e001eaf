"""Formats rule files: uniform YAML with comments, and long values as folded scalars, except texts with templates."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

import yaml

from gpu_triage.alerting.build import BuiltGroup, Fields

WIDTH: Final = 120
_PLAIN: Final = re.compile(r"[a-z_]+")
MARK: Final = "Written by `gpu-triage rules`: change its settings instead of this file."
"""Identifies a file written by this program."""


def to_yaml(about: str, groups: Iterable[BuiltGroup], mark: str = MARK) -> str:
    lines = [*comment(f"{about}\n\n{mark}"), "groups:"]
    for number, group in enumerate(groups):
        lines += [*([""] if number else []), *_group(group)]
    return "\n".join(lines) + "\n"


def comment(text: str, indent: int = 0) -> Iterator[str]:
    return (f"{' ' * indent}# {line}".rstrip() for line in text.splitlines())


def folded(text: str, width: int) -> list[str]:
    """Lines of a folded scalar that YAML parses back to `text`; a line without a break point may exceed `width`."""
    lines: list[str] = []
    start = 0
    # YAML preserves line breaks next to multiple spaces, so only a single space can be replaced by one.
    breaks = (found.start() + 1 for found in re.finditer(r"[^ ] (?=[^ ])", text))
    for end in (*breaks, len(text)):
        word, start = text[start:end], end + 1
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _group(group: BuiltGroup) -> Iterator[str]:
    yield from comment(group.about)
    yield f"- name: {group.name}"
    yield f"  interval: {group.interval}"
    yield "  rules:"
    for number, rule in enumerate(group.rules):
        if number:
            yield ""
        yield from comment(rule.about, 2)
        first, *rest = _mapping(rule.fields, 4)
        yield f"  - {first.lstrip()}"
        yield from rest


def _mapping(fields: Fields, indent: int) -> Iterator[str]:
    for key, value in fields.items():
        if not isinstance(value, str):
            if key == "labels" and value and all(map(_is_word, value.values())):
                yield f"{' ' * indent}{key}: {{{', '.join(f'{name}: {each}' for name, each in value.items())}}}"
            elif value:
                yield f"{' ' * indent}{key}:"
                yield from _mapping(value, indent + 2)
        elif "{{" in value:
            # Kept on one line, however long: docs/alerts.md shows these texts in readable form.
            yield f"{' ' * indent}{key}: {_quoted(value)}"
        else:
            yield from _scalar(" " * indent + key, value, indent + 2)


def _scalar(key: str, value: str, indent: int) -> Iterator[str]:
    deeper = " " * indent
    if "\n" in value:
        yield f"{key}: {'|' if value.endswith(chr(10)) else '|-'}"
        yield from (f"{deeper}{line}".rstrip() for line in value.rstrip("\n").split("\n"))
        return
    quoted = _quoted(value)
    broken = folded(value, WIDTH - indent)
    # In a block scalar, a first line with leading spaces would determine the indentation of all.
    if len(f"{key}: {quoted}") <= WIDTH or len(broken) == 1 or value.startswith(" "):
        yield f"{key}: {quoted}"
        return
    yield f"{key}: >-"
    yield from (f"{deeper}{each}" for each in broken)


def _quoted(value: str) -> str:
    return value if _is_plain(value) else "'" + value.replace("'", "''") + "'"


def _is_word(value: str | Fields) -> bool:
    return isinstance(value, str) and _PLAIN.fullmatch(value) is not None and _is_plain(value)


@lru_cache(maxsize=4096)
def _is_plain(value: str) -> bool:
    try:
        return bool(yaml.safe_load(f"key: {value}") == {"key": value})
    except yaml.YAMLError:
        return False
