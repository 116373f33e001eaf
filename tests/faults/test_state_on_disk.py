"""Real daemons and their state directory: two of them, a full disk, a read-only one, and a kill."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.e2e.processes import WAIT_SECONDS, wait_for
from tests.faults.stand_in import Disk, StandIn, settled, slot, up

from gpu_triage.errors import StateError
from gpu_triage.read.incidents.ledger import INCIDENT_HISTORY, Memory
from gpu_triage.sampler.state_directory import StateDirectory

NOBODY = 65534

QUICK = ("--sample.slow", "5s")
"""How often the state directory is looked at, where nothing is to be written."""

IN_USE = "\ngpu_exporter_state_directory_in_use"


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def since(page: str) -> float | None:
    """When gpu.missing, which is pending, began; None until all GPUs are read and the finding is there."""
    began = re.search(r'^gpu_host_finding_since_timestamp_seconds\{.*code="gpu.missing".*\} (\S+)$', page, re.MULTILINE)
    pending = 'gpu_host_finding{action="drain",code="gpu.missing",severity="critical"} 1.0' in page
    return float(began[1]) if began and pending and len(up(page)) == 4 else None


def test_a_finding_waits_on_in_the_next_process_after_a_kill(host: StandIn, disk: Disk) -> None:
    saved, waits = disk.state / "findings.json", ("--expect.gpu-count", "5", "--judge", "gpu.missing.wait=1m")
    with host.daemon(*disk.flags, *waits) as daemon:
        before = since(daemon.wait_for(since, WAIT_SECONDS))
        wait_for(lambda: saved.exists() and "gpu.missing" in saved.read_text())
        daemon.stop(signal.SIGKILL)
    with host.daemon(*disk.flags, *waits) as daemon:
        assert since(daemon.wait_for(since, WAIT_SECONDS)) == pytest.approx(before, abs=0.05)


def test_the_second_of_two_daemons_says_so_and_takes_over_at_the_end_of_the_first(host: StandIn, disk: Disk) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(host.daemon(*disk.flags))
        settled(first, disk)
        second = stack.enter_context(host.daemon(*disk.flags, *QUICK, log_name="second-log"))
        page = second.wait_for(lambda page: f"{IN_USE} 1" in page and len(up(page)) == 4, WAIT_SECONDS)
        assert '\ngpu_exporter_errors_total{collector="incidents",error="in_use"}' in page
        assert f"{IN_USE} 0" in first.get()
        assert (
            f"another exporter writes here (its lock file names process {first.process.pid} on "
            in second.log.read_text()
        )
        wait_for(lambda: "another exporter writes there" in second.get("/"))
        assert "the state directory: another exporter writes there" in second.get("/api/v1/verdict")
        host.set("gpu 1 xid 1 48")
        wait_for(lambda: disk.incidents() == {("48", slot(1))})
        first.stop(signal.SIGKILL)
        host.set("gpu 2 xid 2 95")
        second.wait_for(lambda page: f"{IN_USE} 0" in page, WAIT_SECONDS)
        wait_for(lambda: disk.incidents() == {("48", slot(1)), ("95", slot(2))})
        assert "incidents are remembered on disk again" in second.log.read_text()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def test_a_full_disk_costs_neither_the_old_file_nor_the_sampling(host: StandIn, disk: Disk) -> None:
    with mounted(disk.state, "size=256k"), host.daemon(*disk.flags, *QUICK) as daemon:
        settled(daemon, disk)
        fill(disk.state / "filler")
        before = disk.memory()
        host.set("gpu 1 xid 1 48")
        page = daemon.wait_for(lambda page: 'collector="incidents",error="no_space"' in page, WAIT_SECONDS)
        assert len(up(page)) == 4
        assert disk.memory() == before
        assert disk.partial() == []
        daemon.stop()
        (line,) = [
            line for line in daemon.log.read_text().splitlines() if "the incident history was not written" in line
        ]
        assert "No space left on device; free some space" in line
        assert f"48 at {slot(1)}" in line, daemon.log.read_text()
        assert disk.memory() == before


def test_what_could_not_be_written_to_a_read_only_disk_is_tried_once_more_at_the_end(host: StandIn, disk: Disk) -> None:
    with host.daemon(*disk.flags, *QUICK) as daemon:
        settled(daemon, disk)
        with mounted(disk.state, "ro"):
            host.set("gpu 1 xid 1 48")
            daemon.wait_for(lambda page: 'collector="incidents",error="read_only"' in page, WAIT_SECONDS)
        assert disk.incidents() == set()
        daemon.stop()
    assert disk.incidents() == {("48", slot(1))}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_an_exporter_that_runs_as_another_user_than_before_gets_the_lock_and_one_without_rights_is_told(
    open_folder: Path,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("acting as another user takes root")
    folder = open_folder / "state"
    folder.mkdir(mode=0o755)
    first = StateDirectory(folder)
    first.lock()
    os.chown(folder, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        second = StateDirectory(folder)
        with pytest.raises(StateError, match="another exporter writes here"):
            second.lock()
        first.release()
        assert second.lock() == 1
        INCIDENT_HISTORY.write(second.path("incidents"), Memory())
        folder.chmod(0o555)
        with pytest.raises(StateError, match="let the exporter's user write there") as raised:
            INCIDENT_HISTORY.write(second.path("incidents"), Memory("boot"))
        assert raised.value.reason == "no_permission"
        folder.chmod(0o755)
        assert second.lock() == 1
        INCIDENT_HISTORY.write(second.path("incidents"), Memory("boot"))
    finally:
        os.seteuid(0)
