"""NUMA nodes, the IOMMU, and kernel modules."""

from tests.host_tree import HostTree

from gpu_triage.read.host.platform import (
    GPU_HOST_IOMMU_GPUS,
    MODULE_NAMES,
    PLATFORM,
    HostModulesReading,
    PlatformReading,
    read_host_modules,
    read_platform,
)

NODES = {"sys/devices/system/node/node0/cpulist": "0-3\n", "sys/devices/system/node/node1/cpulist": "4-7\n"}


def test_an_iommu_in_use_shows_as_a_unit_or_as_groups(host: HostTree) -> None:
    host.write(NODES | {"sys/kernel/iommu_groups/0/type": "DMA-FQ\n"})
    assert read_platform(host.round()) == PlatformReading(numa_nodes=2, iommu_active=True)
    (host.sysfs / "class" / "iommu" / "dmar0").mkdir(parents=True)
    (host.sysfs / "kernel" / "iommu_groups" / "0" / "type").unlink()
    (host.sysfs / "kernel" / "iommu_groups" / "0").rmdir()
    assert read_platform(host.round()).iommu_active is True


def test_an_iommu_that_is_off_leaves_empty_folders(host: HostTree) -> None:
    (host.sysfs / "class" / "iommu").mkdir(parents=True)
    assert read_platform(host.round()).iommu_active is False


def gpu(host: HostTree, bus_id: str, domain: str | None) -> None:
    """An NVIDIA GPU in an IOMMU group of this type."""
    device = f"sys/devices/pci0000:00/{bus_id}"
    host.write({f"{device}/vendor": "0x10de\n", f"{device}/class": "0x030200\n"})
    host.link(f"sys/bus/pci/devices/{bus_id}", f"../../../devices/pci0000:00/{bus_id}")
    group = f"sys/kernel/iommu_groups/{int(bus_id[5:7], 16)}"
    host.write({f"{group}/devices/.keep": ""} | ({f"{group}/type": f"{domain}\n"} if domain else {}))
    host.link(f"{device}/iommu_group", f"../../../kernel/iommu_groups/{int(bus_id[5:7], 16)}")


def test_gpus_are_counted_by_the_type_of_their_iommu_domain(host: HostTree) -> None:
    """Documentation/ABI/testing/sysfs-kernel-iommu_groups, iommu_group_show_type of drivers/iommu/iommu.c."""
    host.write(NODES)
    for bus_id, domain in (("0000:17:00.0", "DMA-FQ"), ("0000:2a:00.0", "DMA-FQ"), ("0000:65:00.0", "identity")):
        gpu(host, bus_id, domain)
    gpu(host, "0000:66:00.0", "unmanaged")
    gpu(host, "0000:67:00.0", "something new")
    round_ = host.round()
    reading = read_platform(round_)
    assert reading.iommu_gpus == {"dma_fq": 2, "identity": 1, "unmanaged": 1}
    assert GPU_HOST_IOMMU_GPUS.sample(2, "dma_fq") in list(PLATFORM.render(reading))
    assert round_.failures == []


LISTED = """\
nvidia_uvm 1761280 4 - Live 0x0000000000000000 (POE)
nvidia_drm 122880 0 - Unloading 0x0000000000000000 (POE)
nvidia_modeset 1585152 1 nvidia_drm, Loading 0x0000000000000000 (POE)
nvidia 56823808 55 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)
mlx5_core 2207744 1 mlx5_ib, Live 0x0000000000000000
"""

LOADED = {module: module in {"nvidia", "nvidia_uvm"} for module in MODULE_NAMES}


def test_only_live_modules_of_nvidia_are_loaded(host: HostTree) -> None:
    host.write({"proc/modules": LISTED})
    assert read_host_modules(host.round()) == HostModulesReading(loaded=LOADED)


def test_no_module_at_all_is_known_and_no_list_is_not(host: HostTree) -> None:
    host.mount()
    assert read_host_modules(host.round()) == HostModulesReading(loaded=None)
    host.write({"proc/modules": ""})
    assert read_host_modules(host.round()) == HostModulesReading(loaded=dict.fromkeys(MODULE_NAMES, False))
