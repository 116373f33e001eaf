"""One GPU and the host as the judges see them: the evidence in the playbook's words."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_triage import catalogue
from gpu_triage.catalogue import MetricSpec
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.evidence import Evidence, Track

_IDLE_MODES = frozenset({"idle", "iowait"})
_INVOLVED = ("compute", "mps")
_NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True, eq=False)
class GpuView:
    """One GPU's evidence. Shares are 0-1 of the watch; None where not reported.

    Attributes:
        gpu: NVML index, as text.
        uuid: "" where it was never told.
        evidence: of the whole host.
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

    @property
    def name(self) -> str:
        """The model's name; "" where unknown."""
        return self.label(catalogue.INFO, "name")

    @property
    def up(self) -> bool:
        """Whether it answered to the end."""
        return self.last(catalogue.UP) == 1

    @property
    def partitioned(self) -> bool:
        """Whether MIG cuts it up: it then has no utilisation of its own."""
        return self.last(catalogue.MIG_MODE) == 1

    @property
    def busy_share(self) -> float | None:
        """Share of the watch with a kernel resident; of a MIG parent, the SM activity of its busiest instance."""
        if self.partitioned:
            return max((track.mean for track in self.series(catalogue.MIG_SM_ACTIVE)), default=None)
        rate = self.evidence.rate(catalogue.BUSY_SECONDS, gpu=self.gpu, uuid=self.uuid)
        if rate is None:
            utilization = self.one(catalogue.SM_UTILIZATION)
            return None if utilization is None else utilization.mean
        return min(1.0, rate)

    @property
    def busy(self) -> bool:
        """As the playbook says it."""
        return (self.busy_share or 0.0) >= thresholds.BUSY_SHARE

    @property
    def loaded(self) -> bool:
        """Under load, as the playbook says it; a GPU that tells no P-state is taken at its busy share."""
        state = self.one(catalogue.PERFORMANCE_STATE)
        awake = state is None or state.high <= thresholds.LOADED_P_STATE
        return awake and (self.busy_share or 0.0) >= thresholds.LOADED_SHARE

    @property
    def occupied(self) -> bool:
        """Whether a compute process is on it."""
        return self.compute_processes > 0

    @property
    def processes_reported(self) -> bool:
        """Whether the driver lists compute processes at all."""
        return any(self.last(catalogue.PROCESSES, type=kind) is not None for kind in _INVOLVED)

    @property
    def compute_processes(self) -> int:
        """How many compute processes are on it, those of MPS included."""
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

    @property
    def processes_known(self) -> bool:
        """Whether the driver tells of processes at all."""
        return bool(self.series(catalogue.PROCESSES))

    @property
    def waiting(self) -> bool:
        """As the playbook says it, of the work that the watch saw; never of a MIG parent."""
        share = self.busy_share
        if share is None or self.partitioned or not self.occupied:
            return False
        return thresholds.WORKING_SHARE <= share < thresholds.WAITING_BELOW_SHARE

    @property
    def power_share(self) -> float | None:
        """Mean power as a share of the limit that applies."""
        power, limit = self.one(catalogue.POWER), self.last(catalogue.POWER_LIMIT)
        return None if power is None or not limit else power.mean / limit

    @property
    def capped(self) -> bool:
        """Whether somebody lowered the limit that applies below the board's default."""
        limit, default = self.last(catalogue.POWER_LIMIT), self.last(catalogue.POWER_DEFAULT_LIMIT)
        return limit is not None and default is not None and limit < thresholds.LOWERED_LIMIT_RATIO * default

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
        """Share of the watch that this reason held the clocks; 0 where not reported."""
        track = self.one(catalogue.THROTTLE_SECONDS, reason=reason)
        return min(1.0, (track.rate if track else None) or 0.0)

    @property
    def brake_share(self) -> float:
        """Share of the watch under the power brake, or under a hardware slowdown that no heat explains."""
        return max(self.throttled("hw_power_brake"), self.unexplained_slowdown)

    @property
    def unexplained_slowdown(self) -> float:
        """Share of the watch under hw_slowdown without its two causes."""
        slowdown = self.throttled("hw_slowdown")
        return max(0.0, slowdown - self.throttled("hw_thermal") - self.throttled("hw_power_brake"))

    def rising(
        self, spec: MetricSpec, most: float, label: str = "", among: tuple[str, ...] = (), **labels: str
    ) -> float | None:
        """A counter's increase over the watch, if that is more than `most` in the events' window; else None.

        Args:
            spec: the counter.
            most: the increase in the events' window that is still well.
            label: only series with one of the values `among` in this label; all without one.
            among: as said.
            labels: only series with these labels.
        """
        tracks = [t for t in self.series(spec, **labels) if not label or t.labels[label] in among]
        increase = sum(track.increase for track in tracks)
        seconds = max((track.seconds for track in tracks), default=0.0)
        if increase < thresholds.SCALED_EVENTS or seconds <= 0:
            return None
        return increase if increase / seconds * thresholds.EVENTS_WINDOW_SECONDS > most else None


@dataclass(frozen=True, slots=True)
class HostView:
    """The host's evidence.

    Attributes:
        evidence: all of it.
        gpus: in the order of their indices.
    """

    evidence: Evidence
    gpus: tuple[GpuView, ...]

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
        """Share of the watch in which some task waited for the resource (PSI); None without PSI."""
        return self.evidence.rate(catalogue.HOST_PRESSURE_SECONDS, resource=resource, kind="some")


def view_of(evidence: Evidence) -> HostView:
    """The host of this evidence."""
    names = [(track.labels["gpu"], track.labels["uuid"]) for track in evidence.series(catalogue.UP)]
    gpus = tuple(GpuView(gpu, uuid, evidence) for gpu, uuid in sorted(names, key=lambda name: int(name[0])))
    return HostView(evidence, gpus)
