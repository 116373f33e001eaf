"""How processes fare on the host: CPU time, memory, what they write, threads, and threads that hang in the kernel.

What threads of jobs do: one that fills a CPU, and those that wait in the kernel.
"""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.host_tree import HostTree

from gpu_triage.driver.kernel.procfs import read_process_stats
from gpu_triage.machine import Moment
from gpu_triage.read.processes.threads import BusiestThread, IoReader, ThreadsReader, ThreadsReading
from gpu_triage.read.processes.vitals import BlockedThread, ProcessVitals, ProcessVitalsReader

PID = 4242
WALL = 1_768_435_200.0
HERTZ = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGESIZE")
ANY_STAT = (
    "{} ({}) {} 1 4242 4242 0 -1 4194560 99887 0 210 0 {} {} 11 12 20 0 311 0 8812345 98765432100 5241001"
    + " 0" * 28
    + "\n"
)
"""As in proc(5): the number, the name, the state, utime and stime as the 14th and 15th."""
STAT = ANY_STAT.format(4242, "pt main) thr", "{}", 360000, 36000)
STATUS = (
    "Name:\tpt main) thr\nState:\tD (disk sleep)\nThreads:\t311\n"
    "voluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t12\n"
)


def thread(host: HostTree, tid: int = PID, state: str = "S", switches: int = 100, channel: str = "0") -> None:
    """A thread of the process; the first is the process itself."""
    files = {
        f"proc/{PID}/task/{tid}/stat": STAT.format(state),
        f"proc/{PID}/task/{tid}/status": STATUS.format(switches),
        f"proc/{PID}/task/{tid}/wchan": channel,
    }
    if tid == PID:
        files |= {f"proc/{PID}/stat": STAT.format(state), "proc/stat": "cpu 0 0 0 0\nbtime 1768000000\n"}
    host.write(files)


class Watch:
    """A reader that looks again and again."""

    def __init__(self, host: HostTree) -> None:
        self.procfs: Path = host.procfs
        self.reader = ProcessVitalsReader()

    def all(self, seconds: float) -> Mapping[int, ProcessVitals]:
        stats = read_process_stats(self.procfs, (PID,))
        return self.reader.read(self.procfs, stats, Moment(seconds, WALL + seconds))

    def blocked(self, seconds: float) -> BlockedThread | None:
        return self.all(seconds)[PID].blocked


def test_one_file_tells_cpu_time_memory_threads_and_start(host: HostTree) -> None:
    thread(host)
    vitals = ProcessVitals(
        cpu_seconds=396_000 / HERTZ,
        resident_bytes=5_241_001 * PAGE,
        threads=311,
        started_at=1_768_000_000 + 8_812_345 / HERTZ,
        blocked=None,
    )
    assert Watch(host).all(0.0) == {PID: vitals}
    # Without the boot's time the start is not known.
    host.write({"proc/stat": "cpu 0 0 0 0\n"})
    assert Watch(host).all(0.0) == {PID: dataclasses.replace(vitals, started_at=None)}


def test_a_process_that_does_not_run_for_half_a_minute_hangs(host: HostTree) -> None:
    thread(host, state="D", channel="nvidia_ioctl")
    watch = Watch(host)
    assert [watch.blocked(seconds) for seconds in (0.0, 5.0, 29.0)] == [None, None, None]
    assert watch.blocked(30.0) == watch.blocked(300.0) == BlockedThread(WALL, "nvidia_ioctl")
    thread(host, state="S")
    assert watch.blocked(305.0) is None


def test_a_process_that_waits_again_and_again_does_not_hang(host: HostTree) -> None:
    """As one that reads from a slow disk: whoever looks finds it waiting each time, and it has run in between."""
    watch = Watch(host)
    for seconds in range(0, 600, 5):
        thread(host, state="D", switches=100 + seconds, channel="folio_wait_bit_common")
        assert watch.blocked(float(seconds)) is None


def test_another_thread_that_hangs_is_found_within_a_minute(host: HostTree) -> None:
    thread(host)
    thread(host, 4250, "D", channel="rpc_wait_bit_killable")
    thread(host, 4249, "S")
    watch = Watch(host)
    found = [watch.blocked(float(seconds)) for seconds in range(0, 91, 5)]
    assert found[-1] == BlockedThread(WALL + 60.0, "rpc_wait_bit_killable")
    assert found[:-1] == [None] * 18


def test_a_later_process_under_the_pid_has_not_hung_yet(host: HostTree) -> None:
    thread(host, state="D")
    watch = Watch(host)
    watch.all(0.0)
    assert watch.blocked(40.0) is not None
    host.write({f"proc/{PID}/stat": STAT.format("D").replace("8812345", "9912345")})
    assert watch.blocked(45.0) is None


@pytest.mark.parametrize(
    ("channel", "status", "blocked"),
    [
        # A wait channel that is not told is empty. Without ptrace rights the kernel writes 0 (fs/proc/base.c).
        *((name, None, BlockedThread(WALL, "")) for name in ("0", "", "0xffffffff81234567", "a b", "x" * 65, "\x1b")),
        # Without a count of switches nobody knows that a thread hangs.
        *(("nfs", status, None) for status in ("", *(f"voluntary_ctxt_switches:\t{count}\n" for count in (9, "many")))),
    ],
)
def test_what_the_kernel_hides_is_unknown(
    host: HostTree, channel: str, status: str | None, blocked: BlockedThread | None
) -> None:
    thread(host, state="D", channel=channel)
    if status is not None:
        host.write({f"proc/{PID}/task/{PID}/status": status})
    watch = Watch(host)
    watch.all(0.0)
    assert watch.blocked(40.0) == blocked


@pytest.mark.parametrize("text", ["", "4242 (python3)", "4242 (python3) S 1", STAT.format("S").replace("360000", "-1")])
def test_a_stat_that_is_not_understood_costs_its_process_alone(host: HostTree, text: str) -> None:
    thread(host)
    host.write({f"proc/{PID}/stat": text, "proc/77/stat": STAT.format("S")})
    stats = read_process_stats(host.procfs, (PID, 77, 78))
    read = ProcessVitalsReader().read(host.procfs, stats, Moment(0.0, WALL))
    assert list(read) == [77]


RANK, LOADER, OTHER = 4242, 4300, 4400
IO = (
    "rchar: 323934931\nwchar: {}\nsyscr: 632687\nsyscw: 632675\nread_bytes: 22413312\nwrite_bytes: {}\n"
    "cancelled_write_bytes: 8192\n"
)


def written(host: HostTree, pid: int, calls: int, storage: int = 0) -> None:
    host.write({f"proc/{pid}/io": IO.format(calls, storage)})


def read(host: HostTree, reader: IoReader, *pids: int) -> Mapping[str, int] | None:
    reading = reader.read(host.procfs, pids)
    return None if reading is None else reading.written_bytes


def test_what_processes_write_from_then_on_is_added_up(host: HostTree) -> None:
    reader = IoReader()
    written(host, RANK, 500, 400)
    written(host, LOADER, 70, 0)
    assert read(host, reader, RANK, LOADER) == {"storage": 0, "calls": 0}
    written(host, RANK, 1500, 4400)
    written(host, LOADER, 75, 0)
    assert read(host, reader, RANK, LOADER) == {"storage": 4000, "calls": 1005}
    (path := host.procfs / str(RANK) / "io").write_text(path.read_text().replace("22413312", "22413399"))
    reading = reader.read(host.procfs, (RANK, LOADER))
    assert reading is not None
    assert reading.read_bytes == {"storage": 87, "calls": 0}
    # What another wrote before it was seen does not count.
    written(host, OTHER, 9000)
    assert read(host, reader, RANK, LOADER, OTHER) == {"storage": 4000, "calls": 1005}
    written(host, OTHER, 9010)
    assert read(host, reader, RANK, LOADER, OTHER) == {"storage": 4000, "calls": 1015}


@pytest.mark.parametrize(("inherited", "counted"), [(0, 100), (130, 130)])
def test_what_a_child_wrote_counts_once_when_it_ends(host: HostTree, inherited: int, counted: int) -> None:
    """The kernel adds it to the parent that waited for it (kernel/exit.c, wait_task_zombie), or forgets it."""
    reader = IoReader()
    written(host, RANK, 500)
    written(host, LOADER, 0)
    read(host, reader, RANK, LOADER)
    written(host, LOADER, 100)
    read(host, reader, RANK, LOADER)
    (host.procfs / str(LOADER) / "io").unlink()
    written(host, RANK, 500 + inherited)
    assert read(host, reader, RANK, LOADER) == {"storage": 0, "calls": counted}


@pytest.mark.parametrize("unreadable", [RANK, LOADER])
def test_nothing_is_claimed_if_one_of_them_may_not_be_read(host: HostTree, unreadable: int) -> None:
    reader = IoReader()
    written(host, RANK, 500)
    written(host, LOADER, 500)
    assert read(host, reader, RANK, LOADER) is not None
    host.spoil(f"proc/{unreadable}/io")
    assert read(host, reader, RANK, LOADER) is None


@pytest.mark.parametrize("pids", [(), (RANK,)])
def test_nothing_is_claimed_without_processes_or_accounting(host: HostTree, pids: tuple[int, ...]) -> None:
    (host.procfs / str(RANK)).mkdir(parents=True)
    assert read(host, IoReader(), *pids) is None


WORKER = 4300


def job_thread(  # noqa: PLR0917 - the fields of a thread
    host: HostTree,
    pid: int,
    tid: int,
    name: str = "python3",
    state: str = "S",
    seconds: float = 0.0,
    channel: str = "0",
) -> None:
    folder = f"proc/{pid}/task/{tid}"
    ticks = int(seconds * HERTZ)
    host.write({f"{folder}/stat": ANY_STAT.format(tid, name, state, ticks - ticks // 4, ticks // 4)})
    host.write({f"{folder}/wchan": channel})


@dataclass
class ThreadWatch:
    host: HostTree
    reader: ThreadsReader = field(default_factory=ThreadsReader)

    def at(self, seconds: float, *pids: int) -> ThreadsReading:
        reading = self.reader.read(self.host.procfs, pids or (PID,), seconds)
        assert reading is not None
        return reading


def test_a_thread_that_fills_a_cpu_is_named(host: HostTree) -> None:
    job_thread(host, PID, PID, "python3", "R", seconds=100)
    job_thread(host, PID, 4250, "pt_data_pin) x", "S", seconds=10)
    watch = ThreadWatch(host)
    assert watch.at(0.0).busiest is None
    job_thread(host, PID, PID, "python3", "R", seconds=104.9)
    job_thread(host, PID, 4250, "pt_data_pin) x", "S", seconds=11)
    reading = watch.at(5.0)
    assert reading.busiest is not None
    assert (reading.busiest.pid, reading.busiest.name) == (PID, "python3")
    assert reading.busiest.ratio == pytest.approx(0.98)
    assert (reading.running_seconds, reading.blocked_seconds) == (5.0, {})


@pytest.mark.parametrize(
    ("busy_rounds", "least", "most"),
    [
        pytest.param([1.0], 0.3, 0.5, id="a single round"),
        pytest.param([1.0, 0.0] * 4, 0.4, 0.67, id="every other round"),
        pytest.param([0.9] * 8, 0.89, 0.91, id="most of each round"),
        pytest.param([1.0] * 4, 1.0, 1.0, id="all the time"),
    ],
)
def test_a_thread_counts_by_its_average_over_ten_seconds_or_more(
    host: HostTree, busy_rounds: list[float], least: float, most: float
) -> None:
    watch, spent, ratios = ThreadWatch(host), 0.0, []
    for number, share in enumerate([0.0] * 4 + busy_rounds + [0.0] * 4):
        spent += 5.0 * share
        job_thread(host, PID, PID, seconds=spent)
        busiest = watch.at(5.0 * number).busiest
        ratios.append(0.0 if busiest is None else busiest.ratio)
    assert least <= max(ratios) <= most
    assert ratios[-1] == 0.0


@pytest.mark.parametrize("name", ["NCCL Progress 3", "ucx_progress", "ucs_async"])
def test_a_thread_that_polls_the_network_does_not_count(host: HostTree, name: str) -> None:
    """NCCL names its threads in src/proxy.cc: "NCCL Progress%2d" with the number of the device."""
    job_thread(host, PID, PID)
    job_thread(host, PID, 4250, name, "R")
    watch = ThreadWatch(host)
    watch.at(0.0)
    job_thread(host, PID, 4250, name, "R", seconds=5)
    assert watch.at(5.0).busiest == BusiestThread(PID, "python3", 0.0)


def test_workers_are_children_of_the_process_on_the_gpu(host: HostTree) -> None:
    """PyTorch's DataLoader forks them, or has a server fork them: /proc/PID/task/TID/children of proc(5)."""
    job_thread(host, PID, PID)
    for pid, children in ((PID, WORKER), (WORKER, "4301 4302")):
        host.write({f"proc/{pid}/task/{pid}/children": f"{children} \n"})
    job_thread(host, WORKER, WORKER)
    for pid in (4301, 4302):
        job_thread(host, pid, pid, "pt_data_worker", "D", channel="ptlrpc_set_wait")
    watch = ThreadWatch(host)
    watch.at(0.0)
    assert watch.at(5.0).blocked_seconds == {"ptlrpc_set_wait": 10.0}


def test_a_pause_of_the_exporter_is_not_a_wait_of_the_job(host: HostTree) -> None:
    job_thread(host, PID, PID, state="D", channel="nfs_wait")
    watch = ThreadWatch(host)
    watch.at(0.0)
    assert watch.at(3600.0).blocked_seconds == {"nfs_wait": 15.0}


def test_many_threads_are_looked_at_by_turns_and_stand_for_the_others(host: HostTree) -> None:
    job_thread(host, PID, PID)
    for tid in range(5000, 5511):
        job_thread(host, PID, tid, state="D" if tid % 2 else "S", channel="cxiWaitEventWait")
    watch = ThreadWatch(host)
    *_, last = (watch.at(float(seconds)) for seconds in range(0, 605, 5))
    # 256 of 512 threads wait all the time.
    assert last.blocked_seconds["cxiWaitEventWait"] == pytest.approx(256 * 600, rel=0.1)


def test_main_threads_count_without_other_threads_and_children(host: HostTree) -> None:
    watch = ThreadWatch(host)
    host.write({f"proc/{PID}/task/{PID}/children": f"{WORKER} "})
    read = []
    for number, spent in enumerate((100.0, 104.0, 109.0, 1.0, 1.5)):  # then the PID is another process's
        job_thread(host, PID, PID, seconds=spent)
        job_thread(host, PID, 4250, "NCCL Progress 3", "R", seconds=5.0 * number)
        job_thread(host, WORKER, WORKER, seconds=3.0 * number)
        read.append(watch.at(5.0 * number).main_seconds)
    assert read == [0.0, 4.0, 9.0, 9.0, 9.5]


def test_a_main_thread_is_looked_at_each_time_though_there_are_many(host: HostTree) -> None:
    for number in range(300):
        job_thread(host, PID, PID + number)
    watch, read = ThreadWatch(host), []
    for number in range(6):
        job_thread(host, PID, PID, seconds=0.5 * number)
        read.append(watch.at(5.0 * number).main_seconds)
    assert read == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


def test_a_thread_that_waits_is_looked_at_each_time_though_there_are_many(host: HostTree) -> None:
    job_thread(host, PID, PID)
    for tid in range(5000, 5511):
        job_thread(host, PID, tid)
    job_thread(host, PID, 5100, state="D", channel="nfs_wait_bit_killable")
    watch = ThreadWatch(host)
    counted = [watch.at(5.0 * number).blocked_seconds.get("nfs_wait_bit_killable", 0.0) for number in range(41)]
    assert counted[-1] - counted[10] == pytest.approx(150.0)


def test_kinds_of_waits_are_bounded(host: HostTree) -> None:
    job_thread(host, PID, PID)
    watch = ThreadWatch(host)
    for tid in range(5000, 5040):
        job_thread(host, PID, tid, state="D", channel=f"wait_{tid}")
    watch.at(0.0)
    blocked = watch.at(5.0).blocked_seconds
    assert len(blocked) == 17
    assert sum(blocked.values()) == 200.0


def test_without_threads_nothing_is_claimed(host: HostTree) -> None:
    host.mount()
    reader = ThreadsReader()
    assert reader.read(host.procfs, (PID,), 0.0) is None
    assert reader.read(host.procfs, (), 0.0) is None
    host.write({f"proc/{PID}/task/{PID}/stat": "4242 (python3) S 1\n"})
    assert reader.read(host.procfs, (PID,), 60.0) is None
