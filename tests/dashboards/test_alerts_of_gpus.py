"""Alerts about GPUs carry a UUID alone; a dashboard shows the number that the GPU has, or had before it was gone."""

from pathlib import Path

import pytest
from dashboards.selectors import alerts
from tests.conftest import RequiresTool
from tests.dashboards.grafana import substitute
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
