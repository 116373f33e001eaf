"""Conditions over more than a minute: at their threshold, just below it, and when what they look at comes and goes."""

from collections.abc import Callable, Iterator

import pytest
from tests.fed import GPU, HOUR, MINUTE, WALL, Fed, Total, loaded
from tests.parts import some

from gpu_triage.judge.evidence.thresholds import EVENTS_REMEMBERED_SECONDS
from gpu_triage.read.gpu.ecc import GPU_ECC_VOLATILE_ERRORS_TOTAL
from gpu_triage.read.gpu.pcie import GPU_PCIE_AER_ERRORS_TOTAL, GPU_PCIE_REPLAYS_TOTAL
from gpu_triage.read.gpu.power import (
    GPU_POWER_DEFAULT_LIMIT_WATTS,
    GPU_POWER_LIMIT_WATTS,
    GPU_POWER_WATTS,
    GPU_TEMPERATURE_CELSIUS,
    GPU_TEMPERATURE_MARGIN_CELSIUS,
    GPU_TEMPERATURE_THRESHOLD_CELSIUS,
)
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.host.host_memory import GPU_HOST_EDAC_ERRORS_TOTAL
from gpu_triage.read.metrics.metric import MetricSpec, Sample
from gpu_triage.read.xid.xid_metrics import GPU_XID_ERRORS_TOTAL, GPU_XID_LAST_TIMESTAMP_SECONDS

Series = Callable[[float], Iterator["Sample"]]
STEPS = some([15.0, 60.0], usual=[60.0])
"""Seconds between two judgments."""

pytestmark = pytest.mark.slow


def throttled(reason: str, share: Callable[[float], float]) -> Series:
    """A GPU that is throttled for a share of each second."""
    seconds = Total(share)

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield GPU_THROTTLE_SECONDS_TOTAL.sample(seconds.at(at), *GPU, reason)

    return samples


def turns(on_seconds: float, off_seconds: float, most: float = 1.0) -> Callable[[float], float]:
    """What is there for so long, and then is not."""
    return lambda at: most if at % (on_seconds + off_seconds) < on_seconds else 0.0


@pytest.mark.parametrize("step", STEPS)
def test_heat_that_comes_and_goes_for_hours_is_one_confirmed_finding(step: float) -> None:
    fed = Fed(step)
    changes = fed.states("thermal.hw", 4.5 * HOUR, throttled("hw_thermal", turns(8 * MINUTE, 14 * MINUTE)))
    assert [state for _, state in changes] == ["pending", "confirmed"]
    assert changes[-1][0] <= 13 * MINUTE


@pytest.mark.parametrize("step", STEPS)
def test_heat_of_minutes_that_returns_at_once_is_one_confirmed_finding(step: float) -> None:
    fed = Fed(step)
    changes = fed.states("thermal.hw", 2 * HOUR, throttled("hw_thermal", turns(3 * MINUTE, 4 * MINUTE)))
    assert [state for _, state in changes] == ["pending", "confirmed"]


@pytest.mark.parametrize("step", STEPS)
def test_a_single_spell_of_heat_is_never_confirmed(step: float) -> None:
    fed = Fed(step)
    changes = fed.states("thermal.hw", HOUR, throttled("hw_thermal", lambda at: float(at < 4 * MINUTE)))
    assert {state for _, state in changes} == {"pending", "absent"}


@pytest.mark.parametrize(
    ("code", "reason", "below", "above"),
    [
        ("thermal.hw", "hw_thermal", 0.09, 0.11),
        ("thermal.sw", "sw_thermal", 0.24, 0.26),
        ("power.brake", "hw_power_brake", 0.04, 0.06),
        ("power.hw_slowdown", "hw_slowdown", 0.04, 0.06),
    ],
)
def test_throttling_is_found_above_its_share(code: str, reason: str, below: float, above: float) -> None:
    quiet, found = Fed(60.0), Fed(60.0)
    assert quiet.states(code, HOUR, throttled(reason, lambda _: below)) == []
    assert [state for _, state in found.states(code, HOUR, throttled(reason, lambda _: above))][-1] == "confirmed"
    assert found.finding(code).value == pytest.approx(above, abs=0.01)


def test_peaks_of_the_power_brake_for_hours_are_one_confirmed_finding() -> None:
    fed = Fed()
    changes = fed.states("power.brake", 1.5 * HOUR, throttled("hw_power_brake", turns(30.0, 6.5 * MINUTE)))
    assert [state for _, state in changes].count("confirmed") == 1
    assert changes[-1][1] == "confirmed"
    assert changes[-1][0] <= 20 * MINUTE


@pytest.mark.parametrize("step", STEPS)
def test_one_pull_of_the_power_brake_is_never_confirmed(step: float) -> None:
    fed = Fed(step)
    changes = fed.states("power.brake", HOUR, throttled("hw_power_brake", lambda at: float(at < MINUTE)))
    assert {state for _, state in changes} == {"pending", "absent"}


@pytest.mark.parametrize("step", some([5.0, 15.0], usual=[15.0]))
def test_a_job_that_pauses_for_a_checkpoint_does_not_restart_the_wait(step: float) -> None:
    """Hot for five minutes, at rest for four: its wait of ten minutes under load takes about eighteen."""
    work = turns(5 * MINUTE, 4 * MINUTE)
    hot, busy = Total(work), Total(work)

    def samples(at: float) -> Iterator[Sample]:
        utilization = work(at)
        yield from loaded(busy.at(at), p_state=0 if utilization else 8)
        yield GPU_THROTTLE_SECONDS_TOTAL.sample(hot.at(at), *GPU, "hw_thermal")

    fed = Fed(step)
    changes = fed.states("thermal.hw", HOUR, samples)
    assert [state for _, state in changes] == ["pending", "confirmed"]
    assert changes[-1][0] <= 25 * MINUTE


def counting(spec: MetricSpec, rate: Callable[[float], float], *labels: str) -> Series:
    """A loaded GPU, and a counter that grows in whole steps."""
    total = Total(rate)

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield spec.sample(float(int(total.at(at) + 1e-6)), *labels)

    return samples


def burst(count: float, at: float = 10 * MINUTE) -> Callable[[float], float]:
    return lambda second: count if at <= second < at + 1 else 0.0


RISING = [
    ("pcie.replays", GPU_PCIE_REPLAYS_TOTAL, GPU, 30),
    ("pcie.aer", GPU_PCIE_AER_ERRORS_TOTAL, (*GPU, "gpu", "correctable"), 100),
]


@pytest.mark.parametrize(("code", "spec", "labels", "most"), RISING, ids=[row[0] for row in RISING])
@pytest.mark.parametrize("step", STEPS)
def test_errors_of_a_link_rise_above_their_number_in_a_quarter_of_an_hour(
    code: str, spec: MetricSpec, labels: tuple[str, ...], most: int, step: float
) -> None:
    few, many = Fed(step), Fed(step)
    few.run(HOUR, counting(spec, lambda _: 0.95 * most / 900, *labels))
    assert few.state(code) == "absent"
    many.run(HOUR, counting(spec, lambda _: 1.1 * most / 900, *labels))
    assert many.state(code) == "confirmed"
    assert many.finding(code).value == pytest.approx(1.1 * most * EVENTS_REMEMBERED_SECONDS / 900, abs=2)


@pytest.mark.parametrize(("code", "spec", "labels", "most"), RISING, ids=[row[0] for row in RISING])
@pytest.mark.parametrize("step", STEPS)
def test_one_burst_of_errors_is_never_confirmed(
    code: str, spec: MetricSpec, labels: tuple[str, ...], most: int, step: float
) -> None:
    fed = Fed(step)
    changes = fed.states(code, HOUR, counting(spec, burst(5.0 * most), *labels))
    assert [state for _, state in changes] == ["pending", "absent"]


def test_one_error_that_a_link_could_not_correct_is_confirmed() -> None:
    fed = Fed()
    changes = fed.states(
        "pcie.aer", 2 * HOUR, counting(GPU_PCIE_AER_ERRORS_TOTAL, burst(1.0), *GPU, "port", "nonfatal")
    )
    assert [state for _, state in changes] == ["pending", "confirmed", "ended", "absent"]


@pytest.mark.parametrize(
    ("code", "spec", "labels"),
    [
        ("ecc.corrected_rising", GPU_ECC_VOLATILE_ERRORS_TOTAL, (*GPU, "corrected")),
        ("host.memory_errors_rising", GPU_HOST_EDAC_ERRORS_TOTAL, ("mc0", "corrected")),
    ],
)
def test_corrected_errors_are_counted_over_a_day(code: str, spec: MetricSpec, labels: tuple[str, ...]) -> None:
    few, many = Fed(600.0), Fed(600.0)
    few.run(30 * HOUR, counting(spec, lambda _: 99 / 86_400, *labels))
    assert few.state(code) == "absent"
    many.run(30 * HOUR, counting(spec, lambda _: 103 / 86_400, *labels))
    assert many.state(code) == "confirmed"
    assert 100 < (many.finding(code).value or 0.0) <= 104


def test_a_process_that_just_started_cannot_say_that_a_day_of_errors_is_over() -> None:
    fed = Fed(60.0)
    series = counting(GPU_ECC_VOLATILE_ERRORS_TOTAL, burst(200.0), *GPU, "corrected")
    fed.run(3 * HOUR, series)
    assert fed.state("ecc.corrected_rising") == "confirmed"
    assert fed.finding("ecc.corrected_rising").measured.startswith("200 corrected errors in ")


def margin(celsius: Callable[[float], float]) -> Series:
    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield GPU_TEMPERATURE_MARGIN_CELSIUS.sample(celsius(at), *GPU)
        yield GPU_TEMPERATURE_CELSIUS.sample(90.0 - celsius(at), *GPU, "gpu")

    return samples


def test_one_hot_sample_in_five_minutes_is_not_near_slowdown() -> None:
    fed = Fed()
    changes = fed.states("thermal.margin", HOUR, margin(lambda at: 3.0 if at % 300 == 285 else 20.0))
    assert changes == []


@pytest.mark.parametrize(("hot_seconds", "state"), [(180, "confirmed"), (120, "absent")])
def test_near_slowdown_for_half_of_the_time_is_a_ticket(hot_seconds: int, state: str) -> None:
    fed = Fed()
    fed.run(HOUR, margin(lambda at: 4.9 if at % 300 < hot_seconds else 20.0))
    assert fed.state("thermal.margin") == state


def test_a_gpu_that_warms_up_after_each_pause_of_its_job_is_near_slowdown() -> None:
    """Eight minutes hot, at rest for two, and nearly three until it is as hot again."""
    work = turns(11 * MINUTE, 2 * MINUTE)
    busy, fed = Total(work), Fed()

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(busy.at(at), p_state=0 if work(at) else 8)
        celsius = 4.0 if 160 <= at % (13 * MINUTE) < 11 * MINUTE else 20.0
        yield GPU_TEMPERATURE_MARGIN_CELSIUS.sample(celsius, *GPU)
        yield GPU_TEMPERATURE_CELSIUS.sample(90.0 - celsius, *GPU, "gpu")

    changes = fed.states("thermal.margin", HOUR, samples)
    assert [state for _, state in changes] == ["pending", "confirmed"]


@pytest.mark.parametrize(("celsius", "state"), [(91.0, "absent"), (93.0, "absent"), (94.0, "confirmed")])
def test_memory_may_run_close_to_its_highest_temperature(celsius: float, state: str) -> None:
    fed = Fed(60.0)

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield GPU_TEMPERATURE_CELSIUS.sample(celsius, *GPU, "memory")
        yield GPU_TEMPERATURE_THRESHOLD_CELSIUS.sample(95.0, *GPU, "memory_max")

    fed.run(HOUR, samples)
    assert fed.state("thermal.margin") == state


@pytest.mark.parametrize(("share", "code"), [(0.89, "power.limit"), (0.92, "power.cap")])
def test_a_lowered_power_limit_holds_a_gpu_back_above_its_share(share: float, code: str) -> None:
    fed, capped = Fed(60.0), Total(lambda _: share)

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield GPU_POWER_WATTS.sample(198.0, *GPU)
        yield GPU_POWER_LIMIT_WATTS.sample(200.0, *GPU)
        yield GPU_POWER_DEFAULT_LIMIT_WATTS.sample(400.0, *GPU)
        yield GPU_THROTTLE_SECONDS_TOTAL.sample(capped.at(at), *GPU, "sw_power_cap")

    fed.run(1.5 * HOUR, samples)
    assert fed.codes() == {code}
    assert fed.state(code) == "confirmed"


@pytest.mark.parametrize(("apart", "found"), [(120.0, {"xid.31", "xid.13"}), (300.0, set())])
def test_xids_of_programs_are_found_above_three_in_ten_minutes(apart: float, found: set[str]) -> None:
    """Of two codes by turns, one every two or five minutes."""
    fed = Fed(30.0)

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        number = int((at - HOUR) / apart) + 1 if at >= HOUR else 0
        for place, xid in enumerate(("31", "13")):
            count = (number + 1 - place) // 2
            last = HOUR + (2 * count - 2 + place) * apart if count else 0.0
            yield GPU_XID_ERRORS_TOTAL.sample(5 + count, *GPU, xid, "")
            yield GPU_XID_LAST_TIMESTAMP_SECONDS.sample(WALL + last, *GPU, xid, "")

    fed.run(2 * HOUR, samples)
    assert fed.codes() == found
