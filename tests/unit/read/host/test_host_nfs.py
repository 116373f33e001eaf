from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.host_tree import HostTree, kernel_file

from gpu_triage.errors import HostReadFailed
from gpu_triage.read.host.nfs import MOST_MOUNTS, HostNfsReader, NfsMount, nfs_sections, parse_section, unescape
from gpu_triage.read.metrics.contract import HostRound

pytestmark = pytest.mark.slow

LOCAL = """\
device rootfs mounted on / with fstype rootfs
device proc mounted on /proc with fstype proc
no device mounted on /run/weird with fstype tmpfs
device systemd-1 mounted on /data with fstype autofs
device /dev/mapper/vg-root mounted on / with fstype ext4
"""

# Kernel 5.15, NFS 4.2.
V4 = kernel_file("mountstats-nfs4")

# Kernel 4.18, NFS 3: no count of errors, and the statistics of nfsacl do not stand in this file.
V3 = kernel_file("mountstats-nfs3")
DATA = NfsMount(
    mount="/data",
    operations={"NULL": 1, "READ": 2048, "WRITE": 0, "GETATTR": 82},
    operation_seconds={"NULL": 0.0, "READ": 9.25, "WRITE": 0.0, "GETATTR": 0.042},
    read_bytes=8388608,
    written_bytes=4096,
    retransmissions=2,
    major_timeouts=2,
)
HOME = NfsMount(
    mount="/home of\\all",
    operations={"READ": 10, "WRITE": 6, "READDIRPLUS": 3},
    operation_seconds={"READ": 0.03, "WRITE": 0.09, "READDIRPLUS": 0.008},
    read_bytes=500,
    written_bytes=600,
)


def section(mount: str, read: int, written: int, operations: Mapping[str, tuple[int, int]]) -> str:
    """A mount's section, with the count and milliseconds of each operation."""
    rows = (f"\t{name:>12}: {n} {n} 0 0 0 0 0 {milliseconds} 0\n" for name, (n, milliseconds) in operations.items())
    return (
        f"device server:/export mounted on {mount} with fstype nfs4 statvers=1.1\n"
        f"\tbytes:\t0 0 0 0 {read} {written} 0 0\n\tper-op statistics\n{''.join(rows)}\n"
    )


def mounts(round_: HostRound) -> tuple[NfsMount, ...]:
    return HostNfsReader().read(round_)


def test_nfs_mounts_of_both_layouts_are_read_among_others(host: HostTree) -> None:
    host.write({"proc/self/mountstats": LOCAL + V4 + "device tmpfs mounted on /x with fstype tmpfs\n" + V3})
    round_ = host.round()
    assert mounts(round_) == (DATA, HOME)
    assert round_.failures == []


@pytest.mark.parametrize(
    ("files", "found"),
    [
        # The host's come before those of the exporter's container.
        ({"self": V3, "1": V4}, [("/data", 8388608)]),
        # Those of one export are told apart by where they are, and of two on one point the one that is seen counts.
        ({"self": V4 + V4.replace(" on /data ", " on /mnt/again ")}, [("/data", 8388608), ("/mnt/again", 8388608)]),
        ({"self": V4 + V3.replace("/home\\040of\\134all", "/data")}, [("/data", 500)]),
    ],
)
def test_mounts_are_told_apart(host: HostTree, files: dict[str, str], found: list[tuple[str, int]]) -> None:
    host.write({f"proc/{process}/mountstats": text for process, text in files.items()})
    assert [(mount.mount, mount.read_bytes) for mount in mounts(host.round())] == found


def test_mount_points_that_come_and_go_are_not_remembered_for_ever(host: HostTree) -> None:
    reader = HostNfsReader()
    for i in range(20 * MOST_MOUNTS):
        host.write({"proc/self/mountstats": section(f"/pods/{i}", 1, 2, {})})
        reader.read(host.round())
    assert len(reader._counters) <= 4 * MOST_MOUNTS


@pytest.mark.parametrize(
    "broken",
    [
        V3[: V3.index("\tbytes:")],
        V3[: V3.index("\tper-op")],
        V3[: V3.index("40 90")],
        V3.replace("statvers=1.0", "statvers=2.0"),
        V3.replace(" statvers=1.0", ""),
        V3.replace("4 500 600", "4 -5 600"),
        V3.replace("20 30", "20 3x"),
    ],
    ids=["no bytes", "no operations", "cut line", "newer", "no version", "negative", "junk"],
)
def test_a_mount_that_is_not_understood_costs_only_itself(host: HostTree, broken: str) -> None:
    host.write({"proc/self/mountstats": V4 + broken})
    round_ = host.round()
    assert mounts(round_) == (DATA,)
    assert round_.failures == ["malformed"]
    host.write({"proc/self/mountstats": broken})
    with pytest.raises(HostReadFailed, match="malformed"):
        mounts(host.round())


COUNT = st.integers(0, 2**64 - 1)
OPERATION = st.from_regex(r"[A-Z][A-Z_]{0,15}", fullmatch=True)


@given(COUNT, COUNT, st.dictionaries(OPERATION, st.tuples(st.integers(1, 2**64 - 1), COUNT)))
def test_sections_round_trip(read: int, written: int, operations: dict[str, tuple[int, int]]) -> None:
    (found,) = nfs_sections(LOCAL + section("/data", read, written, operations) + LOCAL)
    counts = {name: count for name, (count, _) in operations.items()}
    seconds = {name: milliseconds / 1000 for name, (_, milliseconds) in operations.items()}
    assert parse_section(*found) == NfsMount("/data", counts, seconds, read, written)


@given(st.text(st.characters(codec="utf-8")))
def test_paths_are_unescaped_as_the_kernel_escapes_them(path: str) -> None:
    escaped = "".join(f"\\{ord(c):03o}" if c in " \t\n\\#" else c for c in path)
    assert unescape(escaped) == path
