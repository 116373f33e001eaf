"""Which of several busy GPUs is a straggler: one that is below the median of them, however many there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.evidence import evidence_of
from tests.fed import MINUTE, Fed, Total, loaded

from gpu_triage.judge.conditions.clocks import judge_stragglers
from gpu_triage.read.gpu.activity import GPU_BUSY_SECONDS_TOTAL, GPU_SM_UTILIZATION_RATIO
from gpu_triage.read.gpu.clocks_and_limits import GPU_CLOCK_HERTZ
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.metrics.metric import Sample

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
    found = list(judge_stragglers(host))
    assert [each.gpu for each in found] == stragglers
    assert all(f"median {median_mhz} MHz" in each.measured for each in found)


@pytest.mark.slow
@pytest.mark.parametrize("paused", [range(1), range(3)], ids=["the straggler", "all GPUs"])
def test_the_pauses_of_a_job_do_not_restart_the_wait(paused: range) -> None:
    """Of two minutes every ten, as for a checkpoint: at rest a clock cannot be compared."""
    fed, cycle, working = Fed(), 10 * MINUTE, 8 * MINUTE
    work = Total(lambda at: float(at % cycle < working))

    def samples(at: float) -> Iterator[Sample]:
        worked_seconds = work.at(at)
        for index in range(3):
            gpu, rests = (str(index), f"GPU-{index}"), index in paused and at % cycle >= working
            yield from (each for each in loaded(at, float(not rests), gpu) if "busy" not in each.spec.name)
            yield GPU_BUSY_SECONDS_TOTAL.sample(worked_seconds if index in paused else at, *gpu)
            yield GPU_INFO.sample(1, *gpu, *MODEL)
            yield GPU_CLOCK_HERTZ.sample(345e6 if rests else 1450e6 if index == 0 else 1770e6, *gpu, "sm")

    fed.run(18 * MINUTE, samples)
    assert fed.state("clock.straggler") == "pending"
    fed.run(20 * MINUTE, samples)
    assert fed.state("clock.straggler") == "confirmed"
