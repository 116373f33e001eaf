"""Whether fabric manager and IMEX run, from cgroups and processes as systemd and the kernel show them."""

import shutil
from dataclasses import replace

import pytest
from tests.host_tree import HostTree

from gpu_triage.options.config import Config
from gpu_triage.read.host.access import AccessReader
from gpu_triage.read.host.services import ServicesReader, ServicesReading, has_switches

CGROUP = "sys/fs/cgroup/system.slice/{}.service/cgroup.procs"
FABRIC_MANAGER = CGROUP.format("nvidia-fabricmanager")
IMEX = CGROUP.format("nvidia-imex")
NONE = ServicesReading(None, None)


def hgx(host: HostTree, *, driver: str | None = "nvidia-nvswitch") -> None:
    """An HGX H100 board: four NVSwitches, of which one is written, beside a GPU and an adapter."""
    for bus_id, vendor, device_class in (
        ("0000:07:00.0", "0x10de", "0x068000"),
        ("0000:18:00.0", "0x10de", "0x030200"),
        ("0000:1a:00.0", "0x15b3", "0x020700"),
        ("0000:00:1f.0", "0x8086", "0x068000"),
    ):
        folder = f"sys/bus/pci/devices/{bus_id}"
        host.write({f"{folder}/vendor": f"{vendor}\n", f"{folder}/class": f"{device_class}\n"})
    if driver:
        host.link("sys/bus/pci/devices/0000:07:00.0/driver", f"../../../../bus/pci/drivers/{driver}")
    host.write({"proc/1/comm": "systemd\n", "proc/uptime": "86400.12 5000000.00\n"})


@pytest.mark.parametrize("hierarchy", ["", "systemd/", "unified/"])
def test_a_service_runs_while_its_cgroup_has_processes(host: HostTree, hierarchy: str) -> None:
    hgx(host)
    path = FABRIC_MANAGER.replace("cgroup/system", f"cgroup/{hierarchy}system")
    reader = ServicesReader()
    host.write({path: "2741\n2744\n"})
    assert reader.read(host.round(0)) == ServicesReading(fabric_manager=True, imex=None)
    host.write({path: ""})
    assert reader.read(host.round(5)) == ServicesReading(fabric_manager=False, imex=None)


@pytest.mark.parametrize(
    ("service", "running", "stopped"),
    [
        ("slurmd", {"slurmd": True}, {"slurmd": False}),
        ("kubelet", {"kubelet": True}, {"kubelet": False}),
        ("k3s-agent", {"kubelet": True}, {"kubelet": False}),
        ("rke2-server", {"kubelet": True}, {"kubelet": False}),
        ("sshd", {}, {}),
    ],
)
def test_a_scheduler_is_remembered(
    host: HostTree, service: str, running: dict[str, bool], stopped: dict[str, bool]
) -> None:
    reader = ServicesReader()
    host.write({"sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n", CGROUP.format(service): "812\n"})
    assert reader.read(host.round(0)) == replace(NONE, **running)
    host.write({CGROUP.format(service): ""})
    assert reader.read(host.round(5)) == replace(NONE, **stopped)


def test_a_fabric_manager_that_never_ran_is_missed_where_there_are_switches(host: HostTree) -> None:
    hgx(host)
    assert ServicesReader().read(host.round(0)) == ServicesReading(fabric_manager=False, imex=None)


@pytest.mark.parametrize("driver", ["vfio-pci", "pci-stub"])
def test_switches_of_a_virtual_machine_need_no_fabric_manager_here(host: HostTree, driver: str) -> None:
    hgx(host, driver=driver)
    assert ServicesReader().read(host.round(0)) == NONE


def test_a_host_without_switches_needs_neither(host: HostTree) -> None:
    host.write({"proc/1/comm": "systemd\n", "sys/bus/pci/devices/0000:65:00.0/vendor": "0x10de\n"})
    host.write({"sys/bus/pci/devices/0000:65:00.0/class": "0x030200\n"})
    assert ServicesReader().read(host.round(0)) == NONE
    assert not has_switches(host.sysfs)


def test_what_ran_once_is_missed_without_switches_on_the_bus_too(host: HostTree) -> None:
    """NVLink 5: the switches of HGX B200 are not on the PCI bus, and a node of GB200 runs IMEX alone."""
    host.mount()
    reader = ServicesReader()
    host.write({FABRIC_MANAGER: "9\n", IMEX: "8\n"})
    assert reader.read(host.round(0)) == ServicesReading(fabric_manager=True, imex=True)
    host.write({FABRIC_MANAGER: "", IMEX: ""})
    assert reader.read(host.round(5)) == ServicesReading(fabric_manager=False, imex=False)


def test_a_fabric_manager_in_a_container_is_found_by_its_process(host: HostTree) -> None:
    hgx(host)
    host.write({"proc/4242/comm": "nv-fabricmanage\n", "proc/4243/comm": "nv-fabricother\n"})
    reader = ServicesReader()
    assert reader.read(host.round(0)).fabric_manager is True
    host.write({"proc/4242/comm": "bash\n", "proc/5000/comm": "nv-fabricmanage\n"})
    assert reader.read(host.round(5)).fabric_manager is True
    host.write({"proc/5000/comm": "bash\n"})
    assert reader.read(host.round(10)).fabric_manager is False
    host.write({"proc/6000/comm": "nv-fabricmanage\n"})
    # All processes are not looked through at every round.
    assert reader.read(host.round(12)).fabric_manager is False
    assert reader.read(host.round(26)).fabric_manager is True


def test_after_a_boot_the_service_has_time_to_start(host: HostTree) -> None:
    hgx(host)
    reader = ServicesReader()
    host.write({"proc/uptime": "120.50 400.00\n"})
    assert reader.read(host.round(0)) == NONE
    host.write({"proc/uptime": "301.00 900.00\n"})
    assert reader.read(host.round(180)).fabric_manager is False


def in_a_container(host: HostTree) -> None:
    host.write({"proc/self/status": "Name:\tgpu-triage\nNSpid:\t7\n"})
    host.link("proc/self/ns/pid", "pid:[4026532999]")


def test_where_processes_are_hidden_nothing_is_claimed_of_a_service_that_never_ran(host: HostTree) -> None:
    hgx(host)
    in_a_container(host)
    reader = ServicesReader()
    assert reader.read(host.round(0)) == NONE
    host.write({FABRIC_MANAGER: "0\n"})
    assert reader.read(host.round(5)).fabric_manager is True
    host.write({FABRIC_MANAGER: ""})
    assert reader.read(host.round(10)).fabric_manager is False


def test_cgroups_that_are_no_longer_visible_stop_no_service(host: HostTree) -> None:
    hgx(host)
    in_a_container(host)
    reader = ServicesReader()
    host.write({FABRIC_MANAGER: "0\n"})
    assert reader.read(host.round(0)).fabric_manager is True
    shutil.rmtree(host.sysfs / "fs")
    assert reader.read(host.round(5)) == NONE
    host.write({CGROUP.format("sshd"): "9\n"})
    assert reader.read(host.round(10)).fabric_manager is False


def test_a_host_whose_fabric_manager_cannot_be_seen_says_so(host: HostTree) -> None:
    hgx(host)
    host.write({"proc/stat": ""})
    reader = AccessReader(Config(collectors={"xid": False, "processes": False, "host": False, "host_services": True}))
    assert reader.read(host.round()) == ()
    in_a_container(host)
    (lack,) = reader.read(host.round())
    assert (lack.feature, lack.reason) == ("host_services", "other_pid_namespace")
    host.write({FABRIC_MANAGER: "0\n"})
    assert reader.read(host.round()) == ()
