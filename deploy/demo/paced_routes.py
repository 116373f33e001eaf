"""The shipped Alertmanager configuration with shorter waits and a webhook as the only receiver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from deploy.demo.durations import paced_duration

SHIPPED = Path(__file__).resolve().parents[1] / "alertmanager" / "alertmanager.yml"

_WAITS = ("group_wait", "group_interval", "repeat_interval")
_DRILL = ['drill="true"']


def paced_alertmanager(pace: int, webhook: str, *, shipped: Path = SHIPPED, drill: bool = True) -> dict[str, Any]:
    """The shipped configuration with every wait divided by `pace`, and one webhook for all receivers."""
    config: dict[str, Any] = yaml.safe_load(shipped.read_bytes())
    _pace(config["route"], pace, drill=drill)
    for receiver in config["receivers"]:
        for hook in receiver.get("webhook_configs", []):
            hook["url"] = webhook
    if not drill:
        # Alertmanager linters, and readers, consider unused receivers a mistake.
        config["receivers"] = [each for each in config["receivers"] if each["name"] in set(_used(config["route"]))]
    return config


def _pace(route: dict[str, Any], pace: int, *, drill: bool) -> None:
    for key in _WAITS:
        if key in route:
            route[key] = paced_duration(route[key], pace)
    routes = [each for each in route.get("routes", []) if drill or each["matchers"] != _DRILL]
    for each in routes:
        _pace(each, pace, drill=drill)
    if "routes" in route:
        route["routes"] = routes


def _used(route: dict[str, Any]) -> list[str]:
    return [route["receiver"], *(name for each in route.get("routes", []) for name in _used(each))]
