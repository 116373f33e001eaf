"""The GPUs of a host at each moment, from outputs that identify them by address, UUID, index or only by order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpu_triage.cli.offline.log_lines import date_time
from gpu_triage.cli.offline.scan import Content, HostFacts
from gpu_triage.cli.offline.smi_facts import RawGpu, SmiReport, version
from gpu_triage.cli.offline.smi_gpu import UUID, SmiGpu, address_of, uuid_of
from gpu_triage.errors import ConfigError
from gpu_triage.read.metrics.contract import GpuLabels


class _Names(NamedTuple):
    """How one output identifies a GPU; "" for what it doesn't print."""

    bus_id: str
    uuid: str
    number: str


class GpuIndex:
    """The GPUs of a host, each under one key: its address, or else its UUID, index, or position in an output."""

    def __init__(self, reports: Iterable[SmiReport]) -> None:
        reports = list(reports)
        self._printed: dict[str, str] = {}
        self._counted: dict[str, str] = {}
        self._uuids: dict[str, str] = {}
        self._keys: list[str] = []
        self._counts_all = any(map(_is_whole, reports))
        names = [[_names(gpu) for gpu in report.gpus] for report in reports]
        everybody = [own for each in names for own in each]
        self._bus_of_uuid = {own.uuid: own.bus_id for own in everybody if own.uuid and own.bus_id}
        self._key_of_index = _in_bus_order(everybody)
        for own in everybody:
            if own.uuid and own.number in self._key_of_index:
                self._bus_of_uuid.setdefault(own.uuid, self._key_of_index[own.number])
        for own in everybody:
            self._learn(own, own.number, self._printed)
        # Start with the complete output that lists the most GPUs: if one is lost, those after it move up.
        whole = (each for report, each in zip(reports, names, strict=True) if _is_whole(report))
        for each in sorted(whole, key=len, reverse=True):
            for place, own in enumerate(each):
                self._learn(own, str(place), self._counted)
        keys = {self._key(own, place) for each in names for place, own in enumerate(each)}
        self._keys = sorted(key for key in keys if not key.startswith(_UNKNOWN)) or sorted(keys)

    def keys(self, report: SmiReport) -> list[str]:
        found = [self._key(_names(gpu), place) for place, gpu in enumerate(report.gpus)]
        if len(found) == len(self._keys) and all(key.startswith(_UNKNOWN) for key in found):
            # The GPUs are unnamed, but their number matches: they are in bus order.
            return self._keys
        # An output of several GPUs that begins in the middle does not name the first, which is a GPU of its own.
        first, *others = found or [""]
        is_begun = first.startswith(_UNKNOWN) and not all(key.startswith(_UNKNOWN) for key in others)
        return [_BEGUN, *others] if first in others or is_begun else found

    def labels(self, keys: set[str], facts: HostFacts) -> dict[str, GpuLabels]:
        """Index and UUID of every GPU that nvidia-smi showed (these keys) or missed, by key.

        NVML numbers GPUs in bus order. The driver may or may not show those that are dead by lspci, so then the numbers
        are uncertain. If no output lists all GPUs, how many come before one is unknown: its key is the index.
        """
        dead = {bus_id for bus_id, device in facts.devices.items() if keys and device.is_gpu and device.is_dead}
        ordered = sorted(keys | set(facts.lost) | dead)
        counted = {} if len(ordered) > len(keys) else self._counted
        if self._counts_all and not counted:
            counted = {key: str(index) for index, key in enumerate(ordered)}
        names = {key: self._printed.get(key) or counted.get(key) or _display_name(key) for key in ordered}
        # An index that two outputs give to different GPUs names neither.
        times = Counter(names.values())
        return {
            key: GpuLabels(name if times[name] == 1 else _display_name(key), self._uuids.get(key, ""))
            for key, name in names.items()
        }

    def _learn(self, own: _Names, index: str, indices: dict[str, str]) -> None:
        if (key := own.bus_id or self._bus_of_uuid.get(own.uuid) or own.uuid) and own.uuid:
            self._uuids.setdefault(key, own.uuid)
        if key and index:
            indices.setdefault(key, index)
            self._key_of_index.setdefault(index, key)

    def _key(self, own: _Names, place: int) -> str:
        if known := own.bus_id or self._bus_of_uuid.get(own.uuid) or own.uuid or self._key_of_index.get(own.number):
            return known
        if own.number:
            return f"{_INDEX}{own.number:>03}"
        return self._keys[0] if len(self._keys) == 1 else f"{_UNKNOWN}{place:03}"

    def is_unassigned(self, key: str) -> bool:
        """Whether a key is of a part of an output that names no GPU, though others name GPUs."""
        return key.startswith(_UNKNOWN) and key not in self._keys


_INDEX, _UNKNOWN, _BEGUN = "index ", "unknown ", "index 000 begun"


def _in_bus_order(everybody: Sequence[_Names]) -> dict[str, str]:
    """Address by index, if some outputs show as many addresses as others show indices: NVML counts in bus order."""
    addresses, indices = sorted({own.bus_id for own in everybody} - {""}), {own.number for own in everybody} - {""}
    joined = dict(zip(map(str, range(len(addresses))), addresses, strict=True))
    # Where one output has both, it has to agree.
    agrees = all(joined.get(own.number) == own.bus_id for own in everybody if own.number and own.bus_id)
    return joined if agrees and joined.keys() == indices else {}


def _display_name(key: str) -> str:
    number = key.removeprefix(_INDEX).removeprefix(_UNKNOWN).removesuffix(" begun")
    return str(int(number)) if number != key else key


def _names(gpu: RawGpu) -> _Names:
    return _Names(address_of(gpu), gpu.parsed(uuid_of, *UUID) or "", gpu.index)


def _is_whole(report: SmiReport) -> bool:
    return bool(report.gpus) and whole_count(report) == len(report.gpus)


def whole_count(report: SmiReport) -> int | None:
    """The number of GPUs according to the driver; None if the output doesn't show it."""
    if report.attached.isdecimal() and len(report.attached) < 4:  # noqa: PLR2004 - no host has thousands
        return int(report.attached)
    return len(report.gpus) if report.is_whole else None


_SAME_MOMENT_SECONDS: Final = 2.0
_SAME_LOOK_SECONDS: Final = 600.0
"""Outputs taken within this time belong to one investigation: an extract completes a full output this close to it."""

_FULL_FACTS: Final = 60  # per GPU: more than any extract (-d) or table has
_OF_THE_MOMENT: Final = (
    *("temperature", "gpu power readings", "power readings", "utilization", "performance state", "fan speed"),
    *("clocks", "clocks event reasons", "clocks throttle reasons", "clocks event reasons counters", "fb memory usage"),
)
"""Sections with values that change every second: they aren't carried over from one snapshot to the next."""

_COUNTED_ONCE: Final = "ecc errors/"
"""A section with values that are summed, so they must come from only one of several outputs."""


@dataclass(slots=True)
class Snapshot:
    """Outputs that belong to one moment."""

    at: float | None  # in the host's wall clock; None if unknown
    is_full: bool  # whether one of them is a full output
    driver: str = ""  # version; "" if unknown
    cuda: str = ""
    attached: int | None = None  # the number of GPUs according to the driver; None if no output has it
    raw: dict[str, RawGpu] = field(default_factory=dict)  # by roster key, as the next
    gpus: dict[str, SmiGpu] = field(default_factory=dict)  # once it is complete
    # GPUs missing from partial outputs and carried over from earlier: when each was last seen, by key
    carried: dict[str, float | None] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)  # lines that could not be parsed
    unnamed: list[SmiGpu] = field(default_factory=list)  # parts of outputs that do not say of which GPU they are

    def add(self, report: SmiReport, keys: Iterable[str]) -> None:
        """Add an output; existing values win."""
        self.driver = self.driver or version(report.driver)
        self.cuda = self.cuda or version(report.cuda)
        count = whole_count(report)
        self.attached = count if self.attached is None else max(self.attached, count or 0)
        self.unread += report.unread
        if report.driver and not version(report.driver):
            self.unread.append(f"Driver Version : {report.driver}")
        if report.timestamp and date_time(report.timestamp) is None:
            self.unread.append(f"Timestamp : {report.timestamp}")
        for key, gpu in zip(keys, report.gpus, strict=True):
            own = self.raw.setdefault(key, RawGpu(gpu.bus_id, gpu.index))
            own.bus_id = own.bus_id or gpu.bus_id
            own.samples = own.samples or gpu.samples
            _fill(own.facts, gpu.facts)
            if gpu.lists_processes and not own.lists_processes:
                own.lists_processes, own.processes = True, gpu.processes

    def overlaps(self, report: SmiReport, keys: Iterable[str]) -> bool:
        """Whether an output repeats a changing value, which makes it a different point in time."""
        return any(
            _is_of_the_moment(path)
            for key, gpu in zip(keys, report.gpus, strict=True)
            if key in self.raw
            for path in gpu.facts.keys() & self.raw[key].facts.keys()
        )

    def complete(self, before: Snapshot | None, roster: GpuIndex, *, with_names: bool) -> None:
        """Read the GPUs, with the lasting facts that the snapshot before shows of them."""
        unnamed = [self.raw.pop(key) for key in [*self.raw] if roster.is_unassigned(key)]
        self.unnamed = [SmiGpu(gpu) for gpu in unnamed]
        if before is not None:
            self.driver, self.cuda = self.driver or before.driver, self.cuda or before.cuda
            for key in self.raw.keys() & before.raw.keys():
                lasting = {path: value for path, value in before.raw[key].facts.items() if not _is_of_the_moment(path)}
                _fill(self.raw[key].facts, lasting)
        self.gpus = {key: SmiGpu(gpu, with_names=with_names) for key, gpu in self.raw.items()}
        if before is not None and self.attached != len(self.raw):
            self.carried = {key: before.carried.get(key, before.at) for key in before.gpus if key not in self.raw}
            self.gpus |= {key: before.gpus[key] for key in self.carried}


def snapshots(
    contents: Iterable[Content], facts: HostFacts, *, with_names: bool
) -> tuple[tuple[Snapshot, ...], dict[str, GpuLabels]]:
    """The snapshots in chronological order, those without a time first; and index and UUID of every GPU, by its key."""
    # Of those of a file without a time, the last shows what is now; files are in no order.
    outputs = [each for content in contents for each in [*_outputs(content)][::-1]]
    _refuse_different_hosts(report for report, _ in outputs)
    roster = GpuIndex(report for report, _ in outputs)
    found = _moments(outputs, roster)
    for before, snapshot in zip((None, *found), found, strict=False):
        snapshot.complete(before, roster, with_names=with_names)
    return tuple(found), roster.labels({key for snapshot in found for key in snapshot.gpus}, facts)


def _outputs(content: Content) -> Iterator[tuple[SmiReport, float | None]]:
    """The outputs of a file, each with its time, or else that of the nearest preceding or following output."""
    outputs = [(each, date_time(each.timestamp)) for each in content.reports if each.gpus or each.driver]
    # The head of a table alone does not start a new moment.
    shown = (at for report, at in outputs if report.gpus)
    known = next((at for at in (content.written_at, *shown) if at is not None), None)
    for report, at in outputs:
        known = known if at is None or not report.gpus else at
        yield report, known


def _moments(outputs: Sequence[tuple[SmiReport, float | None]], roster: GpuIndex) -> list[Snapshot]:
    """Group outputs: each full output starts a moment; others join a nearby one, or start their own if none is near."""
    moments: list[Snapshot] = []
    for report, at in sorted(outputs, key=lambda each: (not _is_full(each[0]), each[1] is not None, each[1] or 0.0)):
        keys = roster.keys(report)
        near = min(
            (moment for moment in moments if _joins(moment, report, at, keys)),
            # An output without a time is assigned to the latest moment.
            key=lambda moment: -(moment.at or 0.0) if at is None else abs((moment.at or 0.0) - at),
            default=None,
        )
        if near is None:
            near = Snapshot(at, _is_full(report))
            moments.append(near)
        near.add(report, keys)
    return sorted(moments, key=lambda moment: (moment.at is not None, moment.at or 0.0))


def _is_full(report: SmiReport) -> bool:
    """Whether this is a full output, not an extract, a table or a list."""
    shows_all = any(gpu.lists_processes or len(gpu.facts) >= _FULL_FACTS for gpu in report.gpus)
    return shows_all and report.kind.startswith("nvidia-smi -q")


def _joins(moment: Snapshot, report: SmiReport, at: float | None, keys: list[str]) -> bool:
    completes = moment.is_full and not _is_full(report)
    if at is None or moment.at is None:
        return at is moment.at or completes or not moment.overlaps(report, keys)
    apart = abs(at - moment.at)
    if apart < _SAME_MOMENT_SECONDS:
        return True
    return apart <= _SAME_LOOK_SECONDS and (completes or not (_is_full(report) or moment.overlaps(report, keys)))


def _fill(facts: dict[str, str], more: Mapping[str, str]) -> None:
    has_counts = any(path.startswith(_COUNTED_ONCE) for path in facts)
    for path, value in more.items():
        if not (has_counts and path.startswith(_COUNTED_ONCE)):
            facts.setdefault(path, value)


def _is_of_the_moment(path: str) -> bool:
    return path.partition("/")[0] in _OF_THE_MOMENT


def _refuse_different_hosts(reports: Iterable[SmiReport]) -> None:
    """Raise if a complete output and another one share no GPU. Outputs of single GPUs may differ in their GPUs."""
    known: set[str] = set()
    for report in sorted(reports, key=lambda report: whole_count(report) != len(report.gpus)):
        uuids = {uuid for gpu in report.gpus if (uuid := _names(gpu).uuid)}
        if known and uuids and not known & uuids:
            raise ConfigError("--from: the files are of different hosts: no GPU is in both; check one host at a time")
        if whole_count(report) == len(report.gpus):
            known |= uuids
