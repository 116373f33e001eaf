"""File contents as evidence for the judge, with the same readings and metrics as on a live host."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpu_triage.cli.offline.logs import EventKey, EventKind, Events, LogEvent, LogReading, cause_of
from gpu_triage.cli.offline.lspci import PciDevice
from gpu_triage.cli.offline.scan import HostFacts
from gpu_triage.cli.offline.smi_gpu import SmiGpu
from gpu_triage.cli.offline.smi_links import reading_of
from gpu_triage.cli.offline.snapshot import Snapshot
from gpu_triage.documents.pcie_values import BUILT_LANES, is_built_for_laptop
from gpu_triage.driver.kernel.pci_bus import PASS_THROUGH
from gpu_triage.driver.nvml.session import DriverVersions
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.history import MetricHistory
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.findings.finding import Finding, of_slot
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.machine import Moment
from gpu_triage.options.config import Config
from gpu_triage.read.gpu import activity, identity, nvlink, pcie, power, presence, topology
from gpu_triage.read.incidents.incident_metrics import GPU_RESET_TIMESTAMP_SECONDS
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.metrics.rendering import samples
from gpu_triage.read.processes import on_gpu
from gpu_triage.read.xid.codes import XidKind, codes_of
from gpu_triage.read.xid.xid_events import NO_ACTION, OFF_THE_BUS, nvlink_error, parse_process, recovery_action
from gpu_triage.read.xid.xid_ledger import FATAL_LABELS, XidCount, XidCounts, XidName
from gpu_triage.read.xid.xid_metrics import XidReading
from gpu_triage.read.xid.xid_metrics import render as render_xids
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore

_COLLECTOR, _SAMPLED = "files", "samples"
_OF_MOMENT: Final = (activity.ActivityReading, activity.MediaReading)
_MOST_XIDS: Final = 64  # Xid codes per GPU


@dataclass(frozen=True, slots=True)
class FilesOfHost:
    facts: HostFacts
    snapshots: tuple[Snapshot, ...]  # in chronological order
    labels: Mapping[str, GpuLabels]  # index and UUID of every GPU, from the roster
    ports: Mapping[str, PciDevice]  # the PCIe ports that lspci lists, as returned by `ports_of`
    log: LogReading  # all kernel logs merged, and the time that ages refer to
    config: Config
    with_names: bool  # whether to name processes and servers

    @property
    def last(self) -> Snapshot:
        """The last snapshot; an empty one if nvidia-smi printed none."""
        return self.snapshots[-1] if self.snapshots else Snapshot(None, is_full=False)

    @property
    def driver_error(self) -> str | None:
        """Why nvidia-smi could not use NVML; None if it could, or if no output of nvidia-smi shows it."""
        return None if self.last.gpus else self.facts.driver_error

    @property
    def answering(self) -> frozenset[str]:
        """Bus ids of the GPUs that answer."""
        sound = (gpu.bus_id for gpu in self.last.gpus.values() if gpu.error is None)
        return frozenset() if self.driver_error else frozenset(sound) - set(self.facts.lost)

    def port_above(self, bus_id: str) -> PciDevice | None:
        """The upstream port of a device; None if no listing includes it."""
        return self.ports.get(bus_id.rpartition(":")[0])

    def index(self, key: str) -> str:
        return self.labels[key].gpu if key in self.labels else "?"

    def about_gpu(self, code: str, address: str, measured: str, value: float | None = None) -> Finding:
        """A finding about the GPU at an address, labeled with its index if known."""
        if (known := self.labels.get(address)) is not None:
            return Finding(BY_CODE[code], measured, known.gpu, known.uuid, address, value=value)
        return of_slot(code, address, measured, value)


def evidence_of(files: FilesOfHost) -> HostEvidence:
    now = files.log.reference
    # One without a time counts as the first, and only fills what the next one lacks: the time between them is unknown.
    first = next((snapshot.at for snapshot in files.snapshots if snapshot.at is not None), now)
    times = [first if snapshot.at is None else snapshot.at for snapshot in files.snapshots] or [now]
    sampled = _sampled(files, times[-1])
    begin = min([times[0], *(at for at, _, _ in sampled)])
    store, history = OutcomeStore([_SAMPLED, _COLLECTOR]), MetricHistory(max(1.0, times[-1] - begin))
    for at, subject, made in [(begin, "", ()), *sampled]:
        store.put(Outcome(_SAMPLED, subject, made, Moment(at, at)))
        history.note(store, Moment(at, at))
    for at, after, snapshot in zip(times, (*times[1:], None), files.snapshots or (files.last,), strict=True):
        history_at = Moment(at, at)
        groups = dict(_groups(files, snapshot))
        kept = {*groups, *snapshot.carried}
        for subject in store.of(_COLLECTOR).keys() - kept:
            store.withdraw(_COLLECTOR, subject)
        for subject, made in groups.items():
            store.put(Outcome(_COLLECTOR, subject, made, history_at))
        if at != after:
            history.note(store, history_at)
    texts: dict[float, str] = {}
    ended: set[float] = set()
    if files.log.lines:
        made = (*render_xids(_xids(files, texts, ended)), *_resets(files))
        store.put(Outcome(_COLLECTOR, "log", made, history_at))
        history.note(store, history_at)
    end = Moment(times[-1], now)
    return replace(history.evidence(end), at=end, time_texts=texts, ended=frozenset(ended))


def _sampled(files: FilesOfHost, end: float) -> list[tuple[float, str, tuple[Sample, ...]]]:
    """What was measured over some time, which ends with the last output: when, of what, and the samples then."""
    begin = end - thresholds.RECENT_SECONDS
    of_host = ((at, "host", tuple(files.facts.tools.tables.samples(at - begin))) for at in (begin, end))
    points = [point for point in of_host if point[2]]
    for key, gpu in files.last.gpus.items():
        labels = files.labels[key]
        for seconds, (utilization, watts) in enumerate(reversed(gpu.watched)):
            drawn = () if watts is None else (power.GPU_POWER_WATTS.sample(watts, *labels),)
            points.append(
                (end - seconds, key, (activity.GPU_SM_UTILIZATION_RATIO.sample(utilization, *labels), *drawn))
            )
    return sorted(points, key=lambda each: each[0])


def _groups(files: FilesOfHost, snapshot: Snapshot) -> Iterator[tuple[str, tuple[Sample, ...]]]:
    """Samples by subject at one point in time: the host's, and those of each GPU seen then."""
    presences = []
    for key, labels in files.labels.items():
        gpu, device = snapshot.gpus.get(key), files.facts.devices.get(key)
        error = files.facts.lost.get(key) or (None if gpu is None else gpu.error)
        if device is not None and device.is_dead:
            error = "lost"
        if gpu is None and error is None:
            if snapshot.attached != len(snapshot.gpus):
                continue  # a GPU missing from truncated output isn't missing from the host
            error = "missing"
        presences.append(presence.GpuPresence(labels, error is None, error))
        if gpu is not None and key not in snapshot.carried:
            measured = _measured(key, gpu, snapshot, files) if error is None else ()
            yield key, (*identity.render(gpu.identity, labels), *measured)
    yield "host", tuple(presence.render(_presence(files, snapshot, tuple(presences))))


def _presence(
    files: FilesOfHost, snapshot: Snapshot, gpus: tuple[presence.GpuPresence, ...]
) -> presence.PresenceReading:
    on_bus = [device for device in files.facts.devices.values() if device.is_gpu and device.driver not in PASS_THROUGH]
    version = snapshot.driver or files.facts.driver_version
    counted = 0 if files.facts.no_devices and not files.snapshots else snapshot.attached
    return presence.PresenceReading(
        gpus=gpus,
        nvml_count=counted,
        # Without nvidia-smi's count there is nothing to compare the PCI count with.
        pci_count=len(on_bus) if files.facts.devices and (counted is not None or files.driver_error) else None,
        expected_count=None if counted is None else files.config.expect_gpu_count,
        most_since_boot=None,
        driver_up=files.driver_error is None if files.snapshots or files.driver_error else None,
        driver_error=files.driver_error,
        versions=DriverVersions(version, snapshot.cuda, None) if version else None,
        expected_p2p=files.config.expect_p2p,
    )


def _measured(key: str, gpu: SmiGpu, snapshot: Snapshot, files: FilesOfHost) -> Iterator[Sample]:
    labels, device = files.labels[key], files.facts.devices.get(key)
    # Utilization is instantaneous: two samples would be mistaken for an average over the time between them.
    is_last = gpu is files.last.gpus.get(key)
    for reading in gpu.readings:
        if is_last or not isinstance(reading, _OF_MOMENT):
            yield from samples(reading, labels)
    yield from samples(_expectation(gpu, files), labels)
    yield from on_gpu.render(gpu.processes, labels)
    by_index = {each.gpu: each for each in files.labels.values()}
    peers = tuple(
        topology.PeerReading(
            index,
            by_index[index].uuid,
            {"nvlink": "ok"} if gpu.peers.get(index, "").startswith("NV") else gpu.p2p.get(index, {}),
            level if (level := gpu.peers.get(index, "").lower()) in topology.LEVELS.values() else None,
        )
        for index in dict.fromkeys((*gpu.peers, *gpu.p2p))
        if index in by_index and labels.gpu.isdecimal()
    )
    node = gpu.numa_node if device is None or device.numa_node is None else device.numa_node
    yield from topology.render(topology.TopologyReading(node, peers), labels)
    others = (each for each in snapshot.gpus.values() if each is not gpu and each.identity.name == gpu.identity.name)
    yield from nvlink.render(reading_of(gpu.links, (each.links for each in others)), labels)


def _expectation(gpu: SmiGpu, files: FilesOfHost) -> pcie.LinkExpectation:
    limits, device, config = gpu.limits, files.facts.devices.get(gpu.bus_id), files.config
    if device is not None:
        slot = files.port_above(gpu.bus_id) or PciDevice("", "")
        width = BUILT_LANES if is_built_for_laptop(device.model, BUILT_LANES) else slot.max_width
        limits = replace(
            limits,
            device_generation=limits.device_generation or device.max_generation,
            device_width=device.max_width,
            slot_generation=slot.max_generation or limits.slot_generation,
            slot_width=width,
            slot_hidden=limits.slot_hidden and width is None,
        )
    if limits.system_width is limits.slot_width is None and gpu.width is not None:
        # Without limits, as in NCCL's log, a link that is narrower than those of other GPUs lacks what they have.
        alike = (each for each in files.last.gpus.values() if each.identity.name == gpu.identity.name)
        widest = max(each.width or 0 for each in alike)
        limits = replace(limits, system_width=widest if widest > gpu.width else None)
    return pcie.expectation_of(limits, config.expect_pcie_generation, config.expect_pcie_width)


def _xids(files: FilesOfHost, texts: dict[float, str], ended: set[float]) -> XidReading:
    """The Xids in the log; by timestamp, fills `texts` with when each was, and `ended` with those that are over."""
    gpus: dict[GpuLabels, XidCounts] = {}
    unassigned: dict[str, XidCounts] = {}
    log, now = files.log, files.log.reference
    for what, name, words, events in logged_xids(log):
        labels = files.labels.get(what.address)
        counts = unassigned.setdefault(what.address, {}) if labels is None else gpus.setdefault(labels, {})
        if len(counts) >= _MOST_XIDS:
            continue
        last, is_over = events.last, log.is_over(events.last)
        wall = now if last.wall is None else min(last.wall, now)
        # What is over does not count as recent damage, even if the driver was loaded within the same second.
        wall -= (thresholds.XID_RECENT_SECONDS + 1) * is_over
        while wall in texts:
            # Timestamps must be unique, because they are the keys of the descriptions.
            wall -= 1e-3
        texts[wall] = log.when(last) + words
        if is_over:
            ended.add(wall)
        counts[name] = XidCount(events.count, wall)
    return XidReading((), gpus, unassigned, {"kmsg": True})


def _resets(files: FilesOfHost) -> Iterator[Sample]:
    """When each GPU was last reset: the last driver load in the log."""
    load = files.log.last_load
    if load is not None and (loaded := load.wall) is not None:
        yield from (GPU_RESET_TIMESTAMP_SECONDS.sample(loaded, *labels) for labels in files.labels.values())


_MOST_PROCESSES: Final = 3
_RECOVERY: Final = "154"


def logged_xids(log: LogReading) -> Iterator[tuple[EventKey, XidName, str, Events]]:
    """Xids, also those only named as causes; the text, to follow the time: process, cause, or the driver's request."""
    logged = {(what.address, what.code): events for what, events in log.of_kind(EventKind.XID)}
    lost = {what.address: each.last for what, each in log.of_kind(EventKind.XID) if what.code in ("", str(OFF_THE_BUS))}
    for what, events in log.of_kind(EventKind.XID):
        if not what.code and (what.address, str(OFF_THE_BUS)) in logged:
            continue  # the "fallen off the bus" message that accompanies this GPU's Xid
        last = events.last
        action = recovery_action(last.text) if what.code == _RECOVERY else None
        if action == NO_ACTION:
            continue  # the driver withdrew its request
        if action:
            words = f"; the driver asks for: {action}"
        elif cause := cause_of(last.text):
            words = f"; caused by Xid {cause}"
        elif told := nvlink_error(last.text):
            words = f"; {told}"
        else:
            words = _explained(what, last, logged)
        if others := sum(_is_at_once(last, each) for address, each in lost.items() if address != what.address):
            words += f"; {others + 1} GPUs at once: they share the cause, such as power, a riser or a PCIe switch"
        yield what, XidName(what.code or str(OFF_THE_BUS), FATAL_LABELS[what.fatal]), _processes(events) + words, events
    for what, events in log.of_kind(EventKind.XID_CAUSE):
        if (what.address, what.code) not in logged:
            yield what, XidName(what.code), "; named as the cause of another Xid", events


def _is_at_once(event: LogEvent, other: LogEvent) -> bool:
    """Whether two events happened within a second, which is syslog's precision."""
    both = event.exact and other.exact
    one, two = (event.wall, other.wall) if both else (event.seconds, other.seconds)
    return one is not None and two is not None and abs(one - two) <= 1


_FOLLOWS: Final = frozenset({"43", "45", "109"})
"""Xids that a failure of the program itself entails: its channels are removed, or cannot be switched away from."""
_OF_PROGRAMS: Final = tuple(code for code in map(str, codes_of(XidKind.APPLICATION)) if code not in _FOLLOWS)


def _process(event: LogEvent) -> str:
    """The process of an Xid, as ``python3 (4242)``; "" if the driver does not name it."""
    pid, program = parse_process(event.text)
    # The name is the user's: as one word, it can be masked.
    return f"{'_'.join(program.split()) or 'process'} ({pid})" if pid.isdecimal() else ""


def _processes(events: Events) -> str:
    names = list(dict.fromkeys(name for each in reversed(events.known) if (name := _process(each))))
    more = f" and {len(names) - _MOST_PROCESSES} others" if len(names) > _MOST_PROCESSES else ""
    return f", by {', '.join(names[:_MOST_PROCESSES])}{more}" if names else ""


def _explained(what: EventKey, last: LogEvent, logged: Mapping[tuple[str, str], Events]) -> str:
    """The Xid of the same process just before that explains this one; "" if none does."""
    if what.code not in _FOLLOWS or not (process := _process(last)):
        return ""
    for code in _OF_PROGRAMS:
        for each in logged.get((what.address, code), Events()).known:
            if _process(each) == process and 0 <= each.seconds_to(last) <= thresholds.XID_FOLLOWS_SECONDS:
                return f"; explained by Xid {code} of the same process"
    return ""
