"""Processes on GPUs and how they use them, settings of a host and its GPUs, and drift from the recorded baseline."""

from __future__ import annotations

from typing import Final

from gpu_triage.judge.findings.check import HOURS, MINUTES, Action, Area, Measure, Unit, rows_of

_work_critical, _work_warning, _work_info = rows_of(Area.WORK)
_settings_critical, _settings_warning, _settings_info = rows_of(Area.SETTINGS)
_BUSY: Final = Measure(Unit.RATIO, "busy {} of the time")

WORK: Final = (
    _work_warning(
        code="work.blocked",
        topic="blocked",
        action=Action.FIX_HOST,
        alert="GpuHostTaskHung",
        title="a process on it hangs in the kernel",
        meaning="A process on the GPU waits in the kernel and does not run: its job hangs, and cannot be killed "
        "meanwhile.",
        decision="Read its stack (/proc/PID/task/*/stack), and restore what it waits for: file server, disk or GPU "
        "driver.",
        measure=Measure(Unit.SECONDS, "waiting for {}"),
        wait_seconds=4 * MINUTES,
    ),
    _work_warning(
        code="numa.mismatch",
        action=Action.FIX_JOB,
        alert="GpuNumaMismatch",
        title="a process runs on the wrong NUMA node",
        meaning="A process is bound to the CPUs of another socket than its GPU's: every transfer crosses between them.",
        decision="Bind it to the GPU's own node or socket (numactl, the scheduler's affinity settings).",
        measure=Measure(Unit.COUNT, "processes on the wrong node: {}"),
        wait_seconds=30 * MINUTES,
    ),
    _work_warning(
        code="work.imbalance",
        topic="imbalance",
        action=Action.FIX_JOB,
        alert="GpuImbalance",
        title="several processes on it while another GPU is free",
        meaning="Several processes share one GPU while another has none.",
        decision="Fix the launcher: one rank per GPU, and look at CUDA_VISIBLE_DEVICES.",
        measure=Measure(Unit.COUNT, "compute processes on it: {}"),
        wait_seconds=20 * MINUTES,
    ),
    _work_info(
        code="work.memory_imbalance",
        topic="imbalance",
        action=Action.FIX_JOB,
        page="GpuImbalance",
        title="its memory is nearly full while another GPU's is nearly empty",
        meaning="One GPU's memory is nearly full while a sibling's is nearly empty.",
        decision="Check where the job places its tensors, or shard the model.",
        measure=Measure(Unit.RATIO, "memory {} full"),
        wait_seconds=20 * MINUTES,
    ),
    _work_info(
        code="work.low_power",
        topic="communication",
        action=Action.FIX_JOB,
        alert="GpuBusyButLowPower",
        title="busy at low power",
        meaning="Kernels are resident all the time and do little: most likely they spin at barriers.",
        decision="Look at communication: P2P, NVLink, placement; then batch size and overlap.",
        measure=Measure(Unit.RATIO, "power at {} of its limit"),
        wait_seconds=30 * MINUTES,
    ),
    _work_warning(
        code="work.collective_hang",
        topic="communication",
        action=Action.FIX_JOB,
        alert="GpuCollectiveHang",
        title="GPUs are stuck in a collective",
        meaning="No GPU of a job works: they stopped, or look busy at low power while no data moves, and wait for a "
        "rank.",
        decision="Find the rank that differs (py-spy dump on each, the NCCL flight recorder), save the stacks, and let "
        "the owner restart the job.",
        measure=Measure(Unit.COUNT, "GPUs that are stuck: {}"),
        # From when it is found, so that a person can save stacks before NCCL aborts after 10 minutes.
        wait_seconds=2 * MINUTES,
        of_host=True,
    ),
    _work_info(
        code="work.memory_full",
        topic="memory_full",
        action=Action.FIX_JOB,
        alert="GpuMemoryNearFull",
        relayed=False,
        title="its memory is nearly full and rising",
        meaning="Device memory is nearly full and still growing.",
        decision="Expect an out-of-memory error; many frameworks pre-allocate, which is not a fault.",
        measure=Measure(Unit.RATIO, "memory {} full"),
        wait_seconds=30 * MINUTES,
    ),
    _work_warning(
        code="work.hung",
        topic="hung",
        action=Action.FIX_JOB,
        alert="GpuHungProcess",
        title="its job has stopped working",
        meaning="The job worked, then stopped without releasing the GPU: a dead peer, a deadlock, a lost filesystem.",
        decision="Save the stacks of its ranks (py-spy dump), then have its owner restart it.",
        wait_seconds=20 * MINUTES,
        hold_seconds=10 * MINUTES,
    ),
    _work_info(
        code="work.held_idle",
        topic="held_idle",
        action=Action.FIX_JOB,
        page="GpuHungProcess",
        title="its memory is held and it does no work",
        meaning="A process holds device memory and the GPU is idle: it may be hung, starting, or idle.",
        decision="Look at its log and stack; only history (GpuHungProcess, GpuAllocatedIdle) can tell which.",
        measure=_BUSY,
        wait_seconds=20 * MINUTES,
    ),
    _work_info(
        code="work.allocated_unused",
        topic="allocated",
        action=Action.FIX_JOB,
        page="GpuAllocatedIdle",
        title="allocated, and no process is on it",
        meaning="The GPU is allocated and unused: the job is starting, has finished, or requested too many.",
        decision="If it lasts (GpuAllocatedIdle), ask the owner to free it.",
        wait_seconds=20 * MINUTES,
    ),
    _work_info(
        code="work.allocated_idle",
        topic="allocated",
        action=Action.FIX_JOB,
        alert="GpuAllocatedIdle",
        title="allocated and idle",
        meaning="A job has had the GPU for hours and hardly used it.",
        decision="Ask the owner to free it.",
        measure=_BUSY,
        wait_seconds=5 * MINUTES,
    ),
)

BASELINE: Final = (
    _settings_warning(
        code="baseline.drift",
        action=Action.FIX_HOST,
        alert="GpuBaselineDrift",
        title="differs from its recorded baseline",
        meaning="The host is not what it was when its baseline was recorded.",
        decision="Run gpu-triage baseline diff to see what changed; repair it, or run baseline accept if it is "
        "intended.",
        measure=Measure(Unit.COUNT, "fields that differ: {}"),
        wait_seconds=5 * MINUTES,
    ),
)

SETTINGS: Final = (
    _settings_warning(
        code="vgpu.unlicensed",
        topic="license",
        action=Action.FIX_HOST,
        alert="GpuVgpuUnlicensed",
        title="its vGPU has no license",
        meaning="The vGPU has no license: 20 minutes after boot, its driver begins to slow it down more and more.",
        decision="Check nvidia-gridd and its log, the client token, the network path to the license server, and the "
        "clock.",
        wait_seconds=15 * MINUTES,
    ),
    _settings_info(
        code="policy.persistence",
        topic="persistence",
        action=Action.FIX_HOST,
        alert="GpuPersistenceModeOff",
        relayed=False,
        title="persistence mode is off",
        meaning="Without persistence the driver unloads the GPU when its last client leaves: slow starts, lost "
        "settings.",
        decision="Run nvidia-persistenced.",
        wait_seconds=1 * HOURS,
    ),
)
