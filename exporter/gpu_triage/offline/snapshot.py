"""The GPUs of a host at the moments that files show, each known by one name in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpu_triage.errors import ConfigError
from gpu_triage.offline.lspci import PciDevice
from gpu_triage.offline.scan import Content
from gpu_triage.offline.smi_gpu import SmiGpu, read_gpu
from gpu_triage.offline.smi_text import SmiReport
from gpu_triage.offline.smi_values import text
from gpu_triage.offline.times import date_time
from gpu_triage.subjects.contract import GpuLabels

_SAME_MOMENT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What nvidia-smi showed at one moment.

    Attributes:
        at: on the host's clock face; None where unknown.
        driver: version; "" where unknown.
        attached: how many GPUs the driver counts.
        gpus: in nvidia-smi's order, which is that of the bus.
    """

    at: float | None
    driver: str
    cuda: str
    attached: int
    gpus: tuple[SmiGpu, ...]


def snapshots(contents: Iterable[Content], *, with_names: bool) -> tuple[Snapshot, ...]:
    """The moments that files show, in the order of time, those of unknown times first.

    Tables count only where no file has more.

    Raises:
        ConfigError: they are of different hosts.
    """
    contents = list(contents)
    chosen = [(content, report) for content in contents for report in content.reports if report.gpus or report.driver]
    if not chosen:
        chosen = [(content, table) for content in contents for table in content.tables]
    read = [_snapshot(report, content, with_names=with_names) for content, report in chosen]
    read.sort(key=lambda each: (each.at is not None, each.at or 0.0))
    kept: list[Snapshot] = []
    for each in read:
        if kept and _is_same_moment(kept[-1], each):
            # Text and XML of one moment, or one report attached twice.
            if len(each.gpus) > len(kept[-1].gpus):
                kept[-1] = each
        else:
            kept.append(each)
    _refuse_different_hosts(kept)
    return tuple(kept)


def _snapshot(report: SmiReport, content: Content, *, with_names: bool) -> Snapshot:
    at = date_time(report.timestamp)
    gpus = tuple(read_gpu(gpu, with_names=with_names) for gpu in report.gpus)
    attached = int(report.attached) if report.attached.isdecimal() and len(report.attached) < 4 else 0  # noqa: PLR2004
    return Snapshot(
        content.written_at if at is None else at,
        text(report.driver),
        text(report.cuda),
        max(attached, len(gpus)),
        gpus,
    )


def _is_same_moment(one: Snapshot, other: Snapshot) -> bool:
    if one.at is None or other.at is None:
        return one.at is other.at
    return abs(one.at - other.at) < _SAME_MOMENT_SECONDS


def _refuse_different_hosts(read: Iterable[Snapshot]) -> None:
    known: set[str] = set()
    for each in read:
        uuids = {gpu.uuid for gpu in each.gpus if gpu.uuid}
        if known and uuids and not known & uuids:
            raise ConfigError("--from: the files are of different hosts: no GPU is in both; check one host at a time")
        known |= uuids


def labels_of(
    read: Sequence[Snapshot], lost: Iterable[str], devices: Mapping[str, PciDevice]
) -> Mapping[str, GpuLabels]:
    """Index and UUID of every GPU that nvidia-smi showed or missed, by bus id, or by UUID where that is unknown.

    The index is the place on the bus, as NVML counts. GPUs that only lspci shows count too: nobody knows whether the
    driver shows them. Where nvidia-smi showed none, nobody knows how many come first: the bus id stands for the index.
    """
    uuids: dict[str, str] = {}
    for each in read:
        for place, gpu in enumerate(each.gpus):
            uuids[key_of(gpu, place)] = gpu.uuid or uuids.get(key_of(gpu, place), "")
    for bus_id in lost:
        uuids.setdefault(bus_id, "")
    for device in devices.values():
        if uuids and device.is_gpu and device.is_dead:
            uuids.setdefault(device.bus_id, "")
    shown = any(each.gpus for each in read)
    return {key: GpuLabels(str(index) if shown else key, uuids[key]) for index, key in enumerate(sorted(uuids))}


def key_of(gpu: SmiGpu, place: int) -> str:
    """What a GPU is known by in all files of its host."""
    return gpu.bus_id or gpu.uuid or f"unknown {place:03}"
