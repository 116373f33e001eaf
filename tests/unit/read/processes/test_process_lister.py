"""A process list that has not changed is not parsed again; one that differs in a byte is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest
from tests.nvml_bench import Bench, BenchMaker

from gpu_triage.read.processes.listing import ProcessLister

COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"
MIB = 2**20


def lists(entries: list[tuple[int, int]]) -> Callable[..., int]:
    """A function that lists these PIDs with these MiB; it looks at each call."""

    def call(*arguments: Any) -> int:
        count, buffer = arguments[-2]._obj, arguments[-1]
        fits = buffer is not None and count.value >= len(entries)
        count.value = len(entries)
        if not fits:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for entry, (pid, mib) in zip(buffer, entries, strict=False):
            entry.pid, entry.usedGpuMemory = pid, mib * MIB
            entry.gpuInstanceId = entry.computeInstanceId = 0xFFFFFFFF
        return 0

    return call


@pytest.fixture
def h100(bench: BenchMaker) -> Bench:
    return bench("h100-8")


def test_a_list_that_has_not_changed_is_not_parsed_again(h100: Bench) -> None:
    h100.answer(COMPUTE, lists([(101, 30), (102, 20)]))
    lister = ProcessLister()
    first = lister.read(h100.round().inquiry)
    assert [process.pid for process in first.processes][:2] == [101, 102]
    assert lister.read(h100.round().inquiry) is first
    assert ProcessLister().read(h100.round().inquiry) == first


@pytest.mark.slow
@pytest.mark.parametrize(
    "after",
    [
        [(101, 30), (102, 21)],  # one holds more memory
        [(101, 30), (103, 20)],  # another process in its place
        [(101, 30)],  # one has ended
        [(101, 30), (102, 20), (103, 20)],
        [],
    ],
)
def test_any_change_is_seen_at_once(h100: Bench, after: list[tuple[int, int]]) -> None:
    now = [(101, 30), (102, 20)]
    h100.answer(COMPUTE, lists(now))
    lister = ProcessLister()
    first = lister.read(h100.round().inquiry)
    now[:] = after
    second = lister.read(h100.round().inquiry)
    assert second != first
    assert second == ProcessLister().read(h100.round().inquiry)
    assert [process.pid for process in second.processes if process.pid < 200] == [pid for pid, _ in after]


def test_a_list_that_the_driver_no_longer_has_is_seen_at_once(h100: Bench) -> None:
    lister = ProcessLister()
    assert "mps" in lister.read(h100.round().inquiry).counts
    for version in (2, 3):
        h100.answer(f"nvmlDeviceGetMPSComputeRunningProcesses_v{version}", pynvml.NVML_ERROR_UNKNOWN)
    assert "mps" not in lister.read(h100.round().inquiry).counts


def test_junk_is_reported_in_every_round(h100: Bench) -> None:
    h100.answer(COMPUTE, lists([(101, 30), (0xFFFFFFF0, 20)]))
    lister = ProcessLister()
    for _ in range(2):
        inquiry = h100.round().inquiry
        assert 101 in [process.pid for process in lister.read(inquiry).processes]
        assert inquiry.failures != []
