"""Conditions over more than a minute: at their threshold, just below it, and when what they look at comes and goes.

What costs a job much is told soon: minutes from when it became slower until its finding is confirmed.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pytest
from tests.evidence import evidence_of
from tests.fed import GPU, HOUR, MINUTE, WALL, Fed, Total, after, loaded
from tests.parts import some

from gpu_triage.judge.bottleneck.classes import Bottleneck
from gpu_triage.judge.conditions.work import judge_work
from gpu_triage.judge.evidence.observed import observable
from gpu_triage.judge.evidence.thresholds import EVENTS_REMEMBERED_SECONDS, XID_DAMAGE_SECONDS, XID_OPEN_SECONDS
from gpu_triage.judge.findings.finding import of_gpu, of_host
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.exporter import exporter_health
from gpu_triage.read.gpu import device_memory, ecc, fabric, pcie, power, presence, throttle
from gpu_triage.read.host import host_memory, kernel_log, services
from gpu_triage.read.host import network_interfaces as network
from gpu_triage.read.host.cpu import GPU_HOST_PRESSURE_SECONDS_TOTAL
from gpu_triage.read.incidents import incident_metrics
from gpu_triage.read.metrics.metric import MetricSpec, Sample
from gpu_triage.read.processes import cgroup_limits
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESSES
from gpu_triage.read.xid import xid_metrics

Series = Callable[[float], Iterator["Sample"]]
STEPS = some([15.0, 60.0], usual=[60.0])
"""Seconds between two judgments."""

pytestmark = pytest.mark.slow


def throttled(reason: str, share: Callable[[float], float]) -> Series:
    """A GPU that is throttled for a share of each second."""
    seconds = Total(share)

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield throttle.GPU_THROTTLE_SECONDS_TOTAL.sample(seconds.at(at), *GPU, reason)

    return samples


def turns(on_seconds: float, off_seconds: float, most: float = 1.0) -> Callable[[float], float]:
    """What is there for so long, and then is not."""
    return lambda at: most if at % (on_seconds + off_seconds) < on_seconds else 0.0


OF_REASON = {"hw_thermal": "thermal.hw", "sw_thermal": "thermal.sw", "hw_power_brake": "power.brake"}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("reason", "hot_minutes", "minutes", "latest"),
    [
        *[("hw_thermal", 8, 22, 26), ("hw_thermal", 3, 7, 18), ("hw_thermal", 4, 10, 22), ("hw_thermal", 0.5, 3, 20)],
        *[("sw_thermal", 4, 10, 90), ("sw_thermal", 16, 40, 80), ("hw_power_brake", 0.625, 7, 20)],
    ],
)
def test_heat_or_a_brake_that_comes_and_goes_for_hours_is_one_confirmed_finding(
    step: float, reason: str, hot_minutes: float, minutes: float, latest: float
) -> None:
    hot = turns(hot_minutes * MINUTE, (minutes - hot_minutes) * MINUTE, 0.8)
    changes = Fed(step).states(OF_REASON[reason], 4.5 * HOUR, throttled(reason, hot))
    assert [state for _, state in changes].count("confirmed") == 1
    assert (changes[-1][1], changes[-1][0] <= latest * MINUTE) == ("confirmed", True), changes


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("reason", "hot_seconds", "minutes"),
    [("hw_thermal", 60, 10), ("hw_thermal", 10, 3), ("hw_thermal", 60, 40), ("sw_thermal", 240, 45)],
)
def test_a_little_heat_now_and_then_is_never_confirmed(
    step: float, reason: str, hot_seconds: float, minutes: float
) -> None:
    hot = turns(hot_seconds, minutes * MINUTE - hot_seconds, 0.8)
    changes = Fed(step).states(OF_REASON[reason], 4.5 * HOUR, throttled(reason, hot))
    assert {state for _, state in changes} == {"pending", "absent"}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("reason", "minutes"), [("hw_thermal", 4), ("hw_power_brake", 1)])
def test_a_single_spell_is_never_confirmed(step: float, reason: str, minutes: int) -> None:
    changes = Fed(step).states(OF_REASON[reason], HOUR, throttled(reason, lambda at: float(at < minutes * MINUTE)))
    assert {state for _, state in changes} == {"pending", "absent"}


@pytest.mark.parametrize("step", some([5.0, 15.0], usual=[15.0]))
def test_a_job_that_pauses_for_a_checkpoint_does_not_restart_the_wait(step: float) -> None:
    """Hot for five minutes, at rest for four: its wait of ten minutes under load takes about eighteen."""
    work = turns(5 * MINUTE, 4 * MINUTE)
    hot, busy = Total(work), Total(work)

    def samples(at: float) -> Iterator[Sample]:
        utilization = work(at)
        yield from loaded(busy.at(at), p_state=0 if utilization else 8)
        yield throttle.GPU_THROTTLE_SECONDS_TOTAL.sample(hot.at(at), *GPU, "hw_thermal")

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
    ("pcie.replays", pcie.GPU_PCIE_REPLAYS_TOTAL, GPU, 30),
    ("pcie.aer", pcie.GPU_PCIE_AER_ERRORS_TOTAL, (*GPU, "gpu", "correctable"), 100),
]


@pytest.mark.parametrize(("code", "spec", "labels", "most"), RISING, ids=[row[0] for row in RISING])
@pytest.mark.parametrize("step", STEPS)
def test_errors_of_a_link_rise_above_their_number_in_a_quarter_of_an_hour_and_not_with_one_burst(
    code: str, spec: MetricSpec, labels: tuple[str, ...], most: int, step: float
) -> None:
    assert after(HOUR, counting(spec, lambda _: 0.95 * most / 900, *labels), step).state(code) == "absent"
    many = after(HOUR, counting(spec, lambda _: 1.1 * most / 900, *labels), step)
    assert many.state(code) == "confirmed"
    assert many.finding(code).value == pytest.approx(1.1 * most * EVENTS_REMEMBERED_SECONDS / 900, abs=2)
    changes = Fed(step).states(code, HOUR, counting(spec, burst(5.0 * most), *labels))
    assert [state for _, state in changes] == ["pending", "absent"]


@pytest.mark.parametrize(("generation", "width", "most"), [(4, 16, 230.4), (5, 16, 460.8), (3, 4, 30)])
@pytest.mark.parametrize(("share", "state"), [(0.95, "absent"), (1.1, "confirmed")])
def test_replays_within_the_bit_error_rate_of_a_link_are_healthy(
    generation: int, width: int, most: float, share: float, state: str
) -> None:
    replays = counting(pcie.GPU_PCIE_REPLAYS_TOTAL, lambda _: share * most / 900, *GPU)
    link = (pcie.GPU_PCIE_LINK_GENERATION.sample(generation, *GPU), pcie.GPU_PCIE_LINK_WIDTH.sample(width, *GPU))
    assert after(HOUR, lambda at: (*replays(at), *link), 60.0).state("pcie.replays") == state


def test_one_error_that_a_link_could_not_correct_is_confirmed() -> None:
    one = counting(pcie.GPU_PCIE_AER_ERRORS_TOTAL, burst(1.0), *GPU, "port", "nonfatal")
    changes = Fed().states("pcie.aer", 2 * HOUR, one)
    assert [state for _, state in changes] == ["pending", "confirmed", "ended", "absent"]


@pytest.mark.parametrize(
    ("code", "spec", "labels"),
    [
        ("ecc.corrected_rising", ecc.GPU_ECC_VOLATILE_ERRORS_TOTAL, (*GPU, "corrected")),
        ("host.memory_errors_rising", host_memory.GPU_HOST_EDAC_ERRORS_TOTAL, ("mc0", "corrected")),
    ],
)
def test_corrected_errors_are_counted_over_a_day(code: str, spec: MetricSpec, labels: tuple[str, ...]) -> None:
    assert after(30 * HOUR, counting(spec, lambda _: 99 / 86_400, *labels), 600.0).state(code) == "absent"
    many = after(30 * HOUR, counting(spec, lambda _: 103 / 86_400, *labels), 600.0)
    assert many.state(code) == "confirmed"
    assert 100 < (many.finding(code).value or 0.0) <= 104


def test_a_process_that_just_started_cannot_say_that_a_day_of_errors_is_over() -> None:
    fed = after(3 * HOUR, counting(ecc.GPU_ECC_VOLATILE_ERRORS_TOTAL, burst(200.0), *GPU, "corrected"), 60.0)
    assert fed.state("ecc.corrected_rising") == "confirmed"
    assert fed.finding("ecc.corrected_rising").measured.startswith("200 corrected errors in ")


def margin(celsius: Callable[[float], float], load: Callable[[float], Iterable[Sample]] = loaded) -> Series:
    def samples(at: float) -> Iterator[Sample]:
        yield from load(at)
        yield power.GPU_TEMPERATURE_MARGIN_CELSIUS.sample(celsius(at), *GPU)
        yield power.GPU_TEMPERATURE_CELSIUS.sample(90.0 - celsius(at), *GPU, "gpu")

    return samples


def test_one_hot_sample_in_five_minutes_is_not_near_slowdown() -> None:
    assert Fed().states("thermal.margin", HOUR, margin(lambda at: 3.0 if at % 300 == 285 else 20.0)) == []


@pytest.mark.parametrize(("hot_seconds", "state"), [(180, "confirmed"), (120, "absent")])
def test_near_slowdown_for_half_of_the_time_is_a_ticket(hot_seconds: int, state: str) -> None:
    fed = after(HOUR, margin(lambda at: 4.9 if at % 300 < hot_seconds else 20.0))
    assert fed.state("thermal.margin") == state


def test_a_gpu_that_warms_up_after_each_pause_of_its_job_is_near_slowdown() -> None:
    """Eight minutes hot, at rest for two, and nearly three until it is as hot again."""
    work = turns(11 * MINUTE, 2 * MINUTE)
    busy = Total(work)
    warm = margin(
        lambda at: 4.0 if 160 <= at % (13 * MINUTE) < 11 * MINUTE else 20.0,
        lambda at: loaded(busy.at(at), p_state=0 if work(at) else 8),
    )
    changes = Fed().states("thermal.margin", HOUR, warm)
    assert [state for _, state in changes] == ["pending", "confirmed"]


@pytest.mark.parametrize(("celsius", "state"), [(91.0, "absent"), (93.0, "absent"), (94.0, "confirmed")])
def test_memory_may_run_close_to_its_highest_temperature(celsius: float, state: str) -> None:
    heat = (
        power.GPU_TEMPERATURE_CELSIUS.sample(celsius, *GPU, "memory"),
        power.GPU_TEMPERATURE_THRESHOLD_CELSIUS.sample(95.0, *GPU, "memory_max"),
    )
    assert after(HOUR, lambda at: (*loaded(at), *heat), 60.0).state("thermal.margin") == state


@pytest.mark.parametrize(("share", "code"), [(0.89, "power.limit"), (0.92, "power.cap")])
def test_a_lowered_power_limit_holds_a_gpu_back_above_its_share(share: float, code: str) -> None:
    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield power.GPU_POWER_WATTS.sample(198.0, *GPU)
        yield power.GPU_POWER_LIMIT_WATTS.sample(200.0, *GPU)
        yield power.GPU_POWER_DEFAULT_LIMIT_WATTS.sample(400.0, *GPU)
        yield throttle.GPU_THROTTLE_SECONDS_TOTAL.sample(share * at, *GPU, "sw_power_cap")

    fed = after(1.5 * HOUR, samples, 60.0)
    assert fed.codes() == {code}
    assert fed.state(code) == "confirmed"


@pytest.mark.parametrize(("apart", "found"), [(120.0, {"xid.31", "xid.13"}), (300.0, set())])
def test_xids_of_programs_are_found_above_three_in_ten_minutes(apart: float, found: set[str]) -> None:
    """Of two codes by turns, one every two or five minutes."""

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        number = int((at - HOUR) / apart) + 1 if at >= HOUR else 0
        for place, xid in enumerate(("31", "13")):
            count = (number + 1 - place) // 2
            last = HOUR + (2 * count - 2 + place) * apart if count else 0.0
            yield xid_metrics.GPU_XID_ERRORS_TOTAL.sample(5 + count, *GPU, xid, "")
            yield xid_metrics.GPU_XID_LAST_TIMESTAMP_SECONDS.sample(WALL + last, *GPU, xid, "")

    assert after(2 * HOUR, samples, 30.0).codes() == found


def devices(at: float, **counts: int) -> Iterator[Sample]:
    yield from loaded(at)
    yield from (presence.GPU_DEVICES.sample(count, source) for source, count in counts.items())


def test_a_gpu_that_the_driver_showed_since_the_boot_is_missing_unless_no_more_are_expected() -> None:
    fed = after(10 * MINUTE, lambda at: devices(at, nvml=8, pci=8, boot=8))
    assert fed.codes() == set()
    fed.run(10 * MINUTE, lambda at: devices(at, nvml=7, pci=7, boot=8))
    assert fed.state("gpu.missing") == "confirmed"
    assert fed.finding("gpu.missing").measured == "the driver shows 7 GPUs, 8 since the host booted"
    assert after(10 * MINUTE, lambda at: devices(at, nvml=7, pci=7, boot=8, expected=7)).codes() == set()


@pytest.mark.parametrize(
    ("booted", "late", "states"),
    [
        pytest.param(0.0, 2 * MINUTE, {"pending"}, id="two minutes late"),
        pytest.param(0.0, HOUR, {"pending", "confirmed"}, id="it never comes"),
        pytest.param(-4 * MINUTE, HOUR, {"pending", "confirmed"}, id="it is awaited for another minute"),
        pytest.param(-5 * MINUTE, HOUR, {"confirmed"}, id="later"),
    ],
)
def test_a_gpu_may_appear_minutes_after_a_boot(booted: float, late: float, states: set[str]) -> None:
    fed, found = Fed(), []

    def samples(at: float) -> Iterator[Sample]:
        yield from devices(at, nvml=8 if at >= late else 7, pci=7, expected=8)
        yield incident_metrics.GPU_RESET_TIMESTAMP_SECONDS.sample(WALL + booted, *GPU)

    for _ in range(7):
        fed.run(MINUTE, samples)
        found += [fed.state("gpu.missing")] if "gpu.missing" in fed.codes() else []
    assert set(found) == states
    assert ("confirmed" in found[:4]) == (booted <= -4 * MINUTE)


def test_a_gpu_given_to_a_virtual_machine_is_not_missing_and_hides_none_that_is() -> None:
    fed = after(4 * HOUR, lambda at: devices(at, nvml=7, pci=7, boot=7), 60.0)
    assert fed.codes() == set()
    fed.run(4 * HOUR, lambda at: devices(at, nvml=6, pci=6, boot=7))
    assert fed.state("gpu.missing") == "confirmed"
    assert fed.finding("gpu.missing").value == 1


@pytest.mark.parametrize(("busy", "state"), [(0.04, "confirmed"), (0.06, "absent")])
def test_a_gpu_that_a_job_hardly_uses_for_two_hours_could_be_somebody_elses(busy: float, state: str) -> None:
    """It works for a while at the beginning of each half hour."""
    fed, work = Fed(60.0), Total(lambda at: float(at % (HOUR / 2) < busy * HOUR / 2))

    def samples(at: float) -> Iterator[Sample]:
        yield from (sample for sample in loaded(at, 0.0) if "busy" not in sample.spec.name)
        yield from (sample for sample in loaded(work.at(at)) if "busy" in sample.spec.name)
        yield GPU_PROCESSES.sample(1, *GPU, "compute")

    fed.run(1.9 * HOUR, samples)
    assert fed.state("work.allocated_idle") == "absent", "two hours were not seen yet"
    fed.run(HOUR, samples)
    assert fed.state("work.allocated_idle") == state


@pytest.mark.parametrize(("share", "found"), [(0.6, True), (0.4, False)])
def test_a_gpu_that_waits_for_most_of_the_time_is_starved_at_every_moment(share: float, *, found: bool) -> None:
    """For some of each five minutes, its class is storage."""
    host = evidence_of((0.0, tuple(loaded(0.0))))
    (gpu,) = host.gpus
    waits = Bottleneck("compute", "busy", lately={"storage": share})
    assert ("storage.starved" in {each.check.code for each in judge_work(host, {gpu: waits})}) is found


SWAPPED = LIMITS["memory.swapping"]["rate"].value
FULL, GROWTH = (LIMITS["work.memory_full"][name].value for name in ("full", "growth"))
MEMORY = 1000.0 * 1024**3
EDGE = 1e-6


@pytest.mark.parametrize(
    ("swapped", "full", "grown", "found"),
    [
        (SWAPPED, 0.5, 0.0, set()),
        (SWAPPED * (1 + EDGE), 0.5, 0.0, {"memory.swapping"}),
        (0.0, FULL, 2 * GROWTH, set()),
        (0.0, FULL + EDGE, 2 * GROWTH, {"work.memory_full"}),
        (0.0, FULL + EDGE, GROWTH, set()),
        (0.0, FULL + EDGE, GROWTH + EDGE, {"work.memory_full"}),
    ],
)
def test_swapping_and_full_memory_are_found_above_their_limits(
    swapped: float, full: float, grown: float, found: set[str]
) -> None:
    def samples(at: float) -> Iterator[Sample]:
        used = MEMORY * (full - grown * (1 - at / 60))
        yield from loaded(at)
        yield GPU_PROCESSES.sample(1, *GPU, "compute")
        yield device_memory.GPU_MEMORY_TOTAL_BYTES.sample(MEMORY, *GPU)
        yield device_memory.GPU_MEMORY_USED_BYTES.sample(used, *GPU)
        yield device_memory.GPU_MEMORY_FREE_BYTES.sample(MEMORY - used, *GPU)
        yield host_memory.GPU_HOST_SWAP_IN_BYTES_TOTAL.sample(swapped * at)

    host = evidence_of((0.0, samples(0.0)), (60.0, samples(60.0)))
    assert {each.check.code for each in judge_work(host, {})} == found


@pytest.mark.parametrize(("grown", "state"), [(0.0012, "confirmed"), (0.0008, "absent")])
def test_memory_that_is_full_and_grows_over_a_quarter_of_an_hour_is_context(grown: float, state: str) -> None:
    total = 80 * 1024.0**3

    def samples(at: float) -> Iterator[Sample]:
        used = total * (0.975 + grown * at / 900)
        yield from loaded(at)
        yield device_memory.GPU_MEMORY_TOTAL_BYTES.sample(total, *GPU)
        yield device_memory.GPU_MEMORY_USED_BYTES.sample(used, *GPU)
        yield device_memory.GPU_MEMORY_FREE_BYTES.sample(total - used, *GPU)

    assert after(HOUR, samples, 60.0).state("work.memory_full") == state


@pytest.mark.parametrize(
    ("job", "on_gpu", "code"),
    [
        pytest.param("4711", True, "memory.oom_killed", id="of the job on the GPU"),
        pytest.param("4712", True, "memory.oom_killed_other", id="of another job"),
        pytest.param("4711", False, "memory.oom_killed_other", id="of a job without a GPU"),
    ],
)
def test_only_the_end_of_a_process_whose_job_had_a_gpu_is_a_ticket(job: str, code: str, *, on_gpu: bool) -> None:
    process = {"gpu": GPU[0], "uuid": GPU[1], "pid": "4241", "slurm_job_id": "4711"}

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        if on_gpu and at < HOUR:
            yield GPU_PROCESS_INFO.sample(1, *(process.get(label, "") for label in GPU_PROCESS_INFO.labels))
        if at >= HOUR:
            yield kernel_log.GPU_HOST_OOM_KILL_TIMESTAMP_SECONDS.sample(WALL + HOUR, "4242", "python3", "", "", job)

    assert after(HOUR + 10 * MINUTE, samples, 60.0).codes() == {code}


@pytest.mark.parametrize(("again", "found"), [(0, set()), (300, {"host.hung_task"})])
def test_one_task_that_hangs_again_and_again_is_enough(again: float, found: set[str]) -> None:
    hung = kernel_log.GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        if at >= 300:
            yield hung.sample(WALL + 300 + (again if at >= 600 else 0), "hung_task", "kworker (9)")

    assert after(15 * MINUTE, samples).codes() == found


def seen(*more: Sample, busy: float = 1.0, p_state: int = 0) -> tuple[Sample, ...]:
    return (*loaded(60.0, busy, p_state=p_state), pcie.GPU_PCIE_LINK_WIDTH.sample(16, *GPU), *more)


RELEASED, LOST = exporter_health.GPU_EXPORTER_GPUS_RELEASED.sample(1), presence.GPU_UP.sample(0, *GPU)
NVML, RATES = presence.GPU_DEVICES.sample(8, "nvml"), pcie.GPU_PCIE_LINK_GENERATION.sample(1, *GPU)
CLOCK_READ = power.GPU_CLOCK_HERTZ.sample(1e9, *GPU, "sm")
FABRIC_MANAGER = services.GPU_HOST_SERVICE_RUNNING.sample(0, services.FABRIC_MANAGER)
NO_DRIVER = (presence.GPU_DEVICES.sample(8, "pci"), presence.GPU_DRIVER_ERROR_INFO.sample(1, "driver_not_loaded"))


@pytest.mark.parametrize(
    ("samples", "code", "is_observable"),
    [
        pytest.param(seen(), "pcie.width", True, id="under load"),
        pytest.param(seen(busy=0.0, p_state=8), "pcie.width", False, id="at rest"),
        pytest.param(seen(busy=0.0, p_state=8), "pcie.width_idle", True, id="at rest, of what rest shows"),
        pytest.param(tuple(loaded(60.0)), "pcie.width", False, id="its metric is not there"),
        pytest.param(seen(RELEASED), "pcie.width", False, id="released"),
        pytest.param((LOST,), "pcie.width", False, id="lost"),
        pytest.param((LOST,), "xid.79", True, id="lost, of what the kernel log tells"),
        pytest.param((), "pcie.width", False, id="not there"),
        pytest.param((*NO_DRIVER[:1], NVML), "pcie.width", True, id="not there, and none is missing"),
        pytest.param(seen(RATES, busy=0.1), "pcie.generation_low", True, id="at work, of what a load would hide"),
        pytest.param(seen(RATES), "pcie.generation_low", False, id="under load, of what a load hides"),
        pytest.param(seen(CLOCK_READ), "clock.straggler", False, id="no peers to compare with"),
        pytest.param(seen(), "ecc.corrected_rising", False, id="no day was seen"),
        # About the host:
        pytest.param((NVML,), "gpu.missing", True, id="counted"),
        pytest.param((), "gpu.missing", False, id="not counted"),
        pytest.param(NO_DRIVER, "gpu.missing", False, id="no driver to count"),
        pytest.param((RELEASED,), "driver.unavailable", False, id="no driver is looked at"),
        pytest.param((LOST,), "fabric.unhealthy", False, id="no GPU answers"),
        pytest.param((LOST,), "work.collective_hang", False, id="no GPU of the job answers"),
        pytest.param((), "fabric.service_down", False, id="there is no such service"),
        pytest.param((FABRIC_MANAGER,), "fabric.service_down", True, id="there is such a service"),
        pytest.param((RELEASED,), "gpu.released", True, id="what the exporter does"),
        pytest.param((), "host.lockup", True, id="by the age of a message"),
        pytest.param((), "memory.swapping", False, id="not read"),
    ],
)
def test_whether_a_finding_can_be_observed(samples: tuple[Sample, ...], code: str, *, is_observable: bool) -> None:
    (gpu,) = evidence_of((0.0, seen())).gpus
    about = of_host(code, "") if BY_CODE[code].of_host else of_gpu(code, gpu, "")
    assert observable(evidence_of((0.0, samples)), about) is is_observable


FATAL = {"xid.79", "nvswitch.sxid_fatal"}


@pytest.mark.parametrize(
    ("state", "age", "found"),
    [
        (fabric.FABRIC_JOINED, XID_OPEN_SECONDS - 1, FATAL),
        (fabric.FABRIC_JOINED, XID_OPEN_SECONDS + 1, set()),
        (fabric.FABRIC_JOINED - 1, XID_DAMAGE_SECONDS - 1, FATAL),
        (fabric.FABRIC_JOINED - 1, XID_DAMAGE_SECONDS + 1, set()),
    ],
)
def test_fatal_errors_of_gpu_and_switch_count_for_an_hour_and_with_damage_for_a_day(
    state: int, age: float, found: set[str]
) -> None:
    fed = Fed()
    fed.see(
        [
            *loaded(0.0),
            fabric.GPU_FABRIC_STATE.sample(state, *GPU),
            xid_metrics.GPU_XID_LAST_TIMESTAMP_SECONDS.sample(WALL - age, *GPU, "79", ""),
            xid_metrics.GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS.sample(WALL - age, "0000:07:00.0", "20034", "true"),
        ]
    )
    assert fed.codes() & FATAL == found


Scarce = Callable[[float, float], Iterator[Sample]]
"""Samples at a second, of something that has been scarce for so many."""
BEGINS, CLOCK = 40 * MINUTE, 1.98e9


def _job(at: float, seconds: float) -> Iterator[Sample]:
    job = (*GPU, "/job")
    yield cgroup_limits.GPU_CGROUP_CPU_LIMIT_CPUS.sample(4.0, *job)
    yield cgroup_limits.GPU_CGROUP_CPU_PERIODS_TOTAL.sample(at * 10, *job)
    yield cgroup_limits.GPU_CGROUP_CPU_THROTTLED_PERIODS_TOTAL.sample(seconds * 9, *job)
    yield cgroup_limits.GPU_CGROUP_CPU_THROTTLED_SECONDS_TOTAL.sample(seconds, *job)


def _adapter(at: float, seconds: float) -> Iterator[Sample]:
    yield network.GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND.sample(1e9, "eno1")
    yield network.GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL.sample(at * 1e8 + seconds * 8.5e8, "eno1")


def _pressure(resource: str) -> Scarce:
    return lambda _at, seconds: iter((GPU_HOST_PRESSURE_SECONDS_TOTAL.sample(seconds * 0.9, resource, "some"),))


def _held(reason: str) -> Scarce:
    return lambda _at, seconds: iter((throttle.GPU_THROTTLE_SECONDS_TOTAL.sample(seconds, *GPU, reason),))


STARVED: Final = {
    "storage.starved": _pressure("io"),
    "memory.starved": _pressure("memory"),
    "cpu.limited": _job,
    "network.starved": _adapter,
}
SLOWED: Final = {
    "thermal.hw": _held("hw_thermal"),
    "thermal.sw": _held("sw_thermal"),
    "power.hw_slowdown": _held("hw_slowdown"),
}


def minutes_to_told(code: str, loss: float, minutes: float = 60.0, pid: str = "7") -> float | None:
    """Return how long it takes to confirm a fault of so many minutes that costs a job so much; None if it never is."""

    def slow(at: float) -> float:
        return loss if BEGINS <= at < BEGINS + minutes * MINUTE else 0.0

    pace = 0.96 if code in SLOWED else 0.64 if loss < 0.3 else 0.96
    busy, scarce = Total(lambda at: pace * (1 - slow(at) * (code in STARVED))), Total(lambda at: float(slow(at) > 0))

    def samples(at: float) -> Iterator[Sample]:
        yield from (each for each in loaded(busy.at(at)) if "utilization" not in each.spec.name)
        yield GPU_PROCESSES.sample(1, *GPU, "compute")
        labels = {"gpu": GPU[0], "uuid": GPU[1], "pid": "7" if at < BEGINS else pid}
        yield GPU_PROCESS_INFO.sample(1, *(labels.get(name, "") for name in GPU_PROCESS_INFO.labels))
        yield power.GPU_CLOCK_HERTZ.sample(CLOCK * (1 - slow(at) * (code in SLOWED)), *GPU, "sm")
        yield power.GPU_CLOCK_MAX_HERTZ.sample(CLOCK, *GPU, "sm")
        yield from {**STARVED, **SLOWED}[code](at, scarce.at(at))

    changes = Fed(5.0).states(code, BEGINS + 35 * MINUTE, samples)
    return next(((at - BEGINS) / MINUTE for at, state in changes if state == "confirmed"), None)


@pytest.mark.parametrize("code", [*STARVED, *SLOWED])
def test_a_job_that_loses_half_is_told_within_five_minutes(code: str) -> None:
    told = minutes_to_told(code, 0.5)
    assert told is not None
    assert 3.5 < told < 4.75, "so that its alert comes within five"


@pytest.mark.parametrize(
    ("code", "loss", "least", "most"),
    [
        *[("storage.starved", 0.1, 20, 21), ("storage.starved", 0.25, 9, 11), ("storage.starved", 0.7, 3, 4.75)],
        *[("storage.starved", 0.95, 20, 21), ("thermal.hw", 0.1, 10, 11), ("thermal.hw", 0.3, 6.5, 8)],
        *[("thermal.sw", 0.1, 30, 31), ("thermal.sw", 0.8, 3, 4.75), ("power.hw_slowdown", 0.2, 13, 15)],
    ],
)
def test_the_more_it_costs_the_sooner_it_is_told(code: str, loss: float, least: float, most: float) -> None:
    told = minutes_to_told(code, loss)
    assert told is not None
    assert least <= told <= most


@pytest.mark.parametrize(
    ("loss", "minutes", "pid"),
    [
        pytest.param(1.0, 5.0, "7", id="a checkpoint, an evaluation on the CPU, or data that is loaded"),
        pytest.param(0.5, 3.0, "7", id="an evaluation at half the pace"),
        pytest.param(0.6, 15.0, "8", id="another job, which was never faster"),
    ],
)
def test_a_healthy_job_is_not_told(loss: float, minutes: float, pid: str) -> None:
    assert minutes_to_told("storage.starved", loss, minutes, pid) is None
