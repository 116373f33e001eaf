"""Generates the derived parts of the chart: rules, dashboards, the schema for rules and judge, and the README."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from deploy.generate import REPOSITORY, chart_judge
from deploy.generate.chart_rules import definitions, overrides_schema, rule_files

CHART = Path("helm/gpu-triage-exporter")

_DESCRIPTION = re.compile(r"\s*# -- (.*)")
_CONTINUATION = re.compile(r"\s*# (.*)")
_KEY = re.compile(r"( *)([A-Za-z][A-Za-z0-9]*):(?: |$)")


class Value(NamedTuple):
    """One value in values.yaml: dotted name, default, and description from its comment."""

    name: str
    default: object
    description: str


def files() -> dict[Path, str]:
    return {
        **_copies(),
        CHART / "values.schema.json": _schema(),
        CHART / "README.md": _readme(),
    }


def _copies() -> dict[Path, str]:
    """The chart's rules and its copies of the dashboards, by path in the repository.

    The dashboards are minified: `kubectl apply` stores a copy of each object in an annotation, limited to 256 KiB.
    """
    found = {CHART / "files/rules" / path: text for path, text in rule_files().items()}
    for source in sorted(REPOSITORY.glob("dashboards/*.json")):
        found[CHART / "files/dashboards" / source.name] = _minified(source.read_bytes())
    return found


def _schema() -> str:
    """The JSON schema of the values, including the settings of rules and judge."""
    document = json.loads((REPOSITORY / CHART / "values.schema.json").read_text(encoding="utf-8"))
    document["properties"]["rules"]["properties"]["overrides"] = overrides_schema()
    document["properties"]["judge"] = chart_judge.schema()
    document["$defs"] |= {**definitions(), **chart_judge.definitions()}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def values(text: str) -> tuple[Value, ...]:
    """Every value with a description in a values.yaml, in order.

    Raises:
        ValueError: a description isn't followed by a value.
    """
    defaults = yaml.safe_load(text)
    found: list[Value] = []
    path: list[str] = []
    description: list[str] = []
    for line in text.splitlines():
        if start := _DESCRIPTION.fullmatch(line):
            description = [start[1]]
        elif description and (more := _CONTINUATION.fullmatch(line)):
            description.append(more[1])
        elif key := _KEY.match(line):
            path[len(key[1]) // 2 :] = [key[2]]
            if description:
                found.append(Value(".".join(path), _at(defaults, path), " ".join(description)))
            description = []
        elif description:
            raise ValueError(f"values.yaml: {description[0]!r} stands above no value")
    return tuple(found)


def _readme() -> str:
    """The chart's README: the template with the table of values filled in."""
    template = (REPOSITORY / CHART / "README.template.md").read_text(encoding="utf-8")
    described = values((REPOSITORY / CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = "".join(
        f"| `{v.name}` | {_code(v.default)} | {v.description.replace('|', chr(92) + '|')} |\n" for v in described
    )
    notice = "<!-- Made by `make regenerate` from README.template.md and values.yaml; edit those. -->\n\n"
    table = f"| Value | Default | Meaning |\n|---|---|---|\n{rows}".rstrip()
    return notice + template.replace("<!-- values -->", table)


def _minified(document: bytes) -> str:
    return json.dumps(json.loads(document), separators=(",", ":"), ensure_ascii=False) + "\n"


def _at(defaults: Any, path: list[str]) -> object:
    for key in path:
        defaults = defaults[key]
    value: object = defaults
    return value


def _code(value: object) -> str:
    text = json.dumps(value)
    # A long default would make the table unreadable, so refer to values.yaml.
    return f"`{text}`" if len(text) <= 80 else "see values.yaml"  # noqa: PLR2004 - a cell's width
