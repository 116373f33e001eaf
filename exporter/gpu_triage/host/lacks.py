"""What a feature lacks on this host and the reason for it, and lacks of what the kernel is told about devices."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_triage.host.network import interface_names, shows_interfaces
from gpu_triage.kernel.files import is_present
from gpu_triage.kernel.mounts import MISSING
from gpu_triage.kernel.pci_bus import handles_aer
from gpu_triage.machine import Machine

NO_PERMISSION: Final = "no_permission"
OTHER_NETWORK_NAMESPACE: Final = "other_network_namespace"
FIRMWARE_FIRST: Final = "firmware_first"
_REASONS: Final = {
    errno.EACCES: NO_PERMISSION,
    errno.EPERM: NO_PERMISSION,
    errno.ENOENT: MISSING,
    errno.ENOTDIR: MISSING,
    errno.ENXIO: MISSING,
    errno.ENODEV: MISSING,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What this exporter was asked to do.

    Attributes:
        features: names of those that run; a feature that does not run lacks nothing.
        textfile: the folder of jobs' files; None where none is republished.
        pod_resources: the kubelet's socket; None where no kubelet is asked.
        state: the state directory; None where nothing is kept.
        slurm_jobs: the folder of Slurm's jobs; None where none is read.
        container_logs: the folder of links to containers' logs; None where none is listed.
        excluded: metrics that alerts need and that are not to be published.
    """

    features: frozenset[str]
    textfile: Path | None
    pod_resources: Path | None
    state: Path | None = None
    excluded: tuple[str, ...] = ()
    slurm_jobs: Path | None = None
    container_logs: Path | None = None


@dataclass(frozen=True, slots=True)
class Lack:
    """A feature that has less than it could have.

    Attributes:
        feature: its name.
        reason: ``no_permission``, ``missing``, ``hidden`` (hidepid), ``other_pid_namespace``,
            ``other_cgroup_namespace``, ``other_network_namespace``, ``firmware_first``, ``io_error``, or ``excluded``
            of a metric.
        remedy: what it costs and what would help, for the log.
    """

    feature: str
    reason: str
    remedy: str


def refusal(path: Path) -> str | None:
    """Why a file cannot be opened to be read; None when it can."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return reason_of(error)
    return None


def reason_of(error: OSError) -> str:
    """The name of an error."""
    return _REASONS.get(error.errno or 0, "io_error")


def links_out_of_sight(machine: Machine) -> Lack | None:
    """Whether sysfs is of another network namespace than the host's, so that its interfaces have no links there."""
    names = interface_names(machine.procfs)
    mounted = is_present(machine.sysfs / "class" / "net")
    if not names or not mounted or shows_interfaces(machine.sysfs, names):
        return None
    remedy = (
        "speeds and links of the host's interfaces are unknown, for /sys shows those of a container: mount the host's "
        "/sys and set --path.sysfs, or use the host's network namespace"
    )
    return Lack("host_network_link", OTHER_NETWORK_NAMESPACE, remedy)


def errors_kept_by_firmware(machine: Machine) -> Lack | None:
    """Whether PCIe errors go to the firmware (APEI, with a table of error sources) and not to the kernel."""
    if not is_present(machine.sysfs / "firmware/acpi/tables/HEST") or handles_aer(machine.sysfs) is not False:
        return None
    remedy = (
        "the firmware keeps PCIe errors to itself, so that the kernel counts few of them or none, and 0 is not "
        "published: read the BMC's event log, or let the operating system handle AER (firmware setup)"
    )
    return Lack("pcie_aer", FIRMWARE_FIRST, remedy)
