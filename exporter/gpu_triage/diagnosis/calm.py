"""One line an area on what was looked at, for the report's reader who has nothing to fix."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.codes import Area
from gpu_triage.diagnosis.ladder import slow_link
from gpu_triage.diagnosis.starvation import line_rates
from gpu_triage.diagnosis.view import GpuView, HostView

_IOWAIT: Final = frozenset({"iowait"})


def summaries(host: HostView) -> dict[Area, str | None]:
    """A line for every area; None where nothing of it was read."""
    return {
        Area.DRIVER: _driver(host),
        Area.HEALTH: _health(host),
        Area.CLOCKS: _clocks(host),
        Area.PCIE: _pcie(host),
        Area.PEERS: _peers(host),
        Area.HOST: _host(host),
        Area.WORK: _work(host),
        Area.SETTINGS: _settings(host),
    }


def _driver(host: HostView) -> str | None:
    driver = host.evidence.one(catalogue.DRIVER_INFO)
    if driver is None:
        return None if host.driver_error is None else f"the driver does not answer ({host.driver_error})"
    models = Counter(gpu.name or "unknown model" for gpu in host.gpus)
    named = ", ".join(f"{count} x {name}" for name, count in models.items()) or "no GPU"
    return f"{len(host.answering)} of {len(host.gpus)} GPUs answer: {named}; driver {driver.labels['driver_version']}"


def _health(host: HostView) -> str | None:
    if not any(gpu.was_read for gpu in host.gpus):
        return None
    ecc = sum(1 for gpu in host.answering if gpu.last(catalogue.ECC_MODE) == 1)
    protected = f"ECC on for {ecc} of {len(host.answering)}" if ecc else "no ECC"
    xids = {
        track.labels["xid"]
        for spec in (catalogue.XID_LAST_TIMESTAMP, catalogue.XID_UNASSIGNED_LAST_TIMESTAMP)
        for track in host.evidence.series(spec)
    }
    heard = [t.labels["source"] for t in host.evidence.series(catalogue.EXPORTER_XID_SOURCE_UP) if t.last]
    named = {"kmsg": "kernel log", "nvml": "NVML"}
    sources = ", ".join(named.get(source, source) for source in sorted(heard)) or "none"
    seen = f"Xid errors {', '.join(sorted(xids))}" if xids else f"no Xid errors (sources: {sources})"
    return f"{seen}; {protected}"


def _clocks(host: HostView) -> str | None:
    heat = _span((gpu.last(catalogue.TEMPERATURE, sensor="gpu") for gpu in host.answering), "{:.0f}", "°C")
    power = _span((gpu.power_share for gpu in host.answering), "{:.0%}", "of the power limit")
    clock = _span((_mhz(gpu) for gpu in host.answering), "{:.0f}", "MHz SM clock")
    return "; ".join(part for part in (heat, power, clock) if part) or None


def _mhz(gpu: GpuView) -> float | None:
    clock = gpu.last(catalogue.CLOCK, clock="sm")
    return None if clock is None else clock / 1e6


def _span(values: Iterable[float | None], form: str, unit: str) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return ""
    low, high = form.format(known[0]), form.format(known[-1])
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def _pcie(host: HostView) -> str | None:
    if not any(gpu.was_read for gpu in host.gpus):
        return None
    links = Counter(
        f"gen {generation:.0f} x{width:.0f}"
        for gpu in host.answering
        if (generation := gpu.last(catalogue.PCIE_EXPECTED_GENERATION)) is not None
        and (width := gpu.last(catalogue.PCIE_EXPECTED_WIDTH)) is not None
    )
    expected = ", ".join(f"{count} x {link}" for link, count in links.items()) or "link limits not reported"
    resting = [gpu.gpu for gpu in host.answering if not gpu.recent.loaded and slow_link(gpu) is not None]
    downshift = f"; GPU {ranges(resting)} shifted down at rest, which is normal" if resting else ""
    return f"expected {expected}{downshift}"


def _peers(host: HostView) -> str | None:
    if not any(gpu.was_read for gpu in host.gpus):
        return None
    if len(host.answering) < 2:  # noqa: PLR2004 - a pair
        return "no pair of GPUs"
    paths = host.evidence.series(catalogue.P2P_STATUS, capability="read")
    direct = len(host.evidence.series(catalogue.P2P_STATUS, capability="read", status="ok"))
    levels = Counter(track.labels["level"] for track in host.evidence.series(catalogue.TOPOLOGY_INFO))
    links = host.evidence.series(catalogue.NVLINK_UP)
    told = [f"P2P reads between {direct} of {len(paths)} ordered pairs" if paths else "P2P not reported"]
    if levels:
        told.append("paths: " + ", ".join(f"{count} {level}" for level, count in sorted(levels.items())))
    if links:
        told.append(f"NVLink {sum(1 for link in links if link.last)} of {len(links)} links up")
    return "; ".join(told)


def _host(host: HostView) -> str | None:
    cpu, iowait = host.cpu_busy_share(), host.cpu_share(_IOWAIT)
    network = max((share for _, _, share in line_rates(host)), default=None)
    swap = host.evidence.rate(catalogue.HOST_SWAP_IN_BYTES)
    disk = max((t.rate or 0.0 for t in host.evidence.series(catalogue.HOST_DISK_BUSY_SECONDS)), default=None)
    parts = (
        None if cpu is None else f"CPUs {cpu:.0%} busy",
        None if iowait is None else f"{iowait:.0%} iowait",
        None if disk is None else f"busiest disk {min(1.0, disk):.0%}",
        None if network is None else f"busiest adapter {network:.0%} of line rate",
        None if swap is None else f"{swap / 1024**2:.1f} MiB/s swapped in",
        *(f"stalled for {r} {stalled:.0%}" for r in ("cpu", "io") if (stalled := host.pressure(r)) is not None),
    )
    return "; ".join(part for part in parts if part is not None) or None


def _work(host: HostView) -> str | None:
    if not any(gpu.was_read for gpu in host.gpus):
        return None
    counts: dict[int, list[str]] = defaultdict(list)
    nodes: dict[str, list[str]] = defaultdict(list)
    for gpu in host.answering:
        if gpu.processes_known:
            counts[gpu.compute_processes].append(gpu.gpu)
        nodes[gpu.node or "unknown"].append(gpu.gpu)
    processes = ", ".join(
        f"{count or 'no'} compute process{_es(count)} on GPU {ranges(counts[count])}" for count in counts
    )
    busy = _span((gpu.busy_share for gpu in host.answering), "{:.0%}", "busy")
    located = ", ".join(f"GPU {ranges(gpus)} on NUMA node {node}" for node, gpus in sorted(nodes.items()))
    unknown = "" if processes or not host.answering else "processes not reported"
    return "; ".join(part for part in (processes or unknown, busy, located) if part) or "no GPU"


def _es(count: int) -> str:
    return "" if count == 1 else "es"


def ranges(indices: Iterable[str]) -> str:
    """GPU indices as people write them: ``0-3, 6``."""
    runs: list[list[int]] = []
    for index in sorted(map(int, indices)):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _settings(host: HostView) -> str | None:
    if not any(gpu.was_read for gpu in host.gpus):
        return None
    modes = [mode for gpu in host.answering if (mode := gpu.last(catalogue.PERSISTENCE_MODE)) is not None]
    told = [f"persistence mode on for {modes.count(1)} of {len(modes)}" if modes else "persistence mode not reported"]
    partitioned = [gpu.gpu for gpu in host.answering if gpu.partitioned]
    if partitioned:
        told.append(f"MIG on GPU {ranges(partitioned)}")
    iommu = host.evidence.last(catalogue.HOST_IOMMU_ACTIVE)
    if iommu is not None:
        told.append(f"IOMMU {'in use' if iommu else 'off'}")
    return "; ".join(told)
