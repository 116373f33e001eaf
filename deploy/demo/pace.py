"""Rules and Alertmanager configuration with every duration divided by a pace, for scenarios played faster."""

import re
from pathlib import Path
from typing import Any

import yaml

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"(?<![\w.])(\d+)(ms|[smhd])(?!\w)")
"""A duration with one unit that isn't part of a name."""
_SECONDS = re.compile(r"([-+] )(\d{3,})(?![\w.])")
"""What is added to or subtracted from a Unix time."""
_RATE = re.compile(r'\brate\((?:"[^"]*"|[^()"])*\)')
_SHORTEST_WINDOW_SECONDS = 1.0
_SHORTEST_INTERVAL_SECONDS = 0.25
_DEFAULT_INTERVAL = "1m"
SHIPPED = Path(__file__).resolve().parents[1] / "alertmanager" / "alertmanager.yml"

_WAITS = ("group_wait", "group_interval", "repeat_interval")
_DRILL = ['drill="true"']


def paced_duration(written: str, pace: int, *, shortest_seconds: float = 0.0) -> str:
    """A duration divided by `pace`, rounded to milliseconds; written in seconds if it is a whole number."""
    found = DURATION.fullmatch(written)
    if found is None:
        raise ValueError(f"{written!r} is not a duration of one unit, such as 90s")
    seconds = max(shortest_seconds, int(found[1]) * _UNITS[found[2]] / pace)
    return f"{seconds:.0f}s" if seconds == round(seconds) else f"{round(seconds * 1000)}ms"


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
                _pace_rule(rule, pace)
        written.append(target / path.name)
        written[-1].write_text(yaml.safe_dump(content, sort_keys=False, width=1000), encoding="utf-8")
    return written


def _pace_rule(rule: dict[str, Any], pace: int) -> None:
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


def paced_alertmanager(pace: int, webhook: str, *, shipped: Path = SHIPPED, drill: bool = True) -> dict[str, Any]:
    """The shipped configuration with every wait divided by `pace`, and one webhook for all receivers."""
    config: dict[str, Any] = yaml.safe_load(shipped.read_bytes())
    _pace_route(config["route"], pace, drill=drill)
    for receiver in config["receivers"]:
        for hook in receiver.get("webhook_configs", []):
            hook["url"] = webhook
    if not drill:
        # Alertmanager linters, and readers, consider unused receivers a mistake.
        config["receivers"] = [each for each in config["receivers"] if each["name"] in set(_used(config["route"]))]
    return config


def _pace_route(route: dict[str, Any], pace: int, *, drill: bool) -> None:
    for key in _WAITS:
        if key in route:
            route[key] = paced_duration(route[key], pace)
    routes = [each for each in route.get("routes", []) if drill or each["matchers"] != _DRILL]
    for each in routes:
        _pace_route(each, pace, drill=drill)
    if "routes" in route:
        route["routes"] = routes


def _used(route: dict[str, Any]) -> list[str]:
    return [route["receiver"], *(name for each in route.get("routes", []) for name in _used(each))]
