"""One GPU's evidence in the playbook's terms. Shares are 0-1 of the window; None if not reported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.series import Evidence
from gpu_triage.judge.evidence.wording import first_few
from gpu_triage.judge.findings.finding import identity_of
from gpu_triage.judge.findings.table import Severity, xid_check
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_CALL_INFLIGHT_SECONDS
from gpu_triage.read.gpu import activity, power
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_FREE_BYTES, GPU_MEMORY_USED_BYTES
from gpu_triage.read.gpu.ecc import GPU_ECC_VOLATILE_ERRORS_TOTAL
from gpu_triage.read.gpu.fabric import FABRIC_JOINED, FABRIC_UNHEALTHY, GPU_FABRIC_HEALTH, GPU_FABRIC_STATE
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.mig import GPU_MIG_SM_ACTIVE_RATIO
from gpu_triage.read.gpu.modes import GPU_MEMORY_OS_MANAGED, GPU_MIG_MODE, GPU_RECOVERY_ACTION
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_EXPECTED_GENERATION, GPU_PCIE_LINK_GENERATION
from gpu_triage.read.gpu.presence import GPU_ERROR_INFO, GPU_UP
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_ACTIVE, GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.gpu.topology import GPU_NUMA_NODE
from gpu_triage.read.processes.on_gpu import (
    GPU_PROCESS_INFO,
    GPU_PROCESS_MEMORY_BYTES,
    GPU_PROCESS_WAITS_FOR,
    GPU_PROCESSES,
)
from gpu_triage.read.xid.codes import CONTAINED_ERROR, DOUBLE_BIT_ERROR
from gpu_triage.read.xid.xid_metrics import GPU_XID_LAST_TIMESTAMP_SECONDS
from gpu_triage.sampler.driver import RELEASED
from gpu_triage.sampler.host_gpus import DRIVER_UNAVAILABLE

AT_THAT_MOMENT: Final = "at that moment"

_COMPUTE: Final = ("compute", "mps")
_SLOWDOWN_CAUSES: Final = ("hw_thermal", "hw_power_brake")
"""Causes of hw_slowdown. Unlike hw_slowdown itself, they are never set by a mere P-state change."""
_HELD_CLOCKS: Final = ("applications_clocks", "board_limit", "reliability", "sync_boost", "display_clocks")
"""Reasons other than heat, power and idleness."""
_COHERENT: Final = re.compile(r"\bG[BH][23]00\b")
"""Names of the GPUs of Grace superchips: the operating system may manage their memory."""
_VIDEO_ENGINES: Final = {
    "decoder": activity.GPU_DECODER_UTILIZATION_RATIO,
    "encoder": activity.GPU_ENCODER_UTILIZATION_RATIO,
}
_NOT_LIMITING: Final = frozenset({"idle", "sync_boost", "display_clocks"})
_NAMES_SHOWN: Final = 4
_READ_FIRST: Final = (
    power.GPU_POWER_WATTS,
    activity.GPU_PERFORMANCE_STATE,
    activity.GPU_SM_UTILIZATION_RATIO,
    GPU_MEMORY_USED_BYTES,
)
"""Every GPU reports at least one of these."""

_NO_ANSWER: Final = {
    "lost": "GPU lost: the driver cannot reach it",
    "reset_required": "GPU unusable: the driver asks for a reset of it",
}
"""Driver errors explained in plain words; the other error names need no explanation."""


class UncountedSlowdown(NamedTuple):
    lasted: str  # as text
    share: float  # of the window's samples


class Slowdown(NamedTuple):
    """What may slow a GPU down, by the driver's counters. Its share is a key of the memory, by its finding's code."""

    code: str  # of the finding; its limit `share` is what has to be exceeded
    reason: str  # of the driver
    share: float  # share of the window, 0-1
    observed: bool  # it may end with the load, so an idle GPU only shows that it is still there
    uncounted: UncountedSlowdown | None  # how it slows the GPU now, judged without its counter; None if it does not

    def exceeded(self, gpu: GpuEvidence, share: float) -> bool:
        """Whether this share of the time is above the finding's limit, as far as can be observed."""
        return self.observed and share > gpu.limit(self.code, "share")

    def lasting(self, gpu: GpuEvidence) -> float:
        """Return its share of the window, or since an earlier spell above the limit ended if it is intermittent, 0-1.

        A short spell now and then is not taken for more than it is. Only observable time counts.
        """
        past = gpu.memory.past(gpu.key, self.code)
        if not self.share and not past.over(thresholds.PART_SECONDS * thresholds.PARTS).amount:
            return 0.0
        sums = [past.over(thresholds.PART_SECONDS * part).amount for part in range(thresholds.PARTS + 1)]
        parts = [(longer - shorter) / thresholds.PART_SECONDS for shorter, longer in pairwise(sums)]
        most = gpu.limit(self.code, "share")
        # Newest first: an earlier spell ends where a part above the limit follows one that is not.
        ended = (place for place in range(1, len(parts)) if parts[place] > most >= parts[place - 1])
        return max((sum(parts[:place]) / place for place in ended), default=self.share)


class LimitedClock(NamedTuple):
    """A clock that is held down: a description, and its share of what it should be (0-1)."""

    text: str
    share: float


@dataclass(frozen=True, eq=False)
class GpuEvidence(Evidence):
    """The series of one GPU. `gpu` is its NVML index as text; `uuid` is "" if it was never reported."""

    gpu: str
    uuid: str

    @cached_property
    def gpu_labels(self) -> tuple[str, str]:
        return self.gpu, self.uuid

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
        """Whether it was polled and did not respond; NVML down, or up just now, means that it was not polled."""
        return not self.up and self.label(GPU_ERROR_INFO, "error") not in {RELEASED, DRIVER_UNAVAILABLE}

    @cached_property
    def error(self) -> str:
        """Why the GPU does not respond, as an error name from the sampler, or "unknown"."""
        return self.label(GPU_ERROR_INFO, "error") or "unknown"

    @cached_property
    def silent_seconds(self) -> float | None:
        """How long the pending call to the GPU has been blocked, in seconds; None if no call is known to be pending."""
        return self.last(GPU_EXPORTER_CALL_INFLIGHT_SECONDS)

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
    def unobserved(self) -> str:
        """How little of its work was observed, as readings come late; "" if most, or if that is not counted."""
        observed, up = self.one(activity.GPU_OBSERVED_SECONDS_TOTAL), self.one(GPU_UP)
        up_seconds = 0.0 if up is None else up.mean * up.seconds
        if self.partitioned or observed is None or up_seconds < thresholds.OBSERVED_SECONDS:
            return ""
        share = observed.increase / up_seconds
        late = f"not observed: readings come late and cover {share:.0%} of the time"
        return "" if share >= thresholds.OBSERVED_SHARE else late

    @cached_property
    def kernel_share(self) -> float | None:
        """Share of the observed time with a kernel; for MIG, of its busiest instance's SMs. None if mostly unseen."""
        if self.partitioned:
            return max((each.mean for each in self.series(GPU_MIG_SM_ACTIVE_RATIO)), default=None)
        if self.unobserved:
            return None
        rate = self.rate(activity.GPU_BUSY_SECONDS_TOTAL)
        if rate is not None:
            return min(1.0, rate / (self.rate(activity.GPU_OBSERVED_SECONDS_TOTAL) or 1.0))
        utilization = self.one(activity.GPU_SM_UTILIZATION_RATIO)
        return None if utilization is None else utilization.mean

    @cached_property
    def video_shares(self) -> Mapping[str, float]:
        """Share of the window in which each of the reported video engines was active."""
        engines = {name: self.one(spec) for name, spec in _VIDEO_ENGINES.items()}
        return {name: engine.mean for name, engine in engines.items() if engine is not None}

    @cached_property
    def video_share(self) -> float | None:
        """The share of the busier video engine."""
        return max(self.video_shares.values(), default=None)

    @cached_property
    def busy_share(self) -> float | None:
        """Higher share of kernel and video activity; None without the first, as idle video engines prove nothing."""
        if self.kernel_share is None:
            return self.video_share or None
        return max(self.kernel_share, self.video_share or 0.0)

    @cached_property
    def busy(self) -> bool:
        """Whether it is busy enough to be compared with its peers."""
        return (self.busy_share or 0.0) >= thresholds.BUSY_SHARE

    @cached_property
    def loaded(self) -> bool:
        """Under load as the playbook defines it; if no P-state is reported, only the busy share counts."""
        return self.awake and (self.busy_share or 0.0) >= thresholds.LOADED_SHARE

    @cached_property
    def under_load(self) -> bool:
        """Under load, or busy share not reported (as with some MIG GPUs): an idle GPU would be cool anyway."""
        return self.loaded or (self.busy_share is None and not self.unobserved)

    @cached_property
    def works_now(self) -> bool:
        """Whether the last samples show load. A link may change its speed or width when a load ends."""
        utilization, state = self.last(activity.GPU_SM_UTILIZATION_RATIO), self.last(activity.GPU_PERFORMANCE_STATE)
        busy = utilization is not None and utilization >= thresholds.LOADED_SHARE
        return busy and (state is None or state <= thresholds.LOADED_P_STATE)

    @cached_property
    def awake(self) -> bool:
        """Whether the GPU was in a P-state used under load, or reports none."""
        state = self.one(activity.GPU_PERFORMANCE_STATE)
        return state is None or state.low <= thresholds.LOADED_P_STATE

    @cached_property
    def memory_is_held(self) -> bool:
        """Whether used memory is what processes hold, and not also the page cache of an operating system."""
        managed = self.last(GPU_MEMORY_OS_MANAGED)
        return not (_COHERENT.search(self.name) if managed is None else managed)

    @cached_property
    def held_bytes(self) -> float | None:
        """Device memory that processes hold; if used memory does not show it, what the driver lists by process."""
        if self.memory_is_held:
            return self.last(GPU_MEMORY_USED_BYTES)
        return sum(self.lasts(GPU_PROCESS_MEMORY_BYTES), start=0.0) if self.has(GPU_PROCESS_MEMORY_BYTES) else None

    @property
    def holds_memory(self) -> bool:
        """Whether processes hold at least as much device memory as a job would use."""
        return (self.held_bytes or 0.0) >= thresholds.HELD_BYTES

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
        """Whether the GPU works although the driver has listed no process on it for `NOW_SECONDS`.

        Processes are read less often than work, so the work of one that was last seen then may be up to a round later.
        """
        past = self if self._rarely_read else self.over(thresholds.NOW_SECONDS)
        listed = sum(each.high for each in past.series(GPU_PROCESSES))
        return not listed and self.works

    @cached_property
    def _rarely_read(self) -> bool:
        """Whether the last seconds have too few readings to show work."""
        return self.over(thresholds.SOON_SECONDS).busy_share is None

    @cached_property
    def works(self) -> bool:
        """Whether it did a noticeable amount of work in the last seconds; in the window, if only that shows it."""
        shown = self if self._rarely_read else self.over(thresholds.SOON_SECONDS)
        return (shown.busy_share or 0.0) >= thresholds.WORKING_SHARE

    @cached_property
    def deserted(self) -> bool:
        """Whether its last job has gone: what it did before was that job's work."""
        if not self.processes_known:
            return self.held_bytes is not None and not self.occupied
        works = self.owner_unseen or (self._rarely_read and self.works)
        return not works and not sum(self.lasts(GPU_PROCESSES))

    @cached_property
    def compute_processes(self) -> int:
        """Number of compute-only processes on the GPU, including MPS clients."""
        return int(sum(self.last(GPU_PROCESSES, type=kind) or 0 for kind in _COMPUTE))

    @property
    def process_names(self) -> str:
        """Its first few processes by name and PID, or ""."""
        labels = self.labels_of(GPU_PROCESS_INFO)
        return first_few([f"{each['process'] or 'process'} ({each['pid']})" for each in labels], _NAMES_SHOWN)

    @cached_property
    def may_wait_for(self) -> str:
        """What its compute processes may wait for while they do nothing, as text; "" if that of one is not known."""
        states = sorted({int(each.last) for each in self.series(GPU_PROCESS_WAITS_FOR)})
        return "" if 0 in states else " and ".join(GPU_PROCESS_WAITS_FOR.states[state] for state in states)

    @cached_property
    def processes_known(self) -> bool:
        """Whether the driver reports a complete list of compute processes."""
        return any(self.last(GPU_PROCESSES, type=kind) is not None for kind in _COMPUTE)

    @cached_property
    def power_share(self) -> float | None:
        """Mean power as a share of the current power limit."""
        watts, limit = self.one(power.GPU_POWER_WATTS), self.last(power.GPU_POWER_LIMIT_WATTS)
        return None if watts is None or not limit else watts.mean / limit

    @cached_property
    def capped(self) -> bool:
        """Whether the current power limit was lowered below the board's default."""
        limit, default = self.last(power.GPU_POWER_LIMIT_WATTS), self.last(power.GPU_POWER_DEFAULT_LIMIT_WATTS)
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

    @cached_property
    def memory_activity(self) -> float | None:
        """Share of the window in which device memory was read or written; with GPM, of its bandwidth."""
        used = self.one(activity.GPU_DRAM_ACTIVE_RATIO) or self.one(activity.GPU_MEMORY_UTILIZATION_RATIO)
        return None if used is None else used.mean

    @property
    def memory_share(self) -> float | None:
        """Device memory that jobs use, as a share of the memory available to them; None if unknown."""
        used, free = self.last(GPU_MEMORY_USED_BYTES), self.last(GPU_MEMORY_FREE_BYTES)
        if not self.memory_is_held or used is None or free is None or used + free == 0:
            return None
        return used / (used + free)

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
        bits = [self.one(GPU_THROTTLE_ACTIVE, reason=cause) for cause in _SLOWDOWN_CAUSES]
        polled = sum(bit.mean for bit in bits if bit is not None)
        if polled > 0:
            bit = self.one(GPU_THROTTLE_ACTIVE, reason="hw_slowdown")
            return max(0.0, (slowdown if bit is None else bit.mean) - polled)
        counted = sum(self.throttled(cause) for cause in _SLOWDOWN_CAUSES)
        return 0.0 if counted >= slowdown / 2 else slowdown - counted

    @cached_property
    def slowdowns(self) -> tuple[Slowdown, ...]:
        """Heat, power brake, other slowdowns of the hardware, and a lowered power limit, in this order."""
        loaded, brake, slowdown = self.under_load, self.throttled("hw_power_brake"), self.unexplained_slowdown
        capped = self.capped_share if self.capped else 0.0
        return tuple(
            Slowdown(code, reason, share, observed, self._uncounted(reason))
            for code, reason, share, observed in (
                ("thermal.hw", "hw_thermal", self.throttled("hw_thermal"), loaded),
                ("thermal.sw", "sw_thermal", self.throttled("sw_thermal"), loaded),
                ("power.brake", "hw_power_brake", brake, loaded or brake > 0),
                ("power.hw_slowdown", "hw_slowdown", slowdown, loaded or slowdown > 0),
                ("power.cap", "sw_power_cap", capped, loaded),
            )
        )

    def _uncounted(self, reason: str) -> UncountedSlowdown | None:
        """Return how this reason slows the GPU under load, judged by its bit alone; None if it does not, or is counted.

        Covers samples in which no counter moves: a single nvidia-smi output, two outputs of an old driver, or a
        driver that does not advance its counter. Every P-state change briefly sets hw_slowdown, so the SM clock must be
        low too; if the clock is not reported, hw_slowdown must have been set for more than an instant. It counts only
        without heat or the power brake as its cause.
        """
        if reason == "hw_slowdown" and any(self.last(GPU_THROTTLE_ACTIVE, reason=cause) for cause in _SLOWDOWN_CAUSES):
            return None
        bit = self.recent.one(GPU_THROTTLE_ACTIVE, reason=reason)
        counter = self.one(GPU_THROTTLE_SECONDS_TOTAL, reason=reason)
        # Without a busy share (partial input), a GPU that is awake and not reported idle counts as under load.
        awake = self.awake and not self.last(GPU_THROTTLE_ACTIVE, reason="idle")
        loaded = awake if self.busy_share is None else self.loaded
        if bit is None or not bit.last or (counter is not None and counter.increase > 0) or not loaded:
            return None
        lasted = bit.seconds > 0 and bit.low == 1
        if counter is not None and counter.seconds > 0 and bit.mean < thresholds.STOPPED_COUNTER_SHARE:
            return None  # a pulse that the counter will show soon
        slowed = self.slowed_down
        if slowed is False or (slowed is None and reason not in _SLOWDOWN_CAUSES and not lasted):
            return None
        whole = self.one(GPU_THROTTLE_ACTIVE, reason=reason) or bit
        if not lasted:
            return UncountedSlowdown(AT_THAT_MOMENT, whole.mean)
        seconds = whole.seconds if whole.low == 1 else bit.seconds
        return UncountedSlowdown(f"for at least {seconds:.0f} s", whole.mean)

    @property
    def slowed_down(self) -> bool | None:
        """Whether the SM clock (or graphics clock) is far below its maximum; None if neither is reported."""
        for name in ("sm", "graphics"):
            clock, most = self.last(power.GPU_CLOCK_HERTZ, clock=name), self.last(power.GPU_CLOCK_MAX_HERTZ, clock=name)
            if clock is not None and most:
                return clock < thresholds.SLOWED_CLOCK_RATIO * most
        return None

    @property
    def active_reasons(self) -> list[str] | None:
        """The throttle reasons active in the last sample; None if this is unknown."""
        bits = {bit.labels["reason"]: bit.last for bit in self.series(GPU_THROTTLE_ACTIVE)}
        active = [reason for reason, is_active in bits.items() if is_active and reason not in _NOT_LIMITING]
        # nvidia-smi dmon reports only two limits, and no hardware slowdown.
        return active if active or "hw_slowdown" in bits else None

    @cached_property
    def limited_clock(self) -> LimitedClock | None:
        """The first clock set below its default, else one that a reason other than heat or power holds down."""
        for clock in ("sm", "graphics", "memory"):
            target = self.last(power.GPU_CLOCK_TARGET_HERTZ, clock=clock)
            default = self.last(power.GPU_CLOCK_DEFAULT_HERTZ, clock=clock)
            if target is not None and default is not None and target < default:
                words = f"{clock} clock set to {target / 1e6:.0f} MHz, default {default / 1e6:.0f} MHz"
                return LimitedClock(words, target / default)
        sm, most = self.one(power.GPU_CLOCK_HERTZ, clock="sm"), self.last(power.GPU_CLOCK_MAX_HERTZ, clock="sm")
        if sm is None or not most or sm.mean >= thresholds.SLOWED_CLOCK_RATIO * most or not self.loaded:
            return None
        reason = max(_HELD_CLOCKS, key=self.throttled)
        share = self.throttled(reason)
        if share < thresholds.SET_CLOCK_SHARE:
            return None
        words = f"{reason} holds the SM clock at {sm.mean / 1e6:.0f} of {most / 1e6:.0f} MHz {share:.0%} of the time"
        return LimitedClock(words, sm.mean / most)

    @cached_property
    def held_clock(self) -> str | None:
        """What mostly holds its clock and is not a fault, as its default limit; None if not counted, else ""."""
        if self.rate(GPU_THROTTLE_SECONDS_TOTAL) is None:
            return None
        shares = {"sw_power_cap": self.capped_share, **{reason: self.throttled(reason) for reason in _HELD_CLOCKS}}
        reason = max(shares, key=shares.__getitem__)
        if shares[reason] < thresholds.SET_CLOCK_SHARE:
            return ""
        clock, most = self.one(power.GPU_CLOCK_HERTZ, clock="sm"), self.last(power.GPU_CLOCK_MAX_HERTZ, clock="sm")
        words = "at its power limit" if reason == "sw_power_cap" else f"held by {reason}"
        at = "" if clock is None or not most else f", SM clock at {clock.mean / 1e6:.0f} of {most / 1e6:.0f} MHz"
        return f"{words} {shares[reason]:.0%} of the time{at}"

    @cached_property
    def slow_link(self) -> str | None:
        """Its PCIe generation and the expected, ``1 of 4``, idle or not; None unless lower in all of `recent`."""
        generation, expected = self.recent.one(GPU_PCIE_LINK_GENERATION), self.last(GPU_PCIE_LINK_EXPECTED_GENERATION)
        if generation is None or expected is None or generation.high >= expected:
            return None
        return f"{generation.last:.0f} of {expected:.0f}"

    @cached_property
    def works_awake(self) -> bool:
        """Whether it did some work and lately was in no idle P-state: its link then has no reason to save power."""
        state = self.recent.one(activity.GPU_PERFORMANCE_STATE)
        awake = state is not None and state.high <= thresholds.LOADED_P_STATE
        return awake and (self.recent.busy_share or 0.0) >= thresholds.WORKING_SHARE

    @cached_property
    def held_idle(self) -> bool:
        """Whether a job holds memory on it while it is idle: hung, if it was busy before."""
        share, drawn = self.busy_share, self.power_share
        if not self.occupied or not self.holds_memory or share is None or share >= thresholds.HUNG_BUSY_SHARE:
            return False
        return drawn is None or drawn < thresholds.HUNG_POWER_SHARE

    @cached_property
    def contained_error(self) -> bool:
        """Whether the last uncorrectable memory error was contained: it affected only the job that hit it."""
        contained_at = self.last(GPU_XID_LAST_TIMESTAMP_SECONDS, xid=str(CONTAINED_ERROR))
        double_bit_at = self.last(GPU_XID_LAST_TIMESTAMP_SECONDS, xid=str(DOUBLE_BIT_ERROR))
        if contained_at is None:
            return False
        return double_bit_at is None or abs(contained_at - double_bit_at) < thresholds.CONTAINED_SECONDS

    @property
    def recent_critical_xids(self) -> list[str]:
        """The recent Xid codes after which the GPU must not be used until it is reset."""
        recent = [
            each.labels
            for each in self.series(GPU_XID_LAST_TIMESTAMP_SECONDS)
            if self.age_seconds(each.last) <= thresholds.XID_RECENT_SECONDS and each.last >= self.reset_at
        ]
        critical = (labels["xid"] for labels in recent if is_critical(labels["xid"], labels["fatal"]))
        contained = str(DOUBLE_BIT_ERROR) if self.contained_error else ""
        return list(dict.fromkeys(xid for xid in critical if xid != contained))

    @property
    def uncorrected_errors(self) -> float:
        """Uncorrectable ECC memory errors since the driver was loaded; 0 if not reported."""
        return self.last(GPU_ECC_VOLATILE_ERRORS_TOTAL, severity="uncorrected") or 0.0

    @property
    def recovery_action(self) -> int:
        """Recovery action requested by the driver, a state of gpu_recovery_action; 0 if none or not reported."""
        return int(self.last(GPU_RECOVERY_ACTION) or 0)

    @cached_property
    def fabric_trouble(self) -> str | None:
        """What is wrong with the GPU's NVSwitch fabric; None if nothing is."""
        state, health = self.last(GPU_FABRIC_STATE), self.last(GPU_FABRIC_HEALTH)
        if state is not None and 0 < state < FABRIC_JOINED:
            return "has not joined the NVSwitch fabric"
        return "its part of the NVSwitch fabric is unhealthy" if health == FABRIC_UNHEALTHY else None


def is_critical(xid: str, fatal: str) -> bool:
    """Whether a GPU must not be used any further after this Xid; `fatal` is the label value."""
    return xid_check(xid, fatal).severity is Severity.CRITICAL
