"""docs/alerts.md lists every finding and every alert once."""

import re

from deploy.generate.alerts_page import alerts_page
from tests.gathered import every, for_each

from gpu_triage.alerting.rule_source import Alert
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.judge.findings.table import CHECKS
from gpu_triage.read.xid.codes import XidKind

SOURCES = shipped_sources()
ALERTS = [alert for source in SOURCES for alert in source.alerts]
PAGE = alerts_page(SOURCES)


def test_every_finding_has_one_row_with_its_alert_and_xids_share_one() -> None:
    lines = PAGE.split("\n## Alerts that Prometheus judges\n", maxsplit=1)[0]
    rows = re.findall(
        r"^- `([a-z][\w.]*)`: [a-z_]+, \w+/\w+[^\[\n]*(?:\[(\w+)\]\(\S+\))?(?: \(off\))?$", lines, re.MULTILINE
    )
    others = [check for check in CHECKS if not check.code.removeprefix("xid.").isdecimal()]
    others.sort(key=lambda check: -check.severity.rank)
    assert rows == [(check.code, check.alert or "") for check in others]
    assert "- `gpu.lost`: drain, none/7m, [GpuLost](" in PAGE
    assert "- `pcie.width`: inspect_hardware, 10m/25m, lanes, [GpuPcieWidthDowntrained](" in PAGE
    assert PAGE.count("- `xid.CODE` of ") == len(XidKind)


def test_every_alert_of_prometheus_has_one_row_with_its_runbook() -> None:
    rows = re.findall(r"^- \[(\S+)\]\(\S+/(\w+)\.md\)(?: \(off\))?: (\w+), ", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted((alert.key, alert.name, alert.severity) for alert in ALERTS if not alert.codes)


@for_each("alert", [a for a in ALERTS if a.thresholds], ids=lambda alert: alert.key)
def test_thresholds_stand_with_their_ranges(alert: Alert) -> None:
    for name, limits in every(alert.thresholds.items()):
        row = f"- {alert.key} `{name}` ({limits.value:g}, {limits.low:g}-{limits.high:g}): "
        assert row in PAGE or limits.high > 1e5


def test_texts_have_no_tokens_left() -> None:
    assert "${" not in PAGE
