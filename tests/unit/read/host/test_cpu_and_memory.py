"""CPU time by NUMA node and the busiest CPUs; governors, the clock of busy CPUs, and the clock source.

Memory of the host and its NUMA nodes, and its errors, as EDAC drivers show them.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.host_tree import HostTree, kernel_file

from gpu_triage.errors import HostReadFailed
from gpu_triage.options.config import Config
from gpu_triage.read.host.cpu import (
    HOST_CPU_SETTINGS,
    HOST_PRESSURE,
    MODES,
    HostCpuReader,
    HostCpuReading,
    HostCpuSettingsReading,
    NodeCpu,
    clock_ratio,
)
from gpu_triage.read.host.host_memory import HOST_EDAC, HOST_MEMORY, HostMemoryReading
from gpu_triage.read.metrics.rendering import samples
from gpu_triage.read.selection import Selection

# A two-socket host, CPU 3 offline. The first line is the kernel's own sum and is not used.
STAT = kernel_file("stat")
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


HOUR = 3600 * os.sysconf("SC_CLK_TCK")
TWO = ((100, 900, 1), (100, 900, 0))


@pytest.mark.parametrize(
    ("cpus", "isolated", "nohz_full", "ratios"),
    [
        # `isolated` and `nohz_full` of drivers/base/cpu.c: CPU lists, and (null) on kernels without nohz_full=.
        (TWO, None, None, (1.0, None)),
        (TWO, "", "  (null)", (1.0, None)),
        (TWO, "0", "", (0.0, 0.0)),
        (TWO, "", "0,4-7", (0.0, 0.0)),
        # One that was always busy polls, as for WEKA's client and DPDK; shortly after boot, that may be the job.
        (((9 * HOUR, HOUR, 1), (HOUR, 9 * HOUR, 0)), "", "", (0.0, 0.0)),
        (((8 * HOUR, 2 * HOUR, 1), (HOUR, 9 * HOUR, 0)), "", "", (1.0, None)),
        (((HOUR // 2, 0, 1), (0, HOUR // 2, 0)), "", "", (1.0, None)),
        (((9 * HOUR, 0, 1), (9 * HOUR, HOUR, 0)), "", "", (0.0, 0.0)),
        # A node whose CPUs have all been busy since boot is full of jobs.
        (((9 * HOUR, 0, 1),) * 4, "", "", (1.0, None)),
        # Half of the node polls for packets; the other half is full.
        (((0, 0, 0), (0, 0, 0), (0, 0, 1), (0, 0, 1)), "0-1", "", (1.0, 1.0)),
    ],
)
def test_the_busiest_cpu_and_the_others_are_among_those_that_the_scheduler_gives_work(
    host: HostTree,
    cpus: tuple[tuple[int, int, int], ...],
    isolated: str | None,
    nohz_full: str | None,
    ratios: tuple[float | None, float | None],
) -> None:
    """CPUs by the ticks that they were busy and idle before, and whether they are busy now."""
    for name, text in (("isolated", isolated), ("nohz_full", nohz_full)):
        host.write({} if text is None else {f"sys/devices/system/cpu/{name}": f"{text}\n"})
    host.write({"proc/loadavg": "1.00 1.00 1.00 2/1431 88123\n"})
    reader = HostCpuReader()
    for ticks in (0, 500):
        now = ((cpu, busy + ticks * on, idle + ticks * (1 - on), 0) for cpu, (busy, idle, on) in enumerate(cpus))
        host.write({"proc/stat": stat(*now)})
        (node,) = reader.read(host.round()).nodes
    assert (node.busiest_ratio, node.shared_busy_ratio) == ratios


SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
POLICY = "sys/devices/system/cpu/cpufreq/policy"


def policy(host: HostTree, number: int, governor: str = "performance", now: str = "800000\n") -> None:
    """A policy and the CPU with its number, linked by add_cpu_dev_symlink of drivers/cpufreq/cpufreq.c."""
    folder = f"{POLICY}{number}"
    host.write({f"{folder}/scaling_governor": f"{governor}\n", f"{folder}/scaling_cur_freq": now})
    host.write({f"{folder}/cpuinfo_max_freq": "3800000\n"})
    host.link(f"sys/devices/system/cpu/cpu{number}/cpufreq", f"../cpufreq/policy{number}")


@pytest.mark.parametrize("text", ["two words\n", "\x1b[2J\n", "x" * 99 + "\n"])
def test_junk_is_no_name(host: HostTree, text: str) -> None:
    host.write({SOURCE: text})
    policy(host, 0, text.strip())
    with pytest.raises(HostReadFailed):
        HOST_CPU_SETTINGS.reader(Config())(host.round())
    host.write({SOURCE: "tsc\n"})
    assert HOST_CPU_SETTINGS.reader(Config())(host.round()) == HostCpuSettingsReading({}, "tsc")


@pytest.mark.parametrize(
    ("now", "ratio"),
    [("800000\n", 800 / 3800), ("4100000\n", 1.0), ("0\n", None), ("<unknown>\n", None), ("-1\n", None), ("", None)],
)
def test_the_clock_of_a_cpu_is_told_as_a_share_of_its_highest(host: HostTree, now: str, ratio: float | None) -> None:
    policy(host, 4, now=now)
    assert [clock_ratio(host.sysfs, cpu) for cpu in (4, 5)] == [ratio, None]


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
    read = HOST_CPU_SETTINGS.reader(Config())
    reading = read(host.round())
    assert (reading.throttles, reading.throttled_seconds) == ({"0": 0, "1": 7}, {"0": 0.0, "1": 61.5})
    assert shown(reading, "default") == {("tsc",): 1.0, ("1",): 61.5}
    throttled(host, 32, "junk", "500")
    round_ = host.round()
    reading = read(round_)
    assert (reading.throttles, reading.throttled_seconds) == ({"0": 0}, {"0": 0.0, "1": 62.0})
    assert round_.failures == ["malformed"]


@pytest.mark.parametrize("milliseconds", [None, "0"])
def test_kernels_before_5_6_count_no_time_other_processors_nothing(host: HostTree, milliseconds: str | None) -> None:
    host.write({SOURCE: "tsc\n"})
    assert HOST_CPU_SETTINGS.reader(Config())(host.round()) == HostCpuSettingsReading({}, "tsc")
    throttled(host, 0, "3", milliseconds)  # one node, on a kernel without NUMA
    reading = HOST_CPU_SETTINGS.reader(Config())(host.round())
    assert (reading.throttles, reading.throttled_seconds) == ({"0": 3}, {} if milliseconds is None else {"0": 0.0})


def test_pressure_is_told_by_resource_without_what_is_undefined_of_cpus(host: HostTree) -> None:
    host.write({"proc/pressure/cpu": "some total=1500000\nfull total=0\n", "proc/pressure/io": "some total=7\n"})
    reading = HOST_PRESSURE.reader(Config())(host.round())
    assert reading.seconds == {("cpu", "some"): 1.5, ("io", "some"): 7e-6}


MEMINFO = kernel_file("meminfo")
VMSTAT = kernel_file("vmstat")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def test_memory_is_bytes_and_swap_traffic_counts_real_pages(host: HostTree) -> None:
    host.write({"proc/meminfo": MEMINFO, "proc/vmstat": VMSTAT})
    round_ = host.round()
    assert HOST_MEMORY.reader(Config())(round_) == HostMemoryReading(
        total_bytes=2113380500 * 1024,
        available_bytes=2000000000 * 1024,
        swap_total_bytes=8388604 * 1024,
        swap_used_bytes=4096,
        swap_in_bytes=3 * PAGE_BYTES,
        swap_out_bytes=7 * PAGE_BYTES,
        major_faults=1470,
    )
    assert round_.failures == []


GH200 = {
    # bytedance/xpu-perf #129: node 0 has the CPUs, and nodes 1 to 8 are for the GPU and its instances.
    "sys/devices/system/node/node0/cpulist": "0-71\n",
    **{f"sys/devices/system/node/node{node}/cpulist": "\n" for node in range(1, 9)},
    "sys/devices/system/node/has_generic_initiator": "1-8\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       502000000 kB\nNode 0 MemFree:  9 kB\n",
    # node_read_meminfo of drivers/base/node.c
    "sys/devices/system/node/node1/meminfo": (
        "Node 1 MemTotal:       100000000 kB\nNode 1 MemFree:        90000000 kB\nNode 1 MemUsed:        10000000 kB\n"
    ),
    "sys/devices/system/node/node2/meminfo": "Node 2 MemTotal:       0 kB\nNode 2 MemFree:        0 kB\n",
}


def test_memory_of_nodes_is_told_apart_on_hosts_with_several(host: HostTree) -> None:
    """node_read_meminfo and node_read_numastat of drivers/base/node.c, docs.kernel.org/admin-guide/numastat.html."""
    host.write({"proc/meminfo": MEMINFO, "proc/vmstat": VMSTAT} | GH200)
    host.write({"sys/devices/system/node/node0/numastat": "numa_hit 9000\nnuma_miss 512\nnuma_foreign 0\n"})
    read = HOST_MEMORY.reader(Config())
    reading = read(host.round())
    assert reading.node_total_bytes == {"0": 502000000 * 1024, "1": 100000000 * 1024, "2": 0}
    assert reading.node_free_bytes == {"0": 9 * 1024, "1": 90000000 * 1024, "2": 0}
    assert reading.node_miss_bytes == {"0": 512 * PAGE_BYTES}
    host.write({"sys/devices/system/node/node0/numastat": "numa_miss 500\n"})
    assert read(host.round()).node_miss_bytes == {"0": 512 * PAGE_BYTES}
    host.write({"sys/devices/system/node/node0/numastat": "numa_miss some\n"})
    round_ = host.round()
    assert read(round_).node_miss_bytes == {}
    assert round_.failures == ["malformed"]


# CXL memory has no CPUs either; kernels before 5.10 have no file that tells it from the memory of a GPU.
CXL = {name: text for name, text in GH200.items() if "initiator" not in name}
NODES = [{f"sys/devices/system/node/node{n}/meminfo": f"Node {n} MemTotal: 5 kB\n"} for n in (0, 1)]
OLD = {"proc/meminfo": "MemTotal: 1 kB\n", "proc/vmstat": "pgmajfault 1\n"}
UNKNOWN = dict.fromkeys(("available_bytes", "swap_total_bytes", "swap_used_bytes", "swap_in_bytes"))


@pytest.mark.parametrize(
    ("files", "read"),
    [
        (GH200, {"total_bytes": 2013380500 * 1024, "available_bytes": 1910000000 * 1024}),
        (CXL, {"total_bytes": 2113380500 * 1024}),
        (NODES[0], {"node_total_bytes": {}}),
        (NODES[0] | NODES[1], {"node_total_bytes": {"0": 5120, "1": 5120}}),
        (OLD, {**UNKNOWN, "major_faults": 1}),  # older than MemAvailable, and without swap
        ({"proc/meminfo": "SwapTotal: 1 kB\nSwapFree: 2 kB\n"}, {"swap_used_bytes": None}),
    ],
)
def test_memory_is_that_of_the_host_as_far_as_it_is_known(
    host: HostTree, files: dict[str, str], read: dict[str, object]
) -> None:
    host.write({"proc/meminfo": MEMINFO, "proc/vmstat": VMSTAT, **files})
    round_ = host.round()
    reading = HOST_MEMORY.reader(Config())(round_)
    assert {name: getattr(reading, name) for name in read} == read
    assert round_.failures == []


MC = "sys/devices/system/edac/mc"
LABEL = "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"


def controller(host: HostTree, name: str = "mc0", ce: str = "0\n", ue: str = "0\n") -> None:
    host.write(
        {
            f"{MC}/{name}/mc_name": "Skylake Socket#0 IMC#0\n",
            f"{MC}/{name}/ce_count": ce,
            f"{MC}/{name}/ue_count": ue,
            f"{MC}/{name}/ce_noinfo_count": "0\n",
            f"{MC}/{name}/seconds_since_reset": "3195552\n",
        }
    )


def dimm(host: HostTree, name: str = "mc0/dimm3", ce: str = "0\n", ue: str = "0\n", label: str = f"{LABEL}\n") -> None:
    host.write({f"{MC}/{name}/dimm_ce_count": ce, f"{MC}/{name}/dimm_ue_count": ue, f"{MC}/{name}/dimm_label": label})


def shown(reading: object, profile: str = "full") -> dict[tuple[str, ...], float]:
    selection = Selection(Config(metrics_profile=profile))
    return {sample.labels: sample.value for sample in selection.of(samples(reading))}


def test_controllers_and_dimms_are_counted(host: HostTree) -> None:
    controller(host, ce="17\n", ue="1\n")
    dimm(host, ce="17\n", ue="1\n")
    dimm(host, "mc0/rank0", label="\n")
    reading = HOST_EDAC.reader(Config())(host.round())
    assert shown(reading) == {
        ("mc0", "corrected"): 17,
        ("mc0", "uncorrected"): 1,
        ("mc0", "dimm3", LABEL, "corrected"): 17,
        ("mc0", "dimm3", LABEL, "uncorrected"): 1,
        ("mc0", "rank0", "", "corrected"): 0,
        ("mc0", "rank0", "", "uncorrected"): 0,
    }


def test_of_dimms_those_with_errors_are_shown_to_all(host: HostTree) -> None:
    controller(host, ce="17\n")
    dimm(host, ce="17\n")
    dimm(host, "mc0/dimm4")
    assert shown(HOST_EDAC.reader(Config())(host.round()), "default") == {
        ("mc0", "corrected"): 17,
        ("mc0", "uncorrected"): 0,
        ("mc0", "dimm3", LABEL, "corrected"): 17,
    }


@pytest.mark.parametrize("text", ["many\n", "-3\n", "1_0\n"])
def test_junk_costs_its_own_count(host: HostTree, text: str) -> None:
    controller(host, ce=text, ue="2\n")
    round_ = host.round()
    assert shown(HOST_EDAC.reader(Config())(round_)) == {("mc0", "uncorrected"): 2}
    assert round_.failures == ["malformed"]
