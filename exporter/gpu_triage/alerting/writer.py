"""Rule files as text: readable YAML with comments, in the same form for every rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import yaml

from gpu_triage.alerting.build import BuiltFile, BuiltGroup, BuiltRule, Fields
from gpu_triage.alerting.folding import folded

WIDTH: Final = 120
MARK: Final = "Written by `gpu-triage rules`: change its settings instead of this file."
"""By this a written file is known again."""


def to_yaml(file: BuiltFile, mark: str = MARK) -> str:
    """The text of a file of rules; ends with a newline."""
    lines = [*_comment(f"{file.about}\n\n{mark}", ""), "groups:"]
    for number, group in enumerate(file.groups):
        lines += [*([""] if number else []), *_group(group)]
    return "\n".join(lines) + "\n"


def commented(text: str) -> str:
    """Lines of a comment."""
    return "\n".join(_comment(text, ""))


def _comment(text: str, indent: str) -> Iterator[str]:
    return (f"{indent}# {line}".rstrip() for line in text.splitlines())


def _group(group: BuiltGroup) -> Iterator[str]:
    yield from _comment(group.about, "  ")
    yield f"  - name: {group.name}"
    yield f"    interval: {group.interval}"
    yield "    rules:"
    for number, rule in enumerate(group.rules):
        if number:
            yield ""
        yield from _rule(rule)


def _rule(rule: BuiltRule) -> Iterator[str]:
    yield from _comment(rule.about, " " * 6)
    first, *rest = _mapping(rule.fields, 8)
    yield f"      - {first.lstrip()}"
    yield from rest


def _mapping(fields: Fields, indent: int) -> Iterator[str]:
    space = " " * indent
    for key, value in fields.items():
        if isinstance(value, str):
            yield from _scalar(key, value, indent)
        elif value:
            yield f"{space}{key}:"
            yield from _mapping(value, indent + 2)


def _scalar(key: str, value: str, indent: int) -> Iterator[str]:
    space, deeper = " " * indent, " " * (indent + 2)
    if "\n" in value:
        yield f"{space}{key}: {'|' if value.endswith(chr(10)) else '|-'}"
        yield from (f"{deeper}{line}".rstrip() for line in value.rstrip("\n").split("\n"))
        return
    line = f"{space}{key}: {_flow(value)}"
    broken = folded(value, WIDTH - len(deeper))
    # A first line that is indented further would set the indentation of all.
    if len(line) <= WIDTH or len(broken) == 1 or value.startswith(" "):
        yield line
        return
    yield f"{space}{key}: >-"
    yield from (f"{deeper}{each}" for each in broken)


def _flow(value: str) -> str:
    return value if _is_plain(value) else "'" + value.replace("'", "''") + "'"


def _is_plain(value: str) -> bool:
    try:
        return bool(yaml.safe_load(f"key: {value}") == {"key": value})
    except yaml.YAMLError:
        return False
