"""A short night, through the exporter, Prometheus with the rules, and Alertmanager, to a webhook that is paged."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from deploy.demo.pager import pager
from deploy.demo.stack import find_programs, stack
from tests.conftest import RequiresTool
from tests.e2e.notifications import PAGER, Inbox, summary
from tests.e2e.processes import wait_for

from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.scenario_file import SCENARIOS

HOST = "h100-8-bad-night"
PACE = 40
LONGEST_SECONDS = 240.0
"""Several times what the night takes, which is a minute."""

NIGHT = (Path(__file__).parent / "night.toml").read_text(encoding="utf-8")


@pytest.fixture
def night(tmp_path: Path) -> str:
    host = (SCENARIOS / f"{HOST}.toml").read_text(encoding="utf-8").split("[[event]]", 1)[0]
    path = tmp_path / "short-night.toml"
    path.write_text(host.replace(f'"{HOST}"', '"short-night"', 1) + NIGHT, encoding="utf-8")
    return str(path)


def suppressed(alertmanager: str) -> set[str]:
    """Alerts that Alertmanager holds back because of their cause."""
    with urllib.request.urlopen(f"{alertmanager}/api/v2/alerts?inhibited=true&active=false", timeout=10) as answer:
        alerts: list[Any] = json.load(answer)
    return {alert["labels"]["alertname"] for alert in alerts if alert["status"]["inhibitedBy"]}


@pytest.mark.timeout(400)
def test_a_night_pages_each_cause_once_and_resolves(tmp_path: Path, night: str, requires_tool: RequiresTool) -> None:
    requires_tool("prometheus")
    requires_tool("prometheus-alertmanager")
    inbox = Inbox()
    uuid_of = [gpu.uuid for gpu in load_scenario(night).gpus]
    held_back: set[str] = set()

    def everything_happened() -> bool:
        held_back.update(suppressed(running.alertmanager))
        told = all(map(inbox.about, ("GpuHwThermalThrottling", "GpuPcieWidthDowntrained", "GpuXidCritical")))
        ended = bool(inbox.about("GpuFabricUnhealthy", "resolved"))
        return told and ended and {"GpuStraggler", "GpuLost"} <= held_back

    with pager(inbox.add) as webhook, stack(tmp_path, night, PACE, webhook, find_programs()) as running:
        try:
            wait_for(everything_happened, LONGEST_SECONDS)
        except AssertionError:
            raise AssertionError(f"held back: {held_back}\n{summary(inbox.where(lambda _: True))}") from None

    (hot,) = inbox.about("GpuHwThermalThrottling")
    assert inbox.where(lambda each: each.labels["alertname"] == "GpuHwThermalThrottling", PAGER)
    assert (hot.labels["uuid"], hot.labels["code"]) == (uuid_of[3], "thermal.hw")
    assert "GPU 3:" in hot.annotations["summary"]
    assert hot.labels["drill"] == "true"
    assert "%" in hot.annotations["description"]
    assert hot.annotations["runbook_url"] == f"{running.exporter}/runbooks/GpuHwThermalThrottling"
    assert [n.labels["uuid"] for n in inbox.about("GpuPcieWidthDowntrained")] == [uuid_of[5]]
    assert [n.labels["uuid"] for n in inbox.about("GpuXidCritical")] == [uuid_of[6]]
    assert len(inbox.about("GpuFabricUnhealthy")) == 1
    assert inbox.about("GpuHwThermalThrottling", "resolved") == []
    assert not inbox.names() & {"GpuStraggler", "GpuLost", "GpuTriageWatchdog", "GpuExporterSimulated"}
