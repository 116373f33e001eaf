"""Matches GPUs across outputs, which identify them by address, UUID, index or only by order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpu_triage.cli.offline.lspci import PciDevice
from gpu_triage.cli.offline.smi_gpu import bus_id_of, uuid_of
from gpu_triage.cli.offline.smi_report import RawGpu, SmiReport
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
        self._bus_of_uuid: dict[str, str] = {}
        self._key_of_index: dict[str, str] = {}
        self._printed: dict[str, str] = {}
        self._counted: dict[str, str] = {}
        self._uuids: dict[str, str] = {}
        self._keys: list[str] = []
        self._counts_all = any(map(_is_whole, reports))
        names = [(report, [_names(gpu) for gpu in report.gpus]) for report in reports]
        for _, each in names:
            self._bus_of_uuid.update({own.uuid: own.bus_id for own in each if own.uuid and own.bus_id})
        for _, each in names:
            for own in each:
                self._learn(own, own.number, self._printed)
        for report, each in sorted(names, key=lambda pair: -len(pair[1])):
            # Start with the complete output that lists the most GPUs: if one is lost, those after it move up.
            for place, own in enumerate(each if _is_whole(report) else ()):
                self._learn(own, str(place), self._counted)
        keys = {self._key(own, place) for _, each in names for place, own in enumerate(each)}
        self._keys = sorted(key for key in keys if not key.startswith(_UNKNOWN)) or sorted(keys)

    def keys(self, report: SmiReport) -> list[str]:
        """The keys of an output's GPUs, in output order."""
        found = [self._key(_names(gpu), place) for place, gpu in enumerate(report.gpus)]
        if len(found) == len(self._keys) and all(key.startswith(_UNKNOWN) for key in found):
            # The GPUs are unnamed, but their number matches: they are in bus order.
            return self._keys
        return found

    def labels(
        self, lost: Iterable[str], devices: Mapping[str, PciDevice], shown: Iterable[str]
    ) -> dict[str, GpuLabels]:
        """Index and UUID of every GPU that nvidia-smi showed or missed, by key.

        NVML numbers GPUs in bus order. GPUs that lspci shows as dead are included, but then the numbering is
        uncertain, since the driver may or may not show them. If no output lists all GPUs, the number of GPUs before
        one is unknown, and its key serves as the index.
        """
        keys = set(shown)
        dead = {device.bus_id for device in devices.values() if keys and device.is_gpu and device.is_dead}
        ordered = sorted(keys | set(lost) | dead)
        counted = {} if len(ordered) > len(keys) else dict(self._counted)
        if self._counts_all and not counted:
            counted = {key: str(index) for index, key in enumerate(ordered)}
        return {
            key: GpuLabels(self._printed.get(key) or counted.get(key) or _spoken(key), self._uuids.get(key, ""))
            for key in ordered
        }

    def _learn(self, own: _Names, index: str, indices: dict[str, str]) -> None:
        key = own.bus_id or self._bus_of_uuid.get(own.uuid) or own.uuid
        if key and own.uuid:
            self._uuids.setdefault(key, own.uuid)
        if key and index:
            indices.setdefault(key, index)
            self._key_of_index.setdefault(index, key)

    def _key(self, own: _Names, place: int) -> str:
        known = own.bus_id or self._bus_of_uuid.get(own.uuid) or own.uuid or self._key_of_index.get(own.number)
        if known:
            return known
        if own.number:
            return f"{_INDEX}{own.number:>03}"
        return self._keys[0] if len(self._keys) == 1 else f"{_UNKNOWN}{place:03}"


_INDEX, _UNKNOWN = "index ", "unknown "


def _spoken(key: str) -> str:
    number = key.removeprefix(_INDEX).removeprefix(_UNKNOWN)
    return str(int(number)) if number != key else key


def _names(gpu: RawGpu) -> _Names:
    bus_id = bus_id_of(gpu.bus_id) or next(
        (bus_id for path in ("pci/bus id", "pci/pci_bus_id") if (bus_id := bus_id_of(gpu.facts.get(path, "")))), ""
    )
    uuid = next((uuid for path in ("gpu uuid", "uuid") if (uuid := uuid_of(gpu.facts.get(path, "")))), "")
    return _Names(bus_id, uuid, gpu.index)


def _is_whole(report: SmiReport) -> bool:
    return bool(report.gpus) and whole_count(report) == len(report.gpus)


def whole_count(report: SmiReport) -> int | None:
    """The number of GPUs according to the driver; None if the output doesn't show it."""
    if report.attached.isdecimal() and len(report.attached) < 4:  # noqa: PLR2004 - no host has thousands
        return int(report.attached)
    return len(report.gpus) if report.is_whole else None
