"""Problems around the GPUs in the kernel log: driver failures, processes, storage, adapters and hardware errors."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from gpu_triage.driver.kernel.procfs import UNINTERRUPTIBLE, read_process_stat
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Moment, WallTimes
from gpu_triage.read.host import driver_messages
from gpu_triage.read.host.kernel_messages import (
    Ending,
    HostMessage,
    ProblemKind,
    parse_host_message,
    parse_kill_order,
    parse_trouble_over,
)
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge
from gpu_triage.read.processes.facts import Owner, names_are_host_pids, parse_cgroup
from gpu_triage.read.xid.kernel_records import KernelLog, KernelRecord
from gpu_triage.read.xid.xid_events import is_driver_loaded

_KEPT_SECONDS: Final = 86_400.0

EVENT_ANYWAY: Final = frozenset({ProblemKind.PCIE_DPC})
"""Kinds that matter even if they are over: a port that recovers at once still shut its link."""

_TRANSIENT_SECONDS: Final = 600.0
"""How long what may be over already is kept: a port that recovered, a server that a soft mount gave up on."""
_HUNG_SECONDS: Final = 900.0
_OF_SOFT_MOUNT: Final = "not responding, timed out"
"""The end of the message about a request that failed; no later message reports that the server answers."""

_KEPT_SUBJECTS: Final = 8
"""Latest subjects kept per kind: a dead server or a bad DIMM is a single one, but hung tasks come in groups."""
_KEPT_KILLS: Final = 16
_KILLED_SECONDS: Final = 3600.0
_OUT_OF_REACH: Final = frozenset({"missing", "no_permission"})
"""Reasons why the kernel log is legitimately inaccessible, as in most containers; see gpu_exporter_degraded_info."""

_KINDS: Final = tuple(trouble.value for trouble in ProblemKind)

GPU_HOST_KERNEL_EVENTS_TOTAL = host_counter(
    "Kernel messages about problems of host and driver, by kind (docs/kernel-events.md). "
    "Includes messages in the kernel log at startup; every kind starts at 0.",
    labels={"kind": _KINDS},
    source="/dev/kmsg",
)
GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS = host_gauge(
    "Unix time of the last such message about this subject, such as a process as name (pid); empty if it names none. "
    f"The latest {_KEPT_SUBJECTS} subjects of a kind, for a day; what lasts, until it is over "
    "(docs/kernel-events.md).",
    labels={"kind": _KINDS, "subject": ANY},
    source="/dev/kmsg",
)
GPU_HOST_KERNEL_LOG_LOST_RECORDS_TOTAL = host_counter(
    "Kernel log records overwritten before the exporter could read them, since it started. Absent while 0, except in "
    "profile full.",
    source="/dev/kmsg, sequence numbers",
    default_samples=lambda sample: sample.value > 0,
)
GPU_HOST_OOM_KILL_TIMESTAMP_SECONDS = host_gauge(
    "Unix time at which the kernel killed a process because the host, or its job's memory cgroup, ran out of memory; "
    f"the last {_KEPT_KILLS}, for an hour. Owner labels as in gpu_process_info, with Linux 5.0 or later.",
    labels=("pid", "process", "container_id", "pod_uid", "slurm_job_id"),
    source="/dev/kmsg",
)


@dataclass(frozen=True, slots=True)
class HostKernelLogReading:
    """Events from the kernel log; empty while it is unreadable, and until it has been read to its end once.

    `events` has all kinds; `last` and `kills` Unix seconds by the metrics' labels, `kills` the oldest first.
    """

    events: Annotated[Mapping[str, int], GPU_HOST_KERNEL_EVENTS_TOTAL]
    lost: Annotated[int | None, GPU_HOST_KERNEL_LOG_LOST_RECORDS_TOTAL]
    last: Annotated[Mapping[tuple[str, str], float], GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS]
    kills: Annotated[Mapping[tuple[str, str, str, str, str], float], GPU_HOST_OOM_KILL_TIMESTAMP_SECONDS]


class _Last(NamedTuple):
    """The last message about a subject."""

    at: float  # monotonic second
    pid: int | None
    transient: bool  # whether it may be over already


_NOTHING: Final = HostKernelLogReading({}, None, {}, {})


class HostKernelLogReader:
    """Reads the kernel log through its own file descriptor, and counts messages about the host."""

    def __init__(self) -> None:
        self._log: KernelLog | None = None
        self._past_read = False
        self._events: Counter[ProblemKind] = Counter()
        self._last: dict[ProblemKind, dict[str, _Last]] = {}  # by kind and subject, the latest last
        self._kills: deque[tuple[float, tuple[str, str, str, str, str]]] = deque(maxlen=_KEPT_KILLS)
        self._walls = WallTimes()
        # The last order to kill a process, which the kernel logs before the kill, holding one lock (mm/oom_kill.c).
        self._order = (0, "")

    def read(self, round_: HostRound) -> HostKernelLogReading:
        """Read what was logged until now (``/dev/kmsg``); never blocks."""
        if round_.machine.kmsg is None:
            return _NOTHING
        if self._log is None:
            self._log = KernelLog(round_.machine.kmsg)
        try:
            records = self._log.read(round_.at.monotonic)
        except HostReadFailed as failed:
            if failed.reason in _OUT_OF_REACH:
                return _NOTHING
            raise
        for record in records:
            self._take(record)
        self._past_read |= self._log.drained
        if self._past_read:
            self._end_hung(round_.machine.procfs, round_.at.monotonic)
        return self._reading(self._log.lost, round_.at) if self._past_read else _NOTHING

    def _take(self, record: KernelRecord) -> None:
        text = record.message
        if order := parse_kill_order(text):
            self._order = order
            return
        if message := driver_messages.parse_driver_message(text) or parse_host_message(text):
            self._note(message, record.at, transient=text.endswith(_OF_SOFT_MOUNT))
        elif over := parse_trouble_over(text):
            subjects = self._last.get(over.trouble, {})
            if over.subject in subjects and over.trouble in EVENT_ANYWAY:
                subjects[over.subject] = subjects[over.subject]._replace(transient=True)
            else:
                subjects.pop(over.subject, None)
        elif is_driver_loaded(text):
            self._end_failures(record.at)

    def _end_failures(self, loaded_at: float) -> None:
        """Discard failures from before the driver was loaded, except those logged while it was loading."""
        for kind, of_kind in self._last.items():
            until = loaded_at - (driver_messages.LOADING_SECONDS if kind.ending is Ending.PROBED else 0.0)
            for subject in [each for each, last in of_kind.items() if kind.until_loaded and last.at <= until]:
                del of_kind[subject]

    def _end_hung(self, procfs: Path, now: float) -> None:
        """Discard tasks that are no longer blocked: the kernel does not log that."""
        hung = self._last.get(ProblemKind.HUNG_TASK, {})
        visible = bool(hung) and names_are_host_pids(procfs) is not False
        for subject, last in tuple(hung.items()):
            found = read_process_stat(procfs / str(last.pid)) if visible else None
            task = found if found is not None and subject.startswith(f"{found.name} (") else None
            is_over = now - last.at > _HUNG_SECONDS if task is None else task.state != UNINTERRUPTIBLE
            if is_over:
                del hung[subject]

    def _note(self, message: HostMessage, at: float, *, transient: bool) -> None:
        self._events[message.trouble] += 1
        subjects = self._last.setdefault(message.trouble, {})
        before = subjects.pop(message.subject, None)
        transient = transient and (before is None or before.transient)
        subjects[message.subject] = _Last(at, message.pid, transient)
        for surplus in tuple(subjects)[:-_KEPT_SUBJECTS]:
            del subjects[surplus]
        if message.trouble is ProblemKind.OOM_KILL and message.pid is not None:
            process = message.subject.removesuffix(f" ({message.pid})")
            pid, cgroup = self._order
            owner = parse_cgroup(f"0::{cgroup}\n") if pid == message.pid else Owner()
            self._kills.append((at, (str(message.pid), process, *owner)))

    def _reading(self, lost: int, now: Moment) -> HostKernelLogReading:
        for kind, subjects in self._last.items():
            for subject in [s for s, last in subjects.items() if now.monotonic - last.at > _kept_seconds(kind, last)]:
                del subjects[subject]
        while self._kills and now.monotonic - self._kills[0][0] > _KILLED_SECONDS:
            self._kills.popleft()
        return HostKernelLogReading(
            events={kind.value: self._events[kind] for kind in ProblemKind},
            lost=lost,
            last={
                (kind.value, subject): self._walls.of(last.at, now)
                for kind, subjects in self._last.items()
                for subject, last in subjects.items()
            },
            # A PID can be reused within the hour: of two kills with the same one, the later counts.
            kills={labels: self._walls.of(at, now) for at, labels in self._kills},
        )


def _kept_seconds(kind: ProblemKind, last: _Last) -> float:
    if last.transient:
        return _TRANSIENT_SECONDS
    return _KEPT_SECONDS if kind.ending in (Ending.MOMENTARY, Ending.ANNOUNCED) else float("inf")


HOST_KERNEL_LOG = HostCollector(
    about="kernel messages: driver failures, killed and hung processes, storage, adapters, hardware",
    tier=Tier.MEDIUM,
    reader=lambda _config: HostKernelLogReader().read,
)
