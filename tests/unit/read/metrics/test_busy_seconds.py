from pathlib import Path
from typing import Any

import pytest
from tests.nvml_bench import BenchMaker
from tests.rig import only, rig, scenario_with

from gpu_triage.machine import Moment
from gpu_triage.read.gpu.activity import ActivityReader

pytestmark = pytest.mark.slow

WALL = 1_768_435_200.0


def busy_seconds(tmp_path: Path, *events: str) -> float:
    with rig(scenario_with(tmp_path, "dual-a10", *events), only("activity", "identity")) as running:
        running.run(60)
        busy = running.value("gpu_busy_seconds_total", gpu="0")
        assert busy is not None
        return busy


@pytest.mark.parametrize("lasts", [1, 2, 3, 10])
def test_time_without_the_drivers_samples_is_not_counted_twice(tmp_path: Path, lasts: int) -> None:
    failing = 'effect = { kind = "error", function = "nvmlDeviceGetSamples", code = "UNKNOWN" }'
    healthy = busy_seconds(tmp_path)
    gap = busy_seconds(tmp_path, f'at = "20s"\nuntil = "{20 + lasts}s"\ngpu = 0\n{failing}')
    assert healthy - 3 <= gap <= healthy


class Stamped:
    """nvmlDeviceGetSamples of a busy driver that stamps its last 20 s by the clock as it is set when it is asked."""

    def __init__(self) -> None:
        self.wall = WALL

    def __call__(self, _device: Any, _kind: Any, since: Any, value_type: Any, count: Any, out: Any) -> int:
        stamps = [round((self.wall - age) * 1e6) for age in range(20, -1, -1)]
        found = [stamp for stamp in stamps if stamp > since.value]
        value_type._obj.value, count._obj.value = 1, len(found)
        for sample, stamp in zip(out or (), found, strict=out is not None):
            sample.timeStamp, sample.sampleValue.uiVal = stamp, 100
        return 0


@pytest.mark.parametrize("step", [-3600.0, -10.0, 10.0, 3600.0])
def test_a_clock_that_is_set_does_not_make_old_samples_count_again(bench: BenchMaker, step: float) -> None:
    nvml, reader, samples = bench(), ActivityReader(3.0), Stamped()
    nvml.answer("nvmlDeviceGetSamples", samples)
    for second in range(61):
        samples.wall = WALL + second + (step if second > 30 else 0.0)
        reading = reader.read(nvml.round(at=Moment(monotonic=500.0 + second, wall=samples.wall)))
        assert reading.busy_seconds is not None
        assert reading.busy_seconds <= second + 1
    assert reading.busy_seconds is not None
    assert reading.busy_seconds >= 55
