"""The JSON schema of the chart's value `judge`: every finding with its settings."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from gpu_triage.judge.findings.check import Unit
from gpu_triage.judge.findings.settings import LIMITS, Limit
from gpu_triage.judge.findings.table import CHECKS

_TIMES: Final[Mapping[str, Any]] = {
    "wait": {"$ref": "#/$defs/judgeDuration"},
    "hold": {"$ref": "#/$defs/judgeDuration"},
}
_TEXTS: Final[Mapping[Unit, str]] = {
    Unit.RATIO: r"^[0-9]+(\.[0-9]+)? ?%?$",
    Unit.CELSIUS: r"^[0-9]+(\.[0-9]+)?( ?°?C)?$",
    Unit.COUNT: r"^[0-9]+$",
    Unit.BYTES_PER_SECOND: r"^[0-9]+(\.[0-9]+)? ?([KMG]iB(/s)?)?$",
}
"""Text patterns for thresholds; the exporter checks the range of anything that isn't a plain number."""


def schema() -> dict[str, Any]:
    """The schema of the whole value; findings with identical settings share an entry."""
    codes: dict[str, list[str]] = defaultdict(list)
    for check in CHECKS:
        codes[json.dumps(_finding(check.code))].append(check.code)
    alike = {f"^({'|'.join(map(re.escape, names))})$": each for each, names in codes.items() if len(names) > 1}
    own = {names[0]: each for each, names in codes.items() if len(names) == 1}
    return {
        **_object({code: json.loads(each) for code, each in own.items()}),
        "patternProperties": {pattern: json.loads(each) for pattern, each in alike.items()},
    }


def definitions() -> dict[str, Any]:
    """Definitions used by the schema, by name below ``$defs``."""
    return {
        "judgeDuration": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$"},
        "judgeTimes": _object(_TIMES),
    }


def _finding(code: str) -> dict[str, Any]:
    limits = LIMITS.get(code)
    if limits is None:
        return {"$ref": "#/$defs/judgeTimes"}
    return _object({**_TIMES, **{name: _threshold(limit) for name, limit in limits.items()}})


def _threshold(limit: Limit) -> dict[str, Any]:
    if limit.unit is Unit.SECONDS:
        return {"$ref": "#/$defs/judgeDuration"}
    kind = "integer" if limit.unit is Unit.COUNT else "number"
    number = {"type": kind, "minimum": limit.low, "maximum": limit.high}
    return {"anyOf": [number, {"type": "string", "pattern": _TEXTS[limit.unit]}], "description": limit.about}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}
