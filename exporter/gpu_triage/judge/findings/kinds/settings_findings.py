"""Settings of a host and its GPUs, and drift from the recorded baseline."""

from __future__ import annotations

from typing import Final

from gpu_triage.judge.findings.check import HOURS, MINUTES, Action, Advice, Area, Check, Measure, Severity, Unit

BASELINE: Final = (
    Check(
        code="baseline.drift",
        area=Area.SETTINGS,
        topic="baseline",
        severity=Severity.WARNING,
        action=Action.FIX_HOST,
        alert="GpuBaselineDrift",
        title="differs from its recorded baseline",
        advice=Advice(
            "The host is not what it was when its baseline was recorded.",
            "Run gpu-triage baseline diff to see what changed; repair it, or run baseline accept if it is intended.",
        ),
        measure=Measure(Unit.COUNT, "fields that differ: {}"),
        wait_seconds=5 * MINUTES,
    ),
)

SETTINGS: Final = (
    Check(
        code="vgpu.unlicensed",
        area=Area.SETTINGS,
        topic="license",
        severity=Severity.WARNING,
        action=Action.FIX_HOST,
        alert="GpuVgpuUnlicensed",
        title="its vGPU has no license",
        advice=Advice(
            "The vGPU has no license: 20 minutes after boot, its driver begins to slow it down more and more.",
            "Check nvidia-gridd and its log, the client token, the network path to the license server, and the clock.",
        ),
        wait_seconds=15 * MINUTES,
    ),
    Check(
        code="policy.persistence",
        area=Area.SETTINGS,
        topic="persistence",
        severity=Severity.INFO,
        action=Action.FIX_HOST,
        alert="GpuPersistenceModeOff",
        relayed=False,
        title="persistence mode is off",
        advice=Advice(
            "Without persistence the driver unloads the GPU when its last client leaves: slow starts, lost settings.",
            "Run nvidia-persistenced.",
        ),
        wait_seconds=1 * HOURS,
    ),
)
