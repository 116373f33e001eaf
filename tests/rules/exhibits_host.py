"""Exhibits of the host around the GPUs, by what the kernel log says."""

from __future__ import annotations

from typing import Final

from tests.rules.exhibits import (
    BOARD,
    NOW,
    POD,
    SLURM,
    Exhibit,
    Owner,
    growing,
    merged,
    of_gpu,
    of_host,
    steady,
)
from tests.rules.handwritten import Series, host

LAST: Final = "gpu_host_kernel_event_last_timestamp_seconds"
KILLED: Final = "gpu_host_oom_kill_timestamp_seconds"
JUST_NOW: Final = (NOW - 2) * 60.0
DIMM: Final = {"controller": "mc0", "dimm": "dimm2", "severity": "corrected"}
POD_UID: Final = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


def told(kind: str, *subjects: str, at: float = JUST_NOW) -> Series:
    """What the kernel said of these subjects."""
    return merged(*(host(LAST, steady(at), kind=kind, subject=subject) for subject in subjects))


def killed(at: float = JUST_NOW, **labels: str) -> Series:
    """A process of this job that the kernel killed."""
    return host(KILLED, steady(at), **{"pid": "4242", "process": "pt_data_worker", **labels})


def errors(severity: str, values: list[float]) -> Series:
    """What a memory controller counts."""
    return host("gpu_host_edac_errors_total", values, controller="mc0", severity=severity)


def blocked(channel: str, what: str, owner: Owner) -> Exhibit:
    """A process that hangs in this function of the kernel."""
    labels = {"pid": "31337", "process": "python3", "wait_channel": channel}
    since = BOARD.series("gpu_process_blocked_since_timestamp_seconds", steady((NOW - 27) * 60.0), **labels)
    return of_gpu("GpuProcessBlocked", since, what=what, owners=(owner,))


EXHIBITS: Final[tuple[Exhibit, ...]] = (
    of_host("GpuHostFilesystemReadOnly", told("filesystem_read_only", "nvme0n1p2"), owners=(POD,)),
    of_host("GpuHostNvmeFailing", told("nvme_reset", "nvme3"), owners=(SLURM,)),
    of_host("GpuHostNvmeFailing", told("nvme_lost", "nvme3", at=60.0), what="gone", owners=(SLURM,)),
    of_host("GpuHostHardwareError", told("hardware_uncorrected", "CPU 12"), owners=(POD,)),
    of_host("GpuHostHardwareError", told("memory_uncorrected", ""), what="unnamed", owners=(POD,)),
    of_host(
        "GpuHostHardwareError", errors("uncorrected", [0.0] * (NOW - 9) + [1.0] * 10), what="counted", owners=(POD,)
    ),
    of_host(
        "GpuHostMemoryErrorsRising",
        merged(
            errors("corrected", growing(3)),
            host("gpu_host_edac_dimm_errors_total", growing(3), **DIMM, dimm_label="CPU_SrcID#0_MC#0_Chan#1_DIMM#0"),
        ),
        owners=(POD,),
    ),
    of_host(
        "GpuHostMemoryErrorsRising",
        merged(
            errors("corrected", growing(3)),
            host("gpu_host_edac_dimm_errors_total", growing(3), **DIMM, dimm_label=""),
        ),
        what="no-label",
        owners=(POD,),
    ),
    of_host("GpuHostCpuLockup", told("soft_lockup", "CPU 3", "CPU 7"), owners=(POD,)),
    of_host("GpuHostTaskHung", told("hung_task", *(f"python3 ({pid})" for pid in range(41, 46))), owners=(POD,)),
    of_host(
        "GpuHostCpuClockLow",
        merged(
            host("gpu_host_cpu_busiest_frequency_ratio", steady(0.21), numa_node="1"),
            host("gpu_host_cpu_busiest_ratio", steady(1), numa_node="1"),
            host("gpu_host_cpu_governor_policies", steady(224), governor="powersave"),
        ),
        owners=(POD,),
    ),
    of_host(
        "GpuHostClockSourceSlow", host("gpu_host_clock_source_info", steady(1), clock_source="hpet"), owners=(POD,)
    ),
    blocked("rpc_wait_bit_killable", "", POD),
    blocked("", "no-channel", SLURM),
    of_host(
        "GpuProcessOomKilled",
        merged(
            killed(pod_uid=POD_UID),
            BOARD.series(
                "gpu_process_info",
                steady(1),
                pid="31",
                pod_uid=POD_UID,
                workload_pod="train-0",
                workload_namespace="ml",
            ),
        ),
        owners=(POD,),
    ),
    of_host(
        "GpuProcessOomKilled",
        merged(killed(slurm_job_id="4711"), BOARD.series("gpu_process_info", steady(1), pid="31", slurm_job_id="4711")),
        what="slurm",
    ),
)
