"""The rules with shorter windows, for scenarios played at an accelerated pace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from deploy.demo.durations import DURATION, paced_duration

_SECONDS = re.compile(r"([-+] )(\d{3,})(?![\w.])")
"""What is added to or subtracted from a Unix time."""
_RATE = re.compile(r'\brate\((?:"[^"]*"|[^()"])*\)')
_SHORTEST_WINDOW_SECONDS = 1.0
_SHORTEST_INTERVAL_SECONDS = 0.25
_DEFAULT_INTERVAL = "1m"


def write_paced_rules(source: Path, target: Path, pace: int) -> list[Path]:
    """Write the rules in `source` with every duration divided by `pace`; return the files written.

    This includes windows, `for`, intervals, and what is added to Unix times. Rates are per second of the host's clock.
    Names, thresholds, labels and texts are unchanged.
    """
    written = []
    for path in sorted(source.glob("*.yml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if "groups" not in content:
            continue
        for group in content["groups"]:
            group["interval"] = paced_duration(
                group.get("interval", _DEFAULT_INTERVAL), pace, shortest_seconds=_SHORTEST_INTERVAL_SECONDS
            )
            for rule in group["rules"]:
                _pace(rule, pace)
        written.append(target / path.name)
        written[-1].write_text(yaml.safe_dump(content, sort_keys=False, width=1000), encoding="utf-8")
    return written


def _pace(rule: dict[str, Any], pace: int) -> None:
    rule["expr"] = paced_expression(str(rule["expr"]), pace)
    for key in ("for", "keep_firing_for"):
        if key in rule:
            rule[key] = paced_duration(rule[key], pace)


def paced_expression(expression: str, pace: int) -> str:
    """An expression with shorter windows: ``rate(x[5m])`` at pace 60 is ``(rate(x[5s]) / 60)``."""
    shorter = DURATION.sub(
        lambda found: paced_duration(found[0], pace, shortest_seconds=_SHORTEST_WINDOW_SECONDS), expression
    )
    ages = _SECONDS.sub(lambda found: f"{found[1]}{max(1, int(found[2]) // pace)}", shorter)
    return _RATE.sub(lambda found: f"({found[0]} / {pace})", ages)
