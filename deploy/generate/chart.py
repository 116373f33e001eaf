"""Generates the derived parts of the chart: rules, dashboards and the schema for rules and judge."""

import json
import re
from pathlib import Path
from typing import Any, Final

from deploy.generate import REPOSITORY
from deploy.generate.chart_rules import definitions, judge_schema, overrides_schema, rule_files

from gpu_triage_simulator.scenario_file import SCENARIOS

CHART = Path("helm/gpu-triage-exporter")


def files() -> dict[Path, str]:
    return {**_copies(), CHART / "values.schema.json": _schema()}


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
    document["properties"]["judge"] = judge_schema()
    # A file is possible, too, mounted with extraVolumes.
    document["properties"]["simulate"] = {
        "anyOf": [
            {"enum": ["", *sorted(path.stem for path in SCENARIOS.glob("*.toml"))]},
            {"pattern": r"^/[^\0]*\.toml$"},
        ]
    }
    document["$defs"] |= definitions()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _minified(document: bytes) -> str:
    """Without blanks, and with PromQL's other quotes: in the JSON of the ConfigMap, a double quote takes four bytes."""
    return json.dumps(_requoted(json.loads(document)), separators=(",", ":"), ensure_ascii=False) + "\n"


def _requoted(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _requoted(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_requoted(each, name) for each in value]
    return _STRING.sub(_with_single_quotes, value) if name in {"expr", "query"} and isinstance(value, str) else value


_STRING: Final = re.compile(r"""`[^`]*`|"(?:[^"\\]|\\.)*\"""")


def _with_single_quotes(found: re.Match[str]) -> str:
    plain = found[0].startswith('"') and not set("'\\") & set(found[0])
    return f"'{found[0][1:-1]}'" if plain else found[0]
