"""The runbook of an alert about a host that is down is linked on an exporter that is up."""

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.parts import some
from tests.rules.exhibit_series import INSTANCE, rack, scraped
from tests.rules.handwritten import Series, merged, over, play
from tests.rules.rulefile import alert_files

from gpu_triage.alerting.files import rule_files
from gpu_triage.alerting.settings import Settings

NOW = 84
UP = over((1, NOW + 1))
DOWN = over((1, 54), (0, NOW - 53))
RESTARTING = [1.0 if minute < 20 or minute % 6 == 0 else 0.0 for minute in range(NOW + 1)]
"""Up again at the last minute: the host whose exporter crashes may not be asked either."""

CASES: dict[str, Series] = {
    "neighbor": merged(scraped(DOWN), scraped(UP, "gpu-08:9836")),
    "restarting": merged(scraped(RESTARTING), scraped(UP, "gpu-09:9836")),
    "alone": scraped(DOWN),
    "rack": rack(20, 5),
}
PATH = "/runbooks/GpuExporterDown"
IN_KUBERNETES = "kubectl exec ds/gpu-triage -- gpu-triage explain"


def links(
    promtool: Path, directory: Path, cases: dict[str, Series], alert: str, rules: tuple[Path, ...]
) -> dict[str, set[str]]:
    """The links of an alert in each case, each case being a cluster of one Prometheus."""
    played = play(promtool, directory, rules, cases, minutes=0, shown={alert: NOW})
    return {name: {each.annotations["runbook_url"] for each in case.shown[alert]} for name, case in played.items()}


@pytest.mark.slow
def test_a_host_that_is_down_has_its_runbook_on_one_that_is_up(requires_tool: RequiresTool, tmp_path: Path) -> None:
    found = links(requires_tool("promtool"), tmp_path, CASES, "GpuExporterDown", alert_files())
    assert found["neighbor"] == {f"http://gpu-08:9836{PATH}"}
    assert found["restarting"] == {f"http://gpu-09:9836{PATH}"}
    # The survivors of the rack, and of other clusters where a cluster has no exporter left.
    (in_rack,), (other,) = found["rack"], found["alone"]
    assert in_rack in {f"http://gpu-rack7-{number:02}:9836{PATH}" for number in range(1, 16)}
    assert other.endswith(f":9836{PATH}")
    assert INSTANCE not in other


@pytest.mark.full
@pytest.mark.slow
def test_an_alert_about_a_fleet_has_its_runbook_on_a_host_of_it_that_is_up(
    requires_tool: RequiresTool, tmp_path: Path
) -> None:
    found = links(requires_tool("promtool"), tmp_path, CASES, "GpuExportersDown", alert_files())
    assert {name for name, urls in found.items() if urls} == {"rack"}
    (in_rack,) = found["rack"]
    assert in_rack in {f"http://gpu-rack7-{number:02}:9836/runbooks/GpuExportersDown" for number in range(1, 16)}


@pytest.mark.slow
@pytest.mark.parametrize("command", some([Settings().runbook_command, IN_KUBERNETES], {IN_KUBERNETES}))
def test_without_any_exporter_the_alert_has_the_command(
    command: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    texts = rule_files(Settings(runbook_command=command))
    rules = []
    for path in alert_files():
        rules.append(tmp_path / path.name)
        rules[-1].write_text(texts[path.name], encoding="utf-8")
    found = links(requires_tool("promtool"), tmp_path, {"": scraped(DOWN)}, "GpuExporterDown", tuple(rules))
    assert found == {"": {f"{command} GpuExporterDown"}}
