"""What threads of jobs do: one that fills a CPU, and those that wait in the kernel."""

import os
from dataclasses import dataclass, field

import pytest
from tests.host_tree import HostTree

from gpu_triage.read.processes.threads import BusiestThread, ThreadsReader, ThreadsReading

PID, WORKER = 4242, 4300
HERTZ = os.sysconf("SC_CLK_TCK")
# Fields of proc(5): the name, the state, utime and stime as the 14th and 15th, processor as the 39th.
STAT = "{} ({}) {} 1 4242 4242 0 -1 4194560 99887 0 210 0 {} {} 11 12 20 0 311 0 8812345 0 0" + " 0" * 28 + "\n"


def thread(  # noqa: PLR0917 - the fields of a thread
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
    host.write({f"{folder}/stat": STAT.format(tid, name, state, ticks - ticks // 4, ticks // 4)})
    host.write({f"{folder}/wchan": channel})


@dataclass
class Watch:
    host: HostTree
    reader: ThreadsReader = field(default_factory=ThreadsReader)

    def at(self, seconds: float, *pids: int) -> ThreadsReading:
        reading = self.reader.read(self.host.procfs, pids or (PID,), seconds)
        assert reading is not None
        return reading


def test_a_thread_that_fills_a_cpu_is_named(host: HostTree) -> None:
    thread(host, PID, PID, "python3", "R", seconds=100)
    thread(host, PID, 4250, "pt_data_pin) x", "S", seconds=10)
    watch = Watch(host)
    assert watch.at(0.0).busiest is None
    thread(host, PID, PID, "python3", "R", seconds=104.9)
    thread(host, PID, 4250, "pt_data_pin) x", "S", seconds=11)
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
    watch, spent, ratios = Watch(host), 0.0, []
    for number, share in enumerate([0.0] * 4 + busy_rounds + [0.0] * 4):
        spent += 5.0 * share
        thread(host, PID, PID, seconds=spent)
        busiest = watch.at(5.0 * number).busiest
        ratios.append(0.0 if busiest is None else busiest.ratio)
    assert least <= max(ratios) <= most
    assert ratios[-1] == 0.0


@pytest.mark.parametrize("name", ["NCCL Progress 3", "NCCL Service  0", "ucx_progress", "ucs_async"])
def test_a_thread_that_polls_the_network_does_not_count(host: HostTree, name: str) -> None:
    """NCCL names its threads in src/proxy.cc: "NCCL Progress%2d" with the number of the device."""
    thread(host, PID, PID)
    thread(host, PID, 4250, name, "R")
    watch = Watch(host)
    watch.at(0.0)
    thread(host, PID, 4250, name, "R", seconds=5)
    assert watch.at(5.0).busiest == BusiestThread(PID, "python3", 0.0)


def test_workers_are_children_of_the_process_on_the_gpu(host: HostTree) -> None:
    """PyTorch's DataLoader forks them, or has a server fork them: /proc/PID/task/TID/children of proc(5)."""
    thread(host, PID, PID)
    host.write(
        {f"proc/{PID}/task/{PID}/children": f"{WORKER} \n", f"proc/{WORKER}/task/{WORKER}/children": "4301 4302 \n"}
    )
    thread(host, WORKER, WORKER)
    thread(host, 4301, 4301, "pt_data_worker", "D", channel="ptlrpc_set_wait")
    thread(host, 4302, 4302, "pt_data_worker", "D", channel="ptlrpc_set_wait")
    watch = Watch(host)
    watch.at(0.0)
    assert watch.at(5.0).blocked_seconds == {"ptlrpc_set_wait": 10.0}


@pytest.mark.parametrize(
    ("channel", "told", "after", "seconds"),
    [
        # Without ptrace rights the kernel writes 0 (fs/proc/base.c, proc_pid_wchan).
        *((hidden, "", 5.0, 5.0) for hidden in ("0", "", "0xffffffff81234567")),
        # A pause of the exporter is not a wait of the job.
        ("nfs_wait", "nfs_wait", 3600.0, 15.0),
    ],
)
def test_waits_by_channel(host: HostTree, channel: str, told: str, after: float, seconds: float) -> None:
    thread(host, PID, PID, state="D", channel=channel)
    watch = Watch(host)
    watch.at(0.0)
    assert watch.at(after).blocked_seconds == {told: seconds}


def test_many_threads_are_looked_at_by_turns_and_stand_for_the_others(host: HostTree) -> None:
    thread(host, PID, PID)
    for tid in range(5000, 5511):
        thread(host, PID, tid, state="D" if tid % 2 else "S", channel="cxiWaitEventWait")
    watch = Watch(host)
    *_, last = (watch.at(float(seconds)) for seconds in range(0, 605, 5))
    # 256 of 512 threads wait all the time.
    assert last.blocked_seconds["cxiWaitEventWait"] == pytest.approx(256 * 600, rel=0.1)


def test_main_threads_count_without_other_threads_and_children(host: HostTree) -> None:
    watch = Watch(host)
    host.write({f"proc/{PID}/task/{PID}/children": f"{WORKER} "})
    read = []
    for number, spent in enumerate((100.0, 104.0, 109.0, 1.0, 1.5)):  # then the PID is another process's
        thread(host, PID, PID, seconds=spent)
        thread(host, PID, 4250, "NCCL Progress 3", "R", seconds=5.0 * number)
        thread(host, WORKER, WORKER, seconds=3.0 * number)
        read.append(watch.at(5.0 * number).main_seconds)
    assert read == [0.0, 4.0, 9.0, 9.0, 9.5]


def test_a_main_thread_is_looked_at_each_time_though_there_are_many(host: HostTree) -> None:
    for number in range(300):
        thread(host, PID, PID + number)
    watch, read = Watch(host), []
    for number in range(6):
        thread(host, PID, PID, seconds=0.5 * number)
        read.append(watch.at(5.0 * number).main_seconds)
    assert read == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


def test_a_thread_that_waits_is_looked_at_each_time_though_there_are_many(host: HostTree) -> None:
    thread(host, PID, PID)
    for tid in range(5000, 5511):
        thread(host, PID, tid)
    thread(host, PID, 5100, state="D", channel="nfs_wait_bit_killable")
    watch = Watch(host)
    counted = [
        watch.at(float(seconds)).blocked_seconds.get("nfs_wait_bit_killable", 0.0) for seconds in range(0, 205, 5)
    ]
    assert counted[-1] - counted[10] == pytest.approx(150.0)


def test_kinds_of_waits_are_bounded(host: HostTree) -> None:
    thread(host, PID, PID)
    watch = Watch(host)
    for tid in range(5000, 5040):
        thread(host, PID, tid, state="D", channel=f"wait_{tid}")
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
