"""Kernel files that are missing, cut off or of any content, and hosts with more devices than anybody looks at."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.host_tree import HostTree

from gpu_triage.driver.kernel.procfs import parse_pressure
from gpu_triage.errors import HostReadFailed
from gpu_triage.options.config import Config
from gpu_triage.read.host.cpu import parse_load1, parse_stat
from gpu_triage.read.host.disk import HOST_DISK, parse_disk, parse_gds_stats, parse_lustre_stats
from gpu_triage.read.host.host_memory import parse_values
from gpu_triage.read.host.infiniband import HostInfinibandReader, parse_rate, parse_state, parse_words
from gpu_triage.read.host.network_interfaces import parse_interface, parse_tcp_segments
from gpu_triage.read.host.nfs import nfs_sections, parse_section
from gpu_triage.read.host.platform import parse_module
from gpu_triage.read.metrics.bounds import MOST_DEVICES
from gpu_triage.read.metrics.contract import AnyHostCollector, runs
from gpu_triage.read.registry import HOST_COLLECTORS

ELSEWHERE = frozenset({"host_kernel_log", "access"})
"""One reads /dev/kmsg; the other says what is missing."""

OF_FEATURES = frozenset(
    {
        *("modules", "platform", "host_cpu_settings", "host_pressure", "host_infiniband", "host_network_link"),
        *("host_services", "host_edac", "host_file_systems", "pcie_uplinks"),
    }
)
"""Collectors of what a kernel or a host need not have."""

READERS = tuple(c for c in HOST_COLLECTORS if runs(c, Config()) and c.name not in ELSEWHERE)


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("collector", READERS, ids=lambda collector: str(collector.name))
def test_a_collector_fails_without_a_mount(host: HostTree, collector: AnyHostCollector, *, exists: bool) -> None:
    if exists:
        host.procfs.mkdir()
        host.sysfs.mkdir()
    with pytest.raises(HostReadFailed) as failed:
        collector.reader(Config())(host.round())
    assert failed.value.reason == "missing"
    assert str(host.procfs) in failed.value.detail or str(host.sysfs) in failed.value.detail


@pytest.mark.parametrize("collector", READERS, ids=lambda collector: str(collector.name))
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


MOUNT = "device server:/export mounted on /data with fstype nfs4 statvers=1.1\n\tbytes:\t1 2 3 4 5 6 7 8\n"


PARSERS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "stat": (parse_stat, ("cpu0 {}", "ctxt {}", "cpu0 1 1 1 1\n{}")),
    "loadavg": (parse_load1, ("0.{} ",)),
    "meminfo": (partial(parse_values, scales={"MemTotal": 1024}, unit="kB"), ("MemTotal:{}", "MemTotal: 1 kB\n{}")),
    "vmstat": (partial(parse_values, scales={"pswpin": 1}), ("pswpin {}", "pswpin 3\n{}")),
    "diskstats": (parse_disk, ("8 0 sda {}", f"8 0 sda {'1 ' * 11}{{}}")),
    "lustre": (partial(parse_lustre_stats, name="scratch"), ("read_bytes {}", "read_bytes 1 samples [bytes] 1 2 {}")),
    "nvidia-fs": (parse_gds_stats, ("Reads\t: n=1 ok={}", "Ops\t: Read=1 {}")),
    "net/dev": (parse_interface, ("eth0:{}", f"{{}}: {'1 ' * 16}")),
    "net/snmp": (parse_tcp_segments, ("Tcp: OutSegs RetransSegs\nTcp: {}", "Tcp: OutSegs\nTcp: 1\nTcp:{}")),
    "mountstats": (
        lambda text: [parse_section(*section) for section in nfs_sections(text)],
        (MOUNT + "{}", f"{MOUNT}\tper-op statistics\n\tREAD: {{}}", f"{MOUNT}\tper-op statistics\n\tREAD: 1 1 {{}} 1"),
    ),
    "modules": (parse_module, ("nvidia 1 1 {}",)),
    "pressure": (parse_pressure, ("some {}", "some avg10=0.00 total={}")),
    "state": (parse_state, ("4: {}",)),
    "rate": (parse_rate, ("400 {}",)),
    "words": (parse_words, ("1{}",)),
}


@pytest.mark.parametrize("name", PARSERS)
@given(text=st.text())
def test_any_text_is_understood_or_a_value_error(name: str, text: str) -> None:
    parse, templates = PARSERS[name]
    for candidate in (text, *(template.format(text) for template in templates)):
        with suppress(ValueError):
            parse(candidate)


MANY = range(MOST_DEVICES + 5)


def test_disks_beyond_the_bound_are_left_out_and_that_is_said_once(host: HostTree) -> None:
    host.write({"proc/diskstats": "".join(f" 259 {i} nvme{i:04}n1 1 0 1 1 1 0 1 1 0 1 1\n" for i in MANY)})
    host.write({f"sys/class/block/nvme{i:04}n1/size": "" for i in MANY})
    read, round_ = HOST_DISK.reader(Config()), host.round()
    for _ in range(2):
        found = [disk.device for disk in read(round_)]
    assert found == [f"nvme{i:04}n1" for i in range(MOST_DEVICES)]
    assert round_.failures == ["too_many_disks"]


def test_ports_beyond_the_bound_are_left_out_those_of_virtual_functions_first(host: HostTree) -> None:
    for i in MANY:
        host.write({f"sys/class/infiniband/mlx5_{i:04}/ports/1/state": "4: ACTIVE\n"})
        if i < MOST_DEVICES:
            host.link(f"sys/class/infiniband/mlx5_{i:04}/device/physfn", "..")
    reader, round_ = HostInfinibandReader(), host.round()
    for _ in range(2):
        found = [port.device for port in reader.read(round_)]
    assert found == [f"mlx5_{i:04}" for i in MANY if i < MOST_DEVICES - 5 or i >= MOST_DEVICES]
    assert round_.failures == ["too_many_ports"]
