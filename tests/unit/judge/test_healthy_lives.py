"""Jobs that leave their GPU idle and are healthy, and hangs beside them: each reason on both sides of its threshold."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pytest
from tests.fed import Fed

from gpu_triage.judge.evidence import thresholds
from gpu_triage.read.gpu import activity, device_memory, presence
from gpu_triage.read.host import disk
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes import cgroup_limits, on_gpu, threads, vitals

EDGE, MINUTE = 0.999, 60.0
HANG, HUNG, IDLE, STARVED = "work.collective_hang", "work.hung", "work.held_idle", "storage.starved"
INPUT, REQUESTS, CONTINUATION = 1, 2, 3


class Life(NamedTuple):
    """What there is of a GPU's job when its GPU stops."""

    waits: Mapping[str, int | None] = {"7000": 0}  # by PID, a state of gpu_process_waits_for; None if unknown
    read: float = 0.0  # bytes a second
    thread: float = 0.0  # share of a CPU that its busiest thread uses
    began: float | None = None  # when its processes did, if known


def samples(at: float, busy: float, lives: Sequence[Life], stalled: float = 0.0, read: float = 0.0) -> Iterator[Sample]:
    """One job, with a GPU for each life; the host reads so many bytes a second."""
    yield disk.GPU_HOST_DISK_READ_BYTES_TOTAL.sample(read * at, "nvme0n1")
    for index, life in enumerate(lives):
        gpu = (str(index), f"GPU-{index}")
        yield presence.GPU_UP.sample(1, *gpu)
        yield on_gpu.GPU_PROCESSES.sample(len(life.waits), *gpu, "compute")
        yield device_memory.GPU_MEMORY_USED_BYTES.sample(thresholds.HELD_BYTES, *gpu)
        yield activity.GPU_SM_UTILIZATION_RATIO.sample(busy, *gpu)
        yield activity.GPU_BUSY_SECONDS_TOTAL.sample(busy * at, *gpu)
        yield cgroup_limits.GPU_CGROUP_PRESSURE_SECONDS_TOTAL.sample(stalled * at, *gpu, "/job", "io", "some")
        yield threads.GPU_MAIN_THREAD_CPU_SECONDS_TOTAL.sample(0.0, *gpu)
        yield threads.GPU_BUSIEST_THREAD_RATIO.sample(life.thread, *gpu, "7000", "python")
        if life.read:
            yield threads.GPU_PROCESSES_READ_BYTES_TOTAL.sample(life.read * at, *gpu, "calls")
        for pid, state in life.waits.items():
            yield on_gpu.GPU_PROCESS_INFO.sample(1, *gpu, pid, "python", *("",) * 6, "42")
            if life.began is not None:
                yield vitals.GPU_PROCESS_START_TIMESTAMP_SECONDS.sample(life.began, *gpu, pid, "python")
            if state is not None:
                yield on_gpu.GPU_PROCESS_WAITS_FOR.sample(state, *gpu, pid, "python")


RANK = Life({"7001": 0})
LOADS, ALMOST_LOADS = thresholds.LOADING_BYTES_PER_SECOND, thresholds.LOADING_BYTES_PER_SECOND * EDGE


@pytest.mark.parametrize(
    ("lives", "found"),
    [
        pytest.param([Life()], {HUNG}, id="a batch job"),
        pytest.param([Life({"7000": None})], {HUNG}, id="a process of which nothing is known"),
        pytest.param([Life({"7000": INPUT})], {IDLE}, id="in the foreground of a terminal"),
        pytest.param([Life({"7000": REQUESTS})], {IDLE}, id="a notebook"),
        pytest.param([Life({"7000": CONTINUATION})], {IDLE}, id="suspended"),
        pytest.param([Life({"7000": REQUESTS, "7009": 0})], {HUNG}, id="a batch job beside a notebook"),
        pytest.param([Life({"7000": REQUESTS})] * 2, {IDLE}, id="a notebook with two GPUs"),
        pytest.param([Life({"7000": REQUESTS}), Life({"7001": REQUESTS})], {IDLE}, id="a server of two ranks"),
        pytest.param([Life(), RANK], {HUNG, HANG}, id="two ranks"),
        pytest.param([Life({"7000": CONTINUATION}), Life({"7001": CONTINUATION})], {IDLE}, id="both ranks suspended"),
        pytest.param([Life({"7000": CONTINUATION}), RANK], {IDLE, HUNG, HANG}, id="one of two ranks suspended"),
        pytest.param([Life(read=LOADS)], {IDLE}, id="it reads"),
        pytest.param([Life(read=ALMOST_LOADS)], {HUNG}, id="it hardly reads"),
        pytest.param([Life(read=LOADS), RANK], {IDLE}, id="one rank reads for all"),
        pytest.param([Life(thread=thresholds.WORKING_CPU_SHARE)], {IDLE}, id="it computes on a CPU"),
        pytest.param([Life(thread=thresholds.WORKING_CPU_SHARE * EDGE)], {HUNG}, id="it hardly uses a CPU"),
        pytest.param([Life(thread=1.0), RANK._replace(thread=1.0)], {HUNG, HANG}, id="ranks that spin on CPUs"),
    ],
)
def test_a_job_that_stops_is_hung_unless_something_explains_it(lives: list[Life], found: set[str]) -> None:
    fed = Fed(5.0)
    fed.run(3 * MINUTE, lambda at: samples(at, 1.0, lives))
    stopped = fed.seconds
    fed.run(thresholds.HUNG_SECONDS + MINUTE, lambda at: samples(at, 0.0 if at > stopped else 1.0, lives))
    assert fed.codes() & {HANG, HUNG, IDLE} == found
    said = [each.measured for each in fed.report.findings if each.check.code == IDLE]
    assert bool(said) == (IDLE in found)
    assert all("CPUs" in each for each in said)


FIRST, NEXT = Life({"7000": 0}), Life({"7001": 0})


@pytest.mark.parametrize(
    ("life", "busy", "read", "stalled", "found"),
    [
        pytest.param(NEXT, 0.0, LOADS, 0.9, set(), id="it loads"),
        pytest.param(NEXT, 0.0, ALMOST_LOADS, 0.9, {STARVED}, id="it makes no progress"),
        pytest.param(NEXT, thresholds.WORKING_SHARE * EDGE, LOADS, 0.9, set(), id="it does not work yet"),
        pytest.param(NEXT, thresholds.WORKING_SHARE / EDGE, LOADS, 0.9, {STARVED}, id="it works slowly"),
        pytest.param(NEXT._replace(read=ALMOST_LOADS), 0.0, LOADS, 0.9, {STARVED}, id="others read"),
        pytest.param(NEXT._replace(read=LOADS), 0.0, 0.0, 0.9, set(), id="it reads from elsewhere"),
        pytest.param(FIRST, 0.0, LOADS, 0.9, {STARVED}, id="it has worked before"),
        pytest.param(NEXT, 0.0, 0.0, 0.0, set(), id="it begins, which is not seen"),
        pytest.param(FIRST._replace(began=2.0), 0.0, LOADS, 0.9, set(), id="it loads, under the PID of the last one"),
        pytest.param(FIRST._replace(began=1.0), 0.0, LOADS, 0.9, {STARVED}, id="it has worked since then"),
        pytest.param(FIRST, 0.0, 0.0, 0.0, {HUNG}, id="it has worked before, and stops"),
    ],
)
def test_a_start_that_makes_progress_is_neither_starved_nor_hung(
    life: Life, busy: float, read: float, stalled: float, found: set[str]
) -> None:
    fed = Fed(5.0)
    fed.run(3 * MINUTE, lambda at: samples(at, 1.0, [FIRST._replace(began=life.began and 1.0)], read=read))
    fed.run(5 * MINUTE + thresholds.RECENT_SECONDS, lambda at: samples(at, busy, [life], stalled=stalled, read=read))
    assert fed.codes() & {STARVED, HUNG} == found
