"""Detect which features lack permissions or mounts on this host, by trying access without reading any data."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import gpu_triage
from gpu_triage import __version__
from gpu_triage.documents import identity_of, reason_of
from gpu_triage.driver.kernel.files import (
    MISSING,
    PROCFS,
    SHOWS,
    SYSFS,
    is_mounted,
    is_present,
    read_link,
    read_names,
    refusal,
    text_of,
)
from gpu_triage.driver.kernel.pci_bus import handles_aer
from gpu_triage.errors import HostReadFailed
from gpu_triage.log import fields
from gpu_triage.machine import Machine
from gpu_triage.options.config import Config, collector_enabled
from gpu_triage.read.gpu.pcie import PCIE_AER
from gpu_triage.read.host.disk import HOST_FILE_SYSTEMS, hides_lustre
from gpu_triage.read.host.kernel_log import HOST_KERNEL_LOG
from gpu_triage.read.host.network_interfaces import HOST_NETWORK, HOST_NETWORK_LINK, interface_names, shows_interfaces
from gpu_triage.read.host.nfs import HOST_NFS
from gpu_triage.read.host.pressure import HOST_PRESSURE
from gpu_triage.read.host.services import FABRIC_MANAGER, HOST_SERVICES, has_switches, in_cgroup, sees_processes
from gpu_triage.read.host.textfile import TEXTFILE
from gpu_triage.read.metrics.contract import HostCollector, runs
from gpu_triage.read.metrics.metric import Sample, Tier, host_info
from gpu_triage.read.metrics.rounds import HostRound
from gpu_triage.read.processes.cgroup_limits import hides_cgroups
from gpu_triage.read.processes.facts import names_are_host_pids, sees_every_process
from gpu_triage.read.processes.locality import PROCESS_MEMORY_LOCALITY
from gpu_triage.read.processes.on_gpu import PROCESSES
from gpu_triage.read.processes.pods import CONTAINER_NAMES, POD_NAMES
from gpu_triage.read.processes.slurm_jobs import SLURM_JOBS
from gpu_triage.read.selection import needed_but_excluded
from gpu_triage.read.xid import xid_metrics as xid
from gpu_triage.read.xid.xid_events import NEVER_FROM_NVML

log = logging.getLogger(__name__)

OTHER_PID_NAMESPACE: Final = "other_pid_namespace"
GPU_EXPORTER_DEGRADED_INFO = host_info(
    "gpu_exporter_degraded_info",
    "A feature limited by a missing permission, mount, namespace or kernel right over the firmware; the log has the "
    "fix, once. Feature package, reason replaced: the exporter's package was removed or upgraded, and "
    "gpu_exporter_build_info's version still runs. Absent otherwise.",
    labels=("feature", "reason"),
    source="/proc/1, /proc/self, /dev/kmsg, the package and what options name",
)


_FOLDERS: Final = {
    "textfile": "metrics of jobs are not exposed: allow this user to read {}",
    "container_names": "pods that share a GPU cannot be distinguished by process: allow this user to list {}",
    "slurm_jobs": "GPUs allocated by Slurm are unknown: let its prolog create {}, and allow this user to read it",
}
"""Consequence and fix if a folder cannot be read."""

_EXCLUDED_REMEDY: Final = "alerts that need this metric cannot fire: take it out of --metrics.exclude"


@dataclass(frozen=True, slots=True)
class Limitation:
    """A feature that is limited.

    Attributes:
        reason: ``no_permission``, ``missing``, ``hidden`` (hidepid), ``other_pid_namespace``,
            ``other_cgroup_namespace``, ``other_network_namespace``, ``firmware_first``, ``io_error``, or ``excluded``
            for a metric.
        remedy: consequence and fix, for the log.
    """

    feature: str
    reason: str
    remedy: str


_PACKAGE: Final = Path(gpu_triage.__file__)
_REPLACED: Final = Limitation(
    "package", "replaced", f"this process continues as version {__version__}: restart it to run what is installed now"
)


@dataclass(frozen=True, slots=True)
class AccessReading:
    """Features that are limited; empty if everything is accessible."""

    limitations: tuple[Limitation, ...]


class AccessReader:
    """Probes each feature's access; logs each change once."""

    def __init__(self, wanted: Configured) -> None:
        self._wanted = wanted
        self._package = identity_of(_PACKAGE)
        self._known: frozenset[Limitation] = frozenset()

    def read(self, round_: HostRound) -> AccessReading:
        """Probe all features. Never raises; what cannot be determined is not reported as lacking."""
        machine, wanted = round_.machine, self._wanted
        pids = _Pids(machine.procfs)
        probes: tuple[tuple[str, Callable[[], Limitation | None]], ...] = (
            (PROCFS, lambda: _mount(PROCFS, machine.procfs)),
            (SYSFS, lambda: _mount(SYSFS, machine.sysfs)),
            ("kernel_log", lambda: _kernel_log(machine)),
            ("pci_bus", lambda: _pci_bus(machine)),
            ("processes", lambda: _processes(pids)),
            ("host_pressure", lambda: _host_pressure(machine, pids)),
            ("cgroups", lambda: _cgroups(machine, pids)),
            ("process_memory_locality", lambda: _memory_locality(machine.procfs)),
            ("host_network", lambda: _host_network(pids)),
            ("host_network_link", lambda: None if pids.foreign else links_out_of_sight(machine)),
            ("host_nfs", lambda: _host_nfs(pids)),
            ("host_file_systems", lambda: _file_systems(machine)),
            ("host_services", lambda: _services(machine, pids)),
            ("pcie_aer", lambda: errors_kept_by_firmware(machine)),
            ("textfile", lambda: _folder("textfile", wanted.textfile)),
            ("pod_names", lambda: _pod_names(wanted.pod_resources)),
            ("container_names", lambda: _folder("container_names", wanted.container_logs)),
            ("slurm_jobs", lambda: _folder("slurm_jobs", wanted.slurm_jobs)),
            ("state_directory", lambda: _state_directory(wanted.state)),
        )
        excluded = (Limitation(name, "excluded", _EXCLUDED_REMEDY) for name in wanted.excluded)
        found = (
            *(limitation for feature, probe in probes if feature in wanted.features and (limitation := probe())),
            *excluded,
            *((_REPLACED,) if identity_of(_PACKAGE) != self._package else ()),
        )
        self._log(found)
        return AccessReading(found)

    def _log(self, found: Collection[Limitation]) -> None:
        for limitation in found:
            if limitation not in self._known:
                log.warning("feature degraded", extra=fields(**asdict(limitation)))
        for limitation in self._known.difference(found):
            log.info("feature no longer degraded", extra=fields(feature=limitation.feature, reason=limitation.reason))
        self._known = frozenset(found)


class _Pids:
    """Which processes this procfs shows.

    It is `live` if the kernel links this process in it: one that was recorded has files of a process at most. It is
    `foreign`, and this process `nested`, if in a PID namespace other than the host's.
    """

    def __init__(self, procfs: Path) -> None:
        self.procfs = procfs
        self.live = _is_linked(procfs)
        self.foreign = names_are_host_pids(procfs) is False
        self.nested = not sees_every_process(procfs)


def _is_linked(procfs: Path) -> bool:
    try:
        return read_link(procfs / "self") is not None
    except HostReadFailed:
        return False


def _mount(feature: str, root: Path) -> Limitation | None:
    remedy = f"{SHOWS[feature]} are not visible: mount the host's {feature} at {root}, or correct --path.{feature}"
    return None if is_mounted(root) else Limitation(feature, MISSING, remedy)


def _kernel_log(machine: Machine) -> Limitation | None:
    reason = None if machine.kmsg is None else refusal(machine.kmsg)
    remedy = (
        f"Xids from before startup or while the driver hangs, Xids {', '.join(map(str, NEVER_FROM_NVML))}, SXids of "
        "NVSwitches and kernel messages about the host are not read: grant CAP_SYSLOG or run a privileged container"
    )
    return Limitation("kernel_log", reason, remedy) if reason else None


def _pci_bus(machine: Machine) -> Limitation | None:
    try:
        read_names(machine.sysfs / "bus" / "pci" / "devices")
    except HostReadFailed as failed:
        return Limitation(
            "pci_bus", failed.reason, "slots and links are not visible: mount the host's /sys and set --path.sysfs"
        )
    return None


def _processes(pids: _Pids) -> Limitation | None:
    if pids.nested:
        # Even with the host's procfs: the driver itself translates PIDs, and omits those of other namespaces.
        remedy = "processes outside this container are neither listed nor counted: run it in the host's PID namespace"
        return Limitation("processes", OTHER_PID_NAMESPACE, remedy)
    if pids.live and not text_of(pids.procfs / "1" / "status"):
        return Limitation(
            "processes", "hidden", "other users' processes have no names: add the group of hidepid's gid= option"
        )
    return None


def _host_pressure(machine: Machine, pids: _Pids) -> Limitation | None:
    # Kernels up to 5.0 have these files and return an error if PSI is off; later ones omit them (psi_proc_init).
    if not pids.live or text_of(machine.procfs / "pressure" / "io"):
        return None
    remedy = (
        "the kernel does not track what tasks wait for (PSI), so waits for storage only show as blocked tasks: boot it "
        "with psi=1, as RHEL 8 and early Amazon Linux 2023 need"
    )
    return Limitation("host_pressure", refusal(machine.procfs / "pressure" / "io") or MISSING, remedy)


def _cgroups(machine: Machine, pids: _Pids) -> Limitation | None:
    # Cgroups are only looked up for processes that are visible as the host's.
    if not pids.live or pids.foreign or pids.nested:
        return None
    reason = hides_cgroups(machine.procfs, machine.sysfs)
    remedy = (
        "CPU and memory limits of jobs are not visible: mount the host's /sys with its cgroups and set --path.sysfs"
    )
    return Limitation("cgroups", reason, remedy) if reason else None


def _memory_locality(procfs: Path) -> Limitation | None:
    # Opened, not read: opening triggers the permission check, reading would walk the page tables.
    if refusal(procfs / "1" / "numa_maps") == NO_PERMISSION:
        remedy = "the memory locality of other users' processes is unknown: grant CAP_SYS_PTRACE"
        return Limitation("process_memory_locality", NO_PERMISSION, remedy)
    return None


def _host_network(pids: _Pids) -> Limitation | None:
    remedy = "the network is this container's, not the host's: mount the host's /proc and set --path.procfs"
    return Limitation("host_network", OTHER_PID_NAMESPACE, remedy) if pids.foreign else None


def _host_nfs(pids: _Pids) -> Limitation | None:
    if pids.foreign:
        remedy = "NFS mounts are this container's, not the host's: mount the host's /proc and set --path.procfs"
        return Limitation("host_nfs", OTHER_PID_NAMESPACE, remedy)
    # Mount IDs are global in the kernel, so two namespaces never share the first one.
    hosts, own = (text_of(pids.procfs / pid / "mountinfo") for pid in ("1", "self"))
    apart = hosts and own and hosts.split(" ", 1)[0] != own.split(" ", 1)[0]
    if apart and refusal(pids.procfs / "1" / "mountstats") == NO_PERMISSION:
        return Limitation(
            "host_nfs", NO_PERMISSION, "NFS mounts made on the host after startup may be missing: run as user 0"
        )
    return None


def _file_systems(machine: Machine) -> Limitation | None:
    remedy = "only user 0 can read Lustre's statistics: run as user 0, with the host's debugfs mounted"
    hidden = hides_lustre(machine.procfs, machine.sysfs)
    return Limitation("host_file_systems", NO_PERMISSION, remedy) if hidden else None


def _services(machine: Machine, pids: _Pids) -> Limitation | None:
    if sees_processes(machine.procfs) or in_cgroup(machine.sysfs, FABRIC_MANAGER) or not has_switches(machine.sysfs):
        return None
    remedy = (
        "a fabric manager that never started is not detected: mount the host's /sys with its cgroups, and the host's "
        "/proc with all processes visible"
    )
    return Limitation("host_services", OTHER_PID_NAMESPACE if pids.foreign else "hidden", remedy)


def _folder(feature: str, folder: Path | None) -> Limitation | None:
    reason = None if folder is None else refusal(folder)
    return Limitation(feature, reason, _FOLDERS[feature].format(folder)) if reason else None


def _pod_names(socket: Path | None) -> Limitation | None:
    if socket is None:
        return None
    try:
        socket.stat()
    except OSError as error:
        reason: str | None = reason_of(error)
    else:
        reason = None if os.access(socket, os.W_OK, effective_ids=True) else NO_PERMISSION
    return Limitation("pod_names", reason, f"pods are not named: run as user 0 and mount {socket}") if reason else None


def _state_directory(folder: Path | None) -> Limitation | None:
    if folder is None:
        return None
    reason = None if os.access(folder, os.W_OK | os.X_OK, effective_ids=True) else refusal(folder) or NO_PERMISSION
    remedy = (
        "findings start over and incident history is lost when the exporter stops: "
        f"allow this user to write to {folder}"
    )
    return Limitation("state_directory", reason, remedy) if reason else None


_OF_COLLECTORS: Final = (
    HOST_FILE_SYSTEMS,
    HOST_PRESSURE,
    PROCESSES,
    PROCESS_MEMORY_LOCALITY,
    PCIE_AER,
    HOST_NETWORK,
    HOST_NETWORK_LINK,
    HOST_NFS,
    HOST_SERVICES,
    TEXTFILE,
    POD_NAMES,
    CONTAINER_NAMES,
    SLURM_JOBS,
)


def wanted(config: Config) -> Configured:
    """Determine the features that this configuration enables."""
    features = {PROCFS, SYSFS, "pci_bus", *(collector.name for collector in _OF_COLLECTORS if runs(collector, config))}
    if collector_enabled(config, xid.NAME, default=True) or runs(HOST_KERNEL_LOG, config):
        features.add("kernel_log")
    if config.state_directory is not None:
        features.add("state_directory")
    if runs(PROCESSES, config):
        features.add("cgroups")
    return Configured(
        frozenset(features),
        config.collector_textfile_directory,
        config.kubernetes_pod_resources_socket,
        config.state_directory,
        needed_but_excluded(config),
        config.slurm_jobs_directory,
        config.kubernetes_container_logs,
    )


def render(reading: AccessReading) -> Iterator[Sample]:
    """Render the samples of one reading."""
    for limitation in reading.limitations:
        yield GPU_EXPORTER_DEGRADED_INFO.sample(1, limitation.feature, limitation.reason)


ACCESS = HostCollector(
    name="access",
    about="features that lack a permission",
    tier=Tier.SLOW,
    reader=lambda config: AccessReader(wanted(config)).read,
    render=render,
    # It accesses mounts, and folders on disks that may hang.
    own_lane=True,
)


NO_PERMISSION: Final = "no_permission"
OTHER_NETWORK_NAMESPACE: Final = "other_network_namespace"
FIRMWARE_FIRST: Final = "firmware_first"


@dataclass(frozen=True, slots=True)
class Configured:
    """What this exporter is configured to do; features that are not named are not checked, and unset paths are None."""

    features: frozenset[str]
    textfile: Path | None
    pod_resources: Path | None
    state: Path | None = None
    excluded: tuple[str, ...] = ()
    slurm_jobs: Path | None = None
    container_logs: Path | None = None


def links_out_of_sight(machine: Machine) -> Limitation | None:
    """Check whether sysfs belongs to another network namespace than the host's, so it lacks the host's interfaces."""
    names = interface_names(machine.procfs)
    mounted = is_present(machine.sysfs / "class" / "net")
    if not names or not mounted or shows_interfaces(machine.sysfs, names):
        return None
    remedy = (
        "speeds and links of the host's interfaces are unknown, because /sys shows a container's: mount the host's "
        "/sys and set --path.sysfs, or use the host's network namespace"
    )
    return Limitation("host_network_link", OTHER_NETWORK_NAMESPACE, remedy)


def errors_kept_by_firmware(machine: Machine) -> Limitation | None:
    """Check whether PCIe errors go to the firmware (APEI, with a table of error sources) instead of the kernel."""
    if not is_present(machine.sysfs / "firmware/acpi/tables/HEST") or handles_aer(machine.sysfs) is not False:
        return None
    remedy = (
        "the firmware keeps PCIe errors to itself, so that the kernel counts few of them or none, and 0 is not "
        "published: read the BMC's event log, or let the operating system handle AER (firmware setup)"
    )
    return Limitation("pcie_aer", FIRMWARE_FIRST, remedy)
