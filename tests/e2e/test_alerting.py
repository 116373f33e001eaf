"""A bad night through the real path: exporter, Prometheus with the rules, Alertmanager, and a webhook that is paged."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from deploy.demo.pager import Notification, pager
from deploy.demo.stack import find_programs, stack
from tests.conftest import RequiresTool
from tests.e2e.processes import wait_for

PACE = 40
LONGEST_SECONDS = 240.0
"""Twice what the night takes at that pace."""


class Pages:
    """Everything the webhook was told."""

    def __init__(self) -> None:
        self._told: list[Notification] = []
        self._lock = threading.Lock()

    def add(self, notification: Notification) -> None:
        """Take one."""
        with self._lock:
            self._told.append(notification)

    def about(self, alert: str, status: str = "firing") -> list[Notification]:
        """Those of an alert."""
        with self._lock:
            return [n for n in self._told if n.labels["alertname"] == alert and n.status == status]

    def names(self) -> set[str]:
        """Alerts that were told of."""
        with self._lock:
            return {notification.labels["alertname"] for notification in self._told}


def suppressed(alertmanager: str) -> set[str]:
    """Alerts that Alertmanager holds back because of their cause."""
    with urllib.request.urlopen(f"{alertmanager}/api/v2/alerts?inhibited=true&active=false", timeout=10) as answer:
        alerts: list[Any] = json.load(answer)
    return {alert["labels"]["alertname"] for alert in alerts if alert["status"]["inhibitedBy"]}


@pytest.mark.timeout(400)
def test_a_bad_night_pages_each_cause_once_holds_its_symptoms_back_and_resolves(
    tmp_path: Path, requires_tool: RequiresTool
) -> None:
    requires_tool("prometheus")
    requires_tool("prometheus-alertmanager")
    pages = Pages()
    held_back: set[str] = set()

    def told_of(alert: str, status: str = "firing") -> bool:
        held_back.update(suppressed(running.alertmanager))
        return bool(pages.about(alert, status))

    with (
        pager(pages.add) as webhook,
        stack(tmp_path, "h100-8-bad-night", PACE, webhook, find_programs()) as running,
    ):
        wait_for(lambda: told_of("GpuHwThermalThrottling"), LONGEST_SECONDS)
        wait_for(lambda: told_of("GpuPcieWidthDowntrained"), LONGEST_SECONDS)
        wait_for(lambda: told_of("GpuLost"), LONGEST_SECONDS)
        wait_for(lambda: told_of("GpuHwThermalThrottling", "resolved"), LONGEST_SECONDS)

    (hot,) = pages.about("GpuHwThermalThrottling")
    assert hot.receiver == "pager"
    assert hot.labels["gpu"] == "3"
    assert hot.labels["drill"] == "true"
    assert "GPU 3 of demo-host" in hot.annotations["description"]
    assert "%" in hot.annotations["description"]
    assert [n.labels["gpu"] for n in pages.about("GpuPcieWidthDowntrained")] == ["5"]
    assert [n.labels["gpu"] for n in pages.about("GpuLost")] == ["6"]
    assert {"GpuStraggler", "GpuXidCritical"} <= held_back
    assert not pages.names() & {"GpuStraggler", "GpuXidCritical", "GpuTriageWatchdog", "GpuExporterSimulated"}
