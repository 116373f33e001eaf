"""How much of a GPU process's memory is on the GPU's side of the host."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.hardware.process_memory_locality import ProcessMemoryLocalityReader, ProcessMemoryLocalityReading


def render(reading: ProcessMemoryLocalityReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's processes."""
    for process in reading.processes:
        labels = (*gpu, str(process.pid), process.name)
        yield catalogue.PROCESS_NUMA_MEMORY_LOCAL.sample(process.local_ratio, *labels)


PROCESS_MEMORY_LOCALITY = GpuCollector(
    name="process_memory_locality",
    about="share of processes' memory on the GPU's NUMA node; walks their page tables under their memory lock",
    tier=Tier.SLOW,
    metrics=(catalogue.PROCESS_NUMA_MEMORY_LOCAL,),
    # Half of the deadline: a process begun in time may still be read when it has passed.
    reader=lambda config: ProcessMemoryLocalityReader(config.process_max, config.sample_deadline_seconds / 2).read,
    render=render,
    default=False,
)
