"""Our host counters beside those of Prometheus' node_exporter, of one kernel and under load.

Both read the same counters of the kernel, at moments of their own. So no two readings are equal; but every counter of
ours that was read between two looks at the neighbor lies between what those two say, however long all of it takes.
"""

import os
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from deploy.demo.processes import Server, free_port
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import RequiresTool
from tests.e2e.processes import WAIT_SECONDS, Exporter, exporter, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 8.0
"""How long the load lasts and the two are compared."""

COLLECTORS = ("cpu", "diskstats", "loadavg", "meminfo", "netdev", "pressure", "stat", "vmstat")
TICK_SLACK_SECONDS = 0.05
"""A CPU: the kernel takes back a tick or two of idle and iowait now and then, which ours does not show."""
ROUNDING = 1e-6
AWAY = ("192.0.2.1", 9)
"""An address for documentation and the port of the discard service: what is sent there leaves by the default route."""

Series = tuple[str, frozenset[tuple[str, str]]]
Page = dict[Series, float]

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
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
OTHERS: Final = (
    ("gpu_host_context_switches_total", {}, "node_context_switches_total", 1),
    ("gpu_host_major_faults_total", {}, "node_vmstat_pgmajfault", 1),
    ("gpu_host_swap_in_bytes_total", {}, "node_vmstat_pswpin", PAGE_BYTES),
    ("gpu_host_swap_out_bytes_total", {}, "node_vmstat_pswpout", PAGE_BYTES),
    ("gpu_host_memory_total_bytes", {}, "node_memory_MemTotal_bytes", 1),
    ("gpu_host_swap_total_bytes", {}, "node_memory_SwapTotal_bytes", 1),
    *(
        (
            "gpu_host_pressure_seconds_total",
            {"resource": resource, "kind": kind},
            f"node_pressure_{resource}_{'waiting' if kind == 'some' else 'stalled'}_seconds_total",
            1,
        )
        for resource, kind in (("cpu", "some"), ("io", "some"), ("io", "full"), ("memory", "some"), ("memory", "full"))
        if Path("/proc/pressure").is_dir()
    ),
)
"""Metric and labels of ours, the neighbor's metric, and by what that is multiplied."""
HOST_COLLECTORS: Final = ("host_cpu", "host_disk", "host_network", "host_pressure", "host_memory")


@dataclass(frozen=True)
class Look:
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


def fetched(address: str) -> Page:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_SECONDS) as answer:
        return parsed(answer.read().decode())


def of(page: Page, name: str, **labels: str) -> float | None:
    """The value of a series; None where there is none."""
    return page.get((name, frozenset(labels.items())))


def devices(page: Page, name: str) -> set[str]:
    return {dict(labels)["device"] for found, labels in page if found == name}


@contextmanager
def node_exporter(program: Path, tmp_path: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    flags = [f"--collector.{name}" for name in COLLECTORS]
    command = [str(program), f"--web.listen-address={address}", "--collector.disable-defaults", *flags]
    with Server("node_exporter", command, tmp_path, f"http://{address}/metrics").running():
        yield address


@contextmanager
def load(folder: Path) -> Iterator[None]:
    done = threading.Event()

    def write() -> None:
        data, path = os.urandom(4 << 20), folder / "load"
        while not done.is_set():
            with path.open("wb") as file:
                file.write(data)
                os.fsync(file.fileno())
            path.unlink()
            done.wait(0.05)

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outgoing:
            while not done.wait(0.02):
                with suppress(OSError):  # a host without a default route
                    outgoing.sendto(bytes(1000), AWAY)

    threads = [threading.Thread(target=work) for work in (write, send)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def read_since(ours: Exporter, moment: float) -> Page:
    """Our page once every host collector has begun a successful reading after a Unix time."""
    page: Page = {}

    def begun_since() -> bool:
        page.clear()
        page.update(parsed(ours.metrics()))
        for name in HOST_COLLECTORS:
            ended = of(page, "gpu_exporter_collector_last_success_timestamp_seconds", collector=name)
            took = of(page, "gpu_exporter_collector_duration_seconds", collector=name)
            if ended is None or took is None or ended - took <= moment:
                return False
        return True

    wait_for(begun_since)
    return page


@pytest.fixture(scope="module")
def looks(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> list[Look]:
    """Looks at both, side by side, for as long as the load lasts."""
    program = requires_tool("prometheus-node-exporter")
    folder = tmp_path_factory.mktemp("neighbor")
    found = []
    flags = ("--sample.medium", "1s", "--metrics.profile", "full")
    with node_exporter(program, folder) as address, exporter(folder, *flags) as ours, load(folder):
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            before = fetched(address)
            page = read_since(ours, time.time())
            found.append(Look(before, page, fetched(address)))
    return found


def assert_between(
    looks: list[Look], of_ours: Series, of_theirs: Series, factor: float = 1, slack: float = 0.0
) -> None:
    """Assert that ours lies between what the neighbor says before and after, in every look."""
    for look in looks:
        low, value, high = look.before[of_theirs] * factor, look.ours[of_ours], look.after[of_theirs] * factor
        margin = slack + ROUNDING * max(1.0, high)
        assert low - margin <= value <= high + margin, (of_ours, low, value, high)


@pytest.mark.parametrize("mode", ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"])
def test_cpu_time(looks: list[Look], mode: str) -> None:
    assert len(looks) > 1
    theirs = [key for key in looks[0].before if key[0] == "node_cpu_seconds_total" and ("mode", mode) in key[1]]
    assert theirs
    slack = TICK_SLACK_SECONDS * len(theirs)
    for look in looks:
        ours = sum(
            v for key, v in look.ours.items() if key[0] == "gpu_host_cpu_seconds_total" and ("mode", mode) in key[1]
        )
        low, high = (sum(page[key] for key in theirs) for page in (look.before, look.after))
        assert low - slack <= ours <= high + slack


@pytest.mark.parametrize("name", DEVICES)
def test_disks_and_networks(looks: list[Look], name: str) -> None:
    both = devices(looks[0].ours, name) & devices(looks[0].before, DEVICES[name])
    if "network" in name:
        assert both == devices(looks[0].ours, name), "the neighbor knows all interfaces"
    elif any(Path("/sys/block").glob("*/device")):
        assert both, "a host with disks has some that both know"
    slack = 0.1 if name.endswith("_seconds_total") else 0.0  # summed over CPUs that count on meanwhile
    for device in both:
        labels = frozenset({("device", device)})
        assert_between(looks, (name, labels), (DEVICES[name], labels), slack=slack)


@pytest.mark.parametrize(("ours", "labels", "theirs", "factor"), OTHERS)
def test_rest_of_the_host(looks: list[Look], ours: str, labels: Mapping[str, str], theirs: str, factor: float) -> None:
    assert_between(looks, (ours, frozenset(labels.items())), (theirs, frozenset()), factor)
