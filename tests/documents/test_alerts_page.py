"""docs/alerts.md shows every alert as it is shipped and as it arrives."""

from __future__ import annotations

import re
from pathlib import Path

from deploy.generate.alerts_page import alerts_page, read_notifications
from tests.gathered import every, for_each

from gpu_triage.alerting.rule_source import Alert, RuleSource
from gpu_triage.alerting.shipped import shipped_sources

SOURCES = shipped_sources()
ALERTS = [alert for source in SOURCES for alert in source.alerts]

LOST = """\
summary: gpu-host-1 GPU 3: lost, fell off the bus
description: GPU 3 of gpu-host-1 (PCI 0000:65:00.0) no longer answers: a_b <c>.
labels: severity="critical", gpu="3"
runbook_url: http://gpu-host-1:9836/runbooks/GpuLost
"""


def test_every_alert_has_one_row_with_its_runbook() -> None:
    page = alerts_page(SOURCES, {})
    rows = re.findall(r"^\| \[(\S+)\]\(\S+/(\w+)\.md\) \| (\w+) \|", page, re.MULTILINE)
    assert sorted(rows) == sorted((alert.key, alert.name, alert.severity) for alert in ALERTS)


def test_many_hosts_come_first_and_the_exporter_last() -> None:
    titles = re.findall(r"^## (.*)$", alerts_page(SOURCES, {}), re.MULTILINE)
    assert [title.split(":")[0] for title in titles] == [
        "What strikes many hosts at once",
        "What the exporter found on a GPU or its host",
        "What only a look at all hosts of a job shows",
        "The exporter itself",
        "Thresholds of alerts that Prometheus judges",
    ]


@for_each("alert", [a for a in ALERTS if a.thresholds], ids=lambda alert: alert.key)
def test_thresholds_stand_with_their_ranges(alert: Alert) -> None:
    page = alerts_page(SOURCES, {})
    for name, limits in every(alert.thresholds.items()):
        row = f"| {alert.key} | `{name}` | {limits.value:g} | {limits.low:g} to {limits.high:g} |"
        assert row in page or limits.high > 1e5


def test_an_alert_is_shown_as_it_arrives(tmp_path: Path) -> None:
    path = tmp_path / "notifications.txt"
    path.write_text(f"## GpuLost\n{LOST}", encoding="utf-8")
    page = alerts_page(SOURCES, read_notifications(path))
    assert (
        "| critical | drain | at once | after 7 minutes | **gpu-host-1 GPU 3: lost, fell off the bus** "
        "GPU 3 of gpu-host-1 (PCI 0000:65:00.0) no longer answers: a\\_b \\<c>. |\n"
    ) in page


def test_texts_have_no_tokens_left() -> None:
    assert "${" not in alerts_page(SOURCES, read_notifications())


def test_links_lead_somewhere(repository: Path) -> None:
    page = alerts_page(SOURCES, {})
    links = set(re.findall(r"\]\(((?!https?://|#)[^)#\s]+)", page))
    assert [link for link in every(links) if not (repository / "docs" / link).exists()] == []


def test_a_source_without_alerts_has_no_section() -> None:
    assert "recording.yml" not in alerts_page((RuleSource("recording.yml", "Nothing.", ()),), {})
