"""Lustre and GPUDirect Storage, by captures of their statistics and the source of nvidia-fs."""

from __future__ import annotations

import pytest
from tests.host_tree import HostTree

from gpu_triage.errors import HostReadFailed
from gpu_triage.read.host.disk import (
    FileSystemsReader,
    FileSystemsReading,
    GpuDirectStorage,
    LustreMount,
    hides_lustre,
    parse_gds_stats,
    parse_lustre_stats,
)

# The two lines are from https://lists.lustre.org/pipermail/lustre-discuss-lustre.org/2018-April/015426.html.
OLD = """\
snapshot_time             1523008010.817348638 secs.nsecs
read_bytes                25673 samples [bytes] 1 3366225 145121869
write_bytes               13641 samples [bytes] 1 3366225 468230469
open                      4 samples [regs]
"""
# The form of 2.13 and later: units of time for each call (lproc_llite.c, LPROCFS_TYPE_LATENCY), and sums of squares.
NEW = """\
snapshot_time             1783960164.279418700 secs.nsecs
start_time                1783705564.331211471 secs.nsecs
elapsed_time              254599.948207229 secs.nsecs
read_bytes                10 samples [bytes] 4096 1048576 5242880 123456
read                      10 samples [usecs] 594 79600 139000 986452
getattr                   1 samples [usecs] 7 7 7 49
"""
# As nvfs_stat_show of src/nvfs-stat.c prints it, with and without rw_stats_enabled.
GDS = """\
GDS Version: 1.13.1.3
NVFS statistics(ver: 4.0)
NVFS Driver(version: 2.24.3)
Mellanox PeerDirect Supported: True
IO stats: Enabled, peer IO stats: Disabled
Logging level: info

Active Shadow-Buffer (MiB): 0
Active Process: 1
Batches				: n=0 ok=0 err=0 Avg-Submit-Latency(usec)=0
Reads				: n=900 ok=880 err=4 readMiB=3520 io_state_err=0
Reads				: Bandwidth(MiB/s)=2300 Avg-Latency(usec)=700
Sparse Reads		        : n=1 io=0 holes=0 pages=0
Writes				: n=0 ok=0 err=0 writeMiB=0 io_state_err=0 pg-cache=0 pg-cache-fail=0 pg-cache-eio=0
Writes				: Bandwidth(MiB/s)=0 Avg-Latency(usec)=0
Mmap				: n=5 ok=5 err=0 munmap=4
Bar1-map			: n=5 ok=5 err=0 free=4 callbacks=0 active=1 delay-frees=0
Error				: cpu-gpu-pages=0 sg-ext=0 dma-map=0 dma-ref=0
Ops				: Read=16 Write=0 BatchIO=0
GPU 0000:07:00.0 uuid:00000000-0000-0000-0000-000000000000 : Registered_MiB=0 Cache_MiB=0 max_pinned_MiB=4
"""
GDS_BRIEF = """\
Reads				: err=1 io_state_err=0
Writes				: err=0 io_state_err=0 pg-cache=0 pg-cache-fail=0 pg-cache-eio=0
Ops				: Read=2 Write=1 BatchIO=0
"""


def test_lustre_of_2_12_and_before(host: HostTree) -> None:
    host.write({"proc/fs/lustre/llite/scratch-ffff9bc043537800/stats": OLD})
    assert FileSystemsReader().read(host.round()) == FileSystemsReading(
        (
            LustreMount(
                "scratch",
                {"read": 145121869, "write": 468230469},
                {"read": 25673, "write": 13641},
                {},
            ),
        ),
        None,
    )


def test_lustre_of_2_13_and_later_is_in_debugfs_and_timed(host: HostTree) -> None:
    host.write({"sys/kernel/debug/lustre/llite/scratch-ffff9bc043537800/stats": NEW})
    (mount,) = FileSystemsReader().read(host.round()).lustre
    assert mount.moved_bytes == {"read": 5242880, "write": 0}
    assert (mount.operations, mount.seconds) == ({"read": 10, "write": 0}, {"read": 0.139})


def test_lustre_whose_statistics_are_for_user_0(host: HostTree) -> None:
    """/sys/fs/lustre is for everybody, debugfs is not."""
    host.mount()
    assert not hides_lustre(host.procfs, host.sysfs)
    host.write({"sys/fs/lustre/llite/scratch-ffff9bc043537800/blocksize": "4194304\n"})
    assert hides_lustre(host.procfs, host.sysfs)
    host.write({"sys/kernel/debug/lustre/llite/scratch-ffff9bc043537800/stats": NEW})
    assert not hides_lustre(host.procfs, host.sysfs)


def test_gpudirect_storage(host: HostTree) -> None:
    host.write({"proc/driver/nvidia-fs/stats": GDS})
    assert FileSystemsReader().read(host.round()).gds == GpuDirectStorage(
        {"read": 3520 << 20, "write": 0}, {"read": 880, "write": 0}, {"read": 4, "write": 0}, {"read": 16, "write": 0}
    )


def test_gpudirect_storage_that_does_not_count_transfers(host: HostTree) -> None:
    host.write({"proc/driver/nvidia-fs/stats": GDS_BRIEF})
    assert FileSystemsReader().read(host.round()).gds == GpuDirectStorage(
        {}, {}, {"read": 1, "write": 0}, {"read": 2, "write": 1}
    )


def test_one_that_is_not_understood_costs_itself(host: HostTree) -> None:
    host.write({"proc/driver/nvidia-fs/stats": "x\n"})
    with pytest.raises(HostReadFailed, match="malformed"):
        FileSystemsReader().read(host.round())
    host.write({"proc/fs/lustre/llite/scratch-ffff9bc043537800/stats": OLD})
    round_ = host.round()
    assert FileSystemsReader().read(round_).lustre[0].name == "scratch"
    assert round_.failures == ["malformed"]


@pytest.mark.parametrize("text", ["", "read_bytes many samples [bytes] 1 2 3\n"])
def test_what_is_no_statistics(text: str) -> None:
    with pytest.raises(ValueError, match="not"):
        parse_lustre_stats(text)
    with pytest.raises(ValueError, match="not"):
        parse_gds_stats(text)
