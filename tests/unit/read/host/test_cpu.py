"""CPU time by NUMA node and the busiest CPUs; governors, the clock of busy CPUs, and the clock source."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.host_tree import HostTree

from gpu_triage.errors import HostReadFailed
from gpu_triage.read.host.cpu import (
    MODES,
    CpuFrequencies,
    HostCpuReader,
    HostCpuReading,
    HostCpuSettingsReader,
    HostCpuSettingsReading,
    NodeCpu,
    busy_ratio,
)

# A two-socket host, CPU 3 offline. The first line is the kernel's own sum and is not used.
STAT = (Path(__file__).parent / "files/stat").read_text(encoding="utf-8")
TWO_NODES = {
    "proc/stat": STAT,
    "proc/loadavg": "12.50 9.01 4.00 2/1431 88123\n",
    "sys/devices/system/node/node0/cpulist": "0-1\n",
    "sys/devices/system/node/node1/cpulist": "2\n",
    "sys/devices/system/node/node2/cpulist": "\n",
    "sys/devices/system/node/online": "0-2\n",
}


def stat(*cpus: tuple[int, int, int, int]) -> str:
    """Text of /proc/stat; each CPU is (number, user, idle, iowait)."""
    return "".join(f"cpu{cpu} {user} 0 0 {idle} {iowait} 0 0 0 0 0\n" for cpu, user, idle, iowait in cpus)


def test_cpu_time_is_summed_by_numa_node_without_counting_guests_twice(host: HostTree) -> None:
    host.write(TWO_NODES)
    round_ = host.round()
    seconds = ((30.0, 0.3, 6.0, 140.0, 2.0, 0.02, 0.04, 0.06), (5.0, 0.0, 1.0, 90.0, 0.0, 0.0, 0.0, 0.0))
    first, second = (dict(zip(MODES, each, strict=True)) for each in seconds)
    assert HostCpuReader().read(round_) == HostCpuReading(
        nodes=(NodeCpu(0, first, None, cpus=2), NodeCpu(1, second, None, cpus=1)),
        load1=12.5,
        processes_blocked=2,
        context_switches=1990473,
    )
    assert round_.failures == []


def test_the_busiest_cpu_of_each_node_is_found_over_the_interval(host: HostTree) -> None:
    reader = HostCpuReader()
    host.write(TWO_NODES | {"proc/stat": stat((0, 100, 100, 0), (1, 100, 100, 0), (2, 0, 0, 0))})
    assert [node.busiest_ratio for node in reader.read(host.round()).nodes] == [None, None]
    host.write({"proc/stat": stat((0, 200, 100, 0), (1, 100, 150, 50), (2, 10, 30, 0))})
    assert [node.busiest_ratio for node in reader.read(host.round()).nodes] == [1.0, 0.25]
    assert [node.busiest_ratio for node in reader.read(host.round()).nodes] == [None, None]


def test_a_cpu_that_first_comes_online_later_brings_no_past_with_it(host: HostTree) -> None:
    reader = HostCpuReader()
    host.write({"proc/stat": stat((0, 100, 100, 0))})
    reader.read(host.round())
    host.write({"proc/stat": stat((0, 100, 100, 0), (1, 900_000, 900_000, 0))})
    assert reader.read(host.round()).nodes[0].seconds["user"] == 1.0
    host.write({"proc/stat": stat((0, 100, 100, 0), (1, 900_050, 900_050, 0))})
    (node,) = reader.read(host.round()).nodes
    assert (node.cpus, node.seconds["user"], node.busiest_ratio) == (2, 1.5, 0.5)


def test_one_unreadable_part_costs_only_itself(host: HostTree) -> None:
    host.write(TWO_NODES | {"sys/devices/system/node/node1/cpulist": "junk\n"})
    host.spoil("proc/loadavg")
    round_ = host.round()
    reading = HostCpuReader().read(round_)
    assert reading.nodes == ()  # which node a CPU is on is not known
    assert (reading.context_switches, reading.load1) == (1990473, None)
    assert round_.failures == ["io_error", "malformed"]


ticks = st.tuples(st.integers(0, 3), *[st.integers(0, 10**6)] * 3)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.lists(st.lists(ticks, min_size=1, max_size=4, unique_by=lambda cpu: cpu[0]), min_size=2, max_size=8))
def test_no_time_goes_back_and_no_ratio_leaves_its_range(
    host: HostTree, rounds: list[list[tuple[int, int, int, int]]]
) -> None:
    reader = HostCpuReader()
    host.write(TWO_NODES | {"sys/devices/system/node/node1/cpulist": "2-3\n"})
    last: dict[tuple[int, str], float] = {}
    for cpus in rounds:
        host.write({"proc/stat": stat(*cpus)})
        for node in reader.read(host.round()).nodes:
            assert node.busiest_ratio is None or 0 <= node.busiest_ratio <= 1
            for mode, seconds in node.seconds.items():
                assert seconds >= last.get((node.numa_node, mode), 0)
                last[node.numa_node, mode] = seconds


def test_a_cpu_without_ticks_in_between_has_no_ratio() -> None:
    assert busy_ratio((5, 0, 0, 5), (5, 0, 0, 5)) is None


def busiest(host: HostTree, *cpus: tuple[int, int, int, int], after: int = 500) -> dict[int, float | None]:
    """The busiest CPU of each node when the first of these CPUs, and no other, has been busy since the last look."""
    reader = HostCpuReader()
    host.write({"proc/loadavg": "1.00 1.00 1.00 2/1431 88123\n", "proc/stat": stat(*cpus) + "ctxt 1\n"})
    reader.read(host.round())
    later = [
        (cpu, user + (after if place == 0 else 0), idle + (0 if place == 0 else after), iowait)
        for place, (cpu, user, idle, iowait) in enumerate(cpus)
    ]
    host.write({"proc/stat": stat(*later) + "ctxt 1\n"})
    return {node.numa_node: node.busiest_ratio for node in reader.read(host.round()).nodes}


def test_the_busiest_cpu_is_one_that_the_scheduler_gives_work(host: HostTree) -> None:
    """``isolated`` and ``nohz_full`` of drivers/base/cpu.c: CPU lists, and (null) on kernels without nohz_full=."""
    cpus = ((0, 100, 900, 0), (1, 100, 900, 0))
    assert busiest(host, *cpus) == {0: 1.0}
    host.write({"sys/devices/system/cpu/isolated": "\n", "sys/devices/system/cpu/nohz_full": "  (null)\n"})
    assert busiest(host, *cpus) == {0: 1.0}
    host.write({"sys/devices/system/cpu/isolated": "0\n"})
    assert busiest(host, *cpus) == {0: 0.0}
    host.write({"sys/devices/system/cpu/isolated": "\n", "sys/devices/system/cpu/nohz_full": "0,4-7\n"})
    assert busiest(host, *cpus) == {0: 0.0}


def test_a_cpu_that_was_always_busy_tells_nothing_of_the_job(host: HostTree) -> None:
    """As those on which WEKA's client polls, and DPDK, from the boot on."""
    hour = 3600 * os.sysconf("SC_CLK_TCK")
    assert busiest(host, (0, 9 * hour, hour, 0), (1, hour, 9 * hour, 0)) == {0: 0.0}
    assert busiest(host, (0, 8 * hour, 2 * hour, 0), (1, hour, 9 * hour, 0)) == {0: 1.0}
    # Shortly after the boot, that may be the job.
    assert busiest(host, (0, hour // 2, 0, 0), (1, 0, hour // 2, 0)) == {0: 1.0}


def test_cpus_that_jobs_share_are_told_apart_from_those_that_poll(host: HostTree) -> None:
    """Half of the node polls for packets; the other half is full."""
    host.write({"sys/devices/system/cpu/isolated": "0-1\n", "proc/loadavg": "1.00 1.00 1.00 2/1431 88123\n"})
    reader = HostCpuReader()
    for at in (0, 100):
        cpus = ((0, 0, at, 0), (1, 0, at, 0), (2, at, 0, 0), (3, at, 0, 0))
        host.write({"proc/stat": stat(*cpus) + "ctxt 1\n"})
        (node,) = reader.read(host.round()).nodes
    assert (node.busiest_ratio, node.shared_busy_ratio) == (1.0, 1.0)
    host.write({"sys/devices/system/cpu/isolated": "\n"})
    host.write({"proc/stat": stat((0, 0, 200, 0), (1, 200, 0, 0)) + "ctxt 1\n"})
    (node,) = reader.read(host.round()).nodes
    assert node.shared_busy_ratio is None


def test_a_node_whose_cpus_are_all_busy_since_boot_is_full(host: HostTree) -> None:
    hour = 3600 * os.sysconf("SC_CLK_TCK")
    assert busiest(host, (0, 9 * hour, 0, 0), (1, 9 * hour, hour, 0)) == {0: 0.0}
    host.write({"proc/loadavg": "1.00 1.00 1.00 2/1431 88123\n"})
    reader = HostCpuReader()
    for at in (0, 100):
        host.write({"proc/stat": stat(*((cpu, 9 * hour + at, 0, 0) for cpu in range(4))) + "ctxt 1\n"})
        (node,) = reader.read(host.round()).nodes
    assert (node.busiest_ratio, node.shared_busy_ratio) == (1.0, None)


SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
POLICY = "sys/devices/system/cpu/cpufreq/policy"


def policy(host: HostTree, number: int, cpus: str, governor: str = "performance", now: str = "800000\n") -> None:
    host.write(
        {
            f"{POLICY}{number}/related_cpus": f"{cpus}\n",
            f"{POLICY}{number}/scaling_governor": f"{governor}\n",
            f"{POLICY}{number}/scaling_cur_freq": now,
            f"{POLICY}{number}/cpuinfo_max_freq": "3800000\n",
        }
    )


@pytest.mark.parametrize("text", ["two words\n", "\x1b[2J\n", "x" * 99 + "\n"])
def test_junk_is_no_name(host: HostTree, text: str) -> None:
    host.write({SOURCE: text})
    policy(host, 0, "0", text.strip())
    with pytest.raises(HostReadFailed):
        HostCpuSettingsReader().read(host.round())
    host.write({SOURCE: "tsc\n"})
    assert HostCpuSettingsReader().read(host.round()) == HostCpuSettingsReading({}, "tsc")


@pytest.mark.parametrize(
    ("now", "ratio"),
    [("800000\n", 800 / 3800), ("4100000\n", 1.0), ("0\n", None), ("<unknown>\n", None), ("-1\n", None), ("", None)],
)
def test_the_clock_of_a_cpu_is_told_as_a_share_of_its_highest(host: HostTree, now: str, ratio: float | None) -> None:
    policy(host, 4, "4 5", now=now)
    assert CpuFrequencies().ratio(host.sysfs, 5) == ratio


def test_a_cpu_without_a_policy_has_no_clock(host: HostTree) -> None:
    policy(host, 4, "4 5")
    policy(host, 6, "six")
    frequencies = CpuFrequencies()
    assert [frequencies.ratio(host.sysfs, cpu) for cpu in (4, 6, 7)] == [800 / 3800, None, None]


def throttled(host: HostTree, cpu: int, count: str, milliseconds: str | None) -> None:
    """What a CPU counts: Documentation/admin-guide/thermal (Intel), arch/x86/kernel/cpu/mce/therm_throt.c."""
    folder = f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle"
    host.write({f"{folder}/package_throttle_count": f"{count}\n", f"{folder}/core_throttle_count": "99\n"})
    if milliseconds is not None:
        host.write({f"{folder}/package_throttle_total_time_ms": f"{milliseconds}\n"})


def test_processors_that_were_too_hot_are_counted_by_node(host: HostTree) -> None:
    host.write({SOURCE: "tsc\n"})
    for node, cpus in enumerate(("0-31,64-95", "32-63,96-127")):
        host.write({f"sys/devices/system/node/node{node}/cpulist": f"{cpus}\n"})
        throttled(host, 32 * node, str(7 * node), str(61_500 * node))
    reader = HostCpuSettingsReader()
    reading = reader.read(host.round())
    assert (reading.throttles, reading.throttled_seconds) == ({"0": 0, "1": 7}, {"0": 0.0, "1": 61.5})
    throttled(host, 32, "junk", "500")
    round_ = host.round()
    reading = reader.read(round_)
    assert (reading.throttles, reading.throttled_seconds) == ({"0": 0}, {"0": 0.0, "1": 62.0})
    assert round_.failures == ["malformed"]


@pytest.mark.parametrize("milliseconds", [None, "0"])
def test_kernels_before_5_6_count_no_time_other_processors_nothing(host: HostTree, milliseconds: str | None) -> None:
    host.write({SOURCE: "tsc\n"})
    assert HostCpuSettingsReader().read(host.round()) == HostCpuSettingsReading({}, "tsc")
    throttled(host, 0, "3", milliseconds)  # one node, on a kernel without NUMA
    reading = HostCpuSettingsReader().read(host.round())
    assert (reading.throttles, reading.throttled_seconds) == ({"0": 3}, {} if milliseconds is None else {"0": 0.0})
