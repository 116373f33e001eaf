"""What NCCL's RAS reports, in its two formats: compared once with the real one of 2.24.3, 2.27.7, 2.28.9 and 2.30.7."""

import json
import re
import socket
import socketserver
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rig import only, rig

from gpu_triage.errors import HostReadFailed
from gpu_triage.read.processes import nccl_ras
from gpu_triage.read.processes.nccl_ras import (
    LATE_SECONDS,
    LONGEST_PAUSE,
    MOST,
    JobReader,
    JobReading,
    RankGpu,
    ask,
    parse,
)
from gpu_triage_simulator import load_scenario

GREETING = "SERVER PROTOCOL 2\nOK\nOK\n"
OLD_GREETING = "SERVER PROTOCOL 2\nOK\nERROR: Unknown command SET FORMAT json\n"
HERE, THERE, FAR = "127.0.0.1", "203.0.113.7", "2001:db8::7"
"""The tests run on the host of the first address."""

Launched = Mapping[int, int | str]
"""What a communicator's rank launched, or what NCCL writes of it instead, by the rank's number in the job."""


def gpu_of(rank: int, hosts: tuple[str, ...]) -> RankGpu:
    """Two ranks a host, the rest on the last one."""
    return RankGpu(hosts[min(rank // 2, len(hosts) - 1)], str(4000 + rank), str(rank % 2))


FLAGS = ("finalize_called", "destroy_flag", "abort_flag")


def document(communicators: Iterable[Launched], hosts: tuple[str, ...] = (HERE, THERE, FAR)) -> str:
    """What is read of the answer of NCCL 2.30 in JSON; `hosts` are those of two ranks each."""
    written = []
    for number, launched in enumerate(communicators):
        ranks, missing = [], []
        for place, (rank, value) in enumerate(launched.items()):
            host, pid, gpu = gpu_of(rank, hosts) if value != "unknown" else ("unknown", -1, 0)
            known = {"rank": place, "host": host, "pid": int(pid), "cuda_dev": 0, "nvml_dev": int(gpu)}
            status: dict[str, object] = {"unresponsive": value != "left", "considered_dead": value == "dead"}
            if isinstance(value, int) or value in FLAGS:
                status = {"init_state": 0, **{flag: flag == value for flag in FLAGS}}
                counts = {"Broadcast": 0, "AllGather": 40, "AllReduce": value if isinstance(value, int) else 1}
                ranks.append({**known, "status": status, "collective_counts": counts})
            else:
                missing.append({**known, "status": status})
        of_all = {"hash": f"0x{0xA0 + number:x}", "secondary_hash": "0x1:0x2", "size": len(launched)}
        written.append({**of_all, "ranks": ranks, "missing_ranks": missing})
    return json.dumps({"nccl_version": "2.30.7", "communicators": written, "ras": {}}, indent=2) + "\n"


WELL, UNEVEN, TROUBLE = (
    (Path(__file__).parent / "files" / f"nccl-ras-{name}.txt").read_text() for name in ("well", "uneven", "trouble")
)
"""Of NCCL 2.27.7; of processes with different numbers of GPUs; with lost and late ranks."""
EVEN_TOTAL = "      4          2            1          8        8\n"
OLD = TROUBLE.replace("different AllReduce operation", "different collective operation")
"""NCCL 2.24 and 2.25 do not tell kinds of operations apart."""
LOST_RANKS = {("unresponsive", "5", "4005"), ("dead", "6", "4006"), ("dead", "", "4006")}


class Ras(socketserver.ThreadingTCPServer):
    """Answers as the RAS thread does, which closes the connection after the status.

    Each answer serves one client, the last one all others. None reads on and never writes, as a stopped process.
    """

    def __init__(self, *answers: str | Iterable[bytes] | None, family: int = socket.AF_INET) -> None:
        self.address_family = family
        self.answers, self.asked = list(answers), 0
        super().__init__(("::1" if family == socket.AF_INET6 else HERE, 0), RasClient)


class RasClient(socketserver.StreamRequestHandler):
    server: Ras

    def handle(self) -> None:
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            self.rfile.read()
            return
        while not self.rfile.readline().strip().upper().endswith(b"STATUS"):
            pass
        self.server.asked += 1
        as_text = isinstance(answer, str) and not answer.startswith("{")
        with suppress(OSError):
            self.wfile.write((OLD_GREETING if as_text else GREETING).encode())
            for part in (answer.encode(),) if isinstance(answer, str) else answer:
                self.wfile.write(part)
            if not isinstance(answer, str):
                self.rfile.read()


@contextmanager
def ras(*answers: str | Iterable[bytes] | None, family: int = socket.AF_INET) -> Iterator[tuple[Ras, str]]:
    """Run such a server; yields it and its address."""
    with Ras(*answers, family=family) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        host, port = server.server_address[:2]
        try:
            yield server, f"[{host!s}]:{port}" if family == socket.AF_INET6 else f"{host!s}:{port}"
        finally:
            server.shutdown()
            thread.join()


def readings(*answers: str, seconds: float = LATE_SECONDS) -> list[JobReading | None]:
    """What is read of these answers, so many seconds apart."""
    with ras(*answers) as (_, address):
        reader = JobReader(address)
        return [reader.read(number * seconds, 4.0) for number in range(len(answers))]


def awaited(reading: JobReading | None) -> set[tuple[str, str, str]]:
    """State, number and PID of each rank that the job waits for."""
    assert reading is not None
    return {(labels[0], labels[2], labels[4]) for labels in reading.awaited}


def late_ranks(reading: JobReading | None) -> set[int]:
    """The numbers in the job of those that are late."""
    return {int(pid) - 4000 for state, _, pid in awaited(reading) if state == "late"}


def test_a_job_is_published_with_whom_it_waits_for() -> None:
    launched: Launched = {0: 7, 1: 7, 2: 6, 3: "dead", 4: 7, 5: "unresponsive"}
    with ras(document([{0: 3, 1: 3}, launched])) as (_, address):
        running = rig(load_scenario("dual-a10"), only("nccl_ras", nccl_ras_address=(address,)))
        with running as exporter:
            exporter.run(130)
            states = {labels["state"]: value for labels, value in exporter.series("gpu_nccl_ranks", address=address)}
            assert states == {"active": 3, "late": 1, "unresponsive": 1, "dead": 1}
            assert exporter.value("gpu_nccl_communicators", address=address) == 2
            counts = {each["communicator"][-2:]: n for each, n in exporter.series("gpu_nccl_operations_total")}
            assert counts == {"a0": 43, "a1": 46}
            ((named, _),) = exporter.series("gpu_nccl_awaited_rank_info", state="dead")
            place = {"communicator": "00000000000000a1", "rank": "3"}
            gpu = {"rank_host": THERE, "rank_pid": "4003", "rank_gpu": "1"}
            assert named == {"address": address, "state": "dead", **place, **gpu}
            assert exporter.value("gpu_exporter_collector_success", collector="nccl_ras") == 1


def test_communicators_that_differ_in_their_second_hash_alone_are_counted() -> None:
    (reading,) = readings(document([{0: 5, 1: 5}, {2: 7, 3: 7}]).replace("0xa1", "0xa0"))
    assert reading is not None
    assert reading.communicators == 2


def test_an_address_without_a_job_lacks_nothing_and_a_failure_at_one_leaves_the_others() -> None:
    with socket.create_server((HERE, 0)) as free:
        nobody = f"{HERE}:{free.getsockname()[1]}"
    assert JobReader(nobody).read(0.0, 4.0) is None
    with ras(document([{0: 1, 1: 1}])) as (_, well), ras("HTTP/1.1 400 Bad Request\r\n\r\n") as (_, other):
        config = only("nccl_ras", nccl_ras_address=(nobody, well, other))
        with rig(load_scenario("dual-a10"), config) as exporter:
            exporter.run(5)
            errors = exporter.series("gpu_exporter_errors_total", collector="nccl_ras")
            assert [(labels["error"], count) for labels, count in errors] == [("malformed", 1)]
            assert [labels["address"] for labels, _ in exporter.series("gpu_nccl_communicators")] == [well]


@pytest.mark.parametrize(
    ("before", "after", "seconds", "late"),
    [
        ([{0: 7, 1: 6}], [{0: 7, 1: 6}], LATE_SECONDS, {1}),
        ([{0: 7, 1: 6}], [{0: 7, 1: 6}], LATE_SECONDS - 0.1, set()),
        ([{0: 7, 1: 6}], [{0: 8, 1: 7}], LATE_SECONDS, set()),
        # Others may still launch what they do not wait for: it is the slowest that does not advance.
        ([{0: 7, 1: 7, 2: 6}], [{0: 9, 1: 7, 2: 6}], LATE_SECONDS, {2}),
        ([{0: 7, 1: 7}], [{0: 7, 1: 7}], LATE_SECONDS, set()),
        ([{0: 7, 1: "finalize_called"}], [{0: 7, 1: "finalize_called"}], LATE_SECONDS, set()),
        ([{0: 7, 1: 6}], [{0: 7, 1: "dead"}], LATE_SECONDS, set()),
        # 2 and 3 are late for 0 and 1, but 2 waits for 3.
        ([{0: 7, 1: 7, 2: 6, 3: 6}, {2: 5, 3: 4}], [{0: 7, 1: 7, 2: 6, 3: 6}, {2: 5, 3: 4}], LATE_SECONDS, {3}),
        # Each waits for the other, in different communicators.
        ([{0: 7, 1: 6}, {0: 2, 1: 3}], [{0: 7, 1: 6}, {0: 2, 1: 3}], LATE_SECONDS, {0, 1}),
    ],
)
def test_a_rank_is_late_when_others_wait_for_it_alone(
    before: list[Launched], after: list[Launched], seconds: float, late: set[int]
) -> None:
    _, reading = readings(document(before), document(after), seconds=seconds)
    assert late_ranks(reading) == late
    assert reading is not None
    assert reading.ranks["late"] == len(late)


@pytest.mark.parametrize(
    ("value", "is_named"), [("dead", True), ("unresponsive", True), ("left", False), ("unknown", False)]
)
def test_a_rank_that_does_not_respond_is_named_if_its_process_is_known(value: str, *, is_named: bool) -> None:
    whole = document([{0: 7, 1: value}])
    (reading,) = readings(whole)
    assert awaited(reading) == ({(value, "1", "4001")} if is_named else set())
    without_comma = re.sub(r'("nvml_dev": [0-9]+),(\s+"status": \{\s+"unresponsive")', r"\1\2", whole)
    assert without_comma != whole
    assert parse(GREETING + without_comma) == parse(GREETING + whole)


@pytest.mark.parametrize(
    ("text", "active", "lost", "late"),
    [
        (WELL, 8, set(), set()),
        (UNEVEN, 8, set(), set()),
        (TROUBLE, 5, LOST_RANKS, {0, 2, 3}),
        (OLD, 5, LOST_RANKS, {0, 2, 3}),
    ],
)
def test_text_is_read_of_every_host_that_asks_and_tells_who_is_late(
    text: str, active: int, lost: set[tuple[str, str, str]], late: set[int]
) -> None:
    gone_on = text.replace("operation 90", "operation 91")
    gone_on = gone_on.replace("not launched any operations", "launched up to operation 1")
    first, second, third = readings(text, text, gone_on)
    assert first is not None
    assert (first.communicators, first.ranks["active"], awaited(first)) == (5, active, lost)
    assert first.operations == {}  # it tells only counts that differ
    assert late_ranks(second) == late
    assert late_ranks(third) == set()


def test_late_ranks_that_the_text_does_not_list_are_not_none() -> None:
    unlisted = TROUBLE.replace("2 ranks have launched up to operation 90", "4 ranks have launched up to operation 90")
    unlisted = re.sub("  Rank [23] -- GPU [01] managed by process 400[23] .*\n", "", unlisted)
    lost = {"unresponsive": 1, "dead": 2}
    found = [reading.ranks for reading in readings(unlisted, unlisted) if reading]
    assert found == [{"active": 5, "late": 0, **lost}, lost]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "malformed"),
        ("", "malformed"),
        (document([{0: 7, 1: 7}])[:-200], "malformed"),
        ("{" * 100_000, "malformed"),
        (WELL.partition("Warnings")[0], "malformed"),
        (WELL.replace(EVEN_TOTAL, ""), "malformed"),
        ((b"x" * (1 << 20) for _ in range(64)), "too_large"),
        ((b"{",), "timeout"),
        (None, "timeout"),
    ],
)
def test_a_failure_has_a_name(
    answer: str | Iterable[bytes] | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_ras, "PROMPT_SECONDS", 0.05)
    seconds = 60.0 if reason == "too_large" else 0.2
    with ras(answer) as (server, address), pytest.raises(HostReadFailed) as failure:
        JobReader(address).read(0.0, seconds)
    assert failure.value.reason == reason
    assert server.asked == (answer is not None)  # the job is not asked twice


def test_an_address_without_a_route_is_an_error() -> None:
    with pytest.raises(HostReadFailed) as failure:
        ask("[fe80::1]:28028", 1.0)  # the kernel asks for an interface
    assert failure.value.reason == "io_error"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_stopped_process_at_the_same_port_is_passed_over(family: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_ras, "PROMPT_SECONDS", 0.05)
    with ras(None, None, document([{0: 7, 1: 7}]), family=family) as (server, address):
        assert JobReader(address).read(0.0, 60.0) is not None
    assert server.asked == 1


OTHERS = tuple(f"203.0.113.{number}" for number in range(1, 9))


@pytest.mark.parametrize(
    ("hosts", "published", "asked"),
    [
        ((HERE, *OTHERS), 40, 40),
        ((OTHERS[0], HERE, *OTHERS[1:]), 0, 20),
        ((*OTHERS[:3], HERE), 0, 5),
        ((*OTHERS, HERE), 0, 40 // LONGEST_PAUSE),
        (OTHERS, 40, 40),  # of another machine, or through an address that is not the job's
    ],
)
def test_one_host_of_a_job_publishes_it_and_the_others_seldom_ask(
    hosts: tuple[str, ...], published: int, asked: int
) -> None:
    with ras(document([dict.fromkeys(range(2 * len(hosts)), 7)], hosts)) as (server, address):
        reader = JobReader(address)
        found = [reader.read(60.0 * number, 60.0) for number in range(40)]
    assert sum(each is not None for each in found) == published
    assert server.asked == asked


def test_the_next_host_takes_over_when_the_first_does_not_respond() -> None:
    hosts = (THERE, HERE)
    well, gone = document([{0: 7, 2: 7}], hosts), document([{0: "unresponsive", 2: 7}], hosts)
    first, paused, taken = readings(well, gone, gone)
    assert (first, paused) == (None, None)
    assert awaited(taken) == {("unresponsive", "0", "4000")}


def test_a_counter_does_not_go_back_when_a_rank_returns() -> None:
    found = readings(*(document([{0: 90, 1: value}]) for value in (80, "unresponsive", 85, 95)))
    assert [each.operations["00000000000000a0"] for each in found if each] == [120, 130, 130, 130]


def test_a_count_is_one_that_a_counter_can_have() -> None:
    (reading,) = readings(document([{0: -50, 1: -51}, {0: 10**400, 1: 10**400}]))
    assert reading is not None
    assert [0 <= count < 1 << 64 for count in reading.operations.values()] == [True, True]


def test_series_are_bounded() -> None:
    communicators = [{0: 1, 1: 1} for _ in range(40)]
    largest = {rank: 7 if rank < 30 else 6 for rank in range(60)}
    answer = document([*communicators, largest])
    _, reading = readings(answer, answer)
    assert reading is not None
    assert (len(reading.awaited), len(reading.operations), reading.communicators) == (MOST, MOST, 41)
    assert reading.ranks["late"] == 30
    assert min(reading.awaited)[2] == "30"
    assert "00000000000000c8" in reading.operations


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_whatever_stands_in_an_answer_is_read_or_malformed(data: st.DataObject) -> None:
    whole = json.loads(document([{0: 7, 1: 7, 2: "dead"}]))
    (communicator,) = whole["communicators"]
    rank, missing = communicator["ranks"][0], communicator["missing_ranks"][0]
    tables = [whole, communicator, rank, rank["status"], rank["collective_counts"], missing, missing["status"]]
    table = data.draw(st.sampled_from(tables))
    table[data.draw(st.sampled_from(sorted(table)))] = data.draw(JUNK)
    with suppress(HostReadFailed):
        assert parse(GREETING + json.dumps(whole, indent=2)).gpus <= 3


@given(st.integers(0, len(TROUBLE)), st.text(max_size=20))
def test_whatever_stands_in_a_text_is_read_or_malformed(position: int, junk: str) -> None:
    with suppress(HostReadFailed):
        assert len(parse(OLD_GREETING + TROUBLE[:position] + junk + TROUBLE[position:]).lost) <= 3
