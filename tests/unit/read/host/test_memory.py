"""Memory of the host and its NUMA nodes, and its errors, as EDAC drivers show them."""

import os

import pytest
from tests.host_tree import HostTree

from gpu_triage.options.config import Config
from gpu_triage.read.host.host_memory import HostEdacReader, HostEdacReading, HostMemoryReader, HostMemoryReading
from gpu_triage.read.metrics.rendering import samples
from gpu_triage.read.selection import Selection

MEMINFO = """\
MemTotal:       2113380500 kB
MemFree:        1900123456 kB
MemAvailable:   2000000000 kB
Buffers:            4192 kB
SwapCached:            0 kB
SwapTotal:       8388604 kB
SwapFree:        8388600 kB
HugePages_Total:       0
Hugepagesize:       2048 kB
"""
VMSTAT = """\
nr_free_pages 475030864
pgpgin 81234
pswpin 3
pswpout 7
pgfault 1234567
pgmajfault 1470
"""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def test_memory_is_bytes_and_swap_traffic_counts_real_pages(host: HostTree) -> None:
    host.write({"proc/meminfo": MEMINFO, "proc/vmstat": VMSTAT})
    round_ = host.round()
    assert HostMemoryReader().read(round_) == HostMemoryReading(
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


def test_memory_of_gpus_is_not_the_hosts(host: HostTree) -> None:
    host.write({"proc/meminfo": MEMINFO, "proc/vmstat": VMSTAT} | GH200)
    round_ = host.round()
    reading = HostMemoryReader().read(round_)
    assert (reading.total_bytes, reading.available_bytes) == (2013380500 * 1024, 1910000000 * 1024)
    assert round_.failures == []


def test_memory_of_nodes_is_told_apart_on_hosts_with_several(host: HostTree) -> None:
    """node_read_meminfo and node_read_numastat of drivers/base/node.c, docs.kernel.org/admin-guide/numastat.html."""
    host.write({"proc/meminfo": MEMINFO, "proc/vmstat": VMSTAT} | GH200)
    host.write({"sys/devices/system/node/node0/numastat": "numa_hit 9000\nnuma_miss 512\nnuma_foreign 0\n"})
    reader = HostMemoryReader()
    reading = reader.read(host.round())
    assert reading.node_total_bytes == {"0": 502000000 * 1024, "1": 100000000 * 1024, "2": 0}
    assert reading.node_free_bytes == {"0": 9 * 1024, "1": 90000000 * 1024, "2": 0}
    assert reading.node_miss_bytes == {"0": 512 * PAGE_BYTES}
    host.write({"sys/devices/system/node/node0/numastat": "numa_miss 500\n"})
    assert reader.read(host.round()).node_miss_bytes == {"0": 512 * PAGE_BYTES}
    host.write({"sys/devices/system/node/node0/numastat": "numa_miss some\n"})
    round_ = host.round()
    assert reader.read(round_).node_miss_bytes == {}
    assert round_.failures == ["malformed"]


def test_memory_of_the_only_node_is_the_hosts(host: HostTree) -> None:
    host.write({"proc/meminfo": MEMINFO, "proc/vmstat": VMSTAT, "sys/devices/system/node/node0/cpulist": "0-3\n"})
    host.write({"sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 5 kB\n"})
    assert HostMemoryReader().read(host.round()).node_total_bytes == {}


def test_memory_behind_cxl_is_the_hosts(host: HostTree) -> None:
    """It has no CPUs either; and on a kernel before 5.10, nobody says what it is."""
    files = {name: text for name, text in GH200.items() if "initiator" not in name}
    host.write({"proc/meminfo": MEMINFO, "proc/vmstat": VMSTAT} | files)
    assert HostMemoryReader().read(host.round()).total_bytes == 2113380500 * 1024


def test_a_kernel_older_than_memavailable_and_one_without_swap_leave_those_out(host: HostTree) -> None:
    host.write({"proc/meminfo": "MemTotal: 1 kB\n", "proc/vmstat": "pgmajfault 1\n"})
    reading = HostMemoryReader().read(host.round())
    assert (reading.available_bytes, reading.swap_total_bytes, reading.swap_used_bytes) == (None, None, None)
    assert (reading.swap_in_bytes, reading.major_faults) == (None, 1)


def test_more_free_swap_than_there_is_is_no_reading(host: HostTree) -> None:
    host.write({"proc/meminfo": "SwapTotal: 1 kB\nSwapFree: 2 kB\n", "proc/vmstat": VMSTAT})
    assert HostMemoryReader().read(host.round()).swap_used_bytes is None


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


def shown(reading: HostEdacReading, profile: str = "full") -> dict[tuple[str, ...], float]:
    selection = Selection(Config(metrics_profile=profile))
    return {sample.labels: sample.value for sample in selection.of(samples(reading))}


def test_controllers_and_dimms_are_counted(host: HostTree) -> None:
    controller(host, ce="17\n", ue="1\n")
    dimm(host, ce="17\n", ue="1\n")
    dimm(host, "mc0/rank0", label="\n")
    reading = HostEdacReader().read(host.round())
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
    assert shown(HostEdacReader().read(host.round()), "default") == {
        ("mc0", "corrected"): 17,
        ("mc0", "uncorrected"): 0,
        ("mc0", "dimm3", LABEL, "corrected"): 17,
    }


@pytest.mark.parametrize("text", ["many\n", "-3\n", "1_0\n"])
def test_junk_costs_its_own_count(host: HostTree, text: str) -> None:
    controller(host, ce=text, ue="2\n")
    round_ = host.round()
    assert shown(HostEdacReader().read(round_)) == {("mc0", "uncorrected"): 2}
    assert round_.failures == ["malformed"]
