"""What could not be read on a host, what that hides, and what to do about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from gpu_triage.driver.kernel.files import MISSING, SHOWS
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.series import Series
from gpu_triage.read.exporter import exporter_health
from gpu_triage.read.gpu.presence import GPU_DEVICES
from gpu_triage.read.host.access import GPU_EXPORTER_DEGRADED_INFO
from gpu_triage.read.host.pressure import GPU_HOST_PRESSURE_SECONDS_TOTAL, HOST_PRESSURE
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO
from gpu_triage.read.registry import HOST_COLLECTORS
from gpu_triage.read.xid.xid_events import NEVER_FROM_NVML
from gpu_triage.read.xid.xid_metrics import GPU_EXPORTER_XID_SOURCE_UP
from gpu_triage.sampler.state_directory import FINDINGS, IN_USE

_FOUND: Final = frozenset({"lost", "reset_required", IN_USE})  # errors with a finding or report line of their own
_READ_LOG: Final = "read the kernel log (dmesg | grep -i nvrm)"
_NEVER_FROM_NVML: Final = ", ".join(map(str, NEVER_FROM_NVML))
_OF_HOST: Final = frozenset(collector.name for collector in HOST_COLLECTORS)
_NEXT_STEPS: Final = MappingProxyType(
    {
        "library_not_found": "libnvidia-ml.so.1 is not installed here; install the driver, or, in a container, "
        "run it with the NVIDIA runtime and the utility capability",
        "library_invalid": "libnvidia-ml.so.1 is there but cannot be loaded; reinstall the driver's libraries",
        "driver_not_loaded": "the kernel module is not loaded; modprobe nvidia, then " + _READ_LOG,
        "version_mismatch": "the library and the loaded kernel module are of different versions; reload the module "
        "or reboot",
        "no_permission": "the device files may not be opened; check /dev/nvidia* and the container's devices",
        "released": "the GPUs were released on request and are not monitored; SIGUSR2 or POST /-/acquire reacquires "
        "them",
        "stalled": "the driver does not answer in time, as when a GPU hangs; " + _READ_LOG + " and reboot the host",
        "no_answer": "nothing answered in time; " + _READ_LOG + ", or raise --patience",
    }
)


def why_blocked(host: HostEvidence, error: str | None) -> str | None:
    """Return why no GPU could be checked, and what to do; None if a GPU responded or none is expected.

    `error` is the driver's error name; None if it responded.
    """
    if host.answering or host.last(GPU_DEVICES, source="expected") == 0:
        return None
    if error is not None and host.last(GPU_DEVICES, source="pci") == 0:
        return f"no NVIDIA GPU on the PCI bus ({error}); set --expect.gpu-count 0 if that is right"
    if error is not None:
        return f"{error}: {_NEXT_STEPS.get(error, _READ_LOG)}"
    return None if host.gpus else "the driver shows no GPU; set --expect.gpu-count 0 if that is right"


def not_read(host: HostEvidence) -> Iterator[str]:
    """Yield a line for each thing that could not be read, with what to do about it."""
    yield from _unheard(host)
    yield from _not_mounted(host)
    for collectors, errors in _failed(host).items():
        yield f"{', '.join(collectors)}: {', '.join(errors)}; the log has the cause (check: --verbose)"
    if nameless := [labels for labels in host.labels_of(GPU_PROCESS_INFO) if not labels["process"]]:
        yield f"{len(nameless)} processes by name: in a container, give it the host's PID namespace"
    pressure_read = host.last(exporter_health.GPU_EXPORTER_COLLECTOR_SUCCESS, collector=HOST_PRESSURE.name) != 0
    if pressure_read and not host.has(GPU_HOST_PRESSURE_SECONDS_TOTAL):
        yield "pressure stall information: this kernel has none, so starvation shows in iowait, disks and CPUs only"


def _unheard(host: HostEvidence) -> Iterator[str]:
    """Yield event sources that are unavailable, and state that will not survive a restart."""
    sources = {each.labels["source"]: each.last for each in host.series(GPU_EXPORTER_XID_SOURCE_UP)}
    if sources.get("kmsg") == 0:
        yield (
            f"the kernel log: Xids from before this run are not seen, and Xids {_NEVER_FROM_NVML} never; run as "
            "root or with CAP_SYSLOG, or give --path.kmsg"
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


def _failed(host: HostEvidence) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return persistent errors by the collectors that have them: several often fail for one reason."""
    # If the driver is unavailable, every collector that queries it must fail.
    unavailable = host.driver_error is not None and not host.answering
    failed: dict[str, set[str]] = defaultdict(set)
    for errors in host.series(exporter_health.GPU_EXPORTER_ERRORS_TOTAL):
        collector, error = errors.labels["collector"], errors.labels["error"]
        reported = error in _FOUND or (unavailable and collector not in _OF_HOST)
        if not reported and _goes_on(errors, host):
            failed[collector].add(error)
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for collector, names in failed.items():
        alike[tuple(sorted(names))].append(collector)
    return {tuple(collectors): names for names, collectors in alike.items()}


def _goes_on(errors: Series, host: HostEvidence) -> bool:
    """Whether the errors persist; assumed if the collector runs less often than once per window."""
    interval = host.last(exporter_health.GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS, collector=errors.labels["collector"])
    return errors.increase > 0 or interval is None or interval >= host.seconds
