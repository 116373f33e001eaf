"""The rules with shorter windows, for a scenario that is played faster than it is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?<![\w.])(\d+)(ms|[smhd])(?!\w)")
_RECENT = re.compile(r"time\(\) - (\d+)(?= *\)|$)", re.MULTILINE)
_SHORTEST_SECONDS = 1


def write_paced_rules(source: Path, target: Path, pace: int) -> list[Path]:
    """The rule files that were written: those of `source` with every duration divided by `pace`.

    Windows, `for` and the Unix times that alerts call recent shrink; every group is evaluated once a second. Names,
    thresholds, labels and annotations stay.

    Args:
        source: folder of the rules.
        target: folder that exists; a file of the same name is overwritten.
        pace: how much shorter.
    """
    written = []
    for path in sorted(source.glob("*.yml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if "groups" not in content:
            continue
        for group in content["groups"]:
            group["interval"] = f"{_SHORTEST_SECONDS}s"
            for rule in group["rules"]:
                _pace(rule, pace)
        written.append(target / path.name)
        written[-1].write_text(yaml.safe_dump(content, sort_keys=False, width=1000), encoding="utf-8")
    return written


def _pace(rule: dict[str, Any], pace: int) -> None:
    rule["expr"] = paced_expression(str(rule["expr"]), pace)
    for key in ("for", "keep_firing_for"):
        if key in rule:
            rule[key] = paced_expression(rule[key], pace)


def paced_expression(expression: str, pace: int) -> str:
    """An expression with shorter windows: ``rate(x[5m])`` at pace 60 is ``rate(x[5s])``."""
    shorter = _DURATION.sub(lambda found: f"{_seconds(found, pace)}s", expression)
    return _RECENT.sub(lambda found: f"time() - {max(1, int(found[1]) // pace)}", shorter)


def _seconds(found: re.Match[str], pace: int) -> int:
    return max(_SHORTEST_SECONDS, round(int(found[1]) * _UNITS[found[2]] / pace))
