"""One GPU and the host as the judges see them: the evidence in the playbook's words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

from gpu_triage import catalogue
from gpu_triage.catalogue import MetricSpec
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.evidence import Evidence, Track

_IDLE_MODES = frozenset({"idle", "iowait"})
_INVOLVED = ("compute", "mps")
_SLOWDOWN_CAUSES = ("hw_thermal", "hw_power_brake")
_NAMES_SHOWN = 4
_READ_FIRST = (catalogue.POWER, catalogue.PERFORMANCE_STATE, catalogue.SM_UTILIZATION, catalogue.MEMORY_USED)
"""Of these every GPU has one."""


@dataclass(frozen=True, eq=False)
class GpuView:
    """One GPU's evidence. Shares are 0-1 of the window; None where not reported.

    Attributes:
        gpu: NVML index, as text.
        uuid: "" where it was never told.
        evidence: of the whole host, over the window.
    """

    gpu: str
    uuid: str
    evidence: Evidence

    def series(self, spec: MetricSpec, **labels: str) -> tuple[Track, ...]:
        """This GPU's series of a metric."""
        return self.evidence.series(spec, gpu=self.gpu, uuid=self.uuid, **labels)

    def one(self, spec: MetricSpec, **labels: str) -> Track | None:
        """The first of them."""
        return self.evidence.one(spec, gpu=self.gpu, uuid=self.uuid, **labels)

    def last(self, spec: MetricSpec, **labels: str) -> float | None:
        """The latest value of that."""
        return self.evidence.last(spec, gpu=self.gpu, uuid=self.uuid, **labels)

    def label(self, spec: MetricSpec, name: str) -> str:
        """A label of the first series of an info metric; "" without one."""
        track = self.one(spec)
        return "" if track is None else track.labels[name]

    @cached_property
    def recent(self) -> GpuView:
        """The same GPU over the last part of the window."""
        return GpuView(self.gpu, self.uuid, self.evidence.over(thresholds.RECENT_SECONDS))

    @cached_property
    def name(self) -> str:
        """The model's name; "" where unknown."""
        return self.label(catalogue.INFO, "name")

    @cached_property
    def up(self) -> bool:
        """Whether it answered to the end."""
        return self.last(catalogue.UP) == 1

    @cached_property
    def was_read(self) -> bool:
        """Whether it answers and anything was read of it: one that was just found has no reading yet."""
        return self.up and any(self.last(spec) is not None for spec in _READ_FIRST)

    @cached_property
    def partitioned(self) -> bool:
        """Whether MIG cuts it up: it then has no utilisation of its own."""
        return self.last(catalogue.MIG_MODE) == 1

    @cached_property
    def kernel_share(self) -> float | None:
        """Share of the window with a kernel resident; of a MIG parent, the SM activity of its busiest instance."""
        if self.partitioned:
            return max((track.mean for track in self.series(catalogue.MIG_SM_ACTIVE)), default=None)
        rate = self.evidence.rate(catalogue.BUSY_SECONDS, gpu=self.gpu, uuid=self.uuid)
        if rate is None:
            utilization = self.one(catalogue.SM_UTILIZATION)
            return None if utilization is None else utilization.mean
        return min(1.0, rate)

    @cached_property
    def video_share(self) -> float | None:
        """Share of the window in which its busier video engine encoded or decoded."""
        tracks = (self.one(spec) for spec in (catalogue.ENCODER_UTILIZATION, catalogue.DECODER_UTILIZATION))
        return max((track.mean for track in tracks if track is not None), default=None)

    @cached_property
    def busy_share(self) -> float | None:
        """Share of the window in which it worked: kernels, encoding or decoding, whichever was more."""
        return max((share for share in (self.kernel_share, self.video_share) if share is not None), default=None)

    @cached_property
    def busy(self) -> bool:
        """As the playbook says it."""
        return (self.busy_share or 0.0) >= thresholds.BUSY_SHARE

    @cached_property
    def loaded(self) -> bool:
        """Under load, as the playbook says it; a GPU that tells no P-state is taken at its busy share."""
        state = self.one(catalogue.PERFORMANCE_STATE)
        awake = state is None or state.low <= thresholds.LOADED_P_STATE
        return awake and (self.busy_share or 0.0) >= thresholds.LOADED_SHARE

    @cached_property
    def works(self) -> bool:
        """Whether it did anything worth the name in the last seconds."""
        now = GpuView(self.gpu, self.uuid, self.evidence.over(thresholds.NOW_SECONDS))
        return (now.busy_share or 0.0) >= thresholds.WORKING_SHARE

    @cached_property
    def holds_memory(self) -> bool:
        """Whether as much memory is held as a job would hold."""
        return (self.last(catalogue.MEMORY_USED) or 0.0) >= thresholds.HELD_BYTES

    @cached_property
    def occupied(self) -> bool:
        """Whether a job is on it: a compute process, or what gives away one that the driver does not list.

        A process that also draws, as a desktop's compositor does, is a job if the GPU works or holds a job's memory.
        Where the list is unknown (another PID namespace), memory or work tell; where it is empty, work does.
        """
        if self.compute_processes:
            return True
        if self.last(catalogue.PROCESSES, type="compute_graphics") or not self.processes_known:
            return self.works or self.holds_memory
        return self.owner_unseen

    @cached_property
    def owner_unseen(self) -> bool:
        """Whether it works though the driver lists nobody on it."""
        listed = sum(track.last for track in self.series(catalogue.PROCESSES))
        return self.works and not listed

    @cached_property
    def is_free(self) -> bool:
        """Whether nobody uses it, as far as can be known."""
        return self.processes_known and not self.occupied

    @property
    def compute_processes(self) -> int:
        """How many processes on it only compute, those of MPS included."""
        return int(sum(self.last(catalogue.PROCESSES, type=kind) or 0 for kind in _INVOLVED))

    @property
    def process_names(self) -> str:
        """Its processes by name and PID, the first few of them; "" without one."""
        names = [
            f"{track.labels['process'] or 'process'} ({track.labels['pid']})"
            for track in self.series(catalogue.PROCESS_INFO)
        ]
        more = len(names) - _NAMES_SHOWN
        return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")

    @cached_property
    def processes_known(self) -> bool:
        """Whether the driver lists compute processes, and all of them."""
        return any(self.last(catalogue.PROCESSES, type=kind) is not None for kind in _INVOLVED)

    @cached_property
    def paced_by_video(self) -> bool:
        """Whether it mostly encodes or decodes: at the pace of its streams, waiting for nothing."""
        video = self.recent.video_share or 0.0
        return video >= thresholds.WORKING_SHARE and video > (self.recent.kernel_share or 0.0)

    @cached_property
    def power_share(self) -> float | None:
        """Mean power as a share of the limit that applies."""
        power, limit = self.one(catalogue.POWER), self.last(catalogue.POWER_LIMIT)
        return None if power is None or not limit else power.mean / limit

    @property
    def capped(self) -> bool:
        """Whether somebody lowered the limit that applies below the board's default."""
        limit, default = self.last(catalogue.POWER_LIMIT), self.last(catalogue.POWER_DEFAULT_LIMIT)
        return limit is not None and default is not None and limit < thresholds.LOWERED_LIMIT_RATIO * default

    @cached_property
    def at_limit(self) -> bool:
        """Whether it draws about what the limit allows, or says that the limit holds it back.

        The driver's counter of capped time alone does not tell: on some boards it grows at a fraction of the limit.
        """
        told = self.one(catalogue.THROTTLE_ACTIVE, reason="sw_power_cap")
        near = (self.power_share or 0.0) >= thresholds.NEAR_LIMIT_SHARE
        return near or (told is not None and told.high == 1)

    @cached_property
    def capped_share(self) -> float:
        """Share of the window in which the power limit held it back."""
        return self.throttled("sw_power_cap") if self.at_limit else 0.0

    @property
    def memory_share(self) -> float | None:
        """Device memory in use, as a share of what the driver leaves to jobs."""
        used, free = self.last(catalogue.MEMORY_USED), self.last(catalogue.MEMORY_FREE)
        return None if used is None or free is None or used + free == 0 else used / (used + free)

    @property
    def node(self) -> str | None:
        """Its NUMA node; None where nobody says."""
        node = self.last(catalogue.NUMA_NODE)
        return None if node is None or node < 0 else f"{node:.0f}"

    def throttled(self, reason: str) -> float:
        """Share of the window that this reason held the clocks; 0 where not reported."""
        track = self.one(catalogue.THROTTLE_SECONDS, reason=reason)
        return min(1.0, (track.rate if track else None) or 0.0)

    @property
    def brake_share(self) -> float:
        """Share of the window under the power brake, or under a hardware slowdown that no heat explains."""
        return max(self.throttled("hw_power_brake"), self.unexplained_slowdown)

    @property
    def unexplained_slowdown(self) -> float:
        """Share of the window under hw_slowdown without its two causes.

        Slowdown is polled, and so the bits of its causes in the same readings explain it: the driver's counters see
        pulses that polling misses, and the other way round. Where no reading had a cause's bit, the counters explain
        what they explain for the most part.
        """
        slowdown = self.throttled("hw_slowdown")
        bits = [self.one(catalogue.THROTTLE_ACTIVE, reason=cause) for cause in _SLOWDOWN_CAUSES]
        polled = sum(track.mean for track in bits if track is not None)
        if polled > 0:
            return max(0.0, slowdown - polled)
        counted = sum(self.throttled(cause) for cause in _SLOWDOWN_CAUSES)
        return 0.0 if counted >= slowdown / 2 else slowdown - counted

    def rising(self, spec: MetricSpec, most: float, **labels: str) -> float | None:
        """A counter's increase over the window, if that is more than `most` in the events' window; else None.

        Args:
            spec: the counter.
            most: the increase in the events' window that is still well.
            labels: only series with these labels; several values of one are separated by ``|``.
        """
        choices = [
            dict(zip(labels, chosen, strict=True)) for chosen in product(*(v.split("|") for v in labels.values()))
        ]
        tracks = [track for choice in choices for track in self.series(spec, **choice)]
        increase = sum(track.increase for track in tracks)
        seconds = max((track.seconds for track in tracks), default=0.0)
        if increase < thresholds.SCALED_EVENTS or seconds <= 0:
            return None
        return increase if increase / seconds * thresholds.EVENTS_WINDOW_SECONDS > most else None


@dataclass(frozen=True)
class HostView:
    """The host's evidence.

    Attributes:
        evidence: all of it, over the window.
        gpus: in the order of their indices.
    """

    evidence: Evidence
    gpus: tuple[GpuView, ...]

    @cached_property
    def recent(self) -> HostView:
        """The same host over the last part of the window: what starves a GPU is told by what is scarce now."""
        return HostView(self.evidence.over(thresholds.RECENT_SECONDS), self.gpus)

    @property
    def answering(self) -> tuple[GpuView, ...]:
        """The GPUs that answer."""
        return tuple(gpu for gpu in self.gpus if gpu.up)

    @property
    def driver_error(self) -> str | None:
        """Why NVML cannot be used; None when it can."""
        track = self.evidence.one(catalogue.DRIVER_ERROR_INFO)
        return None if track is None else track.labels["error"]

    @property
    def released(self) -> bool:
        """Whether the exporter holds no GPU because it was told to let go."""
        return self.evidence.last(catalogue.EXPORTER_GPUS_RELEASED) == 1

    def cpu_share(self, modes: frozenset[str], node: str | None = None) -> float | None:
        """Share of the CPU time of a NUMA node, or of the host, that was spent in these modes."""
        labels = {} if node is None else {"numa_node": node}
        tracks = self.evidence.series(catalogue.HOST_CPU_SECONDS, **labels)
        total = sum(track.increase for track in tracks)
        spent = sum(track.increase for track in tracks if track.labels["mode"] in modes)
        return spent / total if total > 0 else None

    def cpu_busy_share(self, node: str | None = None) -> float | None:
        """Share of the CPU time of a NUMA node, or of the host, that was neither idle nor iowait."""
        at_rest = self.cpu_share(_IDLE_MODES, node)
        return None if at_rest is None else 1.0 - at_rest

    def busiest_cpu_share(self, node: str | None = None) -> float | None:
        """How busy the busiest single CPU of a NUMA node, or of the host, was."""
        labels = {} if node is None else {"numa_node": node}
        return max((t.mean for t in self.evidence.series(catalogue.HOST_CPU_BUSIEST, **labels)), default=None)

    def pressure(self, resource: str) -> float | None:
        """Share of the window in which some task waited for the resource (PSI); None without PSI."""
        return self.evidence.rate(catalogue.HOST_PRESSURE_SECONDS, resource=resource, kind="some")


def view_of(evidence: Evidence) -> HostView:
    """The host of this evidence."""
    names = [(track.labels["gpu"], track.labels["uuid"]) for track in evidence.series(catalogue.UP)]
    gpus = tuple(GpuView(gpu, uuid, evidence) for gpu, uuid in sorted(names, key=lambda name: int(name[0])))
    return HostView(evidence, gpus)
