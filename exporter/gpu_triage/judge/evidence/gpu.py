"""One GPU's evidence in the playbook's terms. Shares are 0-1 of the window; None if not reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.series import Evidence
from gpu_triage.judge.findings.identity import identity_of
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_CALL_INFLIGHT_SECONDS
from gpu_triage.read.gpu.activity import (
    GPU_BUSY_SECONDS_TOTAL,
    GPU_DECODER_UTILIZATION_RATIO,
    GPU_ENCODER_UTILIZATION_RATIO,
    GPU_PERFORMANCE_STATE,
    GPU_SM_UTILIZATION_RATIO,
)
from gpu_triage.read.gpu.clocks_and_limits import GPU_POWER_DEFAULT_LIMIT_WATTS
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_FREE_BYTES, GPU_MEMORY_USED_BYTES
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.mig import GPU_MIG_SM_ACTIVE_RATIO
from gpu_triage.read.gpu.modes import GPU_MIG_MODE
from gpu_triage.read.gpu.power import GPU_POWER_LIMIT_WATTS, GPU_POWER_WATTS
from gpu_triage.read.gpu.presence import GPU_ERROR_INFO, GPU_UP
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_ACTIVE, GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.gpu.topology import GPU_NUMA_NODE
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESSES
from gpu_triage.sampler.driver import RELEASED
from gpu_triage.sampler.host_gpus import DRIVER_UNAVAILABLE

_COMPUTE: Final = ("compute", "mps")
SLOWDOWN_CAUSES: Final = ("hw_thermal", "hw_power_brake")
"""Causes of hw_slowdown. Unlike hw_slowdown itself, they are never set by a mere P-state change."""
_NAMES_SHOWN: Final = 4
_READ_FIRST: Final = (
    GPU_POWER_WATTS,
    GPU_PERFORMANCE_STATE,
    GPU_SM_UTILIZATION_RATIO,
    GPU_MEMORY_USED_BYTES,
)
"""Every GPU reports at least one of these."""

_NO_ANSWER: Final = MappingProxyType(
    {
        "lost": "GPU lost: the driver cannot reach it",
        "reset_required": "GPU unusable: the driver asks for a reset of it",
    }
)
"""Driver errors explained in plain words; the other error names need no explanation."""


@dataclass(frozen=True, eq=False)
class GpuEvidence(Evidence):
    """The series of one GPU. `gpu` is its NVML index as text; `uuid` is "" if it was never reported."""

    gpu: str
    uuid: str

    @cached_property
    def gpu_labels(self) -> tuple[str, str]:
        return self.gpu, self.uuid

    @cached_property
    def recent(self) -> GpuEvidence:
        """The same GPU over `RECENT_SECONDS`, the last part of the window."""
        return self.over(thresholds.RECENT_SECONDS)

    @cached_property
    def key(self) -> str:
        """Key under which history is stored: the GPU's identity."""
        return identity_of(self)

    @cached_property
    def name(self) -> str:
        """Model name; "" if unknown."""
        return self.label(GPU_INFO, "name")

    @cached_property
    def pci_bus_id(self) -> str:
        """PCI address in sysfs notation; "" if unknown."""
        return self.label(GPU_INFO, "pci_bus_id")

    @cached_property
    def up(self) -> bool:
        """Whether the GPU responded at its last poll."""
        return self.last(GPU_UP) == 1

    @cached_property
    def lost(self) -> bool:
        """Whether the GPU was polled and did not respond.

        GPUs are not polled while released or while the driver is unavailable, nor immediately afterward.
        """
        return not self.up and self.label(GPU_ERROR_INFO, "error") not in {RELEASED, DRIVER_UNAVAILABLE}

    @cached_property
    def error(self) -> str:
        """Why the GPU does not respond, as an error name from the sampler, or "unknown"."""
        return self.label(GPU_ERROR_INFO, "error") or "unknown"

    @cached_property
    def silent_seconds(self) -> float | None:
        """How long the pending call to the GPU has been blocked, in seconds; None if no call is known to be pending."""
        call = self.one(GPU_EXPORTER_CALL_INFLIGHT_SECONDS)
        return None if call is None else call.last

    @cached_property
    def no_answer(self) -> str:
        """Describe how the GPU fails to respond, including the blocked call if there is one."""
        error = self.error
        call = self.one(GPU_EXPORTER_CALL_INFLIGHT_SECONDS)
        if call is None:
            return _NO_ANSWER.get(error, f"does not answer ({error})")
        function = call.labels["function"] or call.labels["collector"]
        return f"does not answer ({error}: {function} has not returned for {call.last:.0f} s)"

    @cached_property
    def was_read(self) -> bool:
        """Whether the GPU responds and has readings: one that was just discovered has none yet."""
        return self.up and any(self.last(spec) is not None for spec in _READ_FIRST)

    @cached_property
    def partitioned(self) -> bool:
        """Whether the GPU is in MIG mode: it then reports no utilization of its own."""
        return self.last(GPU_MIG_MODE) == 1

    @cached_property
    def kernel_share(self) -> float | None:
        """Share of the window with a kernel resident; for a MIG parent, the SM activity of its busiest instance."""
        if self.partitioned:
            return max((each.mean for each in self.series(GPU_MIG_SM_ACTIVE_RATIO)), default=None)
        rate = self.rate(GPU_BUSY_SECONDS_TOTAL)
        if rate is not None:
            return min(1.0, rate)
        utilization = self.one(GPU_SM_UTILIZATION_RATIO)
        return None if utilization is None else utilization.mean

    @cached_property
    def video_share(self) -> float | None:
        """Share of the window in which the busier of the encoder and decoder was active."""
        engines = (self.one(spec) for spec in (GPU_ENCODER_UTILIZATION_RATIO, GPU_DECODER_UTILIZATION_RATIO))
        return max((engine.mean for engine in engines if engine is not None), default=None)

    @cached_property
    def busy_share(self) -> float | None:
        """Share of the window in which the GPU worked: the higher of kernel and video activity.

        If kernel activity is not reported, idle video engines prove nothing, so the result is None.
        """
        if self.kernel_share is None:
            return self.video_share or None
        return max(self.kernel_share, self.video_share or 0.0)

    @cached_property
    def loaded(self) -> bool:
        """Under load as the playbook defines it; if no P-state is reported, only the busy share counts."""
        return self.awake and (self.busy_share or 0.0) >= thresholds.LOADED_SHARE

    @cached_property
    def under_load(self) -> bool:
        """Under load, or busy share unknown (as with some MIG GPUs): an idle GPU would be cool anyway."""
        return self.loaded or self.busy_share is None

    @cached_property
    def works_now(self) -> bool:
        """Whether the last samples show load. A link may change its speed or width when a load ends."""
        utilization, state = self.last(GPU_SM_UTILIZATION_RATIO), self.last(GPU_PERFORMANCE_STATE)
        busy = utilization is not None and utilization >= thresholds.LOADED_SHARE
        return busy and (state is None or state <= thresholds.LOADED_P_STATE)

    @cached_property
    def awake(self) -> bool:
        """Whether the GPU was in a P-state used under load, or reports none."""
        state = self.one(GPU_PERFORMANCE_STATE)
        return state is None or state.low <= thresholds.LOADED_P_STATE

    @cached_property
    def works(self) -> bool:
        """Whether the GPU did a noticeable amount of work in the last `NOW_SECONDS`."""
        return (self.over(thresholds.NOW_SECONDS).busy_share or 0.0) >= thresholds.WORKING_SHARE

    @cached_property
    def holds_memory(self) -> bool:
        """Whether at least as much device memory is in use as a job would use."""
        return (self.last(GPU_MEMORY_USED_BYTES) or 0.0) >= thresholds.HELD_BYTES

    @cached_property
    def occupied(self) -> bool:
        """Whether a job runs on the GPU: a compute process, or signs of one that the driver does not list.

        A process that also draws, such as a desktop compositor, counts as a job if the GPU works or a job's amount of
        memory is in use. If the process list is unavailable (another PID namespace), memory use or work is enough;
        if it is empty, only work counts.
        """
        if self.compute_processes:
            return True
        if self.last(GPU_PROCESSES, type="compute_graphics") or not self.processes_known:
            return self.works or self.holds_memory
        return self.owner_unseen

    @cached_property
    def owner_unseen(self) -> bool:
        """Whether the GPU works although the driver lists no process on it."""
        return self.works and not sum(each.last for each in self.series(GPU_PROCESSES))

    @cached_property
    def compute_processes(self) -> int:
        """Number of compute-only processes on the GPU, including MPS clients."""
        return int(sum(self.last(GPU_PROCESSES, type=kind) or 0 for kind in _COMPUTE))

    @property
    def process_names(self) -> str:
        """Its first few processes by name and PID, or ""."""
        labels = [each.labels for each in self.series(GPU_PROCESS_INFO)]
        names = [f"{each['process'] or 'process'} ({each['pid']})" for each in labels]
        more = len(names) - _NAMES_SHOWN
        return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")

    @cached_property
    def processes_known(self) -> bool:
        """Whether the driver reports a complete list of compute processes."""
        return any(self.last(GPU_PROCESSES, type=kind) is not None for kind in _COMPUTE)

    @cached_property
    def power_share(self) -> float | None:
        """Mean power as a share of the current power limit."""
        power, limit = self.one(GPU_POWER_WATTS), self.last(GPU_POWER_LIMIT_WATTS)
        return None if power is None or not limit else power.mean / limit

    @cached_property
    def capped(self) -> bool:
        """Whether the current power limit was lowered below the board's default."""
        limit, default = self.last(GPU_POWER_LIMIT_WATTS), self.last(GPU_POWER_DEFAULT_LIMIT_WATTS)
        return limit is not None and default is not None and limit < self.limit("power.limit", "ratio") * default

    @cached_property
    def capped_share(self) -> float:
        """Share of the window in which the power limit throttled the GPU.

        The driver's counter alone is unreliable: on some boards it grows at a fraction of the limit. So it only counts
        if the GPU draws nearly its limit, or reports that the limit throttles it.
        """
        active = self.one(GPU_THROTTLE_ACTIVE, reason="sw_power_cap")
        near = (self.power_share or 0.0) >= thresholds.NEAR_LIMIT_SHARE
        return self.throttled("sw_power_cap") if near or (active is not None and active.high == 1) else 0.0

    @property
    def memory_share(self) -> float | None:
        """Device memory in use, as a share of the memory available to jobs."""
        used, free = self.last(GPU_MEMORY_USED_BYTES), self.last(GPU_MEMORY_FREE_BYTES)
        return None if used is None or free is None or used + free == 0 else used / (used + free)

    @property
    def node(self) -> str | None:
        """NUMA node; None if unknown."""
        node = self.last(GPU_NUMA_NODE)
        return None if node is None or node < 0 else f"{node:.0f}"

    @cached_property
    def _throttled(self) -> Mapping[str, float]:
        """Share of the window by throttle reason, for every reason with a counter."""
        counters = self.series(GPU_THROTTLE_SECONDS_TOTAL)
        place = GPU_THROTTLE_SECONDS_TOTAL.labels.index("reason")
        return {counter.values[place]: min(1.0, counter.rate or 0.0) for counter in counters}

    def throttled(self, reason: str) -> float:
        """Share of the window in which this reason throttled the clocks; 0 if not reported."""
        return self._throttled.get(reason, 0.0)

    @cached_property
    def unexplained_slowdown(self) -> float:
        """Share of the window under hw_slowdown without either of its two causes.

        hw_slowdown is polled, so it is compared with the polled bits of its causes from the same readings: the driver's
        counters include pulses that polling misses (and vice versa), and may cover more readings. If no reading had a
        cause's bit set, the counters explain the slowdown if they cover at least half of it.
        """
        slowdown = self.throttled("hw_slowdown")
        bits = [self.one(GPU_THROTTLE_ACTIVE, reason=cause) for cause in SLOWDOWN_CAUSES]
        polled = sum(bit.mean for bit in bits if bit is not None)
        if polled > 0:
            bit = self.one(GPU_THROTTLE_ACTIVE, reason="hw_slowdown")
            return max(0.0, (slowdown if bit is None else bit.mean) - polled)
        counted = sum(self.throttled(cause) for cause in SLOWDOWN_CAUSES)
        return 0.0 if counted >= slowdown / 2 else slowdown - counted
