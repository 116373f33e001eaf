"""What the exporter says of itself, from literal readings."""

from dataclasses import replace

import pytest

from gpu_triage.machine import Moment
from gpu_triage.read.exporter.exporter_health import (
    GPU_EXPORTER_COLLECTOR_STALE_SECONDS,
    GPU_EXPORTER_SLOWEST_COLLECTOR_SECONDS,
    CollectorHealth,
    ExporterReading,
    render,
)

NOW = Moment(monotonic=5000.0, wall=1_000_000.0)
LATER = Moment(monotonic=5001.0, wall=1_000_001.0)
BEFORE = Moment(NOW.monotonic - 45, NOW.wall - 45)
POWER = CollectorHealth("power", success=True, duration_seconds=0.25, interval_seconds=5, last_success_at=BEFORE)
READING = ExporterReading(
    version="1",
    revision="",
    python_version="3",
    constants=(),
    collectors=(POWER, CollectorHealth("xid", None, None, 1, None)),
    errors={},
    scrapes=0,
    gpus_released=False,
    published_at=NOW,
)


def overdue(reading: ExporterReading) -> dict[str, float]:
    stale = GPU_EXPORTER_COLLECTOR_STALE_SECONDS
    return {sample.labels[0]: sample.value for sample in render(reading) if sample.spec is stale}


@pytest.mark.parametrize(
    ("reading", "told"),
    [
        pytest.param(READING, {}, id="within three intervals and 30 s"),
        pytest.param(replace(READING, published_at=LATER), {"power": 46}, id="later"),
        pytest.param(replace(READING, published_at=LATER, gpus_released=True), {}, id="the GPUs are released"),
        pytest.param(replace(READING, published_at=replace(NOW, wall=NOW.wall + 4200)), {}, id="clock set forward"),
        pytest.param(replace(READING, published_at=replace(LATER, wall=0)), {"power": 46}, id="clock set back"),
    ],
)
def test_a_collector_is_overdue_after_3_intervals_and_30_s(reading: ExporterReading, told: dict[str, float]) -> None:
    assert overdue(reading) == told


def test_the_slowest_collector_is_told_where_any_has_run() -> None:
    slowest = GPU_EXPORTER_SLOWEST_COLLECTOR_SECONDS
    faster = replace(READING, collectors=(*READING.collectors, replace(POWER, duration_seconds=0.125)))
    assert [sample.value for sample in render(faster) if sample.spec is slowest] == [0.25]
    unborn = replace(READING, collectors=READING.collectors[1:])
    assert [sample for sample in render(unborn) if sample.spec is slowest] == []
