"""Our host counters beside those of Prometheus' node_exporter, of one kernel.

Both read the same counters of the kernel, at moments of their own. So no two readings are equal; but every counter of
ours that was read between two looks at the neighbor lies between what those two say, however long all of it takes.
"""

import os
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from deploy.demo.processes import Server, free_port
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import RequiresTool
from tests.e2e.processes import WAIT_SECONDS, Exporter, exporter, wait_for

pytestmark = pytest.mark.timeout(600)

LOOKS: Final = 4
COLLECTORS: Final = ("cpu", "diskstats", "netdev")
OURS: Final = ("host_cpu", "host_disk", "host_network")

Page = dict[tuple[str, frozenset[tuple[str, str]]], float]

DEVICES: Final = {
    "gpu_host_disk_read_bytes_total": "node_disk_read_bytes_total",
    "gpu_host_disk_written_bytes_total": "node_disk_written_bytes_total",
    "gpu_host_disk_reads_total": "node_disk_reads_completed_total",
    "gpu_host_disk_writes_total": "node_disk_writes_completed_total",
    "gpu_host_disk_read_seconds_total": "node_disk_read_time_seconds_total",
    "gpu_host_disk_write_seconds_total": "node_disk_write_time_seconds_total",
    "gpu_host_disk_busy_seconds_total": "node_disk_io_time_seconds_total",
    "gpu_host_disk_queue_seconds_total": "node_disk_io_time_weighted_seconds_total",
    "gpu_host_network_receive_bytes_total": "node_network_receive_bytes_total",
    "gpu_host_network_transmit_bytes_total": "node_network_transmit_bytes_total",
}
"""Metrics with a series for each disk or interface."""


class Look(NamedTuple):
    """A page of the neighbor before ours was read, ours, and a page of the neighbor after it."""

    before: Page
    ours: Page
    after: Page


def parsed(text: str) -> Page:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(page: Page, name: str, labels: Mapping[str, str]) -> float:
    """The sum of all series of a metric that have these labels, of which there are some."""
    found = [value for (other, own), value in page.items() if other == name and labels.items() <= own]
    assert found, (name, labels)
    return sum(found)


def devices(page: Page, name: str) -> set[str]:
    return {dict(labels)["device"] for found, labels in page if found == name}


def read_since(ours: Exporter, moment: float) -> Page:
    """Our page once every host collector has begun a successful reading after a Unix time."""
    page: Page = {}

    def begun(collector: str) -> float:
        ended, lasted = (
            total(page, f"gpu_exporter_collector_{what}_seconds", {"collector": collector})
            for what in ("last_success_timestamp", "duration")
        )
        return ended - lasted

    def begun_since() -> bool:
        page.clear()
        page.update(parsed(ours.metrics()))
        return all(begun(collector) > moment for collector in OURS)

    wait_for(begun_since)
    return page


@pytest.fixture(scope="module")
def looks(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> list[Look]:
    """Looks at both, with bytes written to a disk before each."""
    folder, address = tmp_path_factory.mktemp("neighbor"), f"127.0.0.1:{free_port()}"
    page_url = f"http://{address}/metrics"
    flags = ("--collector.disable-defaults", *(f"--collector.{name}" for name in COLLECTORS))
    command = [str(requires_tool("prometheus-node-exporter")), f"--web.listen-address={address}", *flags]

    def fetched() -> Page:
        with urllib.request.urlopen(page_url, timeout=WAIT_SECONDS) as answer:
            return parsed(answer.read().decode())

    found = []
    with (
        Server("node_exporter", command, folder, page_url).running(),
        exporter(folder, "--sample.medium", "1s", "--metrics.profile", "full") as ours,
    ):
        wait_for(
            lambda: all(f'last_success_timestamp_seconds{{collector="{each}"}}' in ours.metrics() for each in OURS)
        )
        for _ in range(LOOKS):
            with (folder / "load").open("wb") as file:
                file.write(os.urandom(4 << 20))
                os.fsync(file.fileno())
            before = fetched()
            found.append(Look(before, read_since(ours, time.time()), fetched()))
    return found


def assert_between(looks: list[Look], ours: str, theirs: str, labels: Mapping[str, str], slack: float = 0.0) -> None:
    """Assert that ours lies between what the neighbor says before and after, in every look."""
    for look in looks:
        low, high = (total(page, theirs, labels) for page in (look.before, look.after))
        value, margin = total(look.ours, ours, labels), slack + 1e-6 * max(1.0, high)
        assert low - margin <= value <= high + margin, (ours, labels, low, value, high)


@pytest.mark.parametrize("mode", ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"])
def test_cpu_time(looks: list[Look], mode: str) -> None:
    # The kernel takes back a tick or two of a CPU's idle and iowait now and then, which ours does not show.
    slack = 0.05 * (os.cpu_count() or 1)
    assert_between(looks, "gpu_host_cpu_seconds_total", "node_cpu_seconds_total", {"mode": mode}, slack)


@pytest.mark.parametrize("name", DEVICES)
def test_disks_and_networks(looks: list[Look], name: str) -> None:
    both = devices(looks[0].ours, name) & devices(looks[0].before, DEVICES[name])
    if "network" in name:
        assert both == devices(looks[0].ours, name), "the neighbor knows all interfaces"
    elif any(Path("/sys/block").glob("*/device")):
        assert both, "a host with disks has some that both know"
    # Times that are summed over CPUs, which count on meanwhile.
    slack = 0.1 if name.endswith("_seconds_total") else 0.0
    for device in both:
        assert_between(looks, name, DEVICES[name], {"device": device}, slack)
