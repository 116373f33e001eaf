"""A process that is killed by a crash of the driver's library says so before it dies."""

import os
import signal
from pathlib import Path

import pytest
from tests.faults.stand_in import StandIn, up

from gpu_triage.driver.crash import MEANINGS

WAIT_SECONDS = 30.0
PRIVATE = "not-for-the-log"


def report_in(log: str) -> str:
    before, title, report = log.partition("Fatal Python error: ")
    assert title, before
    return report


def stack_in(report: str) -> str:
    (stack,) = (part for part in report.split("\n\n") if part.startswith("Stack (most recent call first):"))
    return stack


@pytest.mark.parametrize("log_format", ["logfmt", "json"])
def test_a_library_that_is_truncated_while_it_is_used_is_named_as_the_cause(tmp_path: Path, log_format: str) -> None:
    # One GPU and no wait for events: a second thread that crashes cuts the report of the first one off.
    host, state = StandIn(tmp_path, gpus=1), tmp_path / PRIVATE
    state.mkdir()
    with host.daemon("--log.format", log_format, "--state.directory", str(state), "--no-collector.xid") as daemon:
        daemon.wait_for(lambda page: len(up(page)) == 1, WAIT_SECONDS)
        library = host.folder / "libnvidia-ml.so.1"
        os.truncate(library, 4096)
        assert daemon.process.wait(WAIT_SECONDS) == -signal.SIGBUS
    report = report_in(daemon.log.read_text())
    assert report.startswith("Bus error\n")
    assert MEANINGS[signal.SIGBUS] in report
    assert "libnvidia-ml.so.1" in report
    assert "/pynvml.py" in stack_in(report)
    assert PRIVATE not in report


@pytest.mark.parametrize(("number", "title"), [(signal.SIGSEGV, "Segmentation fault"), (signal.SIGABRT, "Aborted")])
def test_a_driver_that_crashes_is_named_with_the_call(host: StandIn, number: signal.Signals, title: str) -> None:
    with host.daemon() as daemon:
        daemon.wait_for(lambda page: len(up(page)) == 4, WAIT_SECONDS)
        host.set(f"gpu 1 crash nvmlDeviceGetPowerUsage {number.value}")
        assert daemon.process.wait(WAIT_SECONDS) == -number
    report = report_in(daemon.log.read_text())
    assert report.startswith(f"{title}\n")
    assert MEANINGS[number] in report
    assert "in nvmlDeviceGetPowerUsage" in stack_in(report)


def test_a_command_that_the_driver_crashes_says_so(host: StandIn) -> None:
    host.set("host crash nvmlDeviceGetCount 7")
    done = host.check()
    assert done.returncode == -signal.SIGBUS
    assert MEANINGS[signal.SIGBUS] in report_in(done.stderr)


def test_a_child_that_the_driver_crashes_costs_only_its_look_and_the_log_says_why(host: StandIn) -> None:
    with host.daemon() as daemon:
        daemon.wait_for(lambda page: len(up(page)) == 4, WAIT_SECONDS)
        # Another process looks for a GPU that is lost, after 5 s.
        host.set("gpu 1 lost", "host crash nvmlInit 7")
        daemon.wait_for(lambda _: "the search for missing GPUs failed" in daemon.log.read_text(), WAIT_SECONDS)
        assert up(daemon.get()) == ["0", "2", "3"]
    told = f"was killed by SIGBUS ({MEANINGS[signal.SIGBUS]})"
    (line, *_) = (line for line in daemon.log.read_text().splitlines() if "the search for missing GPUs failed" in line)
    assert told in line
