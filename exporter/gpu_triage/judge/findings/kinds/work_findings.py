"""Processes on GPUs and how they use them, settings of a host and its GPUs, and drift from the recorded baseline."""

from typing import Final

from gpu_triage.judge.findings.check import Action, Area, Measure, Unit, rows_of

_work_critical, _work_warning, _work_info = rows_of(Area.WORK)
_settings_critical, _settings_warning, _settings_info = rows_of(Area.SETTINGS)
_BUSY: Final = Measure(Unit.RATIO, "busy {} of the time")

WORK: Final = (
    _work_warning("work.blocked", Action.FIX_HOST, "GpuHostTaskHung", topic="blocked", wait="4m")(
        title="a process on it hangs in the kernel",
        meaning="A process on the GPU waits in the kernel and does not run: its job hangs, and cannot be killed "
        "meanwhile.",
        decision="Read its stack (/proc/PID/task/*/stack), and restore what it waits for: file server, disk or GPU "
        "driver.",
        measure=Measure(Unit.SECONDS, "for {}"),
    ),
    _work_warning("numa.mismatch", Action.FIX_JOB, "GpuNumaMismatch", wait="30m")(
        title="a process runs on the wrong NUMA node",
        meaning="A process is bound to the CPUs of another socket than its GPU's: every transfer crosses between them.",
        decision="Bind it to the GPU's own node or socket (numactl, the scheduler's affinity settings).",
        measure=Measure(Unit.COUNT, "{} process(es)"),
    ),
    _work_warning("work.imbalance", Action.FIX_JOB, "GpuImbalance", topic="imbalance", wait="20m")(
        title="several processes on it while another GPU is free",
        meaning="Several processes share one GPU while another has none.",
        decision="Fix the launcher: one rank per GPU, and look at CUDA_VISIBLE_DEVICES.",
        measure=Measure(Unit.COUNT, "{} process(es)"),
    ),
    _work_info("work.memory_imbalance", Action.FIX_JOB, topic="imbalance", page="GpuImbalance", wait="20m")(
        title="its memory is nearly full while another GPU's is nearly empty",
        meaning="One GPU's memory is nearly full while a sibling's is nearly empty.",
        decision="Check where the job places its tensors, or shard the model.",
        measure=Measure(Unit.RATIO, "memory {} full"),
    ),
    _work_info("work.low_power", Action.FIX_JOB, "GpuBusyButLowPower", topic="communication", wait="30m")(
        title="busy at low power",
        meaning="Kernels are resident all the time and do little: most likely they spin at barriers.",
        decision="Look at communication: P2P, NVLink, placement; then batch size and overlap.",
        measure=Measure(Unit.RATIO, "at {} of its power limit", low=True),
    ),
    # The wait is from when it is found, so that a person can save stacks before NCCL aborts after 10 minutes.
    _work_warning(
        "work.collective_hang", Action.FIX_JOB, "GpuCollectiveHang", topic="communication", unbroken="2m", of_host=True
    )(
        title="stuck in a collective",
        meaning="No GPU of a job works: they stopped, or look busy at low power while no data moves, and wait for a "
        "rank.",
        decision="Find the rank that differs (py-spy dump on each, the NCCL flight recorder), save the stacks, and let "
        "the owner restart the job.",
        measure=Measure(Unit.COUNT, "{} GPU(s)"),
    ),
    _work_info(
        "work.memory_full", Action.FIX_JOB, "GpuMemoryNearFull", topic="memory_full", unbroken="30m", relayed=False
    )(
        title="its memory is nearly full and rising",
        meaning="Device memory is nearly full and still growing.",
        decision="Expect an out-of-memory error; many frameworks pre-allocate, which is not a fault.",
        measure=Measure(Unit.RATIO, "memory {} full"),
    ),
    _work_warning("work.hung", Action.FIX_JOB, "GpuHungProcess", topic="hung", unbroken="20m", hold="10m")(
        title="its job has stopped working",
        meaning="The job worked, then stopped without releasing the GPU, and nothing seen explains that: a deadlock, a "
        "dead peer, a lost filesystem.",
        decision="Save the stacks of its ranks (py-spy dump), then have its owner restart it.",
    ),
    _work_info("work.held_idle", Action.FIX_JOB, topic="held_idle", page="GpuHungProcess", unbroken="20m")(
        title="its memory is held and it does no work",
        meaning="A process holds device memory and the GPU is idle: it may start, compute on CPUs, wait for input or "
        "requests, or hang.",
        decision="Ask its owner: its log and stack (ps -o stat,tty,pcpu, py-spy dump) tell which.",
        measure=_BUSY,
    ),
    _work_info("work.allocated_unused", Action.FIX_JOB, topic="allocated", page="GpuAllocatedIdle", wait="20m")(
        title="allocated, and no process is on it",
        meaning="No process is on the allocated GPU: the job is starting, has finished, or requested too many.",
        decision="If it lasts (GpuAllocatedIdle), ask the owner to free it.",
    ),
    _work_info("work.allocated_idle", Action.FIX_JOB, "GpuAllocatedIdle", topic="allocated", wait="5m")(
        title="idle while allocated",
        meaning="A job has had the GPU for hours and hardly used it.",
        decision="Ask the owner to free it.",
        measure=_BUSY,
    ),
)

BASELINE: Final = (
    _settings_warning("baseline.drift", Action.FIX_HOST, "GpuBaselineDrift", wait="5m")(
        title="differs from its recorded baseline",
        meaning="The host is not what it was when its baseline was recorded.",
        decision="Run gpu-triage baseline diff to see what changed; repair it, or run baseline accept if it is "
        "intended.",
        measure=Measure(Unit.COUNT, "{} field(s)"),
    ),
)

SETTINGS: Final = (
    _settings_warning("vgpu.unlicensed", Action.FIX_HOST, "GpuVgpuUnlicensed", topic="license", wait="15m")(
        title="its vGPU has no license",
        meaning="The vGPU has no license: 20 minutes after boot, its driver begins to slow it down more and more.",
        decision="Check nvidia-gridd and its log, the client token, the network path to the license server, and the "
        "clock.",
    ),
    _settings_info("mig.pending", Action.FIX_HOST, hold="0s")(
        title="its MIG mode waits for a reset",
        meaning="The MIG mode that was set begins with the next reset of the GPU, which its clients prevent.",
        decision="Stop what uses the GPU (jobs, monitoring, DCGM, the device plugin), then reset it or reboot.",
    ),
    _settings_info(
        "policy.persistence", Action.FIX_HOST, "GpuPersistenceModeOff", topic="persistence", wait="1h", relayed=False
    )(
        title="persistence mode is off",
        meaning="Without persistence the driver unloads the GPU when its last client leaves: slow starts, lost "
        "settings.",
        decision="Run nvidia-persistenced.",
    ),
)
