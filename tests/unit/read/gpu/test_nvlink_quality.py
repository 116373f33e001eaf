"""Quality of NVLink 5 links, as nvml.h and DCGM define its fields.

A bit error rate has its exponent in bits 0 to 7 and its mantissa in bits 8 to 11 (nvml.h); 15 and 255 are 0, and others
mantissa * 10^-exponent (DCGM, NvmlBerParser in DcgmUtilities.cpp).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.nvml_bench import BenchMaker, fields_say, shown

from gpu_triage.read.gpu import nvlink as nvlink_quality
from gpu_triage.read.gpu.nvlink import NvlinkQualityReader, NvlinkReader, bit_error_ratio
from gpu_triage.read.metrics.contract import GpuLabels

pytestmark = pytest.mark.slow

GB200 = Path(__file__).parents[3] / "golden" / "gb200-fabric.toml"


@pytest.mark.parametrize(("raw", "rate"), [(0xFFF, 0.0), (0x000, 0.0), (0x10C, 1e-12), (0x30B, 3e-11), (0xA0D, 1e-12)])
def test_a_rate_is_a_mantissa_and_an_exponent(raw: int, rate: float) -> None:
    assert bit_error_ratio(raw) == pytest.approx(rate)


def test_the_links_of_a_gb200(bench: BenchMaker) -> None:
    nvml, reader = bench(GB200), NvlinkQualityReader()
    nvml.clock.advance(60)
    round_ = nvml.round()
    reading = reader.read(round_)
    assert round_.inquiry.failures == []
    assert reading.worst == {"effective": pytest.approx(3e-11), "symbol": pytest.approx(3e-11)}
    assert {link for link, _ in reading.by_link} == {str(link) for link in range(18)}
    assert [link for (link, kind), rate in reading.by_link.items() if kind == "effective" and rate] == ["14"]
    assert reading.symbol_errors is not None
    assert reading.symbol_errors >= 1e6
    assert len(reading.fec_blocks) == 16
    assert reading.fec_blocks["0"] > reading.fec_blocks["1"] > 0


def test_failed_recoveries_are_errors_of_their_own(bench: BenchMaker) -> None:
    nvml, reader = bench(GB200), NvlinkReader()
    nvml.clock.advance(60)
    errors = reader.read(nvml.round()).errors
    assert errors["recovery_failed"] >= 1
    assert errors["recovery"] > errors["recovery_failed"]
    assert "replay" not in errors


def test_links_of_an_earlier_generation_tell_nothing_and_are_asked_little(bench: BenchMaker) -> None:
    nvml, reader = bench("h100-8"), NvlinkQualityReader()
    for _ in range(3):
        round_ = nvml.round()
        assert list(nvlink_quality.NVLINK_QUALITY.render(reader.read(round_), GpuLabels("0", "GPU-0"))) == []
        assert round_.inquiry.failures == []
    assert nvml.calls("nvmlDeviceGetFieldValues") <= 4


def test_one_link_is_shown_with_its_kinds(bench: BenchMaker) -> None:
    nvml, reader = bench("h100-8"), NvlinkQualityReader()
    nvml.answer(
        "nvmlDeviceGetFieldValues",
        fields_say({91: (0, "uiVal", 1), 220: (0, "ullVal", 0x20C), 221: (0, "ullVal", 7), 250: (0, "ullVal", 2)}),
    )
    lines = shown(nvlink_quality.NVLINK_QUALITY.render(reader.read(nvml.round()), GpuLabels("0", "GPU-0")))
    gpu = 'gpu="0",uuid="GPU-0"'
    assert lines == [
        f'gpu_nvlink_bit_error_ratio{{{gpu},kind="effective"}} 2e-12',
        f"gpu_nvlink_symbol_errors_total{{{gpu}}} 7.0",
        f'gpu_nvlink_fec_blocks_total{{{gpu},bin="15"}} 2.0',
        f'gpu_nvlink_link_bit_error_ratio{{{gpu},link="0",kind="effective"}} 2e-12',
    ]
