"""The runbook of an alert about hosts that are down is linked on an exporter that is up.

Of a host with a neighbor, notifications.txt has the link.
"""

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.exhibit_series import INSTANCE, NOW, lately, rack, scraped
from tests.rules.handwritten import Series, play
from tests.rules.rulefile import alert_files

from gpu_triage.alerting.files import rule_files
from gpu_triage.alerting.settings import Settings

DOWN = scraped(lately(0, 1))


def links(
    promtool: Path, directory: Path, cases: dict[str, Series], alert: str, rules: tuple[Path, ...]
) -> dict[str, set[str]]:
    """The links of an alert in each case, each case being a cluster of one Prometheus."""
    played = play(promtool, directory, rules, cases, minutes=0, shown={alert: NOW})
    return {name: {each.annotations["runbook_url"] for each in case.shown[alert]} for name, case in played.items()}


@pytest.mark.parametrize("alert", ["GpuExporterDown", pytest.param("GpuExportersDown", marks=pytest.mark.full)])
def test_hosts_that_are_down_have_their_runbook_on_one_that_is_up(
    alert: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    found = links(requires_tool("promtool"), tmp_path, {"rack": rack(20, 5), "alone": DOWN}, alert, alert_files())
    (in_rack,) = found["rack"]
    assert in_rack in {f"http://gpu-rack7-{number:02}:9836/runbooks/{alert}" for number in range(1, 16)}
    # A survivor of another cluster, where a cluster has no exporter left.
    assert [INSTANCE in url for url in found["alone"]] == [False] * (alert == "GpuExporterDown")


def test_without_any_exporter_the_alert_has_the_command(requires_tool: RequiresTool, tmp_path: Path) -> None:
    command = "kubectl exec ds/gpu-triage -- gpu-triage explain"
    texts = rule_files(Settings(runbook_command=command))
    rules = []
    for path in alert_files():
        rules.append(tmp_path / path.name)
        rules[-1].write_text(texts[path.name], encoding="utf-8")
    found = links(requires_tool("promtool"), tmp_path, {"": DOWN}, "GpuExporterDown", tuple(rules))
    assert found == {"": {f"{command} GpuExporterDown"}}
