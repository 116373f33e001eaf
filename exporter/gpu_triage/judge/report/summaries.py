"""One line per area on what was checked, shown even without findings; what could not be judged, and what not read."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.driver.kernel.files import MISSING, SHOWS
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.findings.table import Area
from gpu_triage.read.exporter import exporter_health
from gpu_triage.read.gpu import activity, nvlink, pcie, presence, throttle, topology
from gpu_triage.read.gpu.ecc import GPU_ECC_MODE, GPU_ECC_VOLATILE_ERRORS_TOTAL
from gpu_triage.read.gpu.modes import GPU_PERSISTENCE_MODE, GPU_RECOVERY_ACTION
from gpu_triage.read.gpu.power import GPU_CLOCK_HERTZ, GPU_POWER_LIMIT_WATTS, GPU_TEMPERATURE_CELSIUS
from gpu_triage.read.host import host_memory, platform
from gpu_triage.read.host.access import GPU_EXPORTER_DEGRADED_INFO
from gpu_triage.read.host.cpu import GPU_HOST_CPU_SECONDS_TOTAL, GPU_HOST_PRESSURE_SECONDS_TOTAL, HOST_PRESSURE
from gpu_triage.read.host.disk import GPU_HOST_DISK_BUSY_SECONDS_TOTAL
from gpu_triage.read.metrics import metric
from gpu_triage.read.processes import on_gpu
from gpu_triage.read.registry import HOST_COLLECTORS, SUBJECTS
from gpu_triage.read.xid import xid_metrics
from gpu_triage.read.xid.xid_events import MISSED_BY_NVML
from gpu_triage.sampler.state_directory import FINDINGS, IN_USE

_XID_SOURCES = {"kmsg": "kernel log", "nvml": "NVML"}
_SOURCES: Final[Mapping[Area, Mapping[str, metric.MetricSpec]]] = {
    Area.DRIVER: {"the number of GPUs": presence.GPU_DEVICES},
    Area.HEALTH: {
        "Xid errors": xid_metrics.GPU_EXPORTER_XID_SOURCE_UP,
        "memory errors": GPU_ECC_VOLATILE_ERRORS_TOTAL,
        "whether the driver asks for a reset": GPU_RECOVERY_ACTION,
    },
    Area.CLOCKS: {
        "throttling": throttle.GPU_THROTTLE_SECONDS_TOTAL,
        "temperatures": GPU_TEMPERATURE_CELSIUS,
        "power limits": GPU_POWER_LIMIT_WATTS,
    },
    Area.PCIE: {"PCIe links": pcie.GPU_PCIE_LINK_EXPECTED_WIDTH, "PCIe replays": pcie.GPU_PCIE_REPLAYS_TOTAL},
    Area.PEERS: {"peer access": topology.GPU_P2P_STATUS, "NVLinks": nvlink.GPU_NVLINK_UP},
    Area.HOST: {"CPUs": GPU_HOST_CPU_SECONDS_TOTAL, "swapping": host_memory.GPU_HOST_SWAP_IN_BYTES_TOTAL},
    Area.WORK: {"processes": on_gpu.GPU_PROCESSES, "busy shares": activity.GPU_BUSY_SECONDS_TOTAL},
    Area.SETTINGS: {"persistence mode": GPU_PERSISTENCE_MODE},
}
"""What an area is judged by; without any of these, nothing is known about it."""
_NOT_ON_ALL: Final = (topology.GPU_P2P_STATUS, nvlink.GPU_NVLINK_UP)
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


def _was_read(host: HostEvidence, spec: metric.MetricSpec) -> bool:
    return any(host.lasts(spec)) if spec is xid_metrics.GPU_EXPORTER_XID_SOURCE_UP else host.has(spec)


def _reports(gpu: GpuEvidence, spec: metric.MetricSpec) -> bool:
    if spec is GPU_ECC_VOLATILE_ERRORS_TOTAL and gpu.partitioned:
        # "Querying volatile errors using device handles is currently not supported" (nvml.h of CUDA 11 to 13, of
        # nvmlDeviceGetMemoryErrorCounter with MIG), but drivers 535 to 590 return 0.
        return any(gpu.lasts(spec))
    # Of a GPU with MIG devices, it is derived from theirs.
    return gpu.has(spec) or (spec is activity.GPU_BUSY_SECONDS_TOTAL and gpu.busy_share is not None)


def _why_not(host: HostEvidence, spec: metric.MetricSpec) -> str | None:
    """Return why something could not be read; None if it was, or is not there to be read."""
    of_gpus = spec.labels[: len(metric.GPU_LABELS)] == metric.GPU_LABELS
    lacking = [gpu for gpu in host.answering if not _reports(gpu, spec)] if of_gpus else []
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
    if spec is pcie.GPU_PCIE_LINK_EXPECTED_WIDTH and host.is_virtual:
        return "a virtual machine does not show the slot"
    mode = "in MIG mode " if all(gpu.partitioned for gpu in lacking) else ""
    return f"not reported {mode}by GPU {ranges([gpu.gpu for gpu in lacking])}" if lacking else "no source"


def summaries(host: HostEvidence) -> dict[Area, str | None]:
    """Return a line for every area; None if nothing in it was read."""
    found = {Area.DRIVER: _driver(host), Area.CLOCKS: _clocks(host), Area.HOST: _host(host)}
    if host.was_read:
        found[Area.HEALTH] = _health(host)
    for area, line in {Area.PCIE: _pcie, Area.PEERS: _peers, Area.WORK: _work, Area.SETTINGS: _settings}.items():
        if host.was_read or is_known(host, area):
            found[area] = line(host)
    return {area: found.get(area) or None for area in Area}


def _driver(host: HostEvidence) -> str:
    version = host.label(presence.GPU_DRIVER_INFO, "driver_version")
    silent = "" if host.driver_error is None else f"the driver does not answer ({host.driver_error})"
    if not version:
        return silent
    models = Counter(gpu.name or "unknown model" for gpu in host.gpus)
    named = ", ".join(f"{count} x {name}" for name, count in models.items()) or "no GPU"
    return _joined(f"{len(host.answering)} of {len(host.gpus)} GPUs answer: {named}; driver {version}", silent)


def _health(host: HostEvidence) -> str:
    protected = "no ECC" if host.has(GPU_ECC_MODE) else "ECC not reported"
    if ecc := sum(gpu.last(GPU_ECC_MODE) == 1 for gpu in host.answering):
        protected = f"ECC on for {ecc} of {len(host.answering)}"
    sources = {each.labels["source"]: each.last for each in host.series(xid_metrics.GPU_EXPORTER_XID_SOURCE_UP)}
    if not sources:
        return f"no source of Xid errors; {protected}"
    seen = (xid_metrics.GPU_XID_LAST_TIMESTAMP_SECONDS, xid_metrics.GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS)
    if xids := {labels["xid"] for spec in seen for labels in host.labels_of(spec)}:
        return f"Xid errors {', '.join(sorted(xids))}; {protected}"
    heard = ", ".join(_XID_SOURCES.get(source, source) for source, is_up in sorted(sources.items()) if is_up)
    return f"no Xid errors (sources: {heard or 'none'}); {protected}"


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
        if (generation := gpu.last(pcie.GPU_PCIE_LINK_EXPECTED_GENERATION)) is not None
        and (width := gpu.last(pcie.GPU_PCIE_LINK_EXPECTED_WIDTH)) is not None
    )
    expected = ", ".join(f"{count} x {link}" for link, count in links.items()) or "link limits not reported"
    resting = [gpu.gpu for gpu in host.answering if not gpu.recent.loaded and gpu.slow_link is not None]
    downshift = f"GPU {ranges(resting)} shifted down at rest, which is normal" if resting else ""
    return _joined(f"expected {expected}", downshift)


def _peers(host: HostEvidence) -> str:
    if len(host.answering) < _PAIR:
        return "no pair of GPUs"
    paths = host.lasts(topology.GPU_P2P_STATUS, capability="read")
    direct = len(host.lasts(topology.GPU_P2P_STATUS, capability="read", status="ok"))
    reached = f"all {direct} pairs" if direct == len(paths) else f"{direct or 'none'} of {len(paths)} pairs"
    links = host.lasts(nvlink.GPU_NVLINK_UP)
    return _joined(
        f"peer access works for {reached}" if paths else "peer access not reported",
        f"NVLink {sum(map(bool, links))} of {len(links)} links up" if links else "",
    )


def _host(host: HostEvidence) -> str:
    cpu, iowait = host.cpu_busy_share(), host.cpu_share("iowait")
    network = max((share for _, _, share in host.line_rates()), default=None)
    swap = host.rate(host_memory.GPU_HOST_SWAP_IN_BYTES_TOTAL)
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
    cached = [gpu.gpu for gpu in host.answering if not gpu.memory_is_held]
    unproved = f"used memory of GPU {ranges(cached)} not judged, as it may include the page cache" if cached else ""
    where = "" if set(nodes) <= {"unknown"} else located
    return _joined(", ".join(processes) or unknown, busy, where, unproved) or "no GPU"


def _settings(host: HostEvidence) -> str:
    modes = [mode for gpu in host.answering if (mode := gpu.last(GPU_PERSISTENCE_MODE)) is not None]
    partitioned = [gpu.gpu for gpu in host.answering if gpu.partitioned]
    iommu = host.last(platform.GPU_HOST_IOMMU_ACTIVE)
    return _joined(
        f"persistence mode on for {modes.count(1)} of {len(modes)}" if modes else "persistence mode not reported",
        f"MIG on GPU {ranges(partitioned)}" if partitioned else "",
        "" if iommu is None else f"IOMMU {'in use' if iommu else 'off'}",
        "a virtual machine" if host.is_virtual else "",
    )


_FOUND: Final = frozenset({"lost", "reset_required", IN_USE})  # errors with a finding or report line of their own
_READ_LOG: Final = "read the kernel log (dmesg | grep -i nvrm)"
_MISSED_BY_NVML: Final = ", ".join(map(str, MISSED_BY_NVML))
_OF_HOST: Final = frozenset(collector.name for collector in HOST_COLLECTORS)
_NEXT_STEPS: Final = {
    "library_not_found": "libnvidia-ml.so.1 is not installed; install the driver, or, in a container, "
    "run it with the NVIDIA runtime and the utility capability",
    "library_invalid": "libnvidia-ml.so.1 is there but cannot be loaded; reinstall the driver's libraries",
    "driver_not_loaded": "the kernel module is not loaded; modprobe nvidia, then " + _READ_LOG,
    "version_mismatch": "the library and the loaded kernel module are of different versions; reload the module "
    "or reboot",
    "no_permission": "the device files may not be opened; check /dev/nvidia* and the container's devices",
    "released": "the GPUs were released on request and are not monitored; SIGUSR2 or POST /-/acquire reacquires them",
    "stalled": "the driver does not answer in time, as when a GPU hangs; " + _READ_LOG + " and reboot the host",
    "no_answer": "nothing answered in time; " + _READ_LOG + ", or raise --patience",
}


def why_blocked(host: HostEvidence, error: str | None) -> str | None:
    """Return why no GPU could be checked, and what to do, or None; `error` is the driver's, None if it responded."""
    if host.answering or host.last(presence.GPU_DEVICES, source="expected") == 0:
        return None
    if error is not None and host.last(presence.GPU_DEVICES, source="pci") == 0:
        return f"no NVIDIA GPU on the PCI bus ({error}); set --expect.gpu-count 0 if that is right"
    if error is not None:
        return f"{error}: {_NEXT_STEPS.get(error, _READ_LOG)}"
    return None if host.gpus else "the driver shows no GPU; set --expect.gpu-count 0 if that is right"


def not_read(host: HostEvidence) -> Iterator[str]:
    """Yield a line for each thing that could not be read, with what to do about it."""
    yield from _unavailable_sources(host)
    yield from _not_mounted(host)
    yield from _failed(host)
    if nameless := [labels for labels in host.labels_of(on_gpu.GPU_PROCESS_INFO) if not labels["process"]]:
        yield f"{len(nameless)} processes by name: in a container, give it the host's PID namespace"
    pressure_read = host.last(exporter_health.GPU_EXPORTER_COLLECTOR_SUCCESS, collector=HOST_PRESSURE.name) != 0
    if pressure_read and not host.has(GPU_HOST_PRESSURE_SECONDS_TOTAL):
        yield "pressure stall information: this kernel has none, so starvation shows in iowait, disks and CPUs only"


def _unavailable_sources(host: HostEvidence) -> Iterator[str]:
    """Yield event sources that are unavailable, and state that will not survive a restart."""
    sources = {each.labels["source"]: each.last for each in host.series(xid_metrics.GPU_EXPORTER_XID_SOURCE_UP)}
    if sources.get("kmsg") == 0:
        yield (
            "the kernel log: Xids from before this run are not seen, nor, with drivers of 2024, Xids "
            f"{_MISSED_BY_NVML}; run as root or with CAP_SYSLOG, or give --path.kmsg"
        )
    if host.answering and sources.get("nvml") == 0:
        yield "NVML's events: new Xids are only visible in the kernel log"
    if host.last(exporter_health.GPU_EXPORTER_STATE_DIRECTORY_IN_USE) == 1:
        yield (
            "the state directory: another exporter writes there, so incidents and states of findings of this one are "
            "lost when it stops; stop one of the two, or give it another --state.directory"
        )
    # Without a directory, the collector for the file never runs; if saving fails, its collector reports the error.
    if (
        host.last(exporter_health.GPU_EXPORTER_STATE_SAVED) == 0
        and host.last(exporter_health.GPU_EXPORTER_COLLECTOR_SUCCESS, collector=FINDINGS) is None
    ):
        yield (
            "states of findings and incidents of earlier runs: there is no state directory, so after a restart every "
            "finding starts over; set --state.directory"
        )


def _not_mounted(host: HostEvidence) -> Iterator[str]:
    """Yield host files that are missing, and reads that are blocked."""
    for degraded in host.labels_of(GPU_EXPORTER_DEGRADED_INFO, reason=MISSING):
        if (name := degraded["feature"]) in SHOWS:
            yield f"{SHOWS[name]}: nothing is mounted at --path.{name}; mount the host's {name} there"
    for call in host.series(exporter_health.GPU_EXPORTER_CALL_INFLIGHT_SECONDS, gpu=""):
        name = call.labels["collector"]
        if name in _OF_HOST and host.last(exporter_health.GPU_EXPORTER_COLLECTOR_SUCCESS, collector=name) == 0:
            yield f"{name}: a read has not returned for {call.last:.0f} s"


def _failed(host: HostEvidence) -> Iterator[str]:
    """Yield persistent errors with the collectors that have them: several often fail for one reason."""
    # If the driver is unavailable, every collector that queries it must fail.
    unavailable = host.driver_error is not None and not host.answering
    failed: dict[str, set[str]] = defaultdict(set)
    for errors in host.series(exporter_health.GPU_EXPORTER_ERRORS_TOTAL):
        collector, error = errors.labels["collector"], errors.labels["error"]
        interval = host.last(exporter_health.GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS, collector=collector)
        # They are assumed to persist if the collector runs less often than once per window.
        persists = errors.increase > 0 or interval is None or interval >= host.seconds
        reported = error in _FOUND or (unavailable and collector not in _OF_HOST)
        if persists and not reported:
            failed[collector].add(error)
    alike: dict[str, list[str]] = defaultdict(list)
    for collector, names in failed.items():
        alike[", ".join(sorted(names))].append(collector)
    for words, collectors in alike.items():
        yield f"{', '.join(collectors)}: {words}; the log has the cause (check: --verbose)"
