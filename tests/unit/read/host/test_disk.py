"""Disks, by /proc/diskstats; Lustre and GPUDirect Storage, by captures and the source of nvidia-fs."""

import pytest
from tests.host_tree import HostTree, kernel_file

from gpu_triage.errors import HostReadFailed
from gpu_triage.options.config import Config
from gpu_triage.read.host.disk import (
    HOST_DISK,
    HOST_FILE_SYSTEMS,
    Disk,
    FileSystemsReading,
    GpuDirectStorage,
    LustreMount,
    hides_lustre,
    parse_gds_stats,
    parse_lustre_stats,
)
from gpu_triage.read.metrics.contract import HostRound

# Kernel 6.8: 20 columns. vda has the 14 of kernels before 4.18.
DISKSTATS = kernel_file("diskstats")
DISKS = ["dm-0", "md127", "nvme0n1", "sda", "vda"]


def test_counts_become_bytes_and_seconds_of_whole_disks(host: HostTree) -> None:
    # EC2 can attach xvda1 as a whole disk; sda1 is a partition; a disk that just left is in neither place.
    text = DISKSTATS + " 202 1 xvda1 1 0 2 3 4 0 5 6 0 7 8\n 104 0 cciss/c0d0 1 0 2 3 4 0 5 6 0 7 8\n"
    host.write({"proc/diskstats": text + "   8      16 sdb 1 0 2 3 4 0 5 6 0 7 8\n"})
    for name in ("loop0", "ram0", "sr0", "zram0", "xvda1", "cciss!c0d0", *DISKS):
        host.write({f"sys/class/block/{name}/size": "1000\n"})
    for name in ("sda1", "nvme0n1p1"):
        host.write({f"sys/class/block/{name}/partition": "1\n"})
    disks = {disk.device: disk for disk in HOST_DISK.reader(Config())(host.round())}
    assert list(disks) == ["cciss/c0d0", *DISKS, "xvda1"]
    assert disks["sda"] == Disk("sda", 1_024_000, 2_048_000, 100, 200, 0.3, 0.7, 0.5, 1.0)
    assert disks["vda"] == Disk("vda", 1024, 2560, 1, 4, 0.003, 0.006, 0.007, 0.008)


def test_without_a_sysfs_no_disk_is_told_and_the_reading_fails(host: HostTree) -> None:
    host.write({"proc/diskstats": DISKSTATS})
    with pytest.raises(HostReadFailed, match="missing"):
        HOST_DISK.reader(Config())(host.round())
    host.mount()
    assert HOST_DISK.reader(Config())(host.round()) == ()


# The two lines are from https://lists.lustre.org/pipermail/lustre-discuss-lustre.org/2018-April/015426.html.
OLD = kernel_file("lustre-2.12")
# The form of 2.13 and later: units of time for each call (lproc_llite.c, LPROCFS_TYPE_LATENCY), and sums of squares.
NEW = kernel_file("lustre-2.13")
# As nvfs_stat_show of src/nvfs-stat.c prints it, with and without rw_stats_enabled.
GDS = kernel_file("nvidia-fs-stats")
GDS_BRIEF = """\
Reads				: err=1 io_state_err=0
Writes				: err=0 io_state_err=0 pg-cache=0 pg-cache-fail=0 pg-cache-eio=0
Ops				: Read=2 Write=1 BatchIO=0
"""


def file_systems(round_: HostRound) -> FileSystemsReading:
    return HOST_FILE_SYSTEMS.reader(Config())(round_)


def test_lustre_of_2_12_and_before(host: HostTree) -> None:
    for address, text in (("c043537800", OLD), ("d000000000", NEW)):  # mounted twice, it counts once
        host.write({f"proc/fs/lustre/llite/scratch-ffff9b{address}/stats": text})
    assert file_systems(host.round()) == FileSystemsReading(
        (LustreMount("scratch", {"read": 145121869, "write": 468230469}, {"read": 25673, "write": 13641}, {}),), None
    )


def test_lustre_of_2_13_and_later_is_in_debugfs_and_timed(host: HostTree) -> None:
    host.write({"sys/kernel/debug/lustre/llite/scratch-ffff9bc043537800/stats": NEW})
    (mount,) = file_systems(host.round()).lustre
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


COUNTS = tuple({"read": count, "write": 0} for count in (3520 << 20, 880, 4, 16))


@pytest.mark.parametrize(
    ("text", "counts"), [(GDS, COUNTS), (GDS_BRIEF, ({}, {}, {"read": 1, "write": 0}, {"read": 2, "write": 1}))]
)
def test_gpudirect_storage(host: HostTree, text: str, counts: tuple[dict[str, int], ...]) -> None:
    host.write({"proc/driver/nvidia-fs/stats": text})
    assert file_systems(host.round()).gds == GpuDirectStorage(*counts)


def test_one_that_is_not_understood_costs_itself(host: HostTree) -> None:
    host.write({"proc/driver/nvidia-fs/stats": "x\n"})
    with pytest.raises(HostReadFailed, match="malformed"):
        file_systems(host.round())
    host.write({"proc/fs/lustre/llite/scratch-ffff9bc043537800/stats": OLD})
    round_ = host.round()
    assert file_systems(round_).lustre[0].name == "scratch"
    assert round_.failures == ["malformed"]


@pytest.mark.parametrize("text", ["", "read_bytes many samples [bytes] 1 2 3\n"])
def test_what_is_no_statistics(text: str) -> None:
    with pytest.raises(ValueError, match="not"):
        parse_lustre_stats(text, "scratch")
    with pytest.raises(ValueError, match="not"):
        parse_gds_stats(text)
