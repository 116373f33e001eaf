from pathlib import Path

import pytest
from tests.nvml_bench import Bench, BenchMaker

from gpu_triage.read.metrics.contract import GpuRound
from gpu_triage.read.processes.locality import parse_numa_maps, read_memory_locality

pytestmark = pytest.mark.slow

KIB = 1024
NUMA_MAPS = """\
00400000 default file=/usr/bin/python3.11 mapped=3 mapmax=2 N0=2 N1=1 kernelpagesize_kB=4
7f0c2c000000 bind:0 anon=512 dirty=512 active=0 N0=500 N1=12 kernelpagesize_kB=4
7f1000000000 default file=/anon_hugepage\\040(deleted) huge dirty=4 N1=4 kernelpagesize_kB=2048
7f2000000000 interleave:0-1 file=/SYSV00000000\\040(deleted) N0=1 N10=1
7f3000000000 default
7ffc3a1d0000 default stack anon=3 dirty=3 N0=3 kernelpagesize_kB=4
"""


@pytest.fixture
def h100(bench: BenchMaker) -> Bench:
    return bench("h100-8")


def read(gpu: GpuRound) -> dict[int, float]:
    return {each.pid: each.local_ratio for each in read_memory_locality(gpu, most=32, within_seconds=2.5).processes}


def numa_maps(bench: Bench, pid: int) -> Path:
    return bench.machine.procfs / str(pid) / "numa_maps"


def test_pages_are_counted_in_their_own_size() -> None:
    assert parse_numa_maps(NUMA_MAPS) == {0: (2 + 500 + 1 + 3) * 4 * KIB, 1: 13 * 4 * KIB + 4 * 2048 * KIB, 10: 4 * KIB}


def test_the_share_on_the_gpus_node_is_found_for_each_process(h100: Bench) -> None:
    numa_maps(h100, 41000).write_text("7f0 default N0=1 N1=3 kernelpagesize_kB=4\n")
    numa_maps(h100, 41001).write_text("7f0 default N1=3 kernelpagesize_kB=4\n")
    ratios = read(h100.round())
    assert (ratios[41000], ratios[41001], ratios[41002], len(ratios)) == (0.25, 0.0, 1.0, 8)


def test_a_host_with_one_node_has_no_ratios(bench: BenchMaker) -> None:
    assert read(bench("rtx-4070-ti-super").round()) == {}


def test_a_process_without_memory_or_that_is_gone_has_no_ratio(h100: Bench) -> None:
    numa_maps(h100, 41000).write_text("7f0 default\n")
    numa_maps(h100, 41001).unlink()
    gpu = h100.round()
    assert sorted(read(gpu)) == [41002, 41003, 41004, 41005, 41006, 41007]
    assert gpu.inquiry.failures == []


def test_each_reason_for_a_missing_ratio_is_counted_once_a_round(h100: Bench) -> None:
    for pid in (41000, 41001, 41002):
        numa_maps(h100, pid).unlink()
        numa_maps(h100, pid).mkdir()
    numa_maps(h100, 41003).write_text("7f0 default N0=1 kernelpagesize_kB=huge\n")
    numa_maps(h100, 41004).write_text("7f0 default N0=1 kernelpagesize_kB=4\n" * 200_000)
    gpu = h100.round()
    assert sorted(read(gpu)) == [41005, 41006, 41007]
    assert gpu.inquiry.failures == ["io_error", "malformed", "too_large"]


def test_reading_ends_in_time_for_the_gpus_deadline(h100: Bench) -> None:
    gpu = h100.round()
    h100.clock.advance(3.0)
    assert read(gpu) == {}
    assert gpu.inquiry.failures == ["out_of_time"]
