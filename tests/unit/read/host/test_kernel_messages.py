"""Messages as kernels 5.4 to 6.12 and NVIDIA's modules print them (kernel_messages.tsv), and what is made of each.

The host's collector makes counts, times and owners of what was killed of a log.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.host_tree import HostTree
from tests.rules.rulefile import REPOSITORY

from gpu_triage.machine import Moment, real_machine
from gpu_triage.read.host.driver_messages import parse_driver_message
from gpu_triage.read.host.kernel_log import HOST_KERNEL_LOG, HostKernelLogReader, HostKernelLogReading
from gpu_triage.read.host.kernel_messages import (
    PcieError,
    ProblemKind,
    corrected_errors,
    parse_failing_gpu,
    parse_host_message,
    parse_kill_order,
    parse_pcie_error,
    parse_trouble_over,
)
from gpu_triage.read.metrics.contract import HostRound
from gpu_triage.read.xid.kernel_records import ROUND_BYTES

PARSERS = {"host": parse_host_message, "over": parse_trouble_over, "driver": parse_driver_message}


class Message(NamedTuple):
    """A message, the parser that understands it ("none" if none does), and what it finds."""

    parser: str
    kind: str
    subject: str
    text: str  # records of several lines have newlines


def messages() -> list[Message]:
    _, *rows = Path(__file__).with_name("kernel_messages.tsv").read_text(encoding="utf-8").splitlines()
    return [Message(*row.replace("\\n", "\n").split("\t")) for row in rows]


MESSAGES = messages()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.text[:60])
def test_a_message_is_understood_by_one_parser(message: Message) -> None:
    found = {
        name: (said.trouble.value, said.subject)
        for name, parse in PARSERS.items()
        if (said := parse(message.text)) is not None
    }
    assert found == ({} if message.parser == "none" else {message.parser: (message.kind, message.subject)})


def test_every_kind_has_a_message() -> None:
    told = {message.kind for message in MESSAGES if message.parser in ("host", "driver")}
    assert told == {trouble.value for trouble in ProblemKind}


def test_a_process_is_named_by_its_pid_too() -> None:
    texts = [message.text for message in MESSAGES if message.kind in ("oom_kill", "hung_task")]
    said = [parse_host_message(text) for text in texts]
    assert [each.pid if each else None for each in said] == [31337, 4242, 812, 4242, 1234, 99]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("EDAC MC2: 300 CE single-symbol chipkill ECC on unknown memory (node: 0)", 300),
        ("EDAC MC1: 1 UE Multi-bit ECC on P1-DIMMA1 (csrow:0 channel:0)", 0),
        ("EDAC MC0: Giving out device to module skx_edac", 0),
    ],
)
def test_corrected_errors_are_as_many_as_the_message_says(text: str, count: int) -> None:
    assert corrected_errors(text) == count


def test_the_oom_killer_says_whose_process_it_chose() -> None:
    text = (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-aa.scope,mems_allowed=0-1,"
        "oom_memcg=/kubepods.slice/kubepods-pod1.slice,task_memcg=/kubepods.slice/kubepods-pod1.slice/"
        "cri-containerd-aa.scope,task=python3,pid=4242,uid=1000"
    )
    cgroup = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-aa.scope"
    assert parse_kill_order(text) == (4242, cgroup)
    assert parse_kill_order(text[:-4]) is None
    assert parse_kill_order("Out of memory: Killed process 4242 (python3)") is None


PCIE_ERRORS = Path(__file__).with_name("pcie_errors.tsv").read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("row", PCIE_ERRORS)
def test_pcie_errors_are_read_in_the_words_of_every_kernel(row: str) -> None:
    _, address, severity, port, driver, text = row.split("\t")
    assert parse_pcie_error(text) == PcieError(address, severity, port, driver)


def test_the_details_of_a_pcie_error_tell_a_gpu_by_its_vendor() -> None:
    said = "{}:   device [10de:{}] error status/mask=00001000/0"
    assert parse_failing_gpu(said.format("vfio-pci 0000:34:00.0", "2684")) == "0000:34:00.0"
    assert parse_failing_gpu(said.format("nvidia-nvswitch 0000:c1:00.0", "1af1")) is None
    assert parse_failing_gpu(said.format("snd_hda_intel 0000:34:00.1", "22ba")) is None


BEGINNINGS = ("", "NVRM: ", "nvidia-peermem x:1 ERROR ", "mlx5_core 0000:01:00.0: ", "oom-kill:constraint=")


@given(st.text(max_size=400))
def test_no_text_raises_or_names_anything_long(text: str) -> None:
    for beginning in BEGINNINGS:
        said = [parse(beginning + text) for parse in PARSERS.values()]
        assert all(len(each.subject) <= 64 for each in said if each is not None)
        parse_kill_order(beginning + text)


WALL = 1_768_435_200.0
POD = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
CONTAINER = "0123456789abcdef" * 4
KILLED = "Memory cgroup out of memory: Killed process 4242 (python3) total-vm:7kB, anon-rss:6kB, UID:0 oom_score_adj:9"
ORDER = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=/kubepods.slice,"
    f"task_memcg=/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope,"
    "task=python3,pid=4242,uid=0"
)


class Host:
    """A kernel log that grows, and a reader of it."""

    def __init__(self, root: Path) -> None:
        self.path = root / "kmsg"
        self.path.touch()
        self.reader = HostKernelLogReader()
        self.sequence = 0

    def log(self, text: str, seconds: float, priority: int = 4) -> None:
        self.sequence += 1
        with self.path.open("a") as file:
            file.write(f"{priority},{self.sequence},{round(seconds * 1e6)},-;{text}\n")

    def read(self, seconds: float = 1000.0) -> HostKernelLogReading:
        machine = real_machine(Path("/none"), self.path.parent / "proc", self.path)
        return self.reader.read(HostRound(machine, Moment(seconds, WALL + seconds - 1000.0)))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def rendered(reading: HostKernelLogReading, name: str) -> dict[tuple[str, ...], float]:
    return {sample.labels: sample.value for sample in HOST_KERNEL_LOG.render(reading) if sample.spec.name == name}


def test_every_kind_is_counted_from_0_and_has_no_time_before_the_kernel_says_so(host: Host) -> None:
    host.log("EXT4-fs (sda1): Remounting filesystem read-only", 100.0, priority=12)  # a process wrote this
    reading = host.read()
    assert rendered(reading, "gpu_host_kernel_events_total") == {(trouble.value,): 0.0 for trouble in ProblemKind}
    assert (reading.last, reading.kills) == ({}, {})


def test_a_message_is_counted_and_stamped_with_the_kernels_time(host: Host) -> None:
    host.log("nvme nvme0: I/O 12 QID 5 timeout, aborting", 100.0)
    host.log("nvme nvme0: I/O 13 QID 5 timeout, aborting", 990.0)
    reading = host.read()
    assert reading.events["nvme_timeout"] == 2
    assert rendered(reading, "gpu_host_kernel_event_last_timestamp_seconds") == {("nvme_timeout", "nvme0"): WALL - 10.0}
    assert host.read(1005.0).events["nvme_timeout"] == 2


OF_SLURM = (
    f"{ORDER.partition('task_memcg=')[0]}task_memcg=/system.slice/slurmstepd.scope/job_4711,task=a,pid=4242,uid=0"
)


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        ((ORDER, KILLED), ("4242", "python3", CONTAINER, POD, "")),
        ((OF_SLURM, KILLED), ("4242", "python3", "", "", "4711")),
        # An older kernel names no owner.
        (("Out of memory: Kill process 812 (java) score 901 or sacrifice child",), ("812", "java", "", "", "")),
    ],
)
def test_a_killed_process_is_told_with_its_owner(host: Host, texts: tuple[str, ...], labels: tuple[str, ...]) -> None:
    for text in texts:
        host.log(text, 998.0)
    reading = host.read()
    assert reading.events["oom_kill"] == 1
    assert rendered(reading, "gpu_host_oom_kill_timestamp_seconds") == {labels: WALL - 2.0}


def test_a_kill_is_told_for_an_hour_and_a_time_for_a_day_once_although_its_pid_is_killed_twice(host: Host) -> None:
    host.log(KILLED, 990.0)
    host.log(KILLED, 998.0)
    assert list(rendered(host.read(), "gpu_host_oom_kill_timestamp_seconds").values()) == [WALL - 2.0]
    later = host.read(998.0 + 3601.0)
    assert (later.kills, later.last) == ({}, {("oom_kill", "python3 (4242)"): WALL - 2.0})
    latest = host.read(998.0 + 86_401.0)
    assert (latest.last, latest.events["oom_kill"]) == ({}, 2)


def test_a_filesystem_is_read_only_until_it_is_mounted_anew_and_a_server_silent_until_it_answers(host: Host) -> None:
    host.log("EXT4-fs (sda3): Remounting filesystem read-only", 100.0)
    host.log("EXT4-fs (sdb1): Remounting filesystem read-only", 101.0)
    assert len(host.read(100_000.0).last) == 2
    host.log("EXT4-fs (sda3): re-mounted 5e0f3f2c-4e4e-4b3a-9f3a-1b2c3d4e5f60 r/w. Quota mode: none.", 100_001.0)
    reading = host.read(100_002.0)
    assert list(reading.last) == [("filesystem_read_only", "sdb1")]
    assert reading.events["filesystem_read_only"] == 2
    host.log("nfs: server nas01 not responding, still trying", 100_003.0)
    assert ("nfs_not_responding", "nas01") in host.read(100_010.0).last
    host.log("nfs: server nas01 OK", 100_011.0)
    assert list(host.read(100_012.0).last) == [("filesystem_read_only", "sdb1")]


def test_what_a_soft_mount_gave_up_on_is_told_for_ten_minutes_unless_others_wait_for_it(host: Host) -> None:
    host.log("nfs: server nas01 not responding, timed out", 900.0)
    assert list(host.read().last) == [("nfs_not_responding", "nas01")]
    assert host.read(1501.0).last == {}
    host.log("nfs: server nas01 not responding, still trying", 1600.0)
    host.log("nfs: server nas01 not responding, timed out", 1601.0)
    assert list(host.read(9000.0).last) == [("nfs_not_responding", "nas01")]


@pytest.mark.parametrize("end", ["AER: device recovery successful", "pciehp: Slot(3): Link Up"])
def test_a_port_that_recovers_is_told_for_ten_minutes_and_one_that_does_not_for_longer(host: Host, end: str) -> None:
    for port in ("0000:a9:10.0", "0000:b3:10.0"):
        host.log(f"pcieport {port}: DPC: containment event, status:0x1f01 source:0x0000", 990.0)
    host.log(f"pcieport 0000:a9:10.0: {end}", 990.5)
    assert len(host.read().last) == 2
    assert list(host.read(1591.0).last) == [("pcie_dpc", "0000:b3:10.0")]


@pytest.mark.parametrize(
    ("stat", "told_after"),
    [("python3) D", (60, 900, 7200)), ("python3) S", ()), ("other) D", (60, 900)), ("", (60, 900)), ("ns", (60, 900))],
    ids=["blocked", "runs", "another process", "not visible", "of another namespace"],
)
def test_a_task_hangs_while_it_is_blocked(host: Host, stat: str, told_after: tuple[int, ...]) -> None:
    host.log("INFO: task python3:4242 blocked for more than 122 seconds.", 1000.0)
    folder = host.path.parent / "proc" / "4242"
    folder.mkdir(parents=True)
    if stat == "ns":
        stat = "python3) S"
        HostTree(host.path.parent).in_container()
    if stat:
        (folder / "stat").write_text(f"4242 ({stat}" + " 1" * 50)
    assert tuple(after for after in (60, 900, 7200) if host.read(1000.0 + after).last) == told_after


def test_every_kind_has_an_ending_that_the_documentation_tells() -> None:
    lines = (REPOSITORY / "docs" / "kernel-events.md").read_text(encoding="utf-8").replace("\n  ", " ").split("\n")
    lasting = {kind.value for kind in ProblemKind if kind.ending.name != "MOMENTARY"}
    told = {match[1]: "Until " in line for line in lines if (match := re.match(r"- `(\w+)`", line))}
    assert told == {kind.value: kind.value in lasting for kind in ProblemKind}


def test_of_many_subjects_the_latest_are_told_and_all_are_counted(host: Host) -> None:
    for pid in range(1, 101):
        host.log(f"INFO: task python3:{pid} blocked for more than 122 seconds.", 500.0 + pid)
        host.log(KILLED.replace("4242", str(pid)), 500.0 + pid)
    reading = host.read()
    assert (reading.events["hung_task"], reading.events["oom_kill"]) == (100, 100)
    hung = [subject for kind, subject in reading.last if kind == "hung_task"]
    assert hung == [f"python3 ({pid})" for pid in range(93, 101)]
    assert [pid for pid, *_ in reading.kills] == [str(pid) for pid in range(85, 101)]


def test_until_the_past_is_read_nothing_is_counted(host: Host) -> None:
    """A count that began at 0 and rose by all that the log holds would look like trouble of now."""
    for _ in range(2 * ROUND_BYTES // 1000):
        host.log("x" * 1000, 100.0)
    host.log("nvme nvme0: I/O 12 QID 5 timeout, aborting", 100.0)
    assert host.read().events == {}
    while not (reading := host.read()).events:
        pass
    assert reading.events["nvme_timeout"] == 1


@pytest.mark.parametrize("missing", [True, False])
def test_a_log_out_of_reach_says_nothing_and_is_no_failure(host: Host, *, missing: bool) -> None:
    host.path.unlink()
    if not missing:
        machine = real_machine(Path("/none"), Path("/none"), None)
        reading = HostKernelLogReader().read(HostRound(machine, Moment(0.0, 0.0)))
    else:
        reading = host.read()
    assert list(HOST_KERNEL_LOG.render(reading)) == []


def test_a_failure_of_the_driver_is_counted_and_stays_until_it_was_loaded_again(host: Host) -> None:
    mismatch = "the client has the version 1.25, but\\x0aNVRM: this kernel module has the version 1.12."
    host.log(f"NVRM: API mismatch: {mismatch}", 1)
    host.log("NVRM: GPU 0000:42:00.0: RmInitAdapter failed! (0x62:0x40:2393)", 2)
    assert set(host.read(200_000.0).last) == {
        ("driver_version_mismatch", "client 1.25, kernel module 1.12"),
        ("gpu_init_failed", "0000:42:00.0"),
    }
    host.log("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05", 200_001)
    reading = host.read(200_002.0)
    assert (reading.last, reading.events["gpu_init_failed"]) == ({}, 1)


def test_what_failed_while_the_driver_was_being_loaded_stays_after_it_was(host: Host) -> None:
    host.log("NVRM: GPU 0000:41:00.0 is already bound to NovaCore.", 1.0)
    host.log("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05", 4.0)
    assert set(host.read().last) == {("gpu_bound_elsewhere", "0000:41:00.0")}
    host.log("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05", 61.0)
    assert host.read().last == {}
