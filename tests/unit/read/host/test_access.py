"""What lacks a right is told from a host's files; what cannot be told is not claimed."""

import logging
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.host_tree import HostTree

from gpu_triage.driver.kernel.files import Answer, Question, hooked
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Moment, real_machine
from gpu_triage.options.config import Config
from gpu_triage.read.host.access import AccessReader
from gpu_triage.read.metrics.contract import HostRound

EVERYTHING = Config(collectors={"process_memory_locality": True, "host_services": False})
"""Features that this host gives every right to."""


def limitations(host: HostTree, **config: Any) -> dict[str, str]:
    """Reasons by feature."""
    return {lack.feature: lack.reason for lack in AccessReader(replace(EVERYTHING, **config)).read(round_of(host))}


def round_of(host: HostTree) -> HostRound:
    return HostRound(real_machine(host.sysfs, host.procfs, host.root / "kmsg"), Moment(0.0, 0.0))


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    """A host that gives every right, to a process in the host's own namespaces."""
    host = HostTree(tmp_path)
    host.link("proc/self", "4242")
    host.write(
        {
            **dict.fromkeys(("kmsg", "sys/bus/pci/devices/.keep", "proc/1/numa_maps", "proc/1/mountstats"), ""),
            "proc/4242/status": "Name:\tgpu-triage\nNSpid:\t4242\n",
            "proc/4242/mountinfo": "22 27 0:21 / /proc rw\n",
            "proc/1/status": "Name:\tsystemd\nNSpid:\t1\n",
            "proc/1/cgroup": "0::/init.scope\n",
            "proc/1/mountinfo": "22 27 0:21 / /proc rw\n",
            "proc/pressure/io": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu io memory\n",
        }
    )
    host.link("proc/4242/ns/pid", "pid:[4026531836]")
    return host


def test_a_recorded_host_that_knows_nothing_of_this_process_lacks_nothing(tmp_path: Path) -> None:
    host = HostTree(tmp_path)
    host.write({"kmsg": "", "proc/stat": "", "sys/devices/system/node/node0/cpulist": "0\n"})
    assert limitations(host) == {}


def test_points_without_a_mount_are_told_with_the_option(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = HostTree(tmp_path)
    host.write({"kmsg": ""})
    host.procfs.mkdir()
    host.sysfs.mkdir()
    assert limitations(host) == {"procfs": "missing", "sysfs": "missing"}
    remedies = [record.__dict__["fields"]["remedy"] for record in caplog.records]
    assert all(f"--path.{name}" in remedy for name, remedy in zip(("procfs", "sysfs"), remedies, strict=True))
    assert {record.levelname for record in caplog.records} == {"WARNING"}


@pytest.mark.parametrize(
    ("file", "lacking"), [("kmsg", {"kernel_log": "missing"}), ("proc/1/status", {"processes": "hidden"})]
)
def test_what_is_not_there_is_told(host: HostTree, file: str, lacking: dict[str, str]) -> None:
    (host.root / file).unlink()
    assert limitations(host) == lacking


def test_cgroups_that_a_container_does_not_see_are_told(host: HostTree, caplog: pytest.LogCaptureFixture) -> None:
    """As in a container with the host's PID namespace and a cgroup namespace of its own: cgroup_namespaces(7)."""
    host.write({"proc/1/cgroup": "0::/../../../../init.scope\n"})
    assert limitations(host) == {}
    host.write({"sys/fs/cgroup/cgroup.type": "domain\n"})
    assert limitations(host) == {"cgroups": "other_cgroup_namespace"}
    assert "--path.sysfs" in caplog.records[-1].__dict__["fields"]["remedy"]
    shutil.rmtree(host.root / "sys/fs/cgroup")
    assert limitations(host) == {"cgroups": "missing"}


def test_a_kernel_without_psi_is_told_with_its_argument(host: HostTree, caplog: pytest.LogCaptureFixture) -> None:
    """As RHEL 8, which builds PSI in and switches it off (CONFIG_PSI_DEFAULT_DISABLED): there is no /proc/pressure."""
    shutil.rmtree(host.root / "proc/pressure")
    assert limitations(host) == {"host_pressure": "missing"}
    assert "psi=1" in caplog.records[-1].__dict__["fields"]["remedy"]


def test_a_procfs_of_another_pid_namespace_hides_processes_network_and_mounts(host: HostTree) -> None:
    pid = host.root / "proc/self/ns/pid"
    pid.unlink()
    pid.symlink_to("pid:[4026532999]")
    assert limitations(host) == dict.fromkeys(("processes", "host_network", "host_nfs"), "other_pid_namespace")


def test_beside_the_hosts_procfs_a_container_lacks_the_processes_alone(host: HostTree) -> None:
    host.write({"proc/self/status": "Name:\tgpu-triage\nNSpid:\t4242\t1\n"})
    assert limitations(host) == {"processes": "other_pid_namespace"}


def test_a_host_that_gives_every_right_lacks_nothing_even_from_another_mount_namespace(host: HostTree) -> None:
    assert limitations(host) == {}
    host.write({"proc/self/mountinfo": "522 500 0:21 / /proc rw\n"})
    assert limitations(host) == {}


def test_nfs_mounts_of_another_mount_namespace_that_may_not_be_listed_are_told(host: HostTree) -> None:
    host.write({"proc/self/mountinfo": "522 500 0:21 / /proc rw\n"})

    def refuse(_question: Question, path: str, answer: Answer) -> bytes | None:
        if path == "proc/1/mountstats":
            raise HostReadFailed("no_permission", path, "Permission denied")
        return answer()

    with hooked({"proc": host.procfs}, refuse):
        assert limitations(host) == {"host_nfs": "no_permission"}


FOLDERS = {
    "collector_textfile_directory": "textfile",
    "slurm_jobs_directory": "slurm_jobs",
    "kubernetes_container_logs": "container_names",
    "state_directory": "state_directory",
}


@pytest.mark.parametrize(("option", "feature"), FOLDERS.items())
def test_a_folder_that_is_not_there_is_told(
    option: str, feature: str, host: HostTree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    assert limitations(host, **{option: folder}) == {feature: "missing"}
    assert str(folder) in caplog.records[-1].__dict__["fields"]["remedy"]
    folder.mkdir()
    assert limitations(host, **{option: folder}) == {}


def test_a_socket_that_is_not_there_is_told(host: HostTree, tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    assert limitations(host, kubernetes_pod_resources_socket=path) == {"pod_names": "missing"}
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(path))
        assert limitations(host, kubernetes_pod_resources_socket=path) == {}


def test_a_lack_is_logged_when_it_comes_and_when_it_goes(host: HostTree, caplog: pytest.LogCaptureFixture) -> None:
    reader = AccessReader(EVERYTHING)
    kmsg = host.root / "kmsg"
    with caplog.at_level(logging.INFO):
        kmsg.unlink()
        for _ in range(3):
            reader.read(round_of(host))
        kmsg.touch()
        reader.read(round_of(host))
        kmsg.unlink()
        reader.read(round_of(host))
    told = [record.message for record in caplog.records]
    assert told == ["feature degraded", "feature no longer degraded", "feature degraded"]


def interfaces(*names: str) -> str:
    """A file like /proc/net/dev."""
    return "\n".join(f"{name}: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0" for name in names) + "\n"


@pytest.mark.parametrize(
    ("of_host", "in_sysfs", "lacking"),
    [
        (("lo", "ens1f0np0", "bond0", "veth1a"), ("lo", "eth0"), True),  # a pod's own /sys beside the host's /proc
        (("lo", "eth0", "ens1"), ("lo", "eth0"), False),  # one came a moment ago
        (("lo", "eth0"), ("lo", "eth0", "docker0"), False),
        (("lo",), ("lo",), False),
        (("lo", "eth0"), (), False),  # no sysfs at all, which another feature lacks
    ],
)
def test_a_foreign_sysfs_is_told(
    host: HostTree, of_host: tuple[str, ...], in_sysfs: tuple[str, ...], *, lacking: bool
) -> None:
    host.write({"proc/1/net/dev": interfaces(*of_host)})
    for name in in_sysfs:
        host.write({f"sys/class/net/{name}/ifindex": "1\n"})
    assert limitations(host) == ({"host_network_link": "other_network_namespace"} if lacking else {})


@pytest.mark.parametrize(
    ("service", "table", "lacking"), [("pcie001", True, True), ("pcie002", True, False), ("pcie001", False, False)]
)
def test_firmware_that_keeps_pcie_errors_is_told(host: HostTree, service: str, *, table: bool, lacking: bool) -> None:
    """get_port_device_capability of drivers/pci/pcie/portdrv.c: the service AER only if native_aer."""
    host.write({f"sys/bus/pci_express/devices/0000:00:01.0:{service}/uevent": ""})
    if table:
        host.write({"sys/firmware/acpi/tables/HEST": ""})
    assert limitations(host) == ({"pcie_aer": "firmware_first"} if lacking else {})
