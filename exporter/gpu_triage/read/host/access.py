"""Detect which features lack permissions or mounts on this host, by trying access without reading any data."""

import logging
import os
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import gpu_triage
from gpu_triage import __version__
from gpu_triage.documents.files import identity_of, reason_of
from gpu_triage.driver.kernel import files, pci_bus
from gpu_triage.log import fields
from gpu_triage.machine import Machine
from gpu_triage.options.config import Config, collector_enabled
from gpu_triage.read.gpu.pcie import PCIE_AER
from gpu_triage.read.host.cpu import HOST_PRESSURE
from gpu_triage.read.host.disk import HOST_FILE_SYSTEMS, hides_lustre
from gpu_triage.read.host.kernel_log import HOST_KERNEL_LOG
from gpu_triage.read.host.network_interfaces import HOST_NETWORK, HOST_NETWORK_LINK, interface_names, shows_interfaces
from gpu_triage.read.host.nfs import HOST_NFS
from gpu_triage.read.host.services import FABRIC_MANAGER, HOST_SERVICES, has_switches, in_cgroup, sees_processes
from gpu_triage.read.host.textfile import TEXTFILE
from gpu_triage.read.metrics.contract import AnyCollector, HostCollector, HostRound, runs
from gpu_triage.read.metrics.metric import Tier, host_info
from gpu_triage.read.metrics.rendering import each
from gpu_triage.read.processes.cgroup_limits import hides_cgroups
from gpu_triage.read.processes.facts import names_are_host_pids, sees_every_process
from gpu_triage.read.processes.locality import PROCESS_MEMORY_LOCALITY
from gpu_triage.read.processes.on_gpu import PROCESSES
from gpu_triage.read.processes.pods import CONTAINER_NAMES, POD_NAMES
from gpu_triage.read.processes.slurm_jobs import SLURM_JOBS
from gpu_triage.read.selection import needed_but_excluded
from gpu_triage.read.xid.xid_events import MISSED_BY_NVML
from gpu_triage.read.xid.xid_metrics import XID

log = logging.getLogger(__name__)

NO_PERMISSION: Final = "no_permission"
OTHER_PID_NAMESPACE: Final = "other_pid_namespace"

GPU_EXPORTER_DEGRADED_INFO = host_info(
    "A feature limited by a missing permission, mount, namespace or kernel right over the firmware; the log has the "
    "fix. Feature package, reason replaced: the exporter's package was removed or upgraded. Absent otherwise.",
    labels=("feature", "reason"),
    source="/proc/1, /proc/self, /dev/kmsg",
)


@dataclass(frozen=True, slots=True)
class Limitation:
    feature: str
    # ``no_permission``, ``missing``, ``hidden`` (hidepid), ``other_pid_namespace``, ``other_cgroup_namespace``,
    # ``other_network_namespace``, ``firmware_first``, ``io_error``, or ``excluded`` for a metric.
    reason: Annotated[str, GPU_EXPORTER_DEGRADED_INFO]
    remedy: str  # consequence and fix, for the log


_PACKAGE: Final = Path(gpu_triage.__file__)
_REPLACED: Final = Limitation(
    "package", "replaced", f"this process continues as version {__version__}: restart it to run what is installed now"
)
_EXCLUDED_REMEDY: Final = "alerts that need this metric cannot fire: take it out of --metrics.exclude"


class AccessReader:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._package = identity_of(_PACKAGE)
        self._known: frozenset[Limitation] = frozenset()

    def read(self, round_: HostRound) -> tuple[Limitation, ...]:
        """Return the features that are limited. Never raises; what cannot be determined is not reported as lacking."""
        view = _View(round_.machine, self._config)
        limited = (
            Limitation(probe.feature, reason, probe.remedy.format(machine=view.machine, config=view.config))
            for probe in PROBES
            if probe.wanted(self._config) and (reason := probe.reason(view)) is not None
        )
        excluded = (Limitation(name, "excluded", _EXCLUDED_REMEDY) for name in needed_but_excluded(self._config))
        replaced = (_REPLACED,) if identity_of(_PACKAGE) != self._package else ()
        found = (*limited, *excluded, *replaced)
        self._log(found)
        return found

    def _log(self, found: Collection[Limitation]) -> None:
        for limitation in found:
            if limitation not in self._known:
                log.warning("feature degraded", extra=fields(**asdict(limitation)))
        for limitation in self._known.difference(found):
            log.info("feature no longer degraded", extra=fields(feature=limitation.feature, reason=limitation.reason))
        self._known = frozenset(found)


class _View:
    """What one round can see of a host.

    Its procfs is `live` if the kernel links this process in it: one that was recorded has files of a process at most.
    It is `foreign`, and this process `nested`, if in a PID namespace other than the host's.
    """

    def __init__(self, machine: Machine, config: Config) -> None:
        self.machine, self.config = machine, config
        self.procfs, self.sysfs = machine.procfs, machine.sysfs
        self.live = files.target_of(self.procfs / "self") != ""
        self.foreign = names_are_host_pids(self.procfs) is False
        self.nested = not sees_every_process(self.procfs)


def _pci_bus(view: _View) -> str | None:
    refusal = files.refusal(view.sysfs / "bus" / "pci" / "devices")
    return None if refusal == files.MISSING else refusal


def _host_pressure(view: _View) -> str | None:
    # Kernels up to 5.0 have these files and return an error if PSI is off; later ones omit them (psi_proc_init).
    io = view.procfs / "pressure" / "io"
    return files.refusal(io) or files.MISSING if view.live and not files.text_of(io) else None


def _cgroups(view: _View) -> str | None:
    # Cgroups are only looked up for processes that are visible as the host's.
    visible = view.live and not view.foreign and not view.nested
    return hides_cgroups(view.procfs, view.sysfs) if visible else None


def _denied(path: Path) -> str | None:
    # Opened, not read: opening triggers the permission check, reading would walk the page tables of a process.
    return NO_PERMISSION if files.refusal(path) == NO_PERMISSION else None


def _hidden_processes(view: _View) -> str | None:
    return "hidden" if view.live and not (view.nested or files.text_of(view.procfs / "1" / "status")) else None


def _links_out_of_sight(view: _View) -> str | None:
    """Whether sysfs belongs to another network namespace than the host's, so it lacks the host's interfaces."""
    names = frozenset() if view.foreign else interface_names(view.procfs)
    mounted = files.is_present(view.sysfs / "class" / "net")
    return "other_network_namespace" if names and mounted and not shows_interfaces(view.sysfs, names) else None


def _nfs_mounts(view: _View) -> str | None:
    # Mount IDs are global in the kernel, so two namespaces never share the first one.
    hosts, own = (files.text_of(view.procfs / pid / "mountinfo").partition(" ")[0] for pid in ("1", "self"))
    apart = not view.foreign and hosts and own and hosts != own
    return _denied(view.procfs / "1" / "mountstats") if apart else None


def _services(view: _View) -> str | None:
    seen = sees_processes(view.procfs) or in_cgroup(view.sysfs, FABRIC_MANAGER)
    if seen or not has_switches(view.sysfs):
        return None
    return OTHER_PID_NAMESPACE if view.foreign else "hidden"


def _errors_kept_by_firmware(view: _View) -> str | None:
    """Whether PCIe errors go to the firmware (APEI, with a table of error sources) instead of the kernel."""
    kept = files.is_present(view.sysfs / "firmware/acpi/tables/HEST") and pci_bus.handles_aer(view.sysfs) is False
    return "firmware_first" if kept else None


def _pod_names(view: _View) -> str | None:
    socket = view.config.kubernetes_pod_resources_socket or Path()
    try:
        socket.stat()
    except OSError as error:
        return reason_of(error)
    return None if os.access(socket, os.W_OK, effective_ids=True) else NO_PERMISSION


def _state_directory(view: _View) -> str | None:
    folder = view.config.state_directory or Path()
    writable = os.access(folder, os.W_OK | os.X_OK, effective_ids=True)
    return None if writable else files.refusal(folder) or NO_PERMISSION


class Probe(NamedTuple):
    feature: str
    wanted: Callable[[Config], bool]  # whether a configuration enables the feature
    reason: Callable[[_View], str | None]  # why the feature is limited; None if it is not
    remedy: str  # with values of `machine` and `config`


def _of(collector: AnyCollector, reason: Callable[[_View], str | None], remedy: str) -> Probe:
    return Probe(collector.name, partial(runs, collector), reason, remedy)


def _root(name: str) -> Probe:
    return Probe(
        name,
        lambda _config: True,
        lambda view: None if files.is_mounted(getattr(view.machine, name)) else files.MISSING,
        f"{files.SHOWS[name]} are not visible: mount the host's {name} at {{machine.{name}}}, or correct --path.{name}",
    )


PROBES: Final = (
    _root(files.PROCFS),
    _root(files.SYSFS),
    Probe(
        "kernel_log",
        lambda config: collector_enabled(config, XID.name, default=True) or runs(HOST_KERNEL_LOG, config),
        lambda view: None if view.machine.kmsg is None else files.refusal(view.machine.kmsg),
        "Xids from before startup or while the driver hangs, with drivers of 2024 also Xids "
        f"{', '.join(map(str, MISSED_BY_NVML))}, SXids of NVSwitches and kernel messages about the host are not read: "
        "grant CAP_SYSLOG or run a privileged container",
    ),
    Probe(
        "pci_bus",
        lambda _config: True,
        _pci_bus,
        "slots and links are not visible: mount the host's /sys and set --path.sysfs",
    ),
    _of(
        PROCESSES,
        # Even with the host's procfs: the driver itself translates PIDs, and omits those of other namespaces.
        lambda view: OTHER_PID_NAMESPACE if view.nested else None,
        "processes outside this container are neither listed nor counted: run it in the host's PID namespace",
    ),
    _of(PROCESSES, _hidden_processes, "other users' processes have no names: add the group of hidepid's gid= option"),
    _of(
        HOST_PRESSURE,
        _host_pressure,
        "the kernel does not track what tasks wait for (PSI), so waits for storage only show as blocked tasks: boot it "
        "with psi=1, as RHEL 8 and early Amazon Linux 2023 need",
    ),
    Probe(
        "cgroups",
        partial(runs, PROCESSES),
        _cgroups,
        "CPU and memory limits of jobs are not visible: mount the host's /sys with its cgroups and set --path.sysfs",
    ),
    _of(
        PROCESS_MEMORY_LOCALITY,
        lambda view: _denied(view.procfs / "1" / "numa_maps"),
        "the memory locality of other users' processes is unknown: grant CAP_SYS_PTRACE",
    ),
    _of(
        HOST_NETWORK,
        lambda view: OTHER_PID_NAMESPACE if view.foreign else None,
        "the network is this container's, not the host's: mount the host's /proc and set --path.procfs",
    ),
    _of(
        HOST_NETWORK_LINK,
        _links_out_of_sight,
        "speeds and links of the host's interfaces are unknown, because /sys shows a container's: mount the host's "
        "/sys and set --path.sysfs, or use the host's network namespace",
    ),
    _of(
        HOST_NFS,
        lambda view: OTHER_PID_NAMESPACE if view.foreign else None,
        "NFS mounts are this container's, not the host's: mount the host's /proc and set --path.procfs",
    ),
    _of(HOST_NFS, _nfs_mounts, "NFS mounts made on the host after startup may be missing: run as user 0"),
    _of(
        HOST_FILE_SYSTEMS,
        lambda view: NO_PERMISSION if hides_lustre(view.procfs, view.sysfs) else None,
        "only user 0 can read Lustre's statistics: run as user 0, with the host's debugfs mounted",
    ),
    _of(
        HOST_SERVICES,
        _services,
        "a fabric manager that never started is not detected: mount the host's /sys with its cgroups, and the host's "
        "/proc with all processes visible",
    ),
    _of(
        PCIE_AER,
        _errors_kept_by_firmware,
        "the firmware keeps PCIe errors to itself, so that the kernel counts few of them or none, and 0 is not "
        "published: read the BMC's event log, or let the operating system handle AER (firmware setup)",
    ),
    _of(
        TEXTFILE,
        lambda view: files.refusal(view.config.collector_textfile_directory or Path()),
        "metrics of jobs are not exposed: allow this user to read {config.collector_textfile_directory}",
    ),
    _of(POD_NAMES, _pod_names, "pods are not named: run as user 0 and mount {config.kubernetes_pod_resources_socket}"),
    _of(
        CONTAINER_NAMES,
        lambda view: files.refusal(view.config.kubernetes_container_logs or Path()),
        "pods that share a GPU cannot be distinguished by process: allow this user to list "
        "{config.kubernetes_container_logs}",
    ),
    _of(
        SLURM_JOBS,
        lambda view: files.refusal(view.config.slurm_jobs_directory or Path()),
        "GPUs allocated by Slurm are unknown: let its prolog create {config.slurm_jobs_directory}, and allow this user "
        "to read it",
    ),
    Probe(
        "state_directory",
        lambda config: config.state_directory is not None,
        _state_directory,
        "findings start over and incident history is lost when the exporter stops: allow this user to write to "
        "{config.state_directory}",
    ),
)


ACCESS = HostCollector(
    about="features that lack a permission",
    tier=Tier.SLOW,
    reader=lambda config: AccessReader(config).read,
    render=each("feature"),
    # It accesses mounts, and folders on disks that may hang.
    own_lane=True,
)
