"""Bytes over PCIe: right from a source that can count them, and absent otherwise.

The driver's counters are those of NV2080_CTRL_BUS_GET_PEX_UTIL_COUNTERS_PARAMS (NvU32 pexCounters[], ctrl2080bus.h of
open-gpu-kernel-modules 595.45.04), which nvml.h hands out as fields 197 and 198: "Value can be wrapped".
"""

import pynvml
import pytest
from tests.nvml_bench import Bench, BenchMaker, fields_say

from gpu_triage.read.gpu.pcie import RECEIVE, TRANSMIT, PcieReader, PcieTraffic

TRUE_BYTES_PER_SECOND = 12.0e9
BUSY = f'kind = "load", utilization = 1.0, jitter = 0.0, pcie_receive_bytes_per_second = {TRUE_BYTES_PER_SECOND}'
LOAD = f"at = 0\neffect = {{ {BUSY} }}"
PROVEN = 1 << 40


def reader() -> PcieTraffic:
    return PcieTraffic(max_gap_seconds=15.0, retry_seconds=60.0)


def received(nvml: Bench, traffic: PcieTraffic, rounds: int, seconds: float = 5.0) -> list[float | None]:
    readings = []
    for _ in range(rounds):
        readings.append(traffic.read(nvml.round()).get(RECEIVE))
        nvml.clock.advance(seconds)
    return readings


def counted(nvml: Bench, traffic: PcieTraffic, *raws: int) -> list[float | None]:
    readings = []
    for raw in raws:
        nvml.answer("nvmlDeviceGetFieldValues", fields_say({197: (0, "ullVal", raw), 198: (0, "ullVal", raw)}))
        readings.append(traffic.read(nvml.round()).get(TRANSMIT))
        nvml.clock.advance(5)
    return readings


def test_twelve_gigabytes_per_second_are_twelve_where_there_is_gpm(bench: BenchMaker) -> None:
    nvml = bench("h100-8", LOAD)
    first, *later = received(nvml, reader(), 13)
    assert first is None
    assert None not in later
    assert later[-1] == pytest.approx(60 * TRUE_BYTES_PER_SECOND, rel=0.01)


def test_a_counter_of_32_bits_is_not_published(bench: BenchMaker) -> None:
    nvml = bench("idle-downshift", LOAD)
    nvml.clock.advance(60)
    assert received(nvml, reader(), 12) == [None] * 12


@pytest.mark.parametrize(
    ("raws", "readings"),
    [
        ((7, PROVEN, PROVEN + 5, PROVEN + 10**10), [None, None, 0, 10**10 - 5]),
        ((7, PROVEN, 9, PROVEN, 1 << 63, 11), [None] * 6),  # a single value proves nothing
        ((PROVEN, PROVEN, PROVEN + 100, 10, 20), [None, 0, 100, 100, 120]),  # reset
    ],
)
def test_a_counter_beyond_32_bits_counts(
    bench: BenchMaker, raws: tuple[int, ...], readings: list[float | None]
) -> None:
    assert counted(bench(), reader(), *raws) == readings


def test_the_counters_of_a_gpu_with_gpm_are_not_asked_for(bench: BenchMaker) -> None:
    nvml = bench("h100-8", LOAD)
    received(nvml, reader(), 3)
    assert nvml.calls("nvmlDeviceGetFieldValues") == 0


def test_traffic_that_no_link_carries_is_dropped(bench: BenchMaker) -> None:
    nvml, traffic = bench("h100-8", LOAD), reader()
    before = received(nvml, traffic, 3)[-1]
    original = nvml.library._base.nvmlGpmMetricsGet  # type: ignore[attr-defined]  # any function has a name

    def absurd(request: object) -> int:
        code = int(original(request))
        for metric in request._obj.metrics[:2]:  # type: ignore[attr-defined]  # a ctypes reference
            metric.value = 1e9
        return code

    nvml.answer("nvmlGpmMetricsGet", absurd)
    round_ = nvml.round()
    assert traffic.read(round_) == {}
    assert round_.inquiry.failures == ["implausible"] * 2
    nvml.restore("nvmlGpmMetricsGet")
    nvml.clock.advance(5)
    assert before is not None
    after = traffic.read(nvml.round()).get(RECEIVE)
    assert after == pytest.approx(before + 5 * TRUE_BYTES_PER_SECOND, rel=0.01)


def test_a_refusal_of_gpm_falls_back_to_a_counter_that_has_proved_its_width(bench: BenchMaker) -> None:
    nvml, traffic = bench("h100-8", LOAD), reader()
    by_gpm = received(nvml, traffic, 3)[-1]
    assert by_gpm is not None
    nvml.answer("nvmlGpmSampleGet", pynvml.NVML_ERROR_NO_PERMISSION)
    readings = counted(nvml, traffic, PROVEN, PROVEN, PROVEN + 1000)
    assert readings[0] is None
    assert readings[-1] is not None
    assert readings[-1] < by_gpm * 0.1  # of the other direction


def test_a_gap_that_is_too_long_is_not_counted(bench: BenchMaker) -> None:
    nvml, traffic = bench("h100-8", LOAD), reader()
    before = received(nvml, traffic, 3)[-1]
    nvml.clock.advance(600)
    assert traffic.read(nvml.round())[RECEIVE] == before
    nvml.clock.advance(5)
    after = traffic.read(nvml.round())[RECEIVE]
    assert before is not None
    assert after == pytest.approx(before + 5 * TRUE_BYTES_PER_SECOND, rel=0.01)


def test_a_refusal_of_another_question_does_not_cost_gpm(bench: BenchMaker) -> None:
    nvml, link = bench("h100-8", LOAD), PcieReader(15.0, 60.0)
    nvml.answer("nvmlDeviceGetCurrPcieLinkWidth", pynvml.NVML_ERROR_NO_PERMISSION)
    readings = []
    for _ in range(3):
        readings.append(link.read(nvml.round()).receive_bytes)
        nvml.clock.advance(5)
    assert readings == [None, *(pytest.approx(n * 5 * TRUE_BYTES_PER_SECOND, rel=0.01) for n in (1, 2))]
