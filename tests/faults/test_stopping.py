"""A real daemon is told to stop while its disk is slow or dead: its incidents are on disk, and it ends within 3 s."""

import signal
import time

import pytest
from tests.e2e.processes import WAIT_SECONDS, wait_for
from tests.faults.stand_in import Daemon, Disk, StandIn, settled, slot
from tests.parts import some

STOP_SECONDS = 3.0
SLOW = 0.5
"""Seconds of an fsync up to which incidents are written before the end."""
FIRST = "the incident history was not written"
LEFT_BEHIND = "a recording is still being written"


def stopped(daemon: Daemon) -> float:
    """How long it took to end with code 0 after SIGTERM."""
    began = time.monotonic()
    daemon.stop()
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("fsync", "seconds", "code"),
    [(0.1, 0.05, 48), (SLOW, 0.05, 48), (SLOW, 0.5, 48), (SLOW, 1.5, 48), (SLOW, 0.5, 145)],
)
def test_an_xid_of_the_moment_before_the_end_is_on_a_slow_disk(
    host: StandIn, disk: Disk, fsync: float, seconds: float, code: int
) -> None:
    with host.daemon(*disk.flags) as daemon:
        settled(daemon, disk)
        disk.takes(fsync)
        host.set(f"gpu 1 xid 1 {code}")
        if seconds >= 1:  # long enough to be on the page, and so in the history
            daemon.wait_for(lambda page: f'xid="{code}"' in page, WAIT_SECONDS)
        time.sleep(seconds)
        took = stopped(daemon)
        log = daemon.log.read_text()
    assert (FIRST if fsync == SLOW else "not written") not in log, "only findings may lack the time, on a slow disk"
    assert disk.incidents() == {(str(code), slot(1))}, daemon.log.read_text() + repr(list(disk.state.iterdir()))
    assert ".incidents.json.new" not in disk.partial()
    assert took < STOP_SECONDS


def test_a_dead_disk_delays_the_end_by_three_seconds_at_most_and_the_log_says_what_is_lost(
    host: StandIn, disk: Disk
) -> None:
    with host.daemon(*disk.flags) as daemon:
        settled(daemon, disk)
        disk.takes(10.0)
        host.set("gpu 1 xid 1 48")
        time.sleep(0.5)
        took = stopped(daemon)
        log = daemon.log.read_text()
    assert took < STOP_SECONDS
    (line,) = [line for line in log.splitlines() if FIRST in line]
    assert str(disk.state / "incidents.json") in line
    assert f"48 at {slot(1)}" in line
    assert disk.incidents() == set()


def test_a_driver_that_hangs_keeps_no_incident_from_the_disk(host: StandIn, disk: Disk) -> None:
    with host.daemon(*disk.flags) as daemon:
        settled(daemon, disk)
        disk.takes(SLOW)
        host.set("gpu 1 xid 1 48", "gpu 3 hang nvmlDeviceGetPowerUsage")
        daemon.wait_for(lambda page: 'xid="48"' in page, WAIT_SECONDS)  # and so in the history
        time.sleep(1.0)
        took = stopped(daemon)
    assert disk.incidents() == {("48", slot(1))}
    assert took < STOP_SECONDS


@pytest.mark.full
def test_a_second_signal_changes_nothing(host: StandIn, disk: Disk) -> None:
    with host.daemon(*disk.flags) as daemon:
        settled(daemon, disk)
        disk.takes(SLOW)
        host.set("gpu 1 xid 1 48")
        time.sleep(0.5)
        daemon.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        took = stopped(daemon)
        log = daemon.log.read_text()
    assert disk.incidents() == {("48", slot(1))}
    assert took < STOP_SECONDS
    assert log.count("msg=stopping") + log.count(" stopping") == 1, log


@pytest.mark.parametrize("seconds", some([0.0, 0.5, 5.0], usual={5.0}))
def test_a_recording_asked_for_at_the_very_end_is_finished(host: StandIn, disk: Disk, seconds: float) -> None:
    """By the exporter, or where disk or host are slow by the process that it leaves behind: the log says which."""
    with host.daemon(*disk.flags, "--flight-recorder.directory", str(disk.recordings)) as daemon:
        settled(daemon, disk)
        disk.takes(seconds)
        host.set("gpu 1 xid 1 48")
        time.sleep(0.1)
        took = stopped(daemon)
        log = daemon.log.read_text()
    assert took < STOP_SECONDS
    assert LEFT_BEHIND in log or (seconds < STOP_SECONDS and "recorded the last minutes" in log), log
    wait_for(lambda: list(disk.recordings.glob("*.tar.gz")))
    (recording,) = disk.recordings.glob("*.tar.gz")
    assert "gpu-1" in recording.name
    wait_for(lambda: not [each for each in disk.recordings.iterdir() if each.name.startswith(".partial")])
