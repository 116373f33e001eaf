"""Which of several busy GPUs is a straggler: one that is below the median of them, however many there are.

Several GPUs of a host that are lost are one finding about the host.
"""

from collections.abc import Iterable, Iterator, Mapping

import pytest
from tests.evidence import evidence_of, report_of
from tests.fed import MINUTE, Fed, Total, loaded
from tests.working_gpus import Card, judged

from gpu_triage.judge.conditions.clocks import judge_clocks
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.report.report import Report
from gpu_triage.read.gpu import activity, identity, power, presence, throttle
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.xid.xid_metrics import GPU_XID_LAST_TIMESTAMP_SECONDS, GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS
from gpu_triage.sampler.driver import STALLED
from gpu_triage.sampler.host_gpus import BLOCKED_BEHIND, DRIVER_UNAVAILABLE

MODEL = ("NVIDIA H100 80GB HBM3", "", "", "", "hopper", "9.0", "", "")


def about_clocks(*cards: Card) -> list[Finding]:
    return [each for each in judged(*cards).findings if each.check.code.startswith("clock.")]


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
    found = about_clocks(*(Card(mhz=each) for each in clocks_mhz))
    assert [each.gpu for each in found] == stragglers
    assert all(f"median {median_mhz} MHz" in each.measured for each in found)


def test_a_clock_that_reads_0_is_a_straggler_that_has_lost_all_of_its_pace() -> None:
    (straggler,) = about_clocks(Card(mhz=0), *[Card()] * 2)
    assert (straggler.gpu, straggler.value, straggler.loss) == ("0", 0.0, 1.0)


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


SLOW = Card(mhz=1800.0)
LOWERED = Card(1800.0, {"sw_power_cap": 0.9}, 210.0, more={power.GPU_POWER_LIMIT_WATTS: 212.0})


@pytest.mark.parametrize(
    ("first", "codes"),
    [
        pytest.param(SLOW, ["clock.straggler"], id="slower"),
        pytest.param(Card(mhz=1900.0), [], id="less than a tenth slower"),
        pytest.param(SLOW._replace(held={"applications_clocks": 0.52}), ["clock.policy"], id="locked"),
        pytest.param(SLOW._replace(held={"applications_clocks": 0.48}), ["clock.straggler"], id="locked for less"),
        pytest.param(SLOW._replace(watts=148.0), [], id="lighter work"),
        pytest.param(SLOW._replace(watts=152.0), ["clock.straggler"], id="work that is not much lighter"),
        pytest.param(SLOW._replace(watts=148.0, held={"hw_thermal": 0.1}), ["clock.straggler"], id="little, for heat"),
        pytest.param(SLOW._replace(watts=300.0, held={"sw_power_cap": 0.9}), [], id="harder work, at its limit"),
        pytest.param(SLOW._replace(watts=300.0, held={"sw_power_cap": 0.05}), ["clock.straggler"], id="rarely at it"),
        pytest.param(LOWERED, ["clock.straggler"], id="at a lowered limit"),
    ],
)
def test_a_gpu_is_no_straggler_by_its_setting_or_its_work(first: Card, codes: list[str]) -> None:
    assert [each.check.code for each in about_clocks(first, *[Card()] * 3)] == codes


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


def found(report: Report) -> list[tuple[str, str]]:
    return [(each.check.code, each.measured) for each in report.findings]


@pytest.mark.parametrize("counted", [None, 7.0])
def test_a_bit_that_was_read_once_is_a_warning_until_its_counter_is_read_again(counted: float | None) -> None:
    report = report_of((0.0, sample(is_active=True, counted=counted)))
    assert found(report) == [(CODE, f"{REASON} at that moment, SM clock 345 of 1410 MHz")]
    assert report.gpus[0].bottleneck.name == "power_brake"


def test_a_counter_that_moves_is_believed_and_one_that_stands_still_hides_no_slowdown() -> None:
    moves, stands = (
        report_of(*((at, sample(is_active=True, counted=rate * at)) for at in range(0, 65, 5))) for rate in (1.0, 0.0)
    )
    assert found(moves) == [(CODE, f"{REASON} 100% of the time")]
    assert found(stands) == [(CODE, f"{REASON} for at least 60 s, SM clock 345 of 1410 MHz")]


def test_a_flash_that_its_counter_has_not_shown_yet_is_quiet() -> None:
    before = [(float(at), sample(is_active=False, counted=0.0)) for at in range(0, 60, 5)]
    assert found(report_of(*before, (60.0, sample(is_active=True, counted=0.0)))) == []


def test_a_slowdown_that_leaves_the_clock_near_its_highest_is_quiet() -> None:
    for clock, codes in ((1130e6, []), (1127e6, [CODE])):
        report = report_of((0.0, sample(is_active=True, counted=None, clock=clock)))
        assert [code for code, _ in found(report)] == codes


NOW = 1_700_000_000.0
UP, FELL = "", "fell off the bus"


def slot(number: int) -> str:
    return f"0000:{number}1:00.0"


def host(*gpus: tuple[str, ...], driver: str = "") -> Iterator[Sample]:
    """GPUs, each with why it does not answer ("" if it does) and perhaps FELL, and the driver's error."""
    if driver:
        yield presence.GPU_DRIVER_ERROR_INFO.sample(1.0, driver)
    for number, (error, *logged) in enumerate(gpus):
        gpu = (str(number), f"GPU-{number}")
        yield identity.GPU_INFO.sample(1.0, *gpu, "", slot(number), *[""] * 6)
        yield presence.GPU_UP.sample(float(not error), *gpu)
        if error:
            yield presence.GPU_ERROR_INFO.sample(1.0, *gpu, error)
        if logged:
            yield GPU_XID_LAST_TIMESTAMP_SECONDS.sample(NOW - 60.0, *gpu, "79", "")


GONE = (DRIVER_UNAVAILABLE,)
CASES: Mapping[str, tuple[tuple[tuple[str, ...], ...], str, list[int]]] = {
    "one": ((("lost", FELL), (UP,), (UP,)), "", []),
    "two of three": ((("lost", FELL), ("lost",), (UP,)), "", [2]),
    "all, each in its way": ((("lost",), ("reset_required",), ("lost", FELL)), "", [3]),
    "one hangs and blocks the others": (((STALLED,), (BLOCKED_BEHIND,), (BLOCKED_BEHIND,)), "", []),
    "the log names one that is blocked": (((STALLED, FELL), (BLOCKED_BEHIND, FELL), (BLOCKED_BEHIND,)), "", [2]),
    "they may not be opened": ((("no_permission",), ("no_permission",)), "", []),
    "they went to virtual machines": ((("missing",), ("missing",)), "", []),
    "they answer again": (((UP, FELL), (UP, FELL)), "", []),
    "they took the driver with them": (((*GONE, FELL), (*GONE, FELL)), "unknown", [2]),
    "only the driver is gone": ((GONE, GONE), "unknown", []),
}


def counted(samples: Iterable[Sample]) -> list[float | None]:
    found = report_of((0.0, samples), wall=NOW).findings
    return [each.value for each in found if each.check.code == "gpu.board_lost"]


@pytest.mark.parametrize(("gpus", "driver", "lost"), CASES.values(), ids=CASES)
def test_two_lost_gpus_or_more_are_counted(gpus: tuple[tuple[str, ...], ...], driver: str, lost: list[int]) -> None:
    assert counted(host(*gpus, driver=driver)) == lost


def test_a_slot_that_the_kernel_log_names_is_the_gpu_in_it() -> None:
    """One that was lost before the exporter started is known by its address alone."""
    fallen = (GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS.sample(NOW, slot(number), "79", "") for number in (0, 7))
    assert counted((*host(("lost",), (UP,)), *fallen)) == [2]
