"""A limit slows a job down only if it is reached often and costs the job something."""

from collections.abc import Callable, Iterator

import pytest
from tests.evidence import evidence_of

from gpu_triage.judge.evidence.limited_jobs import limited_job
from gpu_triage.judge.evidence.thresholds import EASE, THROTTLED_CPUS
from gpu_triage.judge.findings.limits import LIMITS
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes.cgroup_limits import (
    GPU_CGROUP_CPU_LIMIT_CPUS,
    GPU_CGROUP_CPU_PERIODS_TOTAL,
    GPU_CGROUP_CPU_THROTTLED_PERIODS_TOTAL,
    GPU_CGROUP_CPU_THROTTLED_SECONDS_TOTAL,
    GPU_CGROUP_MEMORY_EVENTS_TOTAL,
    GPU_CGROUP_PRESSURE_SECONDS_TOTAL,
)

GPU = ("0", "GPU-0")
OF = (*GPU, "/job.scope")
SHARE, PRESSURE = LIMITS["cpu.limited"]["share"].value, LIMITS["memory.limited"]["pressure"].value
PERIODS_PER_SECOND = 10.0
BARELY, ALMOST, EASED = 1.001, 0.999, (1 + EASE) / 2


def cpu(share: float, cpus: float, at: float) -> Iterator[Sample]:
    yield GPU_CGROUP_CPU_LIMIT_CPUS.sample(4.0, *OF)
    yield GPU_CGROUP_CPU_PERIODS_TOTAL.sample(PERIODS_PER_SECOND * at, *OF)
    yield GPU_CGROUP_CPU_THROTTLED_PERIODS_TOTAL.sample(share * PERIODS_PER_SECOND * at, *OF)
    yield GPU_CGROUP_CPU_THROTTLED_SECONDS_TOTAL.sample(cpus * at, *OF)


def memory(stalled: float, events: float, at: float) -> Iterator[Sample]:
    yield GPU_CGROUP_PRESSURE_SECONDS_TOTAL.sample(stalled * at, *OF, "memory", "some")
    yield GPU_CGROUP_MEMORY_EVENTS_TOTAL.sample(events * at / 60.0, *OF, "max")


@pytest.mark.parametrize(
    ("resource", "readings", "first", "second"),
    [("cpu", cpu, SHARE, THROTTLED_CPUS), ("memory", memory, PRESSURE, 1.0)],
)
def test_both_conditions_count_at_their_thresholds(
    resource: str, readings: Callable[[float, float, float], Iterator[Sample]], first: float, second: float
) -> None:
    def slows_down(one: float, other: float, ease: float = 1.0) -> bool:
        rounds = (
            (float(at), [GPU_UP.sample(1, *GPU), *readings(first * one, second * other, float(at))])
            for at in range(0, 65, 5)
        )
        return limited_job(resource, evidence_of(*rounds).gpus[0], ease) is not None

    assert slows_down(BARELY, BARELY)
    assert not slows_down(ALMOST, 2.0)
    assert not slows_down(2.0, ALMOST)
    assert slows_down(EASED, BARELY, EASE), "a job that was slowed down stays so for less"
    assert not slows_down(EASED, BARELY)
