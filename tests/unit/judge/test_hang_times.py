"""How long GPUs of a job stop or spin before they hang, and what explains it meanwhile: each at its threshold.

A hang is judged before NCCL aborts the job; checkpoints, evaluations and loading data are not hangs.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from tests.evidence import evidence_of
from tests.states.play import State, play
from tests.states.states import STATES

from gpu_triage.judge.bottleneck.classes import Bottleneck
from gpu_triage.judge.conditions.work import judge_work
from gpu_triage.judge.evidence.thresholds import (
    HELD_BYTES,
    HOST_SAVES_SECONDS,
    SAVING_BYTES_PER_SECOND,
    SILENT_BYTES_PER_SECOND,
    STOPPED_SECONDS,
    STUCK_SECONDS,
    UNEXPLAINED_SECONDS,
    UPLOADING_RATIO,
    WAITED_FOR_SECONDS,
)
from gpu_triage.judge.findings import finding
from gpu_triage.read.gpu import activity, device_memory, nvlink, pcie, presence
from gpu_triage.read.host import disk, infiniband, network_interfaces
from gpu_triage.read.metrics.metric import MetricSpec, Sample
from gpu_triage.read.processes import cgroup_limits, on_gpu
from gpu_triage.read.processes.threads import GPU_PROCESSES_WRITTEN_BYTES_TOTAL

EDGE = 1e-3
HANG, HUNG = "work.collective_hang", "work.hung"
WORKS = Bottleneck("compute", "busy")
_NO_LABELS = ("",) * (len(on_gpu.GPU_PROCESS_INFO.labels) - 3)
SAVES, ALMOST_SAVES = SAVING_BYTES_PER_SECOND, SAVING_BYTES_PER_SECOND * (1 - EDGE)


def stops(seconds: float) -> Bottleneck:
    return Bottleneck("unattributed", "idle", stopped_seconds=seconds)


def spins(seconds: float) -> Bottleneck:
    return Bottleneck("communication", "spins", spinning_seconds=seconds, spins_after_work=True)


def hangs(
    *gpus: Bottleneck,
    written: float = 0.0,
    sent: float = 0.0,
    received: float = 0.0,
    moved: float = 0.0,
    counters: Iterable[MetricSpec] = (pcie.GPU_PCIE_TRANSMIT_BYTES_TOTAL,),
    links: int = 1,
    own: Sequence[float] = (),
    cgroup: float | None = None,
    stalled: float = 0.0,
    rdma: float = 0.0,
    chip_links: int = 0,
) -> dict[str, str]:
    """What is found of GPUs, on a host that writes, sends and receives so many bytes a second; each GPU moves some.

    Args:
        own: what the processes on each GPU write; empty if that cannot be read.
        cgroup: what their common cgroup writes to disks; None without the io controller.
        stalled: share of the time in which its tasks wait for I/O.
        chip_links: NVLink-C2C links of each GPU.
    """

    def samples(at: float) -> Iterator[Sample]:
        yield disk.GPU_HOST_DISK_WRITTEN_BYTES_TOTAL.sample(written * at, "nvme0n1")
        yield network_interfaces.GPU_HOST_NETWORK_TRANSMIT_BYTES_TOTAL.sample(sent * at, "eth0")
        yield network_interfaces.GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL.sample(received * at, "eth0")
        yield infiniband.GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL.sample(rdma * at, "mlx5_0", "1")
        for index, bottleneck in enumerate(gpus):
            gpu = (str(index), f"GPU-{index}")
            yield presence.GPU_UP.sample(1, *gpu)
            yield on_gpu.GPU_PROCESSES.sample(1, *gpu, "compute")
            yield device_memory.GPU_MEMORY_USED_BYTES.sample(HELD_BYTES, *gpu)
            yield activity.GPU_SM_UTILIZATION_RATIO.sample(0.0 if bottleneck.stopped_seconds else 1.0, *gpu)
            yield nvlink.GPU_NVLINK_LINKS_UP.sample(links, *gpu)
            yield nvlink.GPU_C2C_LINKS_UP.sample(chip_links, *gpu)
            yield on_gpu.GPU_PROCESS_INFO.sample(1, *gpu, str(7000 + index), *_NO_LABELS)
            for written_by_it in own[index : index + 1]:
                yield GPU_PROCESSES_WRITTEN_BYTES_TOTAL.sample(0.0, *gpu, "storage")
                yield GPU_PROCESSES_WRITTEN_BYTES_TOTAL.sample(written_by_it * at, *gpu, "calls")
            yield cgroup_limits.GPU_CGROUP_PRESSURE_SECONDS_TOTAL.sample(stalled * at, *gpu, "/job", "io", "some")
            if cgroup is not None:
                yield cgroup_limits.GPU_CGROUP_WRITTEN_BYTES_TOTAL.sample(cgroup * at, *gpu, "/job")
            yield from (counter.sample(moved * at, *gpu) for counter in counters)

    host = evidence_of((0.0, samples(0.0)), (60.0, samples(60.0)))
    found = judge_work(host, dict(zip(host.gpus, gpus, strict=True)))
    return {each.check.code: each.measured for each in found if each.check.code in {HANG, HUNG}}


@pytest.mark.parametrize(
    ("gpus", "found"),
    [
        pytest.param([stops(STOPPED_SECONDS)] * 2, {HANG, HUNG}, id="both stop"),
        pytest.param([stops(STOPPED_SECONDS - EDGE)] * 2, set(), id="for less"),
        pytest.param([stops(STOPPED_SECONDS), stops(STOPPED_SECONDS - EDGE)], {HUNG}, id="one for less"),
        pytest.param([spins(STUCK_SECONDS)] * 2, {HANG}, id="both spin"),
        pytest.param([spins(STUCK_SECONDS - EDGE)] * 2, set(), id="both spin for less"),
        pytest.param([stops(WAITED_FOR_SECONDS), spins(WAITED_FOR_SECONDS)], {HANG}, id="one waits for the other"),
        pytest.param([stops(WAITED_FOR_SECONDS), spins(WAITED_FOR_SECONDS - EDGE)], set(), id="waits for less"),
        pytest.param([spins(STUCK_SECONDS)], set(), id="one waits for other hosts"),
        pytest.param([spins(STUCK_SECONDS), spins(STUCK_SECONDS), WORKS], set(), id="a rank works"),
        pytest.param([spins(UNEXPLAINED_SECONDS)] * 2 + [WORKS], {HANG}, id="no rank works for so long"),
        pytest.param([spins(UNEXPLAINED_SECONDS - EDGE), spins(UNEXPLAINED_SECONDS), WORKS], set(), id="it may"),
    ],
)
def test_gpus_hang_when_they_have_stopped_or_spun_for_so_long(gpus: list[Bottleneck], found: set[str]) -> None:
    assert hangs(*gpus).keys() == found


def test_the_gpu_that_stopped_is_named() -> None:
    said = hangs(stops(WAITED_FOR_SECONDS), spins(WAITED_FOR_SECONDS))[HANG]
    assert said.startswith("GPU 0 stopped; GPU 1: busy at low power, and no data moves")


PCIE, NVLINK = pcie.GPU_PCIE_TRANSMIT_BYTES_TOTAL, nvlink.GPU_NVLINK_TRANSMIT_BYTES_TOTAL
STOP, STUCK = [stops(STOPPED_SECONDS)] * 2, [spins(STUCK_SECONDS)] * 2
SOME, MORE = SILENT_BYTES_PER_SECOND, SILENT_BYTES_PER_SECOND * (1 + EDGE)
UPLOAD = {"sent": SAVES, "received": SAVES / UPLOADING_RATIO * (1 - EDGE)}
ALMOST_UNEXPLAINED, UNEXPLAINED = [stops(UNEXPLAINED_SECONDS - EDGE)] * 2, [stops(UNEXPLAINED_SECONDS)] * 2
ON_ITS_WAY = {"own": (0.0, 0.0), "stalled": 0.2}


@pytest.mark.parametrize(
    ("gpus", "facts", "found"),
    [
        # Traffic: GPUs are stuck only if it is counted and does not grow.
        pytest.param(STUCK, {"moved": SOME, "counters": (PCIE, NVLINK)}, {HANG}, id="silent"),
        pytest.param(STUCK, {"moved": MORE, "counters": (PCIE, NVLINK)}, set(), id="data moves"),
        pytest.param(STUCK, {"counters": (NVLINK,)}, {HANG}, id="NVLink alone is counted"),
        pytest.param(STUCK, {"counters": (NVLINK,), "links": 0}, set(), id="links that are not up carry nothing"),
        pytest.param(STUCK, {"counters": ()}, set(), id="nobody counts"),
        # RDMA traffic of the host explains that they spin only if it may be theirs.
        pytest.param(STUCK, {"rdma": 1e9}, {HANG}, id="of others: their own links are silent"),
        pytest.param(STUCK, {"rdma": 1e9, "chip_links": 10}, set(), id="perhaps theirs, over NVLink-C2C"),
        pytest.param(STUCK, {"rdma": SOME, "chip_links": 10}, {HANG}, id="no RDMA traffic"),
        # A host that writes explains a stop if nobody knows what its job writes.
        pytest.param(STOP, {"written": SAVES}, set(), id="to a disk"),
        pytest.param(STOP, {"written": ALMOST_SAVES}, {HANG, HUNG}, id="to a disk, too little"),
        pytest.param(STOP, UPLOAD, set(), id="to a store"),
        pytest.param(STOP, {**UPLOAD, "received": SAVES / UPLOADING_RATIO}, {HANG, HUNG}, id="ranks exchange data"),
        pytest.param([stops(HOST_SAVES_SECONDS - EDGE)] * 2, {"written": SAVES}, set(), id="almost for too long"),
        pytest.param([stops(HOST_SAVES_SECONDS)] * 2, {"written": SAVES}, {HANG, HUNG}, id="for too long"),
        # A job that saves a checkpoint explains its stop,
        pytest.param(STOP, {"own": (SAVES, 0.0)}, set(), id="one rank writes for all"),
        pytest.param(STOP, {"own": (SAVES / 2, SAVES / 2)}, set(), id="each writes its part"),
        pytest.param(STOP, {"own": (ALMOST_SAVES, 0.0), "written": 1e9}, {HANG, HUNG}, id="others write"),
        pytest.param(ALMOST_UNEXPLAINED, {"own": (SAVES, 0.0)}, set(), id="a job, almost for too long"),
        pytest.param(UNEXPLAINED, {"own": (SAVES, 0.0)}, {HANG, HUNG}, id="a job, for too long"),
        pytest.param(ALMOST_UNEXPLAINED, {"cgroup": SAVES}, set(), id="its cgroup writes"),
        pytest.param(ALMOST_UNEXPLAINED, {"own": (0.0, 0.0), "cgroup": SAVES}, set(), id="its cgroup writes back"),
        pytest.param(STOP, {"cgroup": ALMOST_SAVES, "written": 1e9}, {HANG, HUNG}, id="others write to the disks"),
        # and so does one whose writing is on its way.
        pytest.param(STOP, {**ON_ITS_WAY, "written": SAVES}, set(), id="they wait for what they wrote"),
        pytest.param(STOP, {**ON_ITS_WAY, "stalled": 0.2 - EDGE, "written": SAVES}, {HANG, HUNG}, id="they hardly do"),
        pytest.param(STOP, {**ON_ITS_WAY, "written": ALMOST_SAVES}, {HANG, HUNG}, id="nobody writes it back"),
    ],
)
def test_gpus_hang_unless_something_explains_it(gpus: list[Bottleneck], facts: dict[str, Any], found: set[str]) -> None:
    assert hangs(*gpus, **facts).keys() == found


NCCL_ABORTS_SECONDS = 600
"""The timeout of PyTorch's NCCL process groups."""
HANGS = [state for state in STATES if state.kind == "hangs" and state.gpus == 2]


@pytest.mark.slow
@pytest.mark.parametrize("state", HANGS, ids=lambda state: str(state.name))
def test_a_hang_is_confirmed_before_nccl_aborts_and_a_checkpoint_never(state: State) -> None:
    assert state.lasts < NCCL_ABORTS_SECONDS
    seen = play(state)
    assert seen.report is not None
    confirmed = {each.check.code for each in seen.report.findings if each.state is finding.State.CONFIRMED}
    assert (HANG in confirmed, seen.seconds <= state.promised) == ("hang" in state.name, True)
    assert ("hung" in {each for of_gpu in seen.found.values() for each in of_gpu}) == (state.wanted == "hung")
