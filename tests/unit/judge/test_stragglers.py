"""Which of several busy GPUs is a straggler: one that is below the median of them, however many there are."""

from collections.abc import Iterator

import pytest
from tests.evidence import evidence_of
from tests.fed import MINUTE, Fed, Total, loaded

from gpu_triage.judge.conditions.clocks import judge_clocks, judge_stragglers
from gpu_triage.read.gpu.activity import GPU_BUSY_SECONDS_TOTAL, GPU_SM_UTILIZATION_RATIO
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.power import (
    GPU_CLOCK_DEFAULT_HERTZ,
    GPU_CLOCK_HERTZ,
    GPU_CLOCK_TARGET_HERTZ,
    GPU_POWER_DEFAULT_LIMIT_WATTS,
    GPU_POWER_LIMIT_WATTS,
    GPU_POWER_WATTS,
)
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL
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

    fed.run(17 * MINUTE, samples)
    assert fed.state("clock.straggler") == "pending"
    fed.run(20 * MINUTE, samples)
    assert fed.state("clock.straggler") == "confirmed"


def peers(at: float, **first: float) -> Iterator[Sample]:
    """Four busy GPUs of one model, of which the first differs: its clock, its power, and what holds its clocks."""
    for index in range(4):
        gpu = (str(index), f"GPU-{index}")
        own = first if index == 0 else {}
        yield from loaded(at, gpu=gpu)
        yield GPU_INFO.sample(1, *gpu, *MODEL)
        yield GPU_CLOCK_HERTZ.sample(own.get("clock", 1980e6), *gpu, "sm")
        yield GPU_POWER_WATTS.sample(own.get("power", 600.0), *gpu)
        yield GPU_THROTTLE_SECONDS_TOTAL.sample(own.get("held", 0.0), *gpu, "applications_clocks")
        yield GPU_THROTTLE_SECONDS_TOTAL.sample(own.get("hot", 0.0), *gpu, "hw_thermal")
        yield GPU_THROTTLE_SECONDS_TOTAL.sample(own.get("capped", 0.0), *gpu, "sw_power_cap")
        yield GPU_POWER_LIMIT_WATTS.sample(own.get("limit", 700.0), *gpu)
        yield GPU_POWER_DEFAULT_LIMIT_WATTS.sample(700.0, *gpu)
        if "target" in own:
            yield GPU_CLOCK_TARGET_HERTZ.sample(own["target"], *gpu, "sm")
            yield GPU_CLOCK_DEFAULT_HERTZ.sample(1980e6, *gpu, "sm")


@pytest.mark.parametrize(
    ("first", "codes"),
    [
        pytest.param({"clock": 1700e6}, ["clock.straggler"], id="slower"),
        pytest.param({"clock": 1800e6}, [], id="less than a tenth slower"),
        pytest.param({"clock": 1700e6, "held": 31.0}, ["clock.policy"], id="locked"),
        pytest.param({"clock": 1700e6, "held": 29.0}, ["clock.straggler"], id="locked for less than half of the time"),
        pytest.param({"clock": 1700e6, "target": 1700e6}, ["clock.policy"], id="its setting is told as that"),
        pytest.param({"clock": 1700e6, "power": 350.0}, [], id="lighter work"),
        pytest.param({"clock": 1700e6, "power": 370.0}, ["clock.straggler"], id="work that is not much lighter"),
        pytest.param({"clock": 1700e6, "power": 700.0, "capped": 55.0}, [], id="harder work, at the default limit"),
        pytest.param({"clock": 1700e6, "power": 700.0, "capped": 3.0}, ["clock.straggler"], id="rarely at its limit"),
        pytest.param(
            {"clock": 1700e6, "power": 500.0, "capped": 55.0, "limit": 500.0}, ["clock.straggler"], id="lowered limit"
        ),
        pytest.param({"clock": 1700e6, "power": 350.0, "hot": 6.0}, ["clock.straggler"], id="little power, for heat"),
    ],
)
def test_a_gpu_is_no_straggler_by_its_setting_or_its_work(first: dict[str, float], codes: list[str]) -> None:
    before = {**first, "held": 0.0, "hot": 0.0, "capped": 0.0}
    host = evidence_of(*((at, tuple(peers(at, **own))) for at, own in ((0.0, before), (60.0, first))))
    about_clocks = [each.check.code for each in judge_clocks(host) if each.check.code.startswith("clock.")]
    assert about_clocks == codes
