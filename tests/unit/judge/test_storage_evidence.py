"""When disks and NFS are at their limit, and when they are only busy.

What the counters mean: https://docs.kernel.org/admin-guide/iostats.html. Since Linux 5.0, field 10 counts ticks in
which a request started or ended.
"""

import pytest
from tests.evidence import evidence_of

from gpu_triage.judge.evidence.host import HostEvidence, full_disks, slow_mounts
from gpu_triage.read.host.cpu import (
    GPU_HOST_CPU_SECONDS_TOTAL,
    GPU_HOST_PRESSURE_SECONDS_TOTAL,
    GPU_HOST_PROCESSES_BLOCKED,
)
from gpu_triage.read.host.disk import GPU_HOST_DISK_BUSY_SECONDS_TOTAL, HOST_DISK, parse_disk
from gpu_triage.read.host.nfs import HOST_NFS, NfsMount
from gpu_triage.read.metrics.metric import Sample

SECONDS = 30.0
IDLE = "259 0 nvme0n1 0 0 0 0 0 0 0 0 0 0 0"


def host_of(after: str, *more: tuple[Sample, Sample]) -> HostEvidence:
    """Evidence of a disk whose line of /proc/diskstats was all zeros 30 s ago; `more`: a series then and now."""

    def samples(line: str, place: int) -> list[Sample]:
        disk = parse_disk(line)
        return [*HOST_DISK.render((disk,)), *(each[place] for each in more)]

    return evidence_of((0.0, samples(IDLE, 0)), (SECONDS, samples(after, 1)))


def line(reads: int, read_ms: int, busy_ms: int) -> str:
    """A line of /proc/diskstats after 30 s."""
    return f"259 0 nvme0n1 {reads} 0 {reads * 8} {read_ms} 0 0 0 0 0 {busy_ms} {read_ms}"


def stalled(share: float) -> tuple[Sample, Sample]:
    metric = GPU_HOST_PRESSURE_SECONDS_TOTAL
    return metric.sample(0.0, "io", "some"), metric.sample(share * SECONDS, "io", "some")


def blocked(tasks: int) -> tuple[Sample, Sample]:
    sample = GPU_HOST_PROCESSES_BLOCKED.sample(tasks)
    return sample, sample


def cpu_time(mode: str, share: float) -> tuple[Sample, Sample]:
    metric = GPU_HOST_CPU_SECONDS_TOTAL
    return metric.sample(0.0, "0", mode), metric.sample(share * SECONDS, "0", mode)


QUIET = (stalled(0.01),)


@pytest.mark.parametrize(
    ("after", "more"),
    [
        # One reader of 20,000 blocks a second at 48 us each, which an NVMe drive answers without being full.
        (line(20_000 * 30, 28_800, 28_900), QUIET),
        # 1,000 short reads a second touch every tick of the kernel: busy by field 10, at work for 8 % of the time.
        (line(30_000, 2_400, 30_000), (stalled(0.5),)),
        # munin #1119, nvme0n1: field 4 and 8 grew by 22988 and 457568 ms since boot, field 10 by 2440737408.
        ("259 0 nvme0n1 9000 0 72000 23 90000 0 720000 457 0 30000 30000", (stalled(0.5),)),
        # A request that the kernel lost count of: nothing under way, and nobody waits.
        (line(0, 0, 30_000), QUIET),
        (line(0, 0, 30_000), ()),
        (line(0, 0, 30_000), (blocked(0),)),
        (line(3_000, 24_000, 24_000), QUIET),  # a hard disk that is busy 80 % of the time
    ],
)
def test_a_disk_that_is_only_busy_is_not_at_its_limit(after: str, more: tuple[tuple[Sample, Sample], ...]) -> None:
    host = host_of(after, *more)
    assert list(full_disks(host, 1.0)) == []
    assert "disk" not in (host.scarce_storage() or "")


@pytest.mark.parametrize(
    ("after", "more", "words"),
    [
        (line(3_600, 29_900, 29_900), QUIET, "disk nvme0n1 busy 100% of the time, 8 ms a request"),
        (line(1_000_000 * 30, 30 * 64_000, 30_000), QUIET, "disk nvme0n1 busy 100% of the time, 64 requests under way"),
        (line(20_000 * 30, 28_800, 28_900), (stalled(0.06),), "96% of the time, tasks stalled for I/O 6% of the time"),
        (line(0, 0, 30_000), (stalled(0.9),), "100% of the time, tasks stalled for I/O 90% of the time"),
        (line(0, 0, 30_000), (blocked(3),), "100% of the time, nothing completed, 3 tasks wait for I/O"),
    ],
)
def test_a_disk_at_its_limit_is_told_with_the_sign(
    after: str, more: tuple[tuple[Sample, Sample], ...], words: str
) -> None:
    (said,) = full_disks(host_of(after, *more), 1.0)
    assert said.endswith(words)


@pytest.mark.parametrize(
    ("after", "more", "sign"),
    [
        (line(3_600 * 2, 29_900, 29_900), QUIET, "4 ms a request"),
        (line(1_000_000 * 30, 30 * 28_000, 30_000), QUIET, "28 requests under way"),
        (line(20_000 * 30, 28_800, 28_900), (stalled(0.045),), "tasks stalled for I/O 4% of the time"),
    ],
)
def test_a_class_that_is_entered_is_kept_until_all_of_it_is_lower(
    after: str, more: tuple[tuple[Sample, Sample], ...], sign: str
) -> None:
    host = host_of(after, *more)
    assert list(full_disks(host, 1.0)) == []
    (said,) = full_disks(host, 0.8)
    assert said.endswith(sign)


@pytest.mark.parametrize(
    ("more", "sign"),
    [
        ((cpu_time("idle", 0.91), cpu_time("iowait", 0.09), QUIET[0]), "9% of the CPU time is iowait"),
        ((stalled(0.18),), "tasks stalled for I/O 18% of the time"),
    ],
)
def test_storage_stays_scarce_until_waits_are_lower_than_where_it_began(
    more: tuple[tuple[Sample, Sample], ...], sign: str
) -> None:
    host = host_of(IDLE, *more)
    assert (host.scarce_storage(), host.scarce_storage(0.85)) == (None, sign)
    assert host.scarce_storage(0.95) is None


def mounted(
    retransmissions: int = 0, timeouts: int = 0, *more: tuple[Sample, Sample], **operations: tuple[float, float]
) -> HostEvidence:
    """Evidence of a mount with so many of each operation a second, each of which takes so many seconds."""

    def samples(seconds: float) -> list[Sample]:
        counts = {name: 5000 + round(rate * seconds) for name, (rate, _) in operations.items()}
        took = {name: rate * seconds * each for name, (rate, each) in operations.items()}
        share = seconds / SECONDS
        mount = NfsMount("/data", counts, took, 0, 0, round(retransmissions * share), round(timeouts * share))
        return [*HOST_NFS.render((mount,)), *(each[seconds > 0] for each in more)]

    return evidence_of((0.0, samples(0.0)), (SECONDS, samples(SECONDS)))


@pytest.mark.parametrize(
    ("host", "words"),
    [
        # net/sunrpc/stats.c sums execution time by operation: 400 ms READs among a hundred times as many GETATTRs,
        # 4.3 ms an operation on average.
        (mounted(READ=(10, 0.4), GETATTR=(1000, 0.0003)), "NFS /data takes 400 ms a READ, 4.0 under way"),
        (mounted(12, 3, READ=(10, 0.4), WRITE=(0.0, 0.0)), "4.0 under way (12 requests sent again, 3 timed out)"),
        (mounted(WRITE=(30, 0.06), COMMIT=(1, 0.5)), "NFS /data takes 74 ms a WRITE, 2.3 under way"),
        (mounted(OPEN=(20, 0.08), LOOKUP=(10, 0.06), READ=(500, 0.001)), "takes 73 ms a lookup, 2.2 under way"),
        (mounted(READ=(5, 0.4)), "NFS /data takes 400 ms a READ, 2.0 under way"),
    ],
)
def test_slow_nfs_is_told_by_the_kind_of_operation(host: HostEvidence, words: str) -> None:
    (said,) = slow_mounts(host, 1.0)
    assert said.endswith(words)
    assert words in (host.scarce_storage() or "")


@pytest.mark.parametrize(
    "host",
    [
        mounted(READ=(1400, 0.0011), GETATTR=(60, 0.0003)),  # fast, with many under way
        mounted(READ=(1, 0.4)),  # slow, and at most times nobody waits
        mounted(READ=(0, 0.0), WRITE=(0, 0.0)),
        mounted(),
    ],
)
def test_fast_or_idle_nfs_is_not(host: HostEvidence) -> None:
    assert list(slow_mounts(host, 1.0)) == []


def test_nfs_stays_slow_until_less_is_under_way() -> None:
    host = mounted(READ=(2.3, 0.4))
    assert (list(slow_mounts(host, 1.0)), len(list(slow_mounts(host, 0.85)))) == ([], 1)


SILENT = "NFS /data answers nothing, 3 tasks wait for I/O"
READS = GPU_HOST_DISK_BUSY_SECONDS_TOTAL.sample(0.0, "nvme0n1"), GPU_HOST_DISK_BUSY_SECONDS_TOTAL.sample(6.0, "nvme0n1")


@pytest.mark.parametrize(
    ("host", "said"),
    [
        pytest.param(mounted(0, 0, blocked(3), READ=(0, 0.0)), SILENT, id="silent, on a host without PSI"),
        pytest.param(mounted(0, 0, blocked(0), READ=(0, 0.0)), None, id="nobody waits"),
        pytest.param(mounted(0, 0, blocked(3), READ=(1, 0.0)), None, id="it answers"),
        pytest.param(mounted(0, 0, blocked(3), stalled(0.0), READ=(0, 0.0)), None, id="PSI tells"),
        pytest.param(mounted(0, 0, blocked(3), READS, READ=(0, 0.0)), None, id="a disk is at work"),
    ],
)
def test_a_mount_without_answers_is_scarce_only_if_tasks_wait_for_nothing_else(
    host: HostEvidence, said: str | None
) -> None:
    assert host.scarce_storage() == said
