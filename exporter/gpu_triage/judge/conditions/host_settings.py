"""Do settings slow things down: a CPU clock that stays low under load, an expensive clock source, a missing license?"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.findings.finding import Finding, of_gpu, of_host
from gpu_triage.read.gpu.modes import GPU_VGPU_LICENSE_STATE, LICENSED
from gpu_triage.read.host.cpu import (
    GPU_HOST_CLOCK_SOURCE_INFO,
    GPU_HOST_CPU_BUSIEST_FREQUENCY_RATIO,
    GPU_HOST_CPU_BUSIEST_RATIO,
    GPU_HOST_CPU_GOVERNOR_POLICIES,
    SLOW_CLOCK_SOURCES,
)


def judge_cpu_settings(host: HostEvidence) -> Iterator[Finding]:
    """Yield findings about the clock of the busiest CPUs, and the kernel's clock source."""
    governors = ", ".join(each["governor"] for each in host.labels_of(GPU_HOST_CPU_GOVERNOR_POLICIES))
    for clock in host.recent.series(GPU_HOST_CPU_BUSIEST_FREQUENCY_RATIO):
        node = clock.labels["numa_node"]
        busiest = host.recent.one(GPU_HOST_CPU_BUSIEST_RATIO, numa_node=node)
        is_busy = busiest is not None and busiest.low >= host.limit("cpu.slow_clock", "busy")
        if is_busy and clock.high < host.limit("cpu.slow_clock", "ratio"):
            by = f", governor {governors}" if governors else ""
            measured = f"the busiest CPU of NUMA node {node} runs at {clock.high:.0%} of its clock{by}"
            yield of_host("cpu.slow_clock", measured, clock.high)
    for source in host.labels_of(GPU_HOST_CLOCK_SOURCE_INFO):
        if source["clock_source"] in SLOW_CLOCK_SOURCES:
            yield of_host("host.clock_source", f"the kernel takes the time from {source['clock_source']}")


def judge_licenses(host: HostEvidence) -> Iterator[Finding]:
    for gpu in host.answering:
        for state in gpu.series(GPU_VGPU_LICENSE_STATE):
            if state.last != LICENSED:
                product = state.labels["product"] or "its license"
                yield of_gpu("vgpu.unlicensed", gpu, f"{product}: {GPU_VGPU_LICENSE_STATE.states[int(state.last)]}")
