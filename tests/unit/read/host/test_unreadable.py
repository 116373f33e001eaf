"""An empty procfs or sysfs is no kernel without features, and a file that is cut off has no last line."""

from pathlib import Path

import pytest
from tests.host_tree import HostTree

from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.driver.kernel.procfs import parse_pressure
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
def test_a_collector_fails_without_a_mount(host: HostTree, collector: AnyHostCollector, *, exists: bool) -> None:
    if exists:
        host.procfs.mkdir()
        host.sysfs.mkdir()
    with pytest.raises(HostReadFailed) as failed:
        collector.reader(Config())(host.round())
    assert failed.value.reason == "missing"
    assert str(host.procfs) in failed.value.detail or str(host.sysfs) in failed.value.detail


@pytest.mark.parametrize("collector", READERS, ids=named)
def test_only_what_every_host_has_is_missed_on_a_bare_kernel(host: HostTree, collector: AnyHostCollector) -> None:
    host.mount()
    round_ = host.round()
    read = collector.reader(Config())
    if collector.name not in OF_FEATURES:
        with pytest.raises(HostReadFailed, match=r"missing: .*/proc/.*: every Linux host has this file"):
            read(round_)
        return
    read(round_)
    assert round_.failures == []


PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=3407564\n"


def test_a_file_that_ends_within_a_number_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "cpu"
    path.write_text(PRESSURE[:-3])
    inquiry = HostInquiry([])
    assert inquiry.parse(path, parse_pressure) is None
    with pytest.raises(HostReadFailed, match="malformed"):
        inquiry.finish()


def test_of_lines_only_the_one_that_is_cut_off_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("1\n22\n33")
    failures: list[str] = []
    inquiry = HostInquiry(failures)
    assert inquiry.lines(path, int) == [1, 22]
    inquiry.finish()
    assert failures == ["malformed"]
