from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gathered import every
from tests.host_tree import HostTree

from gpu_triage.errors import HostReadFailed
from gpu_triage.read.host.disk import Disk, HostDiskReader, is_named_like_a_disk, parse_disk

# Kernel 6.8: 20 columns. vda has the 14 of kernels before 4.18.
DISKSTATS = """\
   7       0 loop0 11 0 28 0 0 0 0 0 0 4 0 0 0 0 0 0 0
   1       0 ram0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
  11       0 sr0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 252       0 zram0 9 0 72 0 9 0 72 0 0 0 0 0 0 0 0 0 0
   8       0 sda 100 5 2000 300 200 9 4000 700 1 500 1000 0 0 0 0 10 20
   8       1 sda1 100 5 2000 300 200 9 4000 700 1 500 1000 0 0 0 0 0 0
 259       0 nvme0n1 1000 0 8000000 1500 10 0 80 5 0 1400 1505 0 0 0 0 2 1
 259       1 nvme0n1p1 1000 0 8000000 1500 10 0 80 5 0 1400 1505 0 0 0 0 0 0
 253       0 dm-0 90 0 1900 290 190 0 3900 690 0 450 980 0 0 0 0 0 0
   9     127 md127 80 0 1800 0 180 0 3800 0 0 0 0 0 0 0 0 0 0
 254       0 vda 1 0 2 3 4 0 5 6 0 7 8
"""
DISKS = ["dm-0", "md127", "nvme0n1", "sda", "vda"]
SDA = Disk(
    device="sda",
    reads=100,
    writes=200,
    read_bytes=1_024_000,
    written_bytes=2_048_000,
    read_seconds=0.3,
    write_seconds=0.7,
    busy_seconds=0.5,
    queue_seconds=1.0,
)


def line(name: str, *counts: int) -> str:
    reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms, queue_ms = counts
    return (
        f"   8       0 {name} {reads} 0 {sectors_read} {read_ms}"
        f" {writes} 0 {sectors_written} {write_ms} 0 {busy_ms} {queue_ms}\n"
    )


def test_counts_become_bytes_and_seconds(host: HostTree) -> None:
    host.write({"proc/diskstats": DISKSTATS})
    disks = {disk.device: disk for disk in HostDiskReader().read(host.round())}
    assert disks["sda"] == SDA
    assert disks["vda"] == Disk("vda", 1024, 2560, 1, 4, 0.003, 0.006, 0.007, 0.008)


def test_without_sysfs_whole_disks_are_known_by_name(host: HostTree) -> None:
    host.write({"proc/diskstats": DISKSTATS})
    assert [disk.device for disk in HostDiskReader().read(host.round())] == DISKS


def test_sysfs_says_what_a_partition_is_whatever_its_name(host: HostTree) -> None:
    # EC2 can attach xvda1 as a whole disk; sda1 is a partition; a disk that just left is in neither place.
    text = DISKSTATS + " 202 1 xvda1 1 0 2 3 4 0 5 6 0 7 8\n 104 0 cciss/c0d0 1 0 2 3 4 0 5 6 0 7 8\n"
    host.write({"proc/diskstats": text + "   8      16 sdb 1 0 2 3 4 0 5 6 0 7 8\n"})
    for name in ("loop0", "ram0", "sr0", "zram0", "xvda1", "cciss!c0d0", *DISKS):
        host.write({f"sys/class/block/{name}/size": "1000\n"})
    for name in ("sda1", "nvme0n1p1"):
        host.write({f"sys/class/block/{name}/partition": "1\n"})
    devices = [disk.device for disk in HostDiskReader().read(host.round())]
    assert devices == ["cciss/c0d0", *DISKS, "xvda1"]


@pytest.mark.parametrize(
    ("names", "is_disk"),
    [
        ("sda sdaa vdb xvdf hda nvme10n2 mmcblk0 md0 md127 dm-12 nbd0 cciss/c0d0", True),
        ("sda1 vdb15 nvme0n1p2 mmcblk0p1 md0p1 nbd0p3 loop7 ram0 zram1 sr0 fd0", False),
    ],
)
def test_names_of_whole_disks(names: str, *, is_disk: bool) -> None:
    assert [name for name in every(names.split()) if is_named_like_a_disk(name) is not is_disk] == []


def test_a_32_bit_millisecond_counter_that_wraps_goes_on(host: HostTree) -> None:
    reader = HostDiskReader()
    host.write({"proc/diskstats": line("sda", 1, 1, 1, 1, 1, 1, 4294967000, 4294967000)})
    reader.read(host.round())
    host.write({"proc/diskstats": line("sda", 1, 1, 1, 1, 1, 1, 4, 5000)})
    (disk,) = reader.read(host.round())
    assert (disk.busy_seconds, disk.queue_seconds) == (4294967.004, 4294972.0)


def test_a_disk_that_leaves_takes_its_series_along_and_goes_on_when_it_is_back(host: HostTree) -> None:
    reader = HostDiskReader()
    host.write({"proc/diskstats": DISKSTATS})
    reader.read(host.round())
    host.write({"proc/diskstats": ""})
    assert reader.read(host.round()) == ()
    host.write({"proc/diskstats": line("sda", 1, 1, 1, 1, 1, 1, 1, 1)})
    (disk,) = reader.read(host.round())
    assert (disk.reads, disk.read_bytes) == (101, 1_024_512)


def test_a_truncated_line_costs_only_its_disk(host: HostTree) -> None:
    host.write({"proc/diskstats": DISKSTATS + " 259       4 nvme1n1 10 0 80"})
    round_ = host.round()
    assert [disk.device for disk in HostDiskReader().read(round_)] == DISKS
    assert round_.failures == ["malformed"]


def test_missing_and_unreadable_statistics_fail(host: HostTree) -> None:
    host.mount()
    with pytest.raises(HostReadFailed, match=r"missing: .*/proc/diskstats: "):
        HostDiskReader().read(host.round())
    host.spoil("proc/diskstats")
    with pytest.raises(HostReadFailed, match="io_error"):
        HostDiskReader().read(host.round())


@given(st.tuples(*[st.integers(0, 2**64 - 1)] * 8))
def test_lines_round_trip(counts: tuple[int, ...]) -> None:
    assert parse_disk(line("nvme0n1", *counts)) == ("nvme0n1", counts)
