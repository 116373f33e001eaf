"""Findings about jobs and hosts that rest on more than a minute, and what an exporter cannot observe."""

from collections.abc import Iterator

import pytest
from tests.evidence import evidence_of
from tests.fed import GPU, HOUR, MINUTE, WALL, Fed, Total, loaded

from gpu_triage.judge.bottleneck.classes import Bottleneck
from gpu_triage.judge.conditions.work import judge_work
from gpu_triage.judge.evidence.observed import observable
from gpu_triage.judge.findings.finding import of_gpu, of_host
from gpu_triage.judge.findings.limits import LIMITS
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_GPUS_RELEASED
from gpu_triage.read.gpu.activity import GPU_MEMORY_UTILIZATION_RATIO
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_FREE_BYTES, GPU_MEMORY_TOTAL_BYTES, GPU_MEMORY_USED_BYTES
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_WIDTH
from gpu_triage.read.gpu.power import GPU_POWER_LIMIT_WATTS, GPU_POWER_WATTS
from gpu_triage.read.gpu.presence import GPU_DEVICES, GPU_DRIVER_ERROR_INFO, GPU_UP
from gpu_triage.read.host.host_memory import GPU_HOST_SWAP_IN_BYTES_TOTAL
from gpu_triage.read.host.kernel_log import (
    GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS,
    GPU_HOST_OOM_KILL_TIMESTAMP_SECONDS,
)
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESSES

pytestmark = pytest.mark.slow

PEER = ("1", "GPU-b")


def devices(at: float, **counts: int) -> Iterator[Sample]:
    yield from loaded(at)
    yield from (GPU_DEVICES.sample(count, source) for source, count in counts.items())


def test_a_gpu_that_the_driver_showed_since_the_boot_is_missing() -> None:
    fed = Fed()
    fed.run(10 * MINUTE, lambda at: devices(at, nvml=8, pci=8, boot=8))
    assert fed.codes() == set()
    fed.run(10 * MINUTE, lambda at: devices(at, nvml=7, pci=7, boot=8))
    assert fed.state("gpu.missing") == "confirmed"
    assert fed.finding("gpu.missing").measured == "the driver shows 7 GPUs, 8 since the host booted"


def test_a_gpu_given_to_a_virtual_machine_is_not_missing_and_hides_none_that_is() -> None:
    fed = Fed(60.0)
    fed.run(4 * HOUR, lambda at: devices(at, nvml=7, pci=7, boot=7))
    assert fed.codes() == set()
    fed.run(4 * HOUR, lambda at: devices(at, nvml=6, pci=6, boot=7))
    assert fed.state("gpu.missing") == "confirmed"
    assert fed.finding("gpu.missing").value == 1


def test_what_is_expected_outranks_what_was_there_before() -> None:
    fed = Fed()
    fed.run(10 * MINUTE, lambda at: devices(at, nvml=7, pci=7, boot=8, expected=7))
    assert fed.codes() == set()


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


def test_a_gpu_that_spins_for_most_of_the_time_is_busy_at_low_power() -> None:
    def samples(at: float) -> Iterator[Sample]:
        for gpu in (GPU, PEER):
            yield from loaded(at, gpu=gpu)
            yield GPU_PROCESSES.sample(1, *gpu, "compute")
        yield GPU_MEMORY_UTILIZATION_RATIO.sample(0.01, *GPU)
        yield GPU_POWER_WATTS.sample(200.0, *GPU)
        yield GPU_POWER_LIMIT_WATTS.sample(700.0, *GPU)

    fed = Fed(60.0)
    fed.run(40 * MINUTE, samples)
    assert fed.state("work.low_power") == "confirmed"


@pytest.mark.parametrize(("share", "found"), [(0.6, True), (0.4, False)])
def test_a_gpu_that_waits_for_most_of_the_time_is_starved_at_every_moment(share: float, *, found: bool) -> None:
    """For some of each five minutes, its class is storage."""
    host = evidence_of((0.0, tuple(loaded(0.0))))
    (gpu,) = host.gpus
    codes = {
        each.check.code for each in judge_work(host, {gpu: Bottleneck("compute", "busy", lately={"storage": share})})
    }
    assert ("storage.starved" in codes) is found


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
        yield GPU_MEMORY_TOTAL_BYTES.sample(MEMORY, *GPU)
        yield GPU_MEMORY_USED_BYTES.sample(used, *GPU)
        yield GPU_MEMORY_FREE_BYTES.sample(MEMORY - used, *GPU)
        yield GPU_HOST_SWAP_IN_BYTES_TOTAL.sample(swapped * at)

    host = evidence_of((0.0, samples(0.0)), (60.0, samples(60.0)))
    assert {each.check.code for each in judge_work(host, {})} == found


def test_swapping_at_every_moment_is_confirmed() -> None:
    fed = Fed(60.0)

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        yield GPU_PROCESSES.sample(1, *GPU, "compute")
        yield GPU_HOST_SWAP_IN_BYTES_TOTAL.sample(70_000.0 * at)

    fed.run(HOUR, samples)
    assert fed.state("memory.swapping") == "confirmed"


@pytest.mark.parametrize(("grown", "state"), [(0.0012, "confirmed"), (0.0008, "absent")])
def test_memory_that_is_full_and_grows_over_a_quarter_of_an_hour_is_context(grown: float, state: str) -> None:
    fed, total = Fed(60.0), 80 * 1024.0**3

    def samples(at: float) -> Iterator[Sample]:
        used = total * (0.975 + grown * at / 900)
        yield from loaded(at)
        yield GPU_MEMORY_TOTAL_BYTES.sample(total, *GPU)
        yield GPU_MEMORY_USED_BYTES.sample(used, *GPU)
        yield GPU_MEMORY_FREE_BYTES.sample(total - used, *GPU)

    fed.run(HOUR, samples)
    assert fed.state("work.memory_full") == state


def killed(at: float, owner: tuple[str, str, str], *, on_gpu: bool) -> Iterator[Sample]:
    yield from loaded(at)
    if on_gpu and at < HOUR:
        yield GPU_PROCESS_INFO.sample(1, *GPU, *(_process(label) for label in GPU_PROCESS_INFO.labels[2:]))
    if at >= HOUR:
        yield GPU_HOST_OOM_KILL_TIMESTAMP_SECONDS.sample(WALL + HOUR, "4242", "python3", *owner)


def _process(label: str) -> str:
    return {"pid": "4241", "slurm_job_id": "4711"}.get(label, "")


@pytest.mark.parametrize(
    ("owner", "on_gpu", "code"),
    [
        pytest.param(("", "", "4711"), True, "memory.oom_killed", id="of the job on the GPU"),
        pytest.param(("", "", "4712"), True, "memory.oom_killed_other", id="of another job"),
        pytest.param(("", "", "4711"), False, "memory.oom_killed_other", id="of a job without a GPU"),
    ],
)
def test_only_the_end_of_a_process_whose_job_had_a_gpu_is_a_ticket(
    owner: tuple[str, str, str], code: str, *, on_gpu: bool
) -> None:
    fed = Fed(60.0)
    fed.run(HOUR + 10 * MINUTE, lambda at: killed(at, owner, on_gpu=on_gpu))
    assert fed.codes() == {code}


@pytest.mark.parametrize(("again", "found"), [(0, set()), (300, {"host.hung_task"})])
def test_one_task_that_hangs_again_and_again_is_enough(again: float, found: set[str]) -> None:
    fed = Fed()

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at)
        last = 300 + (again if at >= 600 else 0)
        if at >= 300:
            yield GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS.sample(WALL + last, "hung_task", "kworker (9)")

    fed.run(15 * MINUTE, samples)
    assert fed.codes() == found


def seen(*more: Sample, busy: float = 1.0, p_state: int = 0) -> tuple[Sample, ...]:
    return (*loaded(60.0, busy, p_state=p_state), GPU_PCIE_LINK_WIDTH.sample(16, *GPU), *more)


@pytest.mark.parametrize(
    ("samples", "code", "is_observable"),
    [
        pytest.param(seen(), "pcie.width", True, id="under load"),
        pytest.param(seen(busy=0.0, p_state=8), "pcie.width", False, id="at rest"),
        pytest.param(seen(busy=0.0, p_state=8), "pcie.width_idle", True, id="at rest, of what rest shows"),
        pytest.param(tuple(loaded(60.0)), "pcie.width", False, id="its metric is not there"),
        pytest.param(seen(GPU_EXPORTER_GPUS_RELEASED.sample(1)), "pcie.width", False, id="released"),
        pytest.param((GPU_UP.sample(0, *GPU),), "pcie.width", False, id="lost"),
        pytest.param((GPU_UP.sample(0, *GPU),), "xid.79", True, id="lost, of what the kernel log tells"),
        pytest.param((), "pcie.width", False, id="not there"),
        pytest.param(seen(), "ecc.corrected_rising", False, id="no day was seen"),
    ],
)
def test_whether_a_finding_about_a_gpu_can_be_observed(
    samples: tuple[Sample, ...], code: str, *, is_observable: bool
) -> None:
    (gpu,) = evidence_of((0.0, seen())).gpus
    assert observable(evidence_of((0.0, samples)), of_gpu(code, gpu, "")) is is_observable


@pytest.mark.parametrize(
    ("samples", "code", "is_observable"),
    [
        pytest.param((GPU_DEVICES.sample(8, "nvml"),), "gpu.missing", True, id="counted"),
        pytest.param((), "gpu.missing", False, id="not counted"),
        pytest.param(
            (GPU_DEVICES.sample(8, "pci"), GPU_DRIVER_ERROR_INFO.sample(1, "driver_not_loaded")),
            "gpu.missing",
            False,
            id="no driver to count",
        ),
        pytest.param((GPU_EXPORTER_GPUS_RELEASED.sample(1),), "driver.unavailable", False, id="released"),
        pytest.param((GPU_UP.sample(0, *GPU),), "fabric.unhealthy", False, id="no GPU answers"),
        pytest.param((), "host.lockup", True, id="by the age of a message"),
        pytest.param((), "memory.swapping", False, id="not read"),
    ],
)
def test_whether_a_finding_about_the_host_can_be_observed(
    samples: tuple[Sample, ...], code: str, *, is_observable: bool
) -> None:
    assert observable(evidence_of((0.0, samples)), of_host(code, "")) is is_observable
