"""The shipped Alertmanager configuration with shorter waits, and one webhook behind every receiver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from deploy.demo.durations import paced_duration

SHIPPED = Path(__file__).resolve().parents[1] / "alertmanager" / "alertmanager.yml"

_WAITS = ("group_wait", "group_interval", "repeat_interval")
_DRILL = ['drill="true"']


def paced_alertmanager(pace: int, webhook: str, *, shipped: Path = SHIPPED, drill: bool = True) -> dict[str, Any]:
    """The configuration that is shipped, with every wait divided by `pace`.

    Args:
        pace: how much shorter.
        webhook: URL that every receiver calls; which of them send a "resolved" stays.
        shipped: the configuration.
        drill: whether to keep the route for drills; without it an alert of a drill takes the way of a real one.
    """
    config: dict[str, Any] = yaml.safe_load(shipped.read_bytes())
    _pace(config["route"], pace, drill=drill)
    for receiver in config["receivers"]:
        for hook in receiver["webhook_configs"]:
            hook["url"] = webhook
    if not drill:
        # A receiver that no route uses is a mistake to Alertmanager's linters, and to a reader.
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
