"""Which of several busy GPUs is a straggler: one that is below the median of them, however many there are."""

from collections.abc import Iterator

import pytest
from tests.evidence import evidence_of
from tests.fed import MINUTE, Fed, Total, loaded

from gpu_triage.judge.conditions.clocks import judge_clocks, judge_stragglers
from gpu_triage.judge.host_judge import HostJudge
from gpu_triage.judge.report.report import JudgedHost, Report
from gpu_triage.read.gpu import activity, identity, power, presence, throttle
from gpu_triage.read.metrics.metric import Sample

MODEL = ("NVIDIA H100 80GB HBM3", "", "", "", "hopper", "9.0", "", "")


def busy_at(clocks_mhz: tuple[int, ...]) -> Iterator[Sample]:
    """Fully busy GPUs of one model, at these SM clocks."""
    gpus = [(str(index), f"GPU-{index}") for index in range(len(clocks_mhz))]
    yield from (presence.GPU_UP.sample(1, *gpu) for gpu in gpus)
    yield from (identity.GPU_INFO.sample(1, *gpu, *MODEL) for gpu in gpus)
    yield from (activity.GPU_SM_UTILIZATION_RATIO.sample(1.0, *gpu) for gpu in gpus)
    yield from (power.GPU_CLOCK_HERTZ.sample(mhz * 1e6, *gpu, "sm") for gpu, mhz in zip(gpus, clocks_mhz, strict=True))


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


@pytest.mark.parametrize(
    ("celsius", "busy", "names", "hot"),
    [
        pytest.param((79, 36, 36, 37), (0, 0, 0, 0), "XXXX", ["0"], id="79 °C at 59 W"),
        pytest.param((66, 36, 36), (0, 0, 0), "XXX", ["0"], id="by the threshold"),
        pytest.param((65, 36, 36), (0, 0, 0), "XXX", [], id="by less"),
        pytest.param((79, 36), (0, 0), "XX", [], id="one sibling tells nothing"),
        pytest.param((79, 36, 36), (0, 0, 1), "XXX", [], id="one of the two works"),
        pytest.param((79, 36, 36), (0.01, 0, 0), "XXX", [], id="it works itself"),
        pytest.param((79, 36, 36), (0, 0, 0), "XXY", [], id="one is of another model"),
    ],
)
def test_an_idle_gpu_is_hot_if_its_idle_siblings_are_cool(
    celsius: tuple[int, ...], busy: tuple[float, ...], names: str, hot: list[str]
) -> None:
    samples: list[Sample] = []
    for index, (heat, share, name) in enumerate(zip(celsius, busy, names, strict=True)):
        gpu = (str(index), f"GPU-{index}")
        samples += (presence.GPU_UP.sample(1, *gpu), identity.GPU_INFO.sample(1, *gpu, name, *MODEL[1:]))
        samples += (activity.GPU_SM_UTILIZATION_RATIO.sample(share, *gpu),)
        samples.append(power.GPU_TEMPERATURE_CELSIUS.sample(heat, *gpu, "gpu"))
    assert [each.gpu for each in judge_clocks(evidence_of((0.0, samples)))] == hot


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
            yield activity.GPU_BUSY_SECONDS_TOTAL.sample(worked_seconds if index in paused else at, *gpu)
            yield identity.GPU_INFO.sample(1, *gpu, *MODEL)
            yield power.GPU_CLOCK_HERTZ.sample(345e6 if rests else 1450e6 if index == 0 else 1770e6, *gpu, "sm")

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
        yield identity.GPU_INFO.sample(1, *gpu, *MODEL)
        yield power.GPU_CLOCK_HERTZ.sample(own.get("clock", 1980e6), *gpu, "sm")
        yield power.GPU_POWER_WATTS.sample(own.get("power", 600.0), *gpu)
        yield throttle.GPU_THROTTLE_SECONDS_TOTAL.sample(own.get("held", 0.0), *gpu, "applications_clocks")
        yield throttle.GPU_THROTTLE_SECONDS_TOTAL.sample(own.get("hot", 0.0), *gpu, "hw_thermal")
        yield throttle.GPU_THROTTLE_SECONDS_TOTAL.sample(own.get("capped", 0.0), *gpu, "sw_power_cap")
        yield power.GPU_POWER_LIMIT_WATTS.sample(own.get("limit", 700.0), *gpu)
        yield power.GPU_POWER_DEFAULT_LIMIT_WATTS.sample(700.0, *gpu)
        if "target" in own:
            yield power.GPU_CLOCK_TARGET_HERTZ.sample(own["target"], *gpu, "sm")
            yield power.GPU_CLOCK_DEFAULT_HERTZ.sample(1980e6, *gpu, "sm")


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


GPU = ("0", "GPU-0")
REASON = "hw_power_brake"
CODE = "power.brake"


def sample(*, is_active: bool, counted: float | None, clock: float = 345e6) -> Iterator[Sample]:
    yield presence.GPU_UP.sample(1, *GPU)
    yield activity.GPU_SM_UTILIZATION_RATIO.sample(1.0, *GPU)
    yield power.GPU_CLOCK_HERTZ.sample(clock, *GPU, "sm")
    yield power.GPU_CLOCK_MAX_HERTZ.sample(1410e6, *GPU, "sm")
    yield throttle.GPU_THROTTLE_ACTIVE.sample(is_active, *GPU, REASON)
    if counted is not None:
        yield throttle.GPU_THROTTLE_SECONDS_TOTAL.sample(counted, *GPU, REASON)


def judged(*rounds: tuple[float, Iterator[Sample]]) -> Report:
    return HostJudge(JudgedHost("host")).judge(evidence_of(*rounds)).report


def found(report: Report) -> list[tuple[str, str]]:
    return [(each.check.code, each.measured) for each in report.findings]


@pytest.mark.parametrize("counted", [None, 7.0])
def test_a_bit_that_was_read_once_is_a_warning_until_its_counter_is_read_again(counted: float | None) -> None:
    report = judged((0.0, sample(is_active=True, counted=counted)))
    assert found(report) == [(CODE, f"{REASON} at that moment, SM clock 345 of 1410 MHz")]
    assert report.gpus[0].bottleneck.name == "power_brake"


def test_a_counter_that_stands_still_hides_no_slowdown() -> None:
    report = judged(*((at, sample(is_active=True, counted=0.0)) for at in range(0, 65, 5)))
    assert found(report) == [(CODE, f"{REASON} for at least 60 s, SM clock 345 of 1410 MHz")]


def test_a_counter_that_moves_is_believed() -> None:
    report = judged(*((at, sample(is_active=True, counted=float(at))) for at in range(0, 65, 5)))
    assert found(report) == [(CODE, f"{REASON} 100% of the time")]


def test_a_flash_that_its_counter_has_not_shown_yet_is_quiet() -> None:
    before = [(float(at), sample(is_active=False, counted=0.0)) for at in range(0, 60, 5)]
    assert found(judged(*before, (60.0, sample(is_active=True, counted=0.0)))) == []


def test_a_slowdown_that_leaves_the_clock_near_its_highest_is_quiet() -> None:
    assert found(judged((0.0, sample(is_active=True, counted=None, clock=1130e6)))) == []
    assert found(judged((0.0, sample(is_active=True, counted=None, clock=1127e6)))) != []
