"""Our host counters beside those of Prometheus' node_exporter, of one kernel and under load.

Both read the same counters of the kernel, at moments of their own. So no two readings are equal; but every counter of
ours that was read between two looks at the neighbor lies between what those two say, however long all of it takes.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from deploy.demo.processes import free_port
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.processes import WAIT_SECONDS, Exporter, end, exporter, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.conftest import RequiresTool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 30.0
"""How long the load lasts and the two are compared."""

COLLECTORS = ("cpu", "diskstats", "loadavg", "meminfo", "netdev", "pressure", "stat", "vmstat")
TICK_SLACK_SECONDS = 0.05
"""A CPU: the kernel takes back a tick or two of idle and iowait now and then, which ours does not show."""
ROUNDING = 1e-6
AWAY = ("192.0.2.1", 9)
"""An address for documentation and the port of the discard service: what is sent there leaves by the default route."""

Series = tuple[str, frozenset[tuple[str, str]]]
Page = dict[Series, float]

DISK: Final = {
    "gpu_host_disk_read_bytes_total": "node_disk_read_bytes_total",
    "gpu_host_disk_written_bytes_total": "node_disk_written_bytes_total",
    "gpu_host_disk_reads_total": "node_disk_reads_completed_total",
    "gpu_host_disk_writes_total": "node_disk_writes_completed_total",
    "gpu_host_disk_read_seconds_total": "node_disk_read_time_seconds_total",
    "gpu_host_disk_write_seconds_total": "node_disk_write_time_seconds_total",
    "gpu_host_disk_busy_seconds_total": "node_disk_io_time_seconds_total",
    "gpu_host_disk_queue_seconds_total": "node_disk_io_time_weighted_seconds_total",
}
NETWORK: Final = {
    "gpu_host_network_receive_bytes_total": "node_network_receive_bytes_total",
    "gpu_host_network_transmit_bytes_total": "node_network_transmit_bytes_total",
}
PRESSURE: Final = {
    ("cpu", "some"): "node_pressure_cpu_waiting_seconds_total",
    ("io", "some"): "node_pressure_io_waiting_seconds_total",
    ("io", "full"): "node_pressure_io_stalled_seconds_total",
    ("memory", "some"): "node_pressure_memory_waiting_seconds_total",
    ("memory", "full"): "node_pressure_memory_stalled_seconds_total",
}
MEMORY: Final = {
    "gpu_host_major_faults_total": ("node_vmstat_pgmajfault", 1),
    "gpu_host_swap_in_bytes_total": ("node_vmstat_pswpin", os.sysconf("SC_PAGE_SIZE")),
    "gpu_host_swap_out_bytes_total": ("node_vmstat_pswpout", os.sysconf("SC_PAGE_SIZE")),
}
SIZES: Final = {
    "gpu_host_memory_total_bytes": "node_memory_MemTotal_bytes",
    "gpu_host_swap_total_bytes": "node_memory_SwapTotal_bytes",
}
HOST_COLLECTORS: Final = ("host_cpu", "host_disk", "host_network", "host_pressure", "host_memory")


@dataclass(frozen=True)
class Look:
    """A page of the neighbor before ours was read, ours, and a page of the neighbor after it."""

    before: Page
    ours: Page
    after: Page


def parsed(text: str) -> Page:
    """Value by metric and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def fetched(address: str) -> Page:
    """A page of the neighbor."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_SECONDS) as answer:
        return parsed(answer.read().decode())


def of(page: Page, name: str, **labels: str) -> float | None:
    """The value of a series; None where there is none."""
    return page.get((name, frozenset(labels.items())))


def devices(page: Page, name: str) -> set[str]:
    """Devices that a metric has series of."""
    return {dict(labels)["device"] for found, labels in page if found == name}


@contextmanager
def node_exporter(program: Path, tmp_path: Path) -> Iterator[str]:
    """The neighbor's address."""
    address = f"127.0.0.1:{free_port()}"
    flags = [f"--collector.{name}" for name in COLLECTORS]
    command = [str(program), f"--web.listen-address={address}", "--collector.disable-defaults", *flags]
    with (tmp_path / "node_exporter.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def answers() -> bool:
        with suppress(OSError):
            return bool(fetched(address))
        return False

    try:
        wait_for(answers)
        yield address
    finally:
        end(process)


@contextmanager
def load(folder: Path) -> Iterator[None]:
    """Disk and network at work until the block ends."""
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


def assert_between(looks: list[Look], of_ours: Series, of_theirs: Mapping[Series, float], slack: float = 0.0) -> None:
    """Assert that ours lies between the sums of the neighbor's series, each by its factor, in every look."""
    for look in looks:
        value = look.ours[of_ours]
        low, high = (
            sum(page[series] * factor for series, factor in of_theirs.items()) for page in (look.before, look.after)
        )
        margin = slack + ROUNDING * max(1.0, high)
        assert low - margin <= value <= high + margin, (of_ours, low, value, high)


def same(name: str, theirs: str, **labels: str) -> tuple[Series, Mapping[Series, float]]:
    """A series of ours and the neighbor's of the same labels."""
    wanted = frozenset(labels.items())
    return (name, wanted), {(theirs, wanted): 1.0}


def test_it_was_compared_more_than_once(looks: list[Look]) -> None:
    assert len(looks) > 1


@pytest.mark.parametrize("mode", ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"])
def test_cpu_time(looks: list[Look], mode: str) -> None:
    theirs = [key for key in looks[0].before if key[0] == "node_cpu_seconds_total" and ("mode", mode) in key[1]]
    assert theirs
    slack = TICK_SLACK_SECONDS * len(theirs)
    for look in looks:
        ours = sum(
            v for key, v in look.ours.items() if key[0] == "gpu_host_cpu_seconds_total" and ("mode", mode) in key[1]
        )
        low, high = (sum(page[key] for key in theirs) for page in (look.before, look.after))
        assert low - slack <= ours <= high + slack


def test_context_switches(looks: list[Look]) -> None:
    assert_between(looks, *same("gpu_host_context_switches_total", "node_context_switches_total"))


@pytest.mark.parametrize("name", DISK)
def test_disks(looks: list[Look], name: str) -> None:
    both = devices(looks[0].ours, name) & devices(looks[0].before, DISK[name])
    if Path("/sys/block").is_dir() and any(Path("/sys/block").glob("*/device")):
        assert both, "a host with disks has some that both know"
    slack = 0.1 if name.endswith("_seconds_total") else 0.0  # summed over CPUs that count on meanwhile
    for device in both:
        assert_between(looks, *same(name, DISK[name], device=device), slack=slack)


def test_a_disk_was_at_work(looks: list[Look]) -> None:
    grown = [
        looks[-1].ours[series] - value
        for series, value in looks[0].ours.items()
        if series[0] == "gpu_host_disk_written_bytes_total"
    ]
    theirs = [
        looks[-1].after[series] - value
        for series, value in looks[0].before.items()
        if series[0] == "node_disk_written_bytes_total"
    ]
    assert (max(grown, default=0) > 0) == (max(theirs, default=0) > 0)


@pytest.mark.parametrize("name", NETWORK)
def test_networks(looks: list[Look], name: str) -> None:
    both = devices(looks[0].ours, name) & devices(looks[0].before, NETWORK[name])
    assert both == devices(looks[0].ours, name), "the neighbor knows all interfaces"
    for device in both:
        assert_between(looks, *same(name, NETWORK[name], device=device))


@pytest.mark.parametrize(("resource", "kind"), PRESSURE)
def test_pressure(looks: list[Look], resource: str, kind: str) -> None:
    theirs = PRESSURE[resource, kind]
    ours = ("gpu_host_pressure_seconds_total", frozenset({("resource", resource), ("kind", kind)}))
    assert (ours in looks[0].ours) == ((theirs, frozenset()) in looks[0].before) == Path("/proc/pressure").is_dir()
    if ours in looks[0].ours:
        assert_between(looks, ours, {(theirs, frozenset()): 1.0})


@pytest.mark.parametrize("name", MEMORY)
def test_memory_counters(looks: list[Look], name: str) -> None:
    theirs, factor = MEMORY[name]
    assert_between(looks, (name, frozenset()), {(theirs, frozenset()): float(factor)})


def test_memory_sizes(looks: list[Look]) -> None:
    for look in looks:
        for name, theirs in SIZES.items():
            assert of(look.ours, name) in {of(look.before, theirs), of(look.after, theirs)}
        # It moves up and down: only the unit is compared.
        total = of(look.before, "node_memory_MemTotal_bytes") or 0.0
        available = of(look.before, "node_memory_MemAvailable_bytes") or 0.0
        assert abs((of(look.ours, "gpu_host_memory_available_bytes") or 0.0) - available) < total / 2
