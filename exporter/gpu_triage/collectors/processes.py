"""Who uses the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import by_label, present
from gpu_triage.hardware.processes import Locality, ProcessesReader, ProcessesReading, ProcessReading

_LOCAL = {Locality.LOCAL: 1.0, Locality.REMOTE: 0.0}


def render(reading: ProcessesReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's processes."""
    yield from by_label(catalogue.PROCESSES, reading.counts, *gpu)
    if reading.counts:
        yield catalogue.PROCESSES_TRUNCATED.sample(reading.truncated, *gpu)
    for process in reading.processes:
        yield from _render_process(process, gpu)
    if reading.locality_known and "compute" in reading.counts:
        compute = [process.locality for process in reading.processes if process.is_compute]
        yield catalogue.NUMA_MISMATCHED_PROCESSES.sample(compute.count(Locality.REMOTE), *gpu)
        yield catalogue.NUMA_UNPINNED_PROCESSES.sample(compute.count(Locality.UNPINNED), *gpu)


def _render_process(process: ProcessReading, gpu: GpuLabels) -> Iterator[Sample]:
    facts, pid = process.facts, str(process.pid)
    name = facts.name if facts else ""
    yield from present(catalogue.PROCESS_MEMORY, process.memory_bytes, *gpu, pid, name)
    yield from present(catalogue.PROCESS_SM_UTILIZATION, process.sm_utilization_ratio, *gpu, pid, name)
    yield from present(catalogue.PROCESS_NUMA_LOCAL, _LOCAL.get(process.locality), *gpu, pid, name)
    owner = (facts.user, facts.container_id, facts.pod_uid) if facts else ("", "", "")
    job = facts.slurm_job_id if facts else ""
    yield catalogue.PROCESS_INFO.sample(1, *gpu, pid, name, *owner, *process.workload, job)


PROCESSES = GpuCollector(
    name="processes",
    about="processes on each GPU and their NUMA locality",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.PROCESSES,
        catalogue.PROCESSES_TRUNCATED,
        catalogue.PROCESS_MEMORY,
        catalogue.PROCESS_SM_UTILIZATION,
        catalogue.PROCESS_NUMA_LOCAL,
        catalogue.PROCESS_INFO,
        catalogue.NUMA_MISMATCHED_PROCESSES,
        catalogue.NUMA_UNPINNED_PROCESSES,
    ),
    reader=lambda config: ProcessesReader(config.process_max).read,
    render=render,
)
