"""Whether fabric manager and IMEX run, from cgroups and processes as systemd and the kernel show them.

NUMA nodes, the IOMMU, and kernel modules.

Links above PCIe switches, by a host's sysfs; the chain is that of a DGX H100, as `lspci -tv` of captures has it.
"""

import shutil
from dataclasses import replace

import pytest
from tests.host_tree import HostTree, kernel_file

from gpu_triage.options.config import Config
from gpu_triage.read.host.access import AccessReader
from gpu_triage.read.host.pcie_uplinks import PCIE_UPLINKS, PcieUplinksReader, Uplink, bytes_per_second
from gpu_triage.read.host.platform import (
    GPU_HOST_IOMMU_GPUS,
    MODULE_NAMES,
    PLATFORM,
    HostModulesReading,
    PlatformReader,
    PlatformReading,
    read_host_modules,
)
from gpu_triage.read.host.services import ServicesReader, ServicesReading, has_switches

CGROUP = "sys/fs/cgroup/system.slice/{}.service/cgroup.procs"
FABRIC_MANAGER = CGROUP.format("nvidia-fabricmanager")
IMEX = CGROUP.format("nvidia-imex")
NONE = ServicesReading(None, None)


def hgx(host: HostTree, *, driver: str | None = "nvidia-nvswitch") -> None:
    """An HGX H100 board: four NVSwitches, of which one is written, beside a GPU and an adapter."""
    host.device("pci0000:00/0000:07:00.0", "0x10de", "0x068000")
    host.device("pci0000:00/0000:18:00.0", "0x10de", "0x030200")
    host.device("pci0000:00/0000:1a:00.0", "0x15b3", "0x020700")
    host.device("pci0000:00/0000:00:1f.0", "0x8086", "0x068000")
    if driver:
        host.link("sys/devices/pci0000:00/0000:07:00.0/driver", f"../../../bus/pci/drivers/{driver}")
    host.write({"proc/1/comm": "systemd\n", "proc/uptime": "86400.12 5000000.00\n"})


def readings(host: HostTree, *steps: dict[str, str]) -> list[ServicesReading]:
    """What one reader says every five seconds, after these files were written each time."""
    reader, found = ServicesReader(), []
    for number, files in enumerate(steps):
        host.write(files)
        found.append(reader.read(host.round(5.0 * number)))
    return found


def managers(host: HostTree, *steps: dict[str, str]) -> list[bool | None]:
    return [reading.fabric_manager for reading in readings(host, *steps)]


@pytest.mark.parametrize("hierarchy", ["", "systemd/", "unified/"])
def test_a_service_runs_while_its_cgroup_has_processes(host: HostTree, hierarchy: str) -> None:
    hgx(host)
    path = FABRIC_MANAGER.replace("cgroup/system", f"cgroup/{hierarchy}system")
    running, stopped = replace(NONE, fabric_manager=True), replace(NONE, fabric_manager=False)
    assert readings(host, {path: "2741\n2744\n"}, {path: ""}) == [running, stopped]


@pytest.mark.parametrize(
    ("service", "field"),
    [
        ("slurmd", "slurmd"),
        ("kubelet", "kubelet"),
        ("k3s-agent", "kubelet"),
        ("rke2-server", "kubelet"),
        ("sshd", None),
    ],
)
def test_a_scheduler_is_remembered(host: HostTree, service: str, field: str | None) -> None:
    host.mount()
    found = readings(host, {CGROUP.format(service): "812\n"}, {CGROUP.format(service): ""})
    assert found == [replace(NONE, **({} if field is None else {field: runs})) for runs in (True, False)]


@pytest.mark.parametrize(
    ("driver", "missed"), [("nvidia-nvswitch", False), ("vfio-pci", None), ("pci-stub", None)], ids=str
)
def test_a_fabric_manager_that_never_ran_is_missed_where_there_are_switches_unless_a_virtual_machine_has_them(
    host: HostTree,
    driver: str,
    missed: bool | None,  # noqa: FBT001 - a parameter of the table
) -> None:
    hgx(host, driver=driver)
    assert readings(host, {}) == [replace(NONE, fabric_manager=missed)]


def test_a_host_without_switches_needs_neither(host: HostTree) -> None:
    host.device("pci0000:00/0000:65:00.0", "0x10de", "0x030200")
    assert readings(host, {"proc/1/comm": "systemd\n", "proc/42/comm": "nv-fabricmanage\n"}) == [NONE]
    assert not has_switches(host.sysfs)


def test_what_ran_once_is_missed_without_switches_on_the_bus_too(host: HostTree) -> None:
    """NVLink 5: the switches of HGX B200 are not on the PCI bus, and a node of GB200 runs IMEX alone."""
    host.mount()
    found = readings(host, {FABRIC_MANAGER: "9\n", IMEX: "8\n"}, {FABRIC_MANAGER: "", IMEX: ""})
    assert found == [ServicesReading(fabric_manager=runs, imex=runs) for runs in (True, False)]


def test_a_fabric_manager_in_a_container_is_found_by_its_process(host: HostTree) -> None:
    hgx(host)
    assert managers(
        host,
        {"proc/4242/comm": "nv-fabricmanage\n", "proc/4243/comm": "nv-fabricother\n"},
        {"proc/4242/comm": "bash\n", "proc/5000/comm": "nv-fabricmanage\n"},
        {"proc/5000/comm": "bash\n"},
        # All processes are looked through every 15 seconds at most.
        {"proc/6000/comm": "nv-fabricmanage\n"},
        {},
        {},
    ) == [True, True, False, False, False, True]


def test_after_a_boot_the_service_has_time_to_start(host: HostTree) -> None:
    hgx(host)
    assert managers(host, {"proc/uptime": "120.50 400.00\n"}, {"proc/uptime": "301.00 900.00\n"}) == [None, False]


def test_where_processes_are_hidden_nothing_is_claimed_of_a_service_that_never_ran_or_is_no_longer_visible(
    host: HostTree,
) -> None:
    hgx(host)
    host.in_container()
    runs, stopped = {FABRIC_MANAGER: "0\n"}, {FABRIC_MANAGER: ""}
    assert managers(host, {}, runs, stopped, runs) == [None, True, False, True]
    reader = ServicesReader()
    assert reader.read(host.round(15)).fabric_manager is True
    shutil.rmtree(host.sysfs / "fs")
    assert reader.read(host.round(20)) == NONE
    host.write({CGROUP.format("sshd"): "9\n"})
    assert reader.read(host.round(25)).fabric_manager is False


def test_a_host_whose_fabric_manager_cannot_be_seen_says_so(host: HostTree) -> None:
    hgx(host)
    host.write({"proc/stat": ""})
    reader = AccessReader(Config(collectors={"xid": False, "processes": False, "host": False, "host_services": True}))
    assert reader.read(host.round()) == ()
    host.in_container()
    (lack,) = reader.read(host.round())
    assert (lack.feature, lack.reason) == ("host_services", "other_pid_namespace")
    host.write({FABRIC_MANAGER: "0\n"})
    assert reader.read(host.round()) == ()


NODES = {"sys/devices/system/node/node0/cpulist": "0-3\n", "sys/devices/system/node/node1/cpulist": "4-7\n"}


def test_an_iommu_in_use_shows_as_a_unit_or_as_groups_and_one_that_is_off_leaves_empty_folders(host: HostTree) -> None:
    (host.sysfs / "class" / "iommu").mkdir(parents=True)
    assert PlatformReader().read(host.round()).iommu_active is False
    host.write(NODES | {"sys/kernel/iommu_groups/0/type": "DMA-FQ\n"})
    assert PlatformReader().read(host.round()) == PlatformReading(numa_nodes=2, iommu_active=True)
    (host.sysfs / "class" / "iommu" / "dmar0").mkdir()
    shutil.rmtree(host.sysfs / "kernel" / "iommu_groups" / "0")
    assert PlatformReader().read(host.round()).iommu_active is True


def gpu(host: HostTree, bus_id: str, domain: str) -> None:
    """An NVIDIA GPU in an IOMMU group of this type."""
    host.device(f"pci0000:00/{bus_id}", "0x10de", "0x030200")
    group = f"kernel/iommu_groups/{int(bus_id[5:7], 16)}"
    host.write({f"sys/{group}/type": f"{domain}\n"})
    host.link(f"sys/devices/pci0000:00/{bus_id}/iommu_group", f"../../../{group}")


def test_gpus_are_counted_by_the_default_domain_of_their_iommu_group(host: HostTree) -> None:
    """Documentation/ABI/testing/sysfs-kernel-iommu_groups, iommu_group_show_type of drivers/iommu/iommu.c.

    vfio attaches a domain of its own to a GPU that it passes on, and the group keeps showing its default.
    """
    host.write(NODES)
    for number, domain in enumerate(("DMA-FQ", "DMA-FQ", "identity", "unmanaged", "something new")):
        gpu(host, f"0000:1{number}:00.0", domain)
    round_ = host.round()
    reading = PlatformReader().read(round_)
    assert reading.iommu_gpus == {"dma_fq": 2, "identity": 1, "unmanaged": 1}
    assert GPU_HOST_IOMMU_GPUS.sample(2, "dma_fq") in list(PLATFORM.render(reading))
    assert GPU_HOST_IOMMU_GPUS.labels == ("default_domain",)
    assert round_.failures == []


LISTED = kernel_file("modules")

LOADED = {module: module in {"nvidia", "nvidia_uvm"} for module in MODULE_NAMES}


def test_only_live_modules_of_nvidia_are_loaded_and_without_a_list_nothing_is_known(host: HostTree) -> None:
    host.mount()
    assert read_host_modules(host.round()) == HostModulesReading(loaded=None)
    host.write({"proc/modules": ""})
    assert read_host_modules(host.round()) == HostModulesReading(loaded=dict.fromkeys(MODULE_NAMES, False))
    host.write({"proc/modules": LISTED})
    assert read_host_modules(host.round()) == HostModulesReading(loaded=LOADED)


ROOT, SWITCH = "0000:15:01.0", "0000:16:00.0"
GPU, NIC, DRIVE = "0000:18:00.0", "0000:1a:00.0", "0000:1c:00.0"
BELOW = "pci0000:15/0000:15:01.0/0000:16:00.0"


def device(
    host: HostTree, path: str, pci_class: str, link: tuple[str, str], most: tuple[str, str], *, vendor: str = "0x10de"
) -> None:
    """A device by its path below /sys/devices, with its link now and at best: speed and width."""
    now = {"current_link_speed": link[0], "current_link_width": link[1]}
    host.device(path, vendor, pci_class, **now, max_link_speed=most[0], max_link_width=most[1])


FULL = ("32.0 GT/s PCIe", "16")


def tray(host: HostTree, link: tuple[str, str] = FULL) -> None:
    """A switch with a GPU, an adapter and a drive behind it."""
    device(host, "pci0000:15/0000:15:01.0", "0x060400", link, FULL, vendor="0x8086")
    device(host, BELOW, "0x060400", link, FULL, vendor="0x1000")
    for port, name, pci_class, vendor in (
        ("0000:17:00.0", GPU, "0x030200", "0x10de"),
        ("0000:17:01.0", NIC, "0x020700", "0x15b3"),
        ("0000:17:02.0", DRIVE, "0x010802", "0x144d"),
        ("0000:17:03.0", "0000:1e:00.0", "0x088000", "0x1000"),
    ):
        device(host, f"{BELOW}/{port}", "0x060400", FULL, FULL, vendor="0x1000")
        device(host, f"{BELOW}/{port}/{name}", pci_class, FULL, FULL, vendor=vendor)


SHARED = (f"gpu {GPU}", f"network {NIC}", f"nvme {DRIVE}")


def test_what_shares_the_link_above_a_switch(host: HostTree) -> None:
    tray(host)
    (uplink,) = PcieUplinksReader().read(host.round())
    assert uplink == Uplink(SWITCH, ROOT, SHARED, 16, 5, 16, 5)
    assert uplink.ratio == 1.0


@pytest.mark.parametrize(
    ("link", "ratio"),
    [(("32.0 GT/s PCIe", "8"), 0.5), (("16.0 GT/s PCIe", "16"), 0.5), (("8.0 GT/s PCIe", "4"), 1 / 16)],
)
def test_an_uplink_that_trained_down(host: HostTree, link: tuple[str, str], ratio: float) -> None:
    tray(host, link)
    (uplink,) = PcieUplinksReader().read(host.round())
    assert uplink.ratio == pytest.approx(ratio)


def test_what_one_end_cannot_do_is_not_expected(host: HostTree) -> None:
    tray(host, ("16.0 GT/s PCIe", "16"))
    device(host, "pci0000:15/0000:15:01.0", "0x060400", ("16.0 GT/s PCIe", "16"), ("16.0 GT/s PCIe", "16"))
    assert PcieUplinksReader().read(host.round())[0].ratio == 1.0


def test_switches_below_a_switch_have_an_uplink_each(host: HostTree) -> None:
    tray(host)
    inner = f"{BELOW}/0000:17:04.0/0000:1f:00.0"
    for path in (f"{BELOW}/0000:17:04.0", inner, f"{inner}/0000:20:00.0"):
        device(host, path, "0x060400", FULL, FULL, vendor="0x1000")
    device(host, f"{inner}/0000:20:00.0/0000:21:00.0", "0x030200", FULL, FULL)
    uplinks = {(each.port, each.bridge): each.behind for each in PcieUplinksReader().read(host.round())}
    assert uplinks == {
        (ROOT, SWITCH): (*SHARED, "gpu 0000:21:00.0"),
        ("0000:17:04.0", "0000:1f:00.0"): ("gpu 0000:21:00.0",),
    }


def test_a_gpu_below_a_root_port_and_a_switch_without_gpus_have_none(host: HostTree) -> None:
    host.mount()
    device(host, "pci0000:60/0000:60:01.0", "0x060400", FULL, FULL)
    device(host, "pci0000:60/0000:60:01.0/0000:65:00.0", "0x030000", FULL, FULL)
    for path in ("pci0000:70/0000:70:01.0", "pci0000:70/0000:70:01.0/0000:71:00.0"):
        device(host, path, "0x060400", FULL, FULL)
    # Of two bridges above a GPU, one is no switch.
    device(host, "pci0000:70/0000:70:01.0/0000:71:00.0/0000:74:00.0", "0x030000", FULL, FULL)
    device(host, "pci0000:70/0000:70:01.0/0000:71:00.0/0000:72:00.0", "0x060400", FULL, FULL)
    device(host, "pci0000:70/0000:70:01.0/0000:71:00.0/0000:72:00.0/0000:73:00.0", "0x010802", FULL, FULL)
    assert PcieUplinksReader().read(host.round()) == ()


@pytest.mark.parametrize("width", ["63", "255", "0", ""])
def test_a_link_that_is_not_told_is_no_short_one(host: HostTree, width: str) -> None:
    tray(host, ("Unknown", width))
    assert PcieUplinksReader().read(host.round()) == ()


def test_series_of_a_healthy_uplink_are_details(host: HostTree) -> None:
    for width, shown in (("16", False), ("8", True)):
        tray(host, ("32.0 GT/s PCIe", width))
        samples = PCIE_UPLINKS.render(PcieUplinksReader().read(host.round()))
        found = [sample.spec.default_samples(sample) for sample in samples if sample.spec.default_samples]
        assert found == [shown, False]


def test_bandwidth_is_that_of_the_specification() -> None:
    assert bytes_per_second(5, 16) == pytest.approx(63.0e9, rel=0.01)
    assert bytes_per_second(3, 8) == pytest.approx(7.88e9, rel=0.01)
    assert bytes_per_second(1, 1) == 250e6
