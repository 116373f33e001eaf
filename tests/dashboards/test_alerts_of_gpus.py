"""Alerts about GPUs carry a UUID alone; a dashboard shows the number that the GPU has, or had before it was gone."""

from pathlib import Path

import pytest
from dashboards.selectors import alerts
from tests.conftest import RequiresTool
from tests.dashboards.grafana import column, substitute
from tests.promql.promtool import Run, ask, selector

TARGET = (("instance", "host"), ("job", "gpu-triage"))
NAN = float("nan")
NOW = 600.0


def gpu(number: str, uuid: str) -> list[tuple[str, str]]:
    return [*TARGET, ("gpu", number), ("uuid", uuid)]


@pytest.mark.parametrize(
    ("series", "shown"),
    [
        ({selector("gpu_up", gpu("3", "A")): [0.0] * 11}, "3"),
        # The driver is away: it lists no GPUs, and the exporter goes on with their findings.
        ({selector("gpu_finding", [*gpu("3", "A"), ("code", "xid.119")]): [2.0] * 11}, "3"),
        # The host died a few minutes ago.
        ({selector("gpu_finding", [*gpu("3", "A"), ("code", "xid.119")]): [2.0] * 6 + [NAN] * 5}, "3"),
        # It was renumbered at a boot.
        (
            {
                selector("gpu_finding", [*gpu("3", "A"), ("code", "xid.119")]): [2.0] * 3 + [NAN] * 8,
                selector("gpu_finding", [*gpu("2", "A"), ("code", "xid.79")]): [NAN] * 5 + [2.0] * 6,
            },
            "2",
        ),
        (
            {
                selector("gpu_finding", [*gpu("3", "A"), ("code", "xid.119")]): [2.0] * 3 + [NAN] * 8,
                selector("gpu_up", gpu("2", "A")): [NAN] * 5 + [1.0] * 6,
            },
            "2",
        ),
    ],
)
def test_alerts_name_gpus(
    series: dict[str, list[float]], shown: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    firing = [*TARGET, ("uuid", "A"), ("alertname", "GpuXidCritical"), ("alertstate", "firing")]
    question = substitute(alerts('alertstate="firing"'), 1800)
    run = Run((), (), 60, {**series, selector("ALERTS", firing): [1.0] * 11}, ((question, NOW),))
    found = ask(requires_tool("promtool"), run, tmp_path).samples[question, NOW]
    assert [(sample.labels["gpu"], sample.value) for sample in found] == [(shown, 1.0)]


def test_alerts_say_how_many_gpus_their_job_loses_or_those_that_wait_for_their_gpu(
    requires_tool: RequiresTool, tmp_path: Path
) -> None:
    owner, firing = ("owner", "4711/"), [("alertstate", "firing"), ("severity", "warning")]
    alerting = (
        ("GpuJobSlow", [TARGET[1], owner]),
        ("Hot", [*TARGET, ("uuid", "A")]),
        ("Hot", [*TARGET, ("uuid", "B")]),
        ("Slow", [*TARGET]),
    )
    values = {
        selector("owner:gpu_job_lost:gpus", [TARGET[1], owner]): 2.4,
        selector("instance_gpu_owner:gpu_job:member", [*gpu("2", "B"), owner]): 1.0,
        selector("instance_gpu_owner_why:gpu_job_waited_for:affected", [*gpu("3", "A"), owner]): 0.3,
        **{selector("gpu_up", gpu(number, uuid)): 1.0 for number, uuid in (("3", "A"), ("2", "B"))},
        **{selector("ALERTS", [*labels, *firing, ("alertname", name)]): 1.0 for name, labels in alerting},
    }
    series = {name: [value] * 11 for name, value in values.items()}
    question = substitute(column("diagnosis.json", "Firing alerts", "Lost").expr, 1800)
    found = ask(requires_tool("promtool"), Run((), (), 60, series, ((question, NOW),)), tmp_path).samples[question, NOW]
    lost = {(each.labels["alertname"], each.labels.get("gpu")): each.value for each in found}
    assert lost == {("GpuJobSlow", None): 2.4, ("Hot", "3"): 2.4}
