from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_triage.errors import HostReadFailed
from gpu_triage.host.platform import (
    GPU_HOST_IOMMU_ACTIVE,
    GPU_HOST_NUMA_NODES,
    PLATFORM,
    PlatformReading,
    read_platform,
)

if TYPE_CHECKING:
    from tests.host_tree import HostTree

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


def test_a_kernel_that_knows_neither_numa_nor_iommu_has_no_series(host: HostTree) -> None:
    host.mount()
    round_ = host.round()
    assert read_platform(round_) == PlatformReading(numa_nodes=None, iommu_active=None)
    assert list(PLATFORM.render(read_platform(round_))) == []
    assert round_.failures == []


def test_numa_nodes_that_cannot_be_understood_cost_only_themselves(host: HostTree) -> None:
    host.write({"sys/devices/system/node/node0/cpulist": "junk\n", "sys/kernel/iommu_groups/0/type": "DMA\n"})
    round_ = host.round()
    assert read_platform(round_) == PlatformReading(numa_nodes=None, iommu_active=True)
    assert round_.failures == ["malformed"]


def test_nothing_readable_is_a_failure(host: HostTree) -> None:
    host.write({"sys/devices/system/node/node0/cpulist": "junk\n"})
    with pytest.raises(HostReadFailed, match="malformed"):
        read_platform(host.round())


def test_rendering() -> None:
    assert list(PLATFORM.render(PlatformReading(numa_nodes=2, iommu_active=False))) == [
        GPU_HOST_NUMA_NODES.sample(2),
        GPU_HOST_IOMMU_ACTIVE.sample(0),
    ]
