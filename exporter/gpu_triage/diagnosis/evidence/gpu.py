"""One GPU's evidence in the playbook's words. Shares are 0-1 of the window; None where not reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from gpu_triage.diagnosis.evidence import thresholds
from gpu_triage.diagnosis.evidence.series import Evidence
from gpu_triage.gpu.activity import GPU_BUSY_SECONDS_TOTAL, GPU_PERFORMANCE_STATE, GPU_SM_UTILIZATION_RATIO
from gpu_triage.gpu.identity import GPU_INFO
from gpu_triage.gpu.limits import GPU_POWER_DEFAULT_LIMIT_WATTS
from gpu_triage.gpu.media import GPU_DECODER_UTILIZATION_RATIO, GPU_ENCODER_UTILIZATION_RATIO
from gpu_triage.gpu.memory import GPU_MEMORY_FREE_BYTES, GPU_MEMORY_USED_BYTES
from gpu_triage.gpu.mig import GPU_MIG_SM_ACTIVE_RATIO
from gpu_triage.gpu.modes import GPU_MIG_MODE
from gpu_triage.gpu.power import GPU_POWER_LIMIT_WATTS, GPU_POWER_WATTS
from gpu_triage.gpu.presence import GPU_ERROR_INFO, GPU_UP
from gpu_triage.gpu.throttle import GPU_THROTTLE_ACTIVE, GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.gpu.topology import GPU_NUMA_NODE
from gpu_triage.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESSES
from gpu_triage.sampler.driver import RELEASED
from gpu_triage.sampler.fleet import DRIVER_UNAVAILABLE
from gpu_triage.subjects.exporter import GPU_EXPORTER_CALL_INFLIGHT_SECONDS

_COMPUTE: Final = ("compute", "mps")
_SLOWDOWN_CAUSES: Final = ("hw_thermal", "hw_power_brake")
_NAMES_SHOWN: Final = 4
_READ_FIRST: Final = (
    GPU_POWER_WATTS,
    GPU_PERFORMANCE_STATE,
    GPU_SM_UTILIZATION_RATIO,
    GPU_MEMORY_USED_BYTES,
)
"""Of these every GPU has one."""

_NO_ANSWER: Final = MappingProxyType(
    {
        "lost": "GPU lost: the driver cannot reach it",
        "reset_required": "GPU unusable: the driver asks for a reset of it",
    }
)
"""What errors of the driver mean in words; the others say it themselves."""


@dataclass(frozen=True, eq=False)
class GpuEvidence(Evidence):
    """The series of one GPU; `gpu` is its NVML index as text, `uuid` "" where it was never told."""

    gpu: str
    uuid: str

    @cached_property
    def whose(self) -> tuple[str, str]:
        """Its index and UUID."""
        return self.gpu, self.uuid

    @cached_property
    def recent(self) -> GpuEvidence:
        """The same GPU over the last part of the window."""
        return self.over(thresholds.RECENT_SECONDS)

    @cached_property
    def key(self) -> str:
        """By what it is remembered: its UUID, or its index where that was never told."""
        return self.uuid or f"index {self.gpu}"

    @cached_property
    def name(self) -> str:
        """The model's name; "" where unknown."""
        return self.label(GPU_INFO, "name")

    @cached_property
    def pci_bus_id(self) -> str:
        """Its address as sysfs writes it; "" where unknown."""
        return self.label(GPU_INFO, "pci_bus_id")

    @cached_property
    def up(self) -> bool:
        """Whether it answered to the end."""
        return self.last(GPU_UP) == 1

    @cached_property
    def lost(self) -> bool:
        """Whether it was asked and does not answer.

        Nobody asks while the GPUs are released or the driver is away, nor in the first moment after that.
        """
        return not self.up and self.label(GPU_ERROR_INFO, "error") not in {RELEASED, DRIVER_UNAVAILABLE}

    @cached_property
    def error(self) -> str:
        """Why it does not answer, as the sampler names it."""
        return self.label(GPU_ERROR_INFO, "error") or "unknown"

    @cached_property
    def silent_seconds(self) -> float | None:
        """For how long a call to it has not returned; None where none is known to be out."""
        call = self.one(GPU_EXPORTER_CALL_INFLIGHT_SECONDS)
        return None if call is None else call.last

    @cached_property
    def no_answer(self) -> str:
        """In what way it does not answer, with the call that does not return while there is one."""
        error = self.error
        call = self.one(GPU_EXPORTER_CALL_INFLIGHT_SECONDS)
        if call is None:
            return _NO_ANSWER.get(error, f"does not answer ({error})")
        function = call.labels["function"] or call.labels["collector"]
        return f"does not answer ({error}: {function} has not returned for {call.last:.0f} s)"

    @cached_property
    def was_read(self) -> bool:
        """Whether it answers and anything was read of it: one that was just found has no reading yet."""
        return self.up and any(self.last(spec) is not None for spec in _READ_FIRST)

    @cached_property
    def partitioned(self) -> bool:
        """Whether MIG cuts it up: it then has no utilisation of its own."""
        return self.last(GPU_MIG_MODE) == 1

    @cached_property
    def kernel_share(self) -> float | None:
        """Share of the window with a kernel resident; of a MIG parent, the SM activity of its busiest instance."""
        if self.partitioned:
            return max((each.mean for each in self.series(GPU_MIG_SM_ACTIVE_RATIO)), default=None)
        rate = self.rate(GPU_BUSY_SECONDS_TOTAL)
        if rate is not None:
            return min(1.0, rate)
        utilization = self.one(GPU_SM_UTILIZATION_RATIO)
        return None if utilization is None else utilization.mean

    @cached_property
    def video_share(self) -> float | None:
        """Share of the window in which its busier video engine encoded or decoded."""
        engines = (self.one(spec) for spec in (GPU_ENCODER_UTILIZATION_RATIO, GPU_DECODER_UTILIZATION_RATIO))
        return max((engine.mean for engine in engines if engine is not None), default=None)

    @cached_property
    def busy_share(self) -> float | None:
        """Share of the window in which it worked: kernels, encoding or decoding, whichever was more.

        Of one whose kernels are not reported, engines that rest say nothing.
        """
        if self.kernel_share is None:
            return self.video_share or None
        return max(self.kernel_share, self.video_share or 0.0)

    @cached_property
    def loaded(self) -> bool:
        """Under load, as the playbook says it; a GPU that tells no P-state is taken at its busy share."""
        return self.awake and (self.busy_share or 0.0) >= thresholds.LOADED_SHARE

    @cached_property
    def under_load(self) -> bool:
        """Under load, or its busy share is unknown, as of some GPUs split by MIG: at rest it would be cool."""
        return self.loaded or self.busy_share is None

    @cached_property
    def works_now(self) -> bool:
        """Whether it was under load in the very last samples: at the end of a load its link may change."""
        utilization, state = self.last(GPU_SM_UTILIZATION_RATIO), self.last(GPU_PERFORMANCE_STATE)
        busy = utilization is not None and utilization >= thresholds.LOADED_SHARE
        return busy and (state is None or state <= thresholds.LOADED_P_STATE)

    @cached_property
    def awake(self) -> bool:
        """Whether it was in a P-state of load, or does not report any."""
        state = self.one(GPU_PERFORMANCE_STATE)
        return state is None or state.low <= thresholds.LOADED_P_STATE

    @cached_property
    def works(self) -> bool:
        """Whether it did anything worth the name in the last seconds."""
        return (self.over(thresholds.NOW_SECONDS).busy_share or 0.0) >= thresholds.WORKING_SHARE

    @cached_property
    def holds_memory(self) -> bool:
        """Whether as much memory is held as a job would hold."""
        return (self.last(GPU_MEMORY_USED_BYTES) or 0.0) >= thresholds.HELD_BYTES

    @cached_property
    def occupied(self) -> bool:
        """Whether a job is on it: a compute process, or what gives away one that the driver does not list.

        A process that also draws, as a desktop's compositor does, is a job if the GPU works or holds a job's memory.
        Where the list is unknown (another PID namespace), memory or work tell; where it is empty, work does.
        """
        if self.compute_processes:
            return True
        if self.last(GPU_PROCESSES, type="compute_graphics") or not self.processes_known:
            return self.works or self.holds_memory
        return self.owner_unseen

    @cached_property
    def owner_unseen(self) -> bool:
        """Whether it works though the driver lists nobody on it."""
        return self.works and not sum(each.last for each in self.series(GPU_PROCESSES))

    @cached_property
    def compute_processes(self) -> int:
        """How many processes on it only compute, those of MPS included."""
        return int(sum(self.last(GPU_PROCESSES, type=kind) or 0 for kind in _COMPUTE))

    @property
    def process_names(self) -> str:
        """Its processes by name and PID, the first few of them; "" without one."""
        labels = [each.labels for each in self.series(GPU_PROCESS_INFO)]
        names = [f"{each['process'] or 'process'} ({each['pid']})" for each in labels]
        more = len(names) - _NAMES_SHOWN
        return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")

    @cached_property
    def processes_known(self) -> bool:
        """Whether the driver lists compute processes, and all of them."""
        return any(self.last(GPU_PROCESSES, type=kind) is not None for kind in _COMPUTE)

    @cached_property
    def power_share(self) -> float | None:
        """Mean power as a share of the limit that applies."""
        power, limit = self.one(GPU_POWER_WATTS), self.last(GPU_POWER_LIMIT_WATTS)
        return None if power is None or not limit else power.mean / limit

    @cached_property
    def capped(self) -> bool:
        """Whether somebody lowered the limit that applies below the board's default."""
        limit, default = self.last(GPU_POWER_LIMIT_WATTS), self.last(GPU_POWER_DEFAULT_LIMIT_WATTS)
        return limit is not None and default is not None and limit < self.limit("power.limit", "ratio") * default

    @cached_property
    def capped_share(self) -> float:
        """Share of the window in which the power limit held it back.

        The driver's counter alone does not tell: on some boards it grows at a fraction of the limit. So it only counts
        for a GPU that draws about what the limit allows, or says that the limit holds it back.
        """
        active = self.one(GPU_THROTTLE_ACTIVE, reason="sw_power_cap")
        near = (self.power_share or 0.0) >= thresholds.NEAR_LIMIT_SHARE
        return self.throttled("sw_power_cap") if near or (active is not None and active.high == 1) else 0.0

    @property
    def memory_share(self) -> float | None:
        """Device memory in use, as a share of what the driver leaves to jobs."""
        used, free = self.last(GPU_MEMORY_USED_BYTES), self.last(GPU_MEMORY_FREE_BYTES)
        return None if used is None or free is None or used + free == 0 else used / (used + free)

    @property
    def node(self) -> str | None:
        """Its NUMA node; None where unknown."""
        node = self.last(GPU_NUMA_NODE)
        return None if node is None or node < 0 else f"{node:.0f}"

    @cached_property
    def _throttled(self) -> Mapping[str, float]:
        """By reason, of all that are counted."""
        counters = self.series(GPU_THROTTLE_SECONDS_TOTAL)
        place = GPU_THROTTLE_SECONDS_TOTAL.labels.index("reason")
        return {counter.values[place]: min(1.0, counter.rate or 0.0) for counter in counters}

    def throttled(self, reason: str) -> float:
        """Share of the window that this reason held the clocks; 0 where not reported."""
        return self._throttled.get(reason, 0.0)

    @cached_property
    def unexplained_slowdown(self) -> float:
        """Share of the window under hw_slowdown without its two causes.

        Slowdown is polled, and so the bits of its causes in the same readings explain it: the driver's counters see
        pulses that polling misses, and the other way round, as do counters of more readings than these. Where no
        reading had a cause's bit, the counters explain what they explain for the most part.
        """
        slowdown = self.throttled("hw_slowdown")
        bits = [self.one(GPU_THROTTLE_ACTIVE, reason=cause) for cause in _SLOWDOWN_CAUSES]
        polled = sum(bit.mean for bit in bits if bit is not None)
        if polled > 0:
            bit = self.one(GPU_THROTTLE_ACTIVE, reason="hw_slowdown")
            return max(0.0, (slowdown if bit is None else bit.mean) - polled)
        counted = sum(self.throttled(cause) for cause in _SLOWDOWN_CAUSES)
        return 0.0 if counted >= slowdown / 2 else slowdown - counted
