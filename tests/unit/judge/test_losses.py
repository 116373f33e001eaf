"""What costs a job much is told soon: minutes from when it became slower until its finding is confirmed."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest
from tests.fed import GPU, MINUTE, Fed, Total, loaded

from gpu_triage.read.gpu import power
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.host import network_interfaces as network
from gpu_triage.read.host.cpu import GPU_HOST_PRESSURE_SECONDS_TOTAL
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes import cgroup_limits
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESSES

pytestmark = pytest.mark.slow

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


def _throttled(reason: str) -> Scarce:
    return lambda _at, seconds: iter((GPU_THROTTLE_SECONDS_TOTAL.sample(seconds, *GPU, reason),))


STARVED: Final = {
    "storage.starved": _pressure("io"),
    "memory.starved": _pressure("memory"),
    "cpu.limited": _job,
    "network.starved": _adapter,
}
SLOWED: Final = {
    "thermal.hw": _throttled("hw_thermal"),
    "thermal.sw": _throttled("sw_thermal"),
    "power.hw_slowdown": _throttled("hw_slowdown"),
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
