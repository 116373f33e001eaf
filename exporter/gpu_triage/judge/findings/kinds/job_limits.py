"""Limits on a job's use of the host: those of its own cgroup."""

from __future__ import annotations

from typing import Final

from gpu_triage.judge.findings.check import MINUTES, Action, Advice, Area, Check, Measure, Severity, Unit

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
