"""Limited features: their reason and remedy, and checks for limits of sysfs and of AER."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_triage.driver.kernel.files import is_present
from gpu_triage.driver.kernel.pci_bus import handles_aer
from gpu_triage.machine import Machine
from gpu_triage.read.host.network_interfaces import interface_names, shows_interfaces

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
