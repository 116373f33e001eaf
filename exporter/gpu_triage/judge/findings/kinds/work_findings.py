"""Processes on GPUs, how they use them, and the limits of their own cgroups."""

from __future__ import annotations

from typing import Final

from gpu_triage.judge.findings.check import MINUTES, Action, Advice, Area, Check, Measure, Severity, Unit

_BUSY: Final = Measure(Unit.RATIO, "busy {} of the time")

WORK: Final = (
    Check(
        code="work.blocked",
        area=Area.WORK,
        topic="blocked",
        severity=Severity.WARNING,
        action=Action.FIX_HOST,
        alert="GpuHostTaskHung",
        title="a process on it hangs in the kernel",
        advice=Advice(
            "A process on the GPU waits in the kernel and does not run: its job hangs, and cannot be killed meanwhile.",
            "Read its stack (/proc/PID/task/*/stack), and restore what it waits for: file server, disk or GPU driver.",
        ),
        measure=Measure(Unit.SECONDS, "waiting for {}"),
        wait_seconds=4 * MINUTES,
    ),
    Check(
        code="numa.mismatch",
        area=Area.WORK,
        topic="numa",
        severity=Severity.WARNING,
        action=Action.FIX_JOB,
        alert="GpuNumaMismatch",
        title="a process runs on the wrong NUMA node",
        advice=Advice(
            "A process is bound to the CPUs of another socket than its GPU's: every transfer crosses between them.",
            "Bind it to the GPU's own node or socket (numactl, the scheduler's affinity settings).",
        ),
        measure=Measure(Unit.COUNT, "processes on the wrong node: {}"),
        wait_seconds=30 * MINUTES,
    ),
    Check(
        code="work.imbalance",
        area=Area.WORK,
        topic="imbalance",
        severity=Severity.WARNING,
        action=Action.FIX_JOB,
        alert="GpuImbalance",
        title="several processes on it while another GPU is free",
        advice=Advice(
            "Several processes share one GPU while another has none.",
            "Fix the launcher: one rank per GPU, and look at CUDA_VISIBLE_DEVICES.",
        ),
        measure=Measure(Unit.COUNT, "compute processes on it: {}"),
        wait_seconds=20 * MINUTES,
    ),
    Check(
        code="work.memory_imbalance",
        area=Area.WORK,
        topic="imbalance",
        severity=Severity.INFO,
        action=Action.FIX_JOB,
        page="GpuImbalance",
        title="its memory is nearly full while another GPU's is nearly empty",
        advice=Advice(
            "One GPU's memory is nearly full while a sibling's is nearly empty.",
            "Check where the job places its tensors, or shard the model.",
        ),
        measure=Measure(Unit.RATIO, "memory {} full"),
        wait_seconds=20 * MINUTES,
    ),
    Check(
        code="work.low_power",
        area=Area.WORK,
        topic="communication",
        severity=Severity.INFO,
        action=Action.FIX_JOB,
        alert="GpuBusyButLowPower",
        title="busy at low power",
        advice=Advice(
            "Kernels are resident all the time and do little: most likely they spin at barriers.",
            "Look at communication: P2P, NVLink, placement; then batch size and overlap.",
        ),
        measure=Measure(Unit.RATIO, "power at {} of its limit"),
        wait_seconds=30 * MINUTES,
    ),
    Check(
        code="work.collective_hang",
        area=Area.WORK,
        topic="communication",
        severity=Severity.WARNING,
        action=Action.FIX_JOB,
        alert="GpuCollectiveHang",
        title="GPUs are stuck in a collective",
        advice=Advice(
            "No GPU of a job works: they stopped, or look busy at low power while no data moves, and wait for a rank.",
            "Find the rank that differs (py-spy dump on each, the NCCL flight recorder), save the stacks, and let the "
            "owner restart the job.",
        ),
        measure=Measure(Unit.COUNT, "GPUs that are stuck: {}"),
        # From when it is found, so that a person can save stacks before NCCL aborts after 10 minutes.
        wait_seconds=2 * MINUTES,
        of_host=True,
    ),
    Check(
        code="work.memory_full",
        area=Area.WORK,
        topic="memory_full",
        severity=Severity.INFO,
        action=Action.FIX_JOB,
        alert="GpuMemoryNearFull",
        relayed=False,
        title="its memory is nearly full and rising",
        advice=Advice(
            "Device memory is nearly full and still growing.",
            "Expect an out-of-memory error; many frameworks pre-allocate, which is not a fault.",
        ),
        measure=Measure(Unit.RATIO, "memory {} full"),
        wait_seconds=30 * MINUTES,
    ),
    Check(
        code="work.hung",
        area=Area.WORK,
        topic="hung",
        severity=Severity.WARNING,
        action=Action.FIX_JOB,
        alert="GpuHungProcess",
        title="its job has stopped working",
        advice=Advice(
            "The job worked, then stopped without releasing the GPU: a dead peer, a deadlock, a lost filesystem.",
            "Save the stacks of its ranks (py-spy dump), then have its owner restart it.",
        ),
        wait_seconds=20 * MINUTES,
        hold_seconds=10 * MINUTES,
    ),
    Check(
        code="work.held_idle",
        area=Area.WORK,
        topic="held_idle",
        severity=Severity.INFO,
        action=Action.FIX_JOB,
        page="GpuHungProcess",
        title="its memory is held and it does no work",
        advice=Advice(
            "A process holds device memory and the GPU is idle: it may be hung, starting, or idle.",
            "Look at its log and stack; only history (GpuHungProcess, GpuAllocatedIdle) can tell which.",
        ),
        measure=_BUSY,
        wait_seconds=20 * MINUTES,
    ),
    Check(
        code="work.allocated_unused",
        area=Area.WORK,
        topic="allocated",
        severity=Severity.INFO,
        action=Action.FIX_JOB,
        page="GpuAllocatedIdle",
        title="allocated, and no process is on it",
        advice=Advice(
            "The GPU is allocated and unused: the job is starting, has finished, or requested too many.",
            "If it lasts (GpuAllocatedIdle), ask the owner to free it.",
        ),
        wait_seconds=20 * MINUTES,
    ),
    Check(
        code="work.allocated_idle",
        area=Area.WORK,
        topic="allocated",
        severity=Severity.INFO,
        action=Action.FIX_JOB,
        alert="GpuAllocatedIdle",
        title="allocated and idle",
        advice=Advice(
            "A job has had the GPU for hours and hardly used it.",
            "Ask the owner to free it.",
        ),
        measure=_BUSY,
        wait_seconds=5 * MINUTES,
    ),
)


JOB_LIMITS: Final = (
    Check(
        code="memory.limited",
        area=Area.HOST,
        topic="memory",
        severity=Severity.WARNING,
        action=Action.FIX_JOB,
        alert="GpuMemoryLimited",
        title="a GPU job is at its own memory limit",
        advice=Advice(
            "A job on GPUs has reached the memory limit of its cgroup: its tasks stall, or the kernel has killed some.",
            "Raise the limit (Kubernetes limits.memory, Slurm --mem), or use fewer data loader workers.",
        ),
        wait_seconds=5 * MINUTES,
        of_host=True,
    ),
    Check(
        code="cpu.limited",
        area=Area.HOST,
        topic="cpu",
        severity=Severity.WARNING,
        action=Action.FIX_JOB,
        alert="GpuCpuLimited",
        title="GPUs wait because of their job's CPU limit",
        advice=Advice(
            "GPUs wait while the CPU limit of their job's cgroup stops it: the CPUs of the host are free, and the job "
            "must not use them.",
            "Raise or remove the limit (Kubernetes limits.cpu, docker --cpus, CPUQuota of systemd), or use fewer "
            "workers.",
        ),
        measure=Measure(Unit.RATIO, "stopped in {} of the periods"),
        wait_seconds=20 * MINUTES,
        of_host=True,
    ),
)
