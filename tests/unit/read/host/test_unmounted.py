"""An empty procfs or sysfs is no kernel without features: whoever reads it fails, and says what is missing."""

from __future__ import annotations

import pytest
from tests.host_tree import HostTree

from gpu_triage.errors import HostReadFailed
from gpu_triage.options.config import Config
from gpu_triage.read.metrics.contract import AnyHostCollector, runs
from gpu_triage.read.registry import HOST_COLLECTORS

ELSEWHERE = frozenset({"host_kernel_log", "access"})
"""One reads /dev/kmsg; the other says what is missing."""

OF_FEATURES = frozenset(
    {
        "modules",
        "platform",
        "host_cpu_settings",
        "host_pressure",
        "host_infiniband",
        "host_network_link",
        "host_services",
        "host_edac",
        "host_file_systems",
        "pcie_uplinks",
    }
)
"""Collectors of what a kernel or a host need not have."""

READERS = tuple(c for c in HOST_COLLECTORS if runs(c, Config()) and c.name not in ELSEWHERE)


def named(collector: AnyHostCollector) -> str:
    return collector.name


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("collector", READERS, ids=named)
def test_a_collector_fails_where_nothing_is_mounted(
    host: HostTree, collector: AnyHostCollector, *, exists: bool
) -> None:
    if exists:
        host.procfs.mkdir()
        host.sysfs.mkdir()
    with pytest.raises(HostReadFailed) as failed:
        collector.reader(Config())(host.round())
    assert failed.value.reason == "missing"
    assert str(host.procfs) in failed.value.detail or str(host.sysfs) in failed.value.detail


@pytest.mark.parametrize("collector", READERS, ids=named)
def test_only_what_every_linux_host_has_is_missed_on_a_kernel_without_features(
    host: HostTree, collector: AnyHostCollector
) -> None:
    host.mount()
    round_ = host.round()
    read = collector.reader(Config())
    if collector.name not in OF_FEATURES:
        with pytest.raises(HostReadFailed, match=r"missing: .*/proc/.*: every Linux host has this file"):
            read(round_)
        return
    read(round_)
    assert round_.failures == []
