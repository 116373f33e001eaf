"""Whether services run: fabric manager and IMEX, on which GPUs behind NVSwitches depend, and schedulers' daemons.

systemd keeps the processes of a service in a cgroup named after it, and removes the cgroup after the last one ends.
This is visible without D-Bus or privileges. A fabric manager in a container, as with NVIDIA's GPU operator, has no such
cgroup; then its process is searched for.
"""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import names_in, refuse_unmounted, target_of, text_of
from gpu_triage.driver.kernel.pci_bus import PASS_THROUGH, is_nvidias
from gpu_triage.machine import Machine
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import Tier, host_gauge
from gpu_triage.read.processes.facts import names_are_host_pids

FABRIC_MANAGER: Final = "nvidia-fabricmanager"
IMEX: Final = "nvidia-imex"
SLURMD: Final = "slurmd"
KUBELET: Final = "kubelet"

GPU_HOST_SERVICE_RUNNING = host_gauge(
    "1 while the service ({service}) runs, 0 while it does not although the host needs it. The fabric manager is "
    "needed with NVSwitches on the PCI bus, or once it has run; the others are reported once they have run as "
    "systemd services. Absent if not needed, if unknown, and in the first five minutes after boot until it runs.",
    labels={"service": (FABRIC_MANAGER, IMEX, SLURMD, KUBELET)},
    source="/sys/fs/cgroup/system.slice/*.service/cgroup.procs, /proc/*/comm",
)

_HIERARCHIES: Final = ("", "systemd", "unified")  # location of systemd's cgroups: v2, v1, or hybrid

_ONCE_RUN: Final = {
    "imex": (IMEX,),
    "slurmd": (SLURMD,),
    "kubelet": (KUBELET, "k3s", "k3s-agent", "rke2-server", "rke2-agent"),
}
"""systemd services that are reported once one of them has run, by field of the reading."""

_COMMAND: Final = "nv-fabricmanager"[:15]  # the kernel truncates command names to 15 bytes
_SWITCH_CLASS: Final = "0x0680"
_STARTING_SECONDS: Final = 300.0
_SEARCH_SECONDS: Final = 15.0
_MOST_PROCESSES: Final = 65_536
_PID: Final = re.compile(r"[0-9]{1,7}")
_UPTIME: Final = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class ServicesReading:
    """Whether each service runs; None if it is not needed or its state is unknown."""

    fabric_manager: Annotated[bool | None, GPU_HOST_SERVICE_RUNNING, FABRIC_MANAGER]
    imex: Annotated[bool | None, GPU_HOST_SERVICE_RUNNING, IMEX]
    slurmd: Annotated[bool | None, GPU_HOST_SERVICE_RUNNING, SLURMD] = None
    kubelet: Annotated[bool | None, GPU_HOST_SERVICE_RUNNING, KUBELET] = None


class ServicesReader:
    def __init__(self) -> None:
        self._switches: bool | None = None
        self._ran: set[str] = set()
        self._process: str | None = None
        self._searched_at: float | None = None

    def read(self, round_: HostRound) -> ServicesReading:
        machine = round_.machine
        refuse_unmounted(machine.sysfs)
        if self._switches is None:
            self._switches = has_switches(machine.sysfs)
        running = in_cgroup(machine.sysfs, FABRIC_MANAGER)
        needed = self._switches or FABRIC_MANAGER in self._ran
        if not running and needed:
            running = self._has_process(machine.procfs, round_.at.monotonic)
        if running:
            self._ran.add(FABRIC_MANAGER)
        return ServicesReading(
            fabric_manager=True if running else self._stopped(machine) if needed else None,
            **{name: self._once_run(machine.sysfs, name, services) for name, services in _ONCE_RUN.items()},
        )

    def _once_run(self, sysfs: Path, field: str, services: tuple[str, ...]) -> bool | None:
        """Whether one of the systemd services runs; None if none has ever run."""
        running = any(in_cgroup(sysfs, each) for each in services)
        if running:
            self._ran.add(field)
        return running if field in self._ran else None

    def _stopped(self, machine: Machine) -> bool | None:
        """False if the fabric manager does not run; None if it may run unseen, or may still be starting."""
        ran = FABRIC_MANAGER in self._ran
        if not sees_processes(machine.procfs):
            # It may run in a container, or still in a cgroup that is no longer visible.
            return False if ran and _has_cgroups(machine.sysfs) else None
        uptime = _UPTIME.match(text_of(machine.procfs / "uptime"))
        starting = uptime is not None and float(uptime[0]) < _STARTING_SECONDS
        return None if starting and not ran else False

    def _has_process(self, procfs: Path, now: float) -> bool:
        def is_service(pid: str) -> bool:
            return text_of(procfs / pid / "comm").strip() == _COMMAND

        if self._process is not None and is_service(self._process):
            return True
        if self._process is None and self._searched_at is not None and now - self._searched_at < _SEARCH_SECONDS:
            return False
        self._searched_at = now
        pids = [name for name in names_in(procfs) if _PID.fullmatch(name)][:_MOST_PROCESSES]
        self._process = next(filter(is_service, pids), None)
        return self._process is not None


def in_cgroup(sysfs: Path, service: str) -> bool:
    """Whether a systemd service has processes."""
    root = sysfs / "fs" / "cgroup"
    path = f"system.slice/{service}.service/cgroup.procs"
    return any(text_of(root / hierarchy / path).strip() for hierarchy in _HIERARCHIES)


def _has_cgroups(sysfs: Path) -> bool:
    root = sysfs / "fs" / "cgroup"
    return any(names_in(root / hierarchy / "system.slice") for hierarchy in _HIERARCHIES)


def has_switches(sysfs: Path) -> bool:
    """Whether NVSwitches are on the PCI bus, not counting those passed through to virtual machines."""
    devices = sysfs / "bus" / "pci" / "devices"
    return any(_is_switch(devices / name) for name in names_in(devices))


def sees_processes(procfs: Path) -> bool:
    """Whether all processes of the host are visible, including those of other users."""
    return names_are_host_pids(procfs) is not False and bool(text_of(procfs / "1" / "comm"))


def _is_switch(device: Path) -> bool:
    if not is_nvidias(text_of(device / "vendor")) or not text_of(device / "class").startswith(_SWITCH_CLASS):
        return False
    return PurePosixPath(target_of(device / "driver")).name not in PASS_THROUGH


HOST_SERVICES = HostCollector(
    about="services of the fabric (fabric manager, IMEX) and of schedulers",
    tier=Tier.MEDIUM,
    reader=lambda _config: ServicesReader().read,
    # To list processes, the kernel takes a lock that all cgroups share.
    own_lane=True,
)
