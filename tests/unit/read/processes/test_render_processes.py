from __future__ import annotations

import dataclasses

from tests.nvml_bench import shown

from gpu_triage.machine import Workload
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.processes import on_gpu as processes
from gpu_triage.read.processes.facts import Owner, ProcessFacts
from gpu_triage.read.processes.locality import Locality
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_OWNER_INFO, ProcessesReading, ProcessReading
from gpu_triage.read.processes.pods import NO_WORKLOAD

GPU = GpuLabels("0", "GPU-a")
FACTS = ProcessFacts(
    name="python",
    user="alice",
    allowed_cpus=frozenset({0, 1}),
    owner=Owner("c" * 64, "11111111-2222-3333-4444-555555555555", "42"),
)


def process(pid: int, locality: Locality, *, is_compute: bool = True) -> ProcessReading:
    return ProcessReading(pid, is_compute, None, None, None, locality, NO_WORKLOAD)


def counts_of(*localities: Locality, is_compute: bool = True, known: bool = True) -> list[str]:
    listed = tuple(process(pid, locality, is_compute=is_compute) for pid, locality in enumerate(localities))
    reading = ProcessesReading({"compute": len(listed)}, listed, 0, locality_known=known)
    return [line for line in shown(processes.render(reading, GPU)) if line.startswith("gpu_numa_")]


def test_everything_known_of_a_process_shows() -> None:
    reading = ProcessesReading(
        counts={"compute": 1, "graphics": 0, "mps": 0},
        processes=(
            ProcessReading(
                pid=4711,
                is_compute=True,
                memory_bytes=12e9,
                sm_utilization_ratio=0.72,
                facts=FACTS,
                locality=Locality.LOCAL,
                workload=Workload("bert-0", "research", "train"),
            ),
        ),
        truncated=2,
        locality_known=True,
    )
    assert shown(processes.render(reading, GPU)) == [
        'gpu_processes{gpu="0",uuid="GPU-a",type="compute"} 1.0',
        'gpu_processes{gpu="0",uuid="GPU-a",type="graphics"} 0.0',
        'gpu_processes{gpu="0",uuid="GPU-a",type="mps"} 0.0',
        'gpu_processes_truncated{gpu="0",uuid="GPU-a"} 2.0',
        'gpu_process_memory_bytes{gpu="0",uuid="GPU-a",pid="4711",process="python"} 12000000000.0',
        'gpu_process_sm_utilization_ratio{gpu="0",uuid="GPU-a",pid="4711",process="python"} 0.72',
        'gpu_process_numa_local{gpu="0",uuid="GPU-a",pid="4711",process="python"} 1.0',
        (
            f'gpu_process_info{{gpu="0",uuid="GPU-a",pid="4711",process="python",user="alice",'
            f'container_id="{"c" * 64}",pod_uid="11111111-2222-3333-4444-555555555555",workload_pod="bert-0",'
            'workload_namespace="research",workload_container="train",slurm_job_id="42"} 1.0'
        ),
        (
            'gpu_process_owner_info{gpu="0",uuid="GPU-a",user="alice",pod_uid="11111111-2222-3333-4444-555555555555",'
            'workload_pod="bert-0",workload_namespace="research",slurm_job_id="42"} 1.0'
        ),
        'gpu_numa_mismatched_processes{gpu="0",uuid="GPU-a"} 0.0',
        'gpu_numa_unpinned_processes{gpu="0",uuid="GPU-a"} 0.0',
    ]


def test_a_process_nothing_is_known_of_shows_that_it_is_there_and_no_more() -> None:
    reading = ProcessesReading({"compute": 1}, (process(7, Locality.UNKNOWN),), 0, locality_known=False)
    assert shown(processes.render(reading, GPU)) == [
        'gpu_processes{gpu="0",uuid="GPU-a",type="compute"} 1.0',
        'gpu_processes_truncated{gpu="0",uuid="GPU-a"} 0.0',
        (
            'gpu_process_info{gpu="0",uuid="GPU-a",pid="7",process="",user="",container_id="",pod_uid="",'
            'workload_pod="",workload_namespace="",workload_container="",slurm_job_id=""} 1.0'
        ),
        (
            'gpu_process_owner_info{gpu="0",uuid="GPU-a",user="",pod_uid="",workload_pod="",workload_namespace="",'
            'slurm_job_id=""} 1.0'
        ),
    ]


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


def test_a_gpu_that_lists_no_processes_shows_nothing() -> None:
    assert shown(processes.render(ProcessesReading({}, (), 0, locality_known=True), GPU)) == []


def test_only_local_and_remote_processes_have_a_locality_to_show() -> None:
    listed = tuple(process(pid, locality) for pid, locality in enumerate(Locality))
    reading = ProcessesReading({"compute": len(listed)}, listed, 0, locality_known=True)
    local = [line for line in shown(processes.render(reading, GPU)) if line.startswith("gpu_process_numa_local")]
    assert local == [
        'gpu_process_numa_local{gpu="0",uuid="GPU-a",pid="0",process=""} 1.0',
        'gpu_process_numa_local{gpu="0",uuid="GPU-a",pid="1",process=""} 0.0',
    ]


def test_remote_and_unpinned_compute_processes_are_counted() -> None:
    assert counts_of(Locality.REMOTE, Locality.REMOTE, Locality.UNPINNED, Locality.SPANNING, Locality.LOCAL) == [
        'gpu_numa_mismatched_processes{gpu="0",uuid="GPU-a"} 2.0',
        'gpu_numa_unpinned_processes{gpu="0",uuid="GPU-a"} 1.0',
    ]


def test_graphics_processes_are_not_counted_as_misplaced() -> None:
    assert counts_of(Locality.REMOTE, Locality.UNPINNED, is_compute=False) == [
        'gpu_numa_mismatched_processes{gpu="0",uuid="GPU-a"} 0.0',
        'gpu_numa_unpinned_processes{gpu="0",uuid="GPU-a"} 0.0',
    ]


def test_where_locality_cannot_be_judged_nobody_is_counted() -> None:
    assert counts_of(Locality.UNKNOWN, known=False) == []
