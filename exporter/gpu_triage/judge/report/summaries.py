"""One line per area on what was checked, shown even without findings, and what could not be judged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.findings.table import Area
from gpu_triage.read.exporter import exporter_health
from gpu_triage.read.gpu.activity import GPU_BUSY_SECONDS_TOTAL
from gpu_triage.read.gpu.ecc import GPU_ECC_MODE, GPU_ECC_VOLATILE_ERRORS_TOTAL
from gpu_triage.read.gpu.modes import GPU_PERSISTENCE_MODE, GPU_RECOVERY_ACTION
from gpu_triage.read.gpu.nvlink import GPU_NVLINK_UP
from gpu_triage.read.gpu.pcie import (
    GPU_PCIE_LINK_EXPECTED_GENERATION,
    GPU_PCIE_LINK_EXPECTED_WIDTH,
    GPU_PCIE_REPLAYS_TOTAL,
)
from gpu_triage.read.gpu.power import GPU_CLOCK_HERTZ, GPU_POWER_LIMIT_WATTS, GPU_TEMPERATURE_CELSIUS
from gpu_triage.read.gpu.presence import GPU_DEVICES, GPU_DRIVER_INFO
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.gpu.topology import GPU_P2P_STATUS
from gpu_triage.read.host.cpu import GPU_HOST_CPU_SECONDS_TOTAL
from gpu_triage.read.host.disk import GPU_HOST_DISK_BUSY_SECONDS_TOTAL
from gpu_triage.read.host.host_memory import GPU_HOST_SWAP_IN_BYTES_TOTAL
from gpu_triage.read.host.platform import GPU_HOST_IOMMU_ACTIVE
from gpu_triage.read.metrics.metric import GPU_LABELS, MetricSpec
from gpu_triage.read.processes.on_gpu import GPU_PROCESSES
from gpu_triage.read.registry import SUBJECTS
from gpu_triage.read.xid.xid_metrics import (
    GPU_EXPORTER_XID_SOURCE_UP,
    GPU_XID_LAST_TIMESTAMP_SECONDS,
    GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS,
)

_XID_SOURCES = {"kmsg": "kernel log", "nvml": "NVML"}
_SOURCES: Final[Mapping[Area, Mapping[str, MetricSpec]]] = MappingProxyType(
    {
        Area.DRIVER: {"the number of GPUs": GPU_DEVICES},
        Area.HEALTH: {
            "Xid errors": GPU_EXPORTER_XID_SOURCE_UP,
            "memory errors": GPU_ECC_VOLATILE_ERRORS_TOTAL,
            "whether the driver asks for a reset": GPU_RECOVERY_ACTION,
        },
        Area.CLOCKS: {
            "throttling": GPU_THROTTLE_SECONDS_TOTAL,
            "temperatures": GPU_TEMPERATURE_CELSIUS,
            "power limits": GPU_POWER_LIMIT_WATTS,
        },
        Area.PCIE: {"PCIe links": GPU_PCIE_LINK_EXPECTED_WIDTH, "PCIe replays": GPU_PCIE_REPLAYS_TOTAL},
        Area.PEERS: {"peer access": GPU_P2P_STATUS, "NVLinks": GPU_NVLINK_UP},
        Area.HOST: {"CPUs": GPU_HOST_CPU_SECONDS_TOTAL, "swapping": GPU_HOST_SWAP_IN_BYTES_TOTAL},
        Area.WORK: {"processes": GPU_PROCESSES, "busy shares": GPU_BUSY_SECONDS_TOTAL},
        Area.SETTINGS: {"persistence mode": GPU_PERSISTENCE_MODE},
    }
)
"""What an area is judged by; without any of these, nothing is known about it."""
_NOT_ON_ALL: Final = (GPU_P2P_STATUS, GPU_NVLINK_UP)
"""What is there for some GPUs only, so that its absence means nothing if its collector succeeds."""
_PAIR: Final = 2
_COLLECTORS: Final = MappingProxyType({spec: subject.name for subject in SUBJECTS for spec in subject.metrics})


def is_known(host: HostEvidence, area: Area) -> bool:
    """Whether anything that the area is judged by was read."""
    alone = area is Area.PEERS and len(host.answering) < _PAIR
    return not alone and any(_was_read(host, spec) for spec in _SOURCES[area].values())


def not_judged(host: HostEvidence) -> Iterator[str]:
    """Yield what could not be judged, by reason: ``memory errors, throttling (not reported by GPU 0-1)``."""
    if silent := [gpu.gpu for gpu in host.gpus if not gpu.up]:
        yield f"GPU {ranges(silent)} (no answer)"
    reasons: dict[str, list[str]] = defaultdict(list)
    for sources in _SOURCES.values():
        for name, spec in sources.items():
            if reason := _why_not(host, spec):
                reasons[reason].append(name)
    yield from (f"{', '.join(names)} ({reason})" for reason, names in reasons.items())


def _was_read(host: HostEvidence, spec: MetricSpec) -> bool:
    return any(host.lasts(spec)) if spec is GPU_EXPORTER_XID_SOURCE_UP else host.has(spec)


def _reports(gpu: GpuEvidence, spec: MetricSpec) -> bool:
    # Of a GPU with MIG devices, it is derived from theirs.
    return gpu.has(spec) or (spec is GPU_BUSY_SECONDS_TOTAL and gpu.busy_share is not None)


def _why_not(host: HostEvidence, spec: MetricSpec) -> str | None:
    """Return why something could not be read; None if it was, or is not there to be read."""
    of_gpus = spec.labels[: len(GPU_LABELS)] == GPU_LABELS
    lacking = [gpu.gpu for gpu in host.answering if not _reports(gpu, spec)] if of_gpus else []
    if _was_read(host, spec) and not lacking:
        return None
    collector = _COLLECTORS[spec]
    success = host.last(exporter_health.GPU_EXPORTER_COLLECTOR_SUCCESS, collector=collector)
    if not host.has(exporter_health.GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS, collector=collector):
        return f"collector {collector} is off"
    if not success:
        return f"collector {collector} {'has not run' if success is None else 'fails'}"
    if spec in _NOT_ON_ALL or (of_gpus and not lacking):
        return None
    if spec is GPU_PCIE_LINK_EXPECTED_WIDTH and host.is_virtual:
        return "a virtual machine does not show the slot"
    return f"not reported by GPU {ranges(lacking)}" if lacking else "no source"


def summaries(host: HostEvidence) -> dict[Area, str | None]:
    """Return a line for every area; None if nothing in it was read."""
    found = {
        Area.DRIVER: _driver(host),
        Area.HEALTH: _health(host) if host.was_read else None,
        Area.CLOCKS: _clocks(host),
        Area.PCIE: _pcie(host) if host.was_read else None,
        Area.PEERS: _peers(host) if host.was_read else None,
        Area.HOST: _host(host),
        Area.WORK: _work(host) if host.was_read else None,
        Area.SETTINGS: _settings(host) if host.was_read else None,
    }
    return {area: line or None for area, line in found.items()}


def _driver(host: HostEvidence) -> str:
    version = host.label(GPU_DRIVER_INFO, "driver_version")
    if not version:
        return "" if host.driver_error is None else f"the driver does not answer ({host.driver_error})"
    models = Counter(gpu.name or "unknown model" for gpu in host.gpus)
    named = ", ".join(f"{count} x {name}" for name, count in models.items()) or "no GPU"
    silent = "" if host.driver_error is None else f"; the driver does not answer ({host.driver_error})"
    return f"{len(host.answering)} of {len(host.gpus)} GPUs answer: {named}; driver {version}{silent}"


def _health(host: HostEvidence) -> str:
    ecc = sum(1 for gpu in host.answering if gpu.last(GPU_ECC_MODE) == 1)
    protected = f"ECC on for {ecc} of {len(host.answering)}" if ecc else "no ECC"
    if not host.series(GPU_EXPORTER_XID_SOURCE_UP):
        return f"no source of Xid errors; {protected}"
    last = (*host.series(GPU_XID_LAST_TIMESTAMP_SECONDS), *host.series(GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS))
    if xids := {each.labels["xid"] for each in last}:
        return f"Xid errors {', '.join(sorted(xids))}; {protected}"
    heard = sorted(each.labels["source"] for each in host.series(GPU_EXPORTER_XID_SOURCE_UP) if each.last)
    sources = ", ".join(_XID_SOURCES.get(source, source) for source in heard) or "none"
    return f"no Xid errors (sources: {sources}); {protected}"


def _clocks(host: HostEvidence) -> str:
    # All of the last samples, so that they are consistent with each other.
    heat = _span((gpu.last(GPU_TEMPERATURE_CELSIUS, sensor="gpu") for gpu in host.answering), "{:.0f}", "°C")
    power = _span((gpu.over(0.0).power_share for gpu in host.answering), "{:.0%}", "of the power limit")
    clocks = [clock for gpu in host.answering if (clock := gpu.last(GPU_CLOCK_HERTZ, clock="sm")) is not None]
    return _joined(heat, power, _span((clock / 1e6 for clock in clocks), "{:.0f}", "MHz SM clock"))


def _span(values: Iterable[float | None], form: str, unit: str) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return ""
    low, high = form.format(known[0]), form.format(known[-1])
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _pcie(host: HostEvidence) -> str:
    links = Counter(
        f"gen {generation:.0f} x{width:.0f}"
        for gpu in host.answering
        if (generation := gpu.last(GPU_PCIE_LINK_EXPECTED_GENERATION)) is not None
        and (width := gpu.last(GPU_PCIE_LINK_EXPECTED_WIDTH)) is not None
    )
    expected = ", ".join(f"{count} x {link}" for link, count in links.items()) or "link limits not reported"
    resting = [gpu.gpu for gpu in host.answering if not gpu.recent.loaded and gpu.slow_link is not None]
    downshift = f"GPU {ranges(resting)} shifted down at rest, which is normal" if resting else ""
    return _joined(f"expected {expected}", downshift)


def _peers(host: HostEvidence) -> str:
    if len(host.answering) < _PAIR:
        return "no pair of GPUs"
    paths = host.lasts(GPU_P2P_STATUS, capability="read")
    direct = len(host.lasts(GPU_P2P_STATUS, capability="read", status="ok"))
    links = host.lasts(GPU_NVLINK_UP)
    return _joined(
        f"peer access works for {_of_pairs(direct, len(paths))}" if paths else "peer access not reported",
        f"NVLink {sum(map(bool, links))} of {len(links)} links up" if links else "",
    )


def _of_pairs(direct: int, pairs: int) -> str:
    return f"all {pairs} pairs" if direct == pairs else f"{direct or 'none'} of {pairs} pairs"


def _host(host: HostEvidence) -> str:
    cpu, iowait = host.cpu_busy_share(), host.cpu_share("iowait")
    network = max((share for _, _, share in host.line_rates()), default=None)
    swap = host.rate(GPU_HOST_SWAP_IN_BYTES_TOTAL)
    disk = max((each.rate or 0.0 for each in host.series(GPU_HOST_DISK_BUSY_SECONDS_TOTAL)), default=None)
    return _joined(
        "" if cpu is None else f"CPUs {cpu:.0%} busy",
        "" if iowait is None else f"{iowait:.0%} iowait",
        "" if disk is None else f"busiest disk {min(1.0, disk):.0%}",
        "" if network is None else f"busiest adapter {network:.0%} of line rate",
        "" if swap is None else f"{swap / 1024**2:.1f} MiB/s swapped in",
        *(f"stalled for {r} {stalled:.0%}" for r in ("cpu", "io") if (stalled := host.pressure(r)) is not None),
    )


def _work(host: HostEvidence) -> str:
    counts: dict[int, list[str]] = defaultdict(list)
    nodes: dict[str, list[str]] = defaultdict(list)
    for gpu in host.answering:
        if gpu.processes_known:
            counts[gpu.compute_processes].append(gpu.gpu)
        nodes[gpu.node or "unknown"].append(gpu.gpu)
    # The count is per GPU: "8 processes on GPU 0-7" would read as the total.
    processes = (
        f"{count or 'no'} compute process{'' if count == 1 else 'es'} on "
        f"{'each of ' if count and len(gpus) > 1 else ''}GPU {ranges(gpus)}"
        for count, gpus in counts.items()
    )
    unknown = "processes not reported" if host.answering else ""
    busy = _span((gpu.busy_share for gpu in host.answering), "{:.0%}", "busy")
    located = ", ".join(f"GPU {ranges(gpus)} on NUMA node {node}" for node, gpus in sorted(nodes.items()))
    return _joined(", ".join(processes) or unknown, busy, "" if set(nodes) <= {"unknown"} else located) or "no GPU"


def _settings(host: HostEvidence) -> str:
    modes = [mode for gpu in host.answering if (mode := gpu.last(GPU_PERSISTENCE_MODE)) is not None]
    partitioned = [gpu.gpu for gpu in host.answering if gpu.partitioned]
    iommu = host.last(GPU_HOST_IOMMU_ACTIVE)
    return _joined(
        f"persistence mode on for {modes.count(1)} of {len(modes)}" if modes else "persistence mode not reported",
        f"MIG on GPU {ranges(partitioned)}" if partitioned else "",
        "" if iommu is None else f"IOMMU {'in use' if iommu else 'off'}",
        "a virtual machine" if host.is_virtual else "",
    )
