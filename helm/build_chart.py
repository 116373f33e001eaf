"""Generates the derived parts of the chart: rules, dashboards, the schema for rules and judge, and the README.

``python helm/build_chart.py`` writes them to the working tree (``make chart``).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

if __name__ == "__main__":
    # When run as a script, sys.path has this folder instead of the repository.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from helm import judge
from helm.rules import definitions, overrides_schema, rule_files

REPOSITORY = Path(__file__).resolve().parent.parent
CHART = Path("helm/gpu-triage-exporter")
INHIBITIONS = Path("rules/alertmanager-inhibit.yml")

_DESCRIPTION = re.compile(r"\s*# -- (.*)")
_CONTINUATION = re.compile(r"\s*# (.*)")
_KEY = re.compile(r"( *)([A-Za-z][A-Za-z0-9]*):(?: |$)")
_NO_INHIBITIONS = "None yet: `rules/` has no inhibitions."


class Value(NamedTuple):
    """One value in values.yaml: dotted name, default, and description from its comment."""

    name: str
    default: object
    description: str


def copies(repository: Path) -> dict[Path, bytes]:
    """The chart's rules and its copies of the dashboards, by path in the repository.

    The dashboards are minified: `kubectl apply` stores a copy of each object in an annotation, limited to 256 KiB.
    """
    found = {CHART / "files/rules" / path: text.encode() for path, text in rule_files().items()}
    for source in sorted(repository.glob("dashboards/*.json")):
        found[CHART / "files/dashboards" / source.name] = _minified(source.read_bytes())
    return found


def schema(repository: Path) -> str:
    """The JSON schema of the values, including the settings of rules and judge."""
    document = json.loads((repository / CHART / "values.schema.json").read_text(encoding="utf-8"))
    document["properties"]["rules"]["properties"]["overrides"] = overrides_schema()
    document["properties"]["judge"] = judge.schema()
    document["$defs"] |= {**definitions(), **judge.definitions()}
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


def readme(repository: Path) -> str:
    """The chart's README: the template with the table of values and the inhibitions filled in."""
    template = (repository / CHART / "README.template.md").read_text(encoding="utf-8")
    described = values((repository / CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = "".join(
        f"| `{v.name}` | {_code(v.default)} | {v.description.replace('|', chr(92) + '|')} |\n" for v in described
    )
    inhibitions = _NO_INHIBITIONS
    if (repository / INHIBITIONS).exists():
        inhibitions = f"```yaml\n{(repository / INHIBITIONS).read_text(encoding='utf-8').strip()}\n```"
    notice = "<!-- Made by `make chart` from README.template.md and values.yaml; edit those. -->\n\n"
    table = f"| Value | Default | Meaning |\n|---|---|---|\n{rows}".rstrip()
    return notice + template.replace("<!-- inhibitions -->", inhibitions).replace("<!-- values -->", table)


def write(repository: Path) -> None:
    """Write copies, schema and README, and delete copies without an original."""
    wanted = copies(repository)
    for folder in ("rules", "dashboards"):
        target = repository / CHART / "files" / folder
        target.mkdir(parents=True, exist_ok=True)
        for stale in set(target.glob("*.*")) - {repository / path for path in wanted}:
            stale.unlink()
    for path, content in wanted.items():
        (repository / path).write_bytes(content)
    (repository / CHART / "values.schema.json").write_text(schema(repository), encoding="utf-8")
    (repository / CHART / "README.md").write_text(readme(repository), encoding="utf-8")


def _minified(document: bytes) -> bytes:
    return (json.dumps(json.loads(document), separators=(",", ":"), ensure_ascii=False) + "\n").encode()


def _at(defaults: Any, path: list[str]) -> object:
    for key in path:
        defaults = defaults[key]
    value: object = defaults
    return value


def _code(value: object) -> str:
    text = json.dumps(value)
    # A long default would make the table unreadable, so refer to values.yaml.
    return f"`{text}`" if len(text) <= 80 else "see values.yaml"  # noqa: PLR2004 - a cell's width


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("usage: python helm/build_chart.py")
    write(REPOSITORY)
