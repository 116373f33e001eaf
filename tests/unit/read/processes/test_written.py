"""What the processes of a job write, as the kernel counts it (fs/proc/base.c, do_io_accounting)."""

from collections.abc import Mapping

import pytest
from tests.host_tree import HostTree

from gpu_triage.read.processes.written import WrittenReader

RANK, LOADER, OTHER = 4242, 4300, 4400
IO = (
    "rchar: 323934931\nwchar: {}\nsyscr: 632687\nsyscw: 632675\nread_bytes: 22413312\nwrite_bytes: {}\n"
    "cancelled_write_bytes: 8192\n"
)


def written(host: HostTree, pid: int, calls: int, storage: int = 0) -> None:
    host.write({f"proc/{pid}/io": IO.format(calls, storage)})


def read(host: HostTree, reader: WrittenReader, *pids: int) -> Mapping[str, int] | None:
    reading = reader.read(host.procfs, pids)
    return None if reading is None else reading.written_bytes


def test_what_processes_write_from_then_on_is_added_up(host: HostTree) -> None:
    reader = WrittenReader()
    written(host, RANK, 500, 400)
    written(host, LOADER, 70, 0)
    assert read(host, reader, RANK, LOADER) == {"storage": 0, "calls": 0}
    written(host, RANK, 1500, 4400)
    written(host, LOADER, 75, 0)
    assert read(host, reader, RANK, LOADER) == {"storage": 4000, "calls": 1005}


def test_what_a_process_wrote_before_it_was_seen_does_not_count(host: HostTree) -> None:
    reader = WrittenReader()
    written(host, RANK, 500)
    read(host, reader, RANK)
    written(host, OTHER, 9000)
    assert read(host, reader, RANK, OTHER) == {"storage": 0, "calls": 0}
    written(host, OTHER, 9010)
    assert read(host, reader, RANK, OTHER) == {"storage": 0, "calls": 10}


@pytest.mark.parametrize(("inherited", "counted"), [(0, 100), (130, 130)])
def test_what_a_child_wrote_counts_once_when_it_ends(host: HostTree, inherited: int, counted: int) -> None:
    """The kernel adds it to the parent that waited for it (kernel/exit.c, wait_task_zombie), or forgets it."""
    reader = WrittenReader()
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
    reader = WrittenReader()
    written(host, RANK, 500)
    written(host, LOADER, 500)
    assert read(host, reader, RANK, LOADER) is not None
    host.spoil(f"proc/{unreadable}/io")
    assert read(host, reader, RANK, LOADER) is None


@pytest.mark.parametrize("pids", [(), (RANK,)])
def test_nothing_is_claimed_without_processes_or_accounting(host: HostTree, pids: tuple[int, ...]) -> None:
    (host.procfs / str(RANK)).mkdir(parents=True)
    assert read(host, WrittenReader(), *pids) is None
