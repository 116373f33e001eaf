"""docs/alerts.md shows every alert as it is shipped and as it arrives."""

from __future__ import annotations

import re
from pathlib import Path

from docs.alerts_page import alerts_page, read_notifications
from tests.gathered import for_each

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


def test_every_alert_stands_once_with_a_link_from_the_table() -> None:
    page = alerts_page(SOURCES, {})
    assert sorted(re.findall(r"^### (\S+)$", page, re.MULTILINE)) == sorted(alert.key for alert in ALERTS)
    assert len(re.findall(r"^\| \[", page, re.MULTILINE)) == len(ALERTS)


def test_findings_come_first_and_the_exporter_last() -> None:
    titles = re.findall(r"^## (.*)$", alerts_page(SOURCES, {}), re.MULTILINE)
    assert [title.split(":")[0] for title in titles] == [
        "What the exporter found on a GPU or its host",
        "What only a look at several hosts shows",
        "The exporter itself",
    ]


@for_each("alert", [a for a in ALERTS if a.thresholds], ids=lambda alert: alert.key)
def test_thresholds_stand_with_their_ranges(alert: Alert) -> None:
    section = alerts_page(SOURCES, {}).split(f"### {alert.key}\n")[1].split("\n### ")[0]
    for name, limits in alert.thresholds.items():
        assert f"| `{name}` | {limits.value:g} | {limits.low:g} to {limits.high:g} |" in section or limits.high > 1e5


def test_a_notification_is_shown_as_it_arrives(tmp_path: Path) -> None:
    path = tmp_path / "notifications.txt"
    path.write_text(f"## GpuLost\n{LOST}", encoding="utf-8")
    page = alerts_page(SOURCES, read_notifications(path))
    assert "> **gpu-host-1 GPU 3: lost, fell off the bus**\n>\n> GPU 3 of gpu-host-1 (PCI 0000:65:00.0)" in page
    assert "no longer answers: a\\_b \\<c>." in page
    assert '> `severity="critical", gpu="3"`\n>\n> <http://gpu-host-1:9836/runbooks/GpuLost>\n' in page


def test_conditions_have_no_tokens_left() -> None:
    assert "${" not in alerts_page(SOURCES, {})


def test_links_lead_somewhere(repository: Path) -> None:
    page = alerts_page(SOURCES, {})
    links = set(re.findall(r"\]\(((?!https?://|#)[^)#\s]+)", page))
    assert [link for link in links if not (repository / "docs" / link).exists()] == []
    headings = {
        re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)\s]+)\)", page)) <= headings


def test_a_source_without_alerts_has_no_section() -> None:
    assert "recording.yml" not in alerts_page((RuleSource("recording.yml", "Nothing.", ()),), {})
