import gc
from typing import Any

import pynvml
import pytest
from tests.nvml_bench import BenchMaker
from tests.rig import only, pair, rig
from tests.simulated_driver import devices_of

from gpu_triage.errors import GpuUnavailable
from gpu_triage.read.gpu.activity import GpmReader, GpmReading

pytestmark = pytest.mark.slow
LEAN = only("gpm", "activity", "identity")

NOTHING = GpmReading(None, None, None, None, None, None, None)


def reader() -> GpmReader:
    return GpmReader(max_gap_seconds=3.0, retry_seconds=60.0)


def test_the_first_round_tells_nothing_and_each_later_one_the_time_since_the_last(bench: BenchMaker) -> None:
    nvml, gpu = bench("h100-8"), reader()
    assert gpu.read(nvml.round()) == NOTHING
    for _ in range(5):
        round_ = nvml.after(1)
        reading = gpu.read(round_)
        assert reading.sm_active_ratio == pytest.approx(0.89, abs=0.03)
        assert reading.sm_occupancy_ratio == pytest.approx(0.33, abs=0.02)
        assert reading.tensor_active_ratio == pytest.approx(0.45, abs=0.02)
        assert reading.dram_active_ratio == pytest.approx(0.35, abs=0.02)
        assert reading.fp64_active_ratio == 0.0
        assert round_.inquiry.failures == []
    assert nvml.calls("nvmlGpmSampleAlloc") == nvml.live_samples == 2
    assert nvml.calls("nvmlGpmQueryDeviceSupport") == 1


LACKING = 'at = 0\neffect = { kind = "missing_function", function = "nvmlGpmQueryDeviceSupport" }'


@pytest.mark.parametrize(("host", "queries"), [(("dual-a10",), 3), (("h100-8", LACKING), 0)])
def test_without_gpm_a_gpu_is_asked_once_an_interval(bench: BenchMaker, host: tuple[str, ...], queries: int) -> None:
    nvml, gpu = bench(*host), reader()
    for _ in range(130):
        round_ = nvml.round()
        assert gpu.read(round_) == NOTHING
        assert round_.inquiry.failures == []
        nvml.clock.advance(1)
    assert nvml.calls("nvmlGpmSampleAlloc") == nvml.calls("nvmlGpmSampleGet") == 0
    assert nvml.calls("nvmlGpmQueryDeviceSupport") == queries


def test_of_rounds_every_100_ms_every_second_one_takes_a_sample(bench: BenchMaker) -> None:
    nvml, gpu = bench("h100-8"), reader()
    readings = []
    for _ in range(100):
        round_ = nvml.round()
        readings.append(gpu.read(round_).sm_active_ratio)
        assert round_.inquiry.failures == []
        nvml.clock.advance(0.1)
    assert nvml.calls("nvmlGpmSampleGet") == 50
    assert readings[:2] == [None, None]
    assert None not in readings[2:]
    assert readings[2] == readings[3]


def test_an_average_over_a_gap_longer_than_values_stay_published_is_not_told(bench: BenchMaker) -> None:
    nvml, gpu = bench("h100-8"), reader()
    gpu.read(nvml.round())
    assert gpu.read(nvml.after(1)) != NOTHING
    assert gpu.read(nvml.after(30)) == NOTHING
    assert gpu.read(nvml.after(1)) != NOTHING


def test_each_metric_stands_or_falls_by_its_own_return_code_and_range(bench: BenchMaker) -> None:
    nvml, gpu = bench("h100-8"), reader()
    codes = [0, pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_UNKNOWN, 0, 0, 0, pynvml.NVML_ERROR_INVALID_ARGUMENT]
    values = [55.5, 50.0, 50.0, 250.0, float("nan"), 100.4, 50.0]

    def answer(request: Any) -> int:
        for metric, code, value in zip(request._obj.metrics, codes, values, strict=False):
            metric.nvmlReturn, metric.value = code, value
        return 0

    gpu.read(nvml.round())
    nvml.answer("nvmlGpmMetricsGet", answer)
    round_ = nvml.after(1)
    assert gpu.read(round_) == GpmReading(0.555, None, None, None, None, 1.0, None)
    assert round_.inquiry.failures == ["unknown", "implausible", "implausible"]


def test_what_the_driver_leaves_unanswered_is_not_the_last_rounds_answer(bench: BenchMaker) -> None:
    nvml, gpu = bench("h100-8"), reader()
    gpu.read(nvml.round())
    assert gpu.read(nvml.after(1)) != NOTHING
    nvml.answer("nvmlGpmMetricsGet", pynvml.NVML_SUCCESS)
    for _ in range(3):
        round_ = nvml.after(1)
        assert gpu.read(round_) == NOTHING
        assert round_.inquiry.failures == []


def test_hundreds_of_losses_and_new_sessions_leave_no_buffer_behind(bench: BenchMaker) -> None:
    nvml, gpu = bench("h100-mig"), reader()
    for number in range(200):
        # The second sample comes, or the GPU is lost over it; then NVML starts anew.
        gpu.read(nvml.round(1))
        nvml.clock.advance(0.2)
        if number % 2:
            nvml.answer("nvmlGpmSampleGet", pynvml.NVML_ERROR_GPU_IS_LOST)
            with pytest.raises(GpuUnavailable):
                gpu.read(nvml.round(1))
            nvml.restore("nvmlGpmSampleGet")
        else:
            assert gpu.read(nvml.round(1)) != NOTHING
        assert nvml.live_samples == (0 if number % 2 else 2)
        nvml.session.close()
        nvml.session.open()
        nvml.devices = devices_of(nvml.session)


def test_samples_of_a_gpu_that_is_forgotten_are_freed(bench: BenchMaker) -> None:
    nvml, gpu = bench("h100-8"), reader()
    for _ in range(3):
        gpu.read(nvml.after(1))
    assert nvml.live_samples == 2
    del gpu
    gc.collect()
    assert nvml.live_samples == 0


def test_a_buffer_of_a_library_that_was_replaced_is_not_given_to_the_next_one() -> None:
    with rig(pair("h100-8"), LEAN) as first:
        first.run(3)
        with rig(pair("h100-8"), LEAN) as second:
            second.run(3)
            # Both stand-ins count their buffers' addresses from the same start.
            del first
            gc.collect()
            second.run(3)
            assert second.series("gpu_exporter_errors_total", collector="gpm") == []
            assert len(second.series("gpu_sm_active_ratio")) == 2
