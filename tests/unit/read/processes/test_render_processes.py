import dataclasses

import pytest

from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.processes import on_gpu as processes
from gpu_triage.read.processes.facts import Owner, ProcessFacts
from gpu_triage.read.processes.locality import Locality
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_OWNER_INFO, ProcessesReading, ProcessReading
from gpu_triage.read.processes.pods import NO_WORKLOAD

GPU = GpuLabels("0", "GPU-a")


def process(pid: int, locality: Locality, *, is_compute: bool = True) -> ProcessReading:
    return ProcessReading(pid, is_compute, None, None, None, locality, NO_WORKLOAD)


def test_an_owner_has_one_series_however_many_processes_and_containers_it_has_on_the_gpu() -> None:
    def owned(pid: int, user: str, owner: Owner) -> ProcessReading:
        return dataclasses.replace(process(pid, Locality.UNKNOWN), facts=ProcessFacts("python", user, None, owner))

    job = Owner(slurm_job_id="42")
    listed = (
        owned(1, "alice", job),
        owned(2, "alice", job._replace(container_id="c" * 64)),
        owned(3, "alice", Owner(slurm_job_id="43")),
        owned(4, "bob", Owner()),
        owned(5, "alice", job),
    )
    reading = ProcessesReading({"compute": len(listed)}, listed, 0, locality_known=False)
    owners = [
        (sample.labels[2], sample.labels[6], sample.value)
        for sample in processes.render(reading, GPU)
        if sample.spec is GPU_PROCESS_OWNER_INFO
    ]
    assert owners == [("alice", "42", 1.0), ("alice", "43", 1.0), ("bob", "", 1.0)]


@pytest.mark.parametrize(
    ("localities", "is_compute", "known", "misplaced"),
    [
        (("REMOTE", "REMOTE", "UNPINNED", "SPANNING", "LOCAL"), True, True, [2.0, 1.0]),
        (("REMOTE", "UNPINNED"), False, True, [0.0, 0.0]),  # graphics
        (("UNKNOWN",), True, False, []),
    ],
)
def test_remote_and_unpinned_compute_processes_are_counted(
    localities: tuple[str, ...], *, is_compute: bool, known: bool, misplaced: list[float]
) -> None:
    listed = tuple(process(pid, Locality[name], is_compute=is_compute) for pid, name in enumerate(localities))
    samples = list(processes.render(ProcessesReading({"compute": len(listed)}, listed, 0, locality_known=known), GPU))
    counts = (processes.GPU_NUMA_MISMATCHED_PROCESSES, processes.GPU_NUMA_UNPINNED_PROCESSES)
    assert [sample.value for spec in counts for sample in samples if sample.spec is spec] == misplaced
    # Only local and remote processes have a locality to show.
    local = {"LOCAL": 1.0, "REMOTE": 0.0}
    shown_local = [sample.value for sample in samples if sample.spec is processes.GPU_PROCESS_NUMA_LOCAL]
    assert shown_local == [local[name] for name in localities if name in local]
