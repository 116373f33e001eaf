"""A bad night through the real path: exporter, Prometheus with the rules, Alertmanager, and a webhook that is paged."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from deploy.demo.pager import pager
from deploy.demo.stack import find_programs, stack
from tests.conftest import RequiresTool
from tests.e2e.notifications import PAGER, Inbox
from tests.e2e.processes import wait_for

from gpu_triage.simulator import load_scenario

PACE = 20
LONGEST_SECONDS = 480.0
"""Twice what the night takes at that pace."""


def suppressed(alertmanager: str) -> set[str]:
    """Alerts that Alertmanager holds back because of their cause."""
    with urllib.request.urlopen(f"{alertmanager}/api/v2/alerts?inhibited=true&active=false", timeout=10) as answer:
        alerts: list[Any] = json.load(answer)
    return {alert["labels"]["alertname"] for alert in alerts if alert["status"]["inhibitedBy"]}


@pytest.mark.timeout(700)
def test_a_bad_night_pages_each_cause_once_holds_its_symptoms_back_and_resolves(
    tmp_path: Path, requires_tool: RequiresTool
) -> None:
    requires_tool("prometheus")
    requires_tool("prometheus-alertmanager")
    inbox = Inbox()
    uuid_of = [gpu.uuid for gpu in load_scenario("h100-8-bad-night").gpus]
    held_back: set[str] = set()

    def told_of(alert: str, status: str = "firing") -> bool:
        held_back.update(suppressed(running.alertmanager))
        return bool(inbox.about(alert, status))

    with (
        pager(inbox.add) as webhook,
        stack(tmp_path, "h100-8-bad-night", PACE, webhook, find_programs()) as running,
    ):
        wait_for(lambda: told_of("GpuHwThermalThrottling"), LONGEST_SECONDS)
        wait_for(lambda: told_of("GpuPcieWidthDowntrained"), LONGEST_SECONDS)
        wait_for(lambda: told_of("GpuXidCritical") and {"GpuStraggler", "GpuLost"} <= held_back, LONGEST_SECONDS)
        wait_for(lambda: told_of("GpuHwThermalThrottling", "resolved"), LONGEST_SECONDS)

    (hot,) = inbox.about("GpuHwThermalThrottling")
    assert inbox.where(lambda each: each.labels["alertname"] == "GpuHwThermalThrottling", PAGER)
    assert (hot.labels["uuid"], hot.labels["code"]) == (uuid_of[3], "thermal.hw")
    assert "GPU 3:" in hot.annotations["summary"]
    assert hot.labels["drill"] == "true"
    assert "%" in hot.annotations["description"]
    assert hot.annotations["runbook_url"] == f"{running.exporter}/runbooks/GpuHwThermalThrottling"
    assert [n.labels["uuid"] for n in inbox.about("GpuPcieWidthDowntrained")] == [uuid_of[5]]
    assert [n.labels["uuid"] for n in inbox.about("GpuXidCritical")] == [uuid_of[6]]
    assert not inbox.names() & {"GpuStraggler", "GpuLost", "GpuTriageWatchdog", "GpuExporterSimulated"}
