"""Xids while the kernel log overruns."""

from __future__ import annotations

import os

import pytest
from tests.rig import Rig, only, rig

from gpu_triage.read.xid.kernel_records import KernelLog
from gpu_triage.sampler import xid as xid_sampler
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow


def sources(running: Rig) -> dict[str, float]:
    return {labels["source"]: value for labels, value in running.series("gpu_exporter_xid_source_up")}


def test_a_kernel_log_that_overran_is_not_heard_for_a_while_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As /dev/kmsg does it: EPIPE, then a record whose number is not the next (Documentation/ABI/testing/dev-kmsg)."""
    answers: list[bytes | OSError] = []

    def read(file: int, size: int) -> bytes:
        answer = answers.pop(0) if answers else os.read(file, size)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(xid_sampler, "KernelLog", lambda path: KernelLog(path, read))
    with rig(load_scenario("idle-downshift"), only("power", "identity")) as running:
        running.run_to(20)
        assert sources(running) == {"kmsg": 1, "nvml": 1}
        for number in (5_000_000, 6_000_000):
            answers[:] = [BrokenPipeError(), f"6,{number},1,-;usb 1-1: new device\n".encode()]
            running.run(60)
            assert sources(running) == {"kmsg": 0, "nvml": 1}
        running.run(100)
        assert sources(running) == {"kmsg": 1, "nvml": 1}
        (told,) = (record for record in caplog.records if "overran" in record.message)
        assert told.__dict__["fields"]["lost"] > 4_000_000
