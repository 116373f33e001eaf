"""Which of several busy GPUs is a straggler: one that is below the median of them, however many there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.evidence import evidence_of

from gpu_triage.diagnosis.judges.clocks import judge_clocks
from gpu_triage.gpu.activity import GPU_SM_UTILIZATION_RATIO
from gpu_triage.gpu.clocks import GPU_CLOCK_HERTZ
from gpu_triage.gpu.identity import GPU_INFO
from gpu_triage.gpu.presence import GPU_UP
from gpu_triage.subjects.metric import Sample

MODEL = ("NVIDIA H100 80GB HBM3", "", "", "", "hopper", "9.0", "", "")


def busy_at(clocks_mhz: tuple[int, ...]) -> Iterator[Sample]:
    """Fully busy GPUs of one model, at these SM clocks."""
    gpus = [(str(index), f"GPU-{index}") for index in range(len(clocks_mhz))]
    yield from (GPU_UP.sample(1, *gpu) for gpu in gpus)
    yield from (GPU_INFO.sample(1, *gpu, *MODEL) for gpu in gpus)
    yield from (GPU_SM_UTILIZATION_RATIO.sample(1.0, *gpu) for gpu in gpus)
    yield from (GPU_CLOCK_HERTZ.sample(mhz * 1e6, *gpu, "sm") for gpu, mhz in zip(gpus, clocks_mhz, strict=True))


@pytest.mark.parametrize(
    ("clocks_mhz", "median_mhz", "stragglers"),
    [
        pytest.param((1600, 1750, 1950, 1950), 1850, ["0"], id="four: between the two in the middle"),
        pytest.param((1600, 1850, 1950), 1850, ["0"], id="three: the one in the middle"),
        pytest.param((1750, 1750, 1750, 1950), 1750, [], id="three of four are as slow"),
        pytest.param((1600, 1950), 0, [], id="two tell nothing of each other"),
    ],
)
def test_a_straggler_is_slower_than_the_median_of_the_busy_gpus(
    clocks_mhz: tuple[int, ...], median_mhz: int, stragglers: list[str]
) -> None:
    host = evidence_of((0.0, tuple(busy_at(clocks_mhz))))
    found = [each for each in judge_clocks(host, {}) if each.check.code == "clock.straggler"]
    assert [each.gpu for each in found] == stragglers
    assert all(f"median {median_mhz} MHz" in each.measured for each in found)
