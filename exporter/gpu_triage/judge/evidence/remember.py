"""History that judges need beyond the evidence window, recorded at each judgment."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.owners import allocated_to
from gpu_triage.judge.evidence.past import DAY_SECONDS, MINUTES_SECONDS, WidestLink
from gpu_triage.judge.evidence.series import Evidence
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.read.gpu import ecc, nvlink, pcie, power
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_USED_BYTES
from gpu_triage.read.host import cpu, host_memory, infiniband, network_interfaces
from gpu_triage.read.host.kernel_log import GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS
from gpu_triage.read.host.kernel_messages import ProblemKind
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.processes import cgroup_limits, on_gpu
from gpu_triage.read.xid import xid_metrics


class Share:
    """Shares of the time in which the condition was observable. Keys of the memory; strings because they hash fast."""

    NEAR_SLOWDOWN: Final = "near the temperature at which it slows down"
    HELD: Final = "held by a job"
    BUSY: Final = "working"
    CLOCK: Final = "hertz of the SM clock under load"


class Count:
    """Event counts. Also keys of the memory."""

    RETRAININGS: Final = "the PCIe link changed its width, or its generation without rest, and back"
    WIDTH_CHANGES: Final = "the PCIe link changed its width under load"
    NVLINK_DOWNS: Final = "NVLinks went down"
    HUNG_AGAIN: Final = "the kernel reported a hung task again"
    MEMORY_GROWTH: Final = "bytes of memory more in use"


OWNER_LABELS: Final = ("pid", "container_id", "pod_uid", "slurm_job_id")
"""Labels that identify a killed process, or its job, as one that was on a GPU."""

_COUNTERS: Final[Mapping[MetricSpec, float]] = {
    pcie.GPU_PCIE_REPLAYS_TOTAL: MINUTES_SECONDS,
    pcie.GPU_PCIE_AER_ERRORS_TOTAL: thresholds.SEVERE_AER_SECONDS,
    nvlink.GPU_NVLINK_ERRORS_TOTAL: MINUTES_SECONDS,
    nvlink.GPU_NVLINK_LINK_ERRORS_TOTAL: thresholds.RECOVERIES_SECONDS,
    ecc.GPU_ECC_VOLATILE_ERRORS_TOTAL: DAY_SECONDS,
    xid_metrics.GPU_XID_ERRORS_TOTAL: MINUTES_SECONDS,
    host_memory.GPU_HOST_EDAC_ERRORS_TOTAL: DAY_SECONDS,
    host_memory.GPU_HOST_EDAC_DIMM_ERRORS_TOTAL: DAY_SECONDS,
    infiniband.GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL: thresholds.PORT_DOWNS_SECONDS,
    infiniband.GPU_HOST_INFINIBAND_LINK_ERRORS_TOTAL: MINUTES_SECONDS,
    infiniband.GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL: MINUTES_SECONDS,
    network_interfaces.GPU_HOST_NETWORK_CARRIER_DOWNS_TOTAL: thresholds.PORT_DOWNS_SECONDS,
    network_interfaces.GPU_HOST_NETWORK_ERRORS_TOTAL: MINUTES_SECONDS,
    host_memory.GPU_HOST_SWAP_IN_BYTES_TOTAL: MINUTES_SECONDS,
    cpu.GPU_HOST_CPU_THROTTLED_SECONDS_TOTAL: MINUTES_SECONDS,
    cgroup_limits.GPU_CGROUP_CPU_PERIODS_TOTAL: MINUTES_SECONDS,
    cgroup_limits.GPU_CGROUP_CPU_THROTTLED_PERIODS_TOTAL: MINUTES_SECONDS,
    cgroup_limits.GPU_CGROUP_CPU_THROTTLED_SECONDS_TOTAL: MINUTES_SECONDS,
    cgroup_limits.GPU_CGROUP_MEMORY_EVENTS_TOTAL: thresholds.OOM_KILLED_SECONDS,
}
"""Counters needed for longer than one window, and how far back in seconds."""


def remember(host: HostEvidence, longest_gap_seconds: float) -> None:
    """Record what happened since the last judgment; call it once per judgment.

    The shares of the last window represent the time since the last judgment. A gap between two judgments of more than
    `longest_gap_seconds` counts as not observed.
    """
    memory = host.memory
    for spec, keep_seconds in _COUNTERS.items():
        for group in host.index.get(spec, {}).values():
            for labels, points in group.items():
                memory.count(spec, labels, points, keep_seconds)
    seconds = memory.passed(host.at.monotonic, host.seconds, longest_gap_seconds)
    links = ((gpu, gpu.one(pcie.GPU_PCIE_LINK_WIDTH)) for gpu in host.answering)
    memory.widest.see(WidestLink(gpu.key, gpu.pci_bus_id, int(width.high)) for gpu, width in links if width is not None)
    for gpu in host.gpus:
        if gpu.up:
            _note_shares(gpu, seconds)
            _note_counts(gpu, seconds)
    _note_host(host, seconds)


def lately(evidence: Evidence, seconds: float = thresholds.EVENTS_REMEMBERED_SECONDS) -> str:
    """Format the period over which events were counted: the last `seconds`, or less if less was observed."""
    return f"in {length_of_time(min(evidence.memory.seconds, seconds))}"


def _note_shares(gpu: GpuEvidence, seconds: float) -> None:
    memory, key = gpu.memory, gpu.key
    for slowdown in gpu.slowdowns:
        if slowdown.observed:
            memory.note(key, slowdown.code, seconds, slowdown.share * seconds)
    margin = slowdown_margin(gpu)
    if margin is not None and (margin.near or gpu.under_load):
        memory.note(key, Share.NEAR_SLOWDOWN, seconds, seconds if margin.near else 0.0)
    if not gpu.partitioned and gpu.busy_share is not None:
        keep_seconds = thresholds.ALLOCATED_IDLE_SECONDS
        memory.note(key, Share.HELD, seconds, seconds if is_held(gpu) else 0.0, keep_seconds)
        memory.note(key, Share.BUSY, seconds, gpu.busy_share * seconds, keep_seconds)

    if (clock := gpu.one(power.GPU_CLOCK_HERTZ, clock="sm")) is not None and gpu.under_load:
        memory.note(key, Share.CLOCK, seconds, clock.mean * seconds, thresholds.USUAL_SECONDS)


def is_held(gpu: GpuEvidence) -> bool:
    """Whether a job has the GPU: by allocation, by a compute process, or by a job's amount of memory in use."""
    if gpu.compute_processes or allocated_to(gpu):
        return True
    drawing = gpu.last(on_gpu.GPU_PROCESSES, type="compute_graphics")
    return gpu.holds_memory and bool(drawing or not gpu.processes_known)


def _note_counts(gpu: GpuEvidence, seconds: float) -> None:
    memory, key = gpu.memory, gpu.key
    widths, generations = (
        _rise(gpu, pcie.GPU_PCIE_LINK_TRANSITIONS_TOTAL, attribute) for attribute in ("width", "generation")
    )
    worked = memory.replace(key, "works now", gpu.works_now)
    in_rhythm = generations > 0 and gpu.throttled("idle") > thresholds.RESTING_SHARE
    # A link that loses lanes and speed at once, and gets them back, was trained again once.
    memory.note(key, Count.RETRAININGS, seconds, (widths if in_rhythm else max(widths, generations)) / 2)
    memory.note(key, Count.WIDTH_CHANGES, seconds, widths if worked is not False and gpu.works_now else 0.0)
    links = gpu.index.get(nvlink.GPU_NVLINK_UP, {}).get((gpu.gpu, gpu.uuid), {})
    if links:
        down = frozenset(labels for labels, points in links.items() if points[-1] == 0)
        before = memory.replace(key, nvlink.GPU_NVLINK_UP, down)
        # Links that go down together are one event.
        went_down = isinstance(before, frozenset) and not down <= before
        memory.note(key, Count.NVLINK_DOWNS, seconds, float(went_down), thresholds.NVLINK_FLAPS_SECONDS)
    used = gpu.one(GPU_MEMORY_USED_BYTES)
    if used is not None:
        before = memory.replace(key, GPU_MEMORY_USED_BYTES, used.last)
        grown = used.last - (before if isinstance(before, float) else used.first)
        memory.note(key, Count.MEMORY_GROWTH, seconds, grown)


def _rise(gpu: GpuEvidence, spec: MetricSpec, attribute: str) -> float:
    """Return a counter's increase since the last call; on the first call, over the window."""
    counter = gpu.one(spec, attribute=attribute)
    if counter is None:
        return 0.0
    before = gpu.memory.replace(gpu.key, (spec, attribute), counter.last)
    return max(0.0, counter.last - before) if isinstance(before, float) else counter.increase


def _note_host(host: HostEvidence, seconds: float) -> None:
    memory = host.memory
    for each in host.labels_of(on_gpu.GPU_PROCESS_INFO):
        memory.see([(name, each[name]) for name in OWNER_LABELS if each[name]], host.at.monotonic)
    for port in host.series(infiniband.GPU_HOST_INFINIBAND_UP):
        if port.last:
            memory.replace("", ("up", port.values), value=True)
    again = 0
    for task in host.series(GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS, kind=ProblemKind.HUNG_TASK.value):
        before = memory.replace("", (ProblemKind.HUNG_TASK, task.values), task.last)
        again += before is not None and before != task.last
    memory.note("", Count.HUNG_AGAIN, seconds, again)


def was_up(host: HostEvidence, port: tuple[str, ...]) -> bool:
    """Whether a port (device, port) has been seen up, or has counted a link down."""
    downs = host.last(infiniband.GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL, device=port[0], port=port[1])
    return bool(downs) or host.memory.last("", ("up", port)) is not None


class Margin(NamedTuple):
    """Distance to the temperature at which a GPU or its memory slows down."""

    near: bool  # whether the margin is small
    celsius: float  # degrees left; negative above the slowdown temperature
    text: str  # the measurement, as text


def slowdown_margin(gpu: GpuEvidence) -> Margin | None:
    """Return the margin in the last samples, a small one if there is any; None if unknown."""
    margins = tuple(_margins(gpu))
    return next((margin for margin in margins if margin.near), margins[0] if margins else None)


def _margins(gpu: GpuEvidence) -> Iterator[Margin]:
    left, near_celsius = gpu.last(power.GPU_TEMPERATURE_MARGIN_CELSIUS), gpu.limit("thermal.margin", "margin")
    limits = [("memory", "memory_max", gpu.limit("thermal.margin", "memory_margin"))]
    if left is None:
        limits.insert(0, ("gpu", "slowdown", near_celsius))
    else:
        side = "above" if left < 0 else "below"
        words = f"{abs(left):.0f} °C {side} the temperature at which it slows down"
        yield Margin(left < near_celsius, left, words)
    for sensor, name, little_celsius in limits:
        heat = gpu.last(power.GPU_TEMPERATURE_CELSIUS, sensor=sensor)
        limit = gpu.last(power.GPU_TEMPERATURE_THRESHOLD_CELSIUS, threshold=name)
        if heat is not None and limit is not None:
            words = f"{sensor} at {heat:.0f} °C, {name} at {limit:.0f} °C"
            yield Margin(limit - heat < little_celsius, limit - heat, words)
