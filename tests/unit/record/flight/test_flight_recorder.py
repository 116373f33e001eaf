"""The flight recorder in a running exporter: a fault, its recording, and the same finding when it is played again."""

import json
import pickle
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.rig import Rig, only, pair_with
from tests.status_pages import FACTS

from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli
from gpu_triage.documents.process_lock import ProcessLock
from gpu_triage.driver.child import ChildProcess
from gpu_triage.errors import FlightRecorderError
from gpu_triage.judge.findings.finding import State
from gpu_triage.machine import Moment
from gpu_triage.options.config import Config
from gpu_triage.read.metrics.contract import HOST_LABELS
from gpu_triage.record.bundle import read_recording
from gpu_triage.record.capture import Captured
from gpu_triage.record.flight.directory import (
    LOCK,
    MOST_BYTES,
    MOST_FILES,
    file_name,
    prune,
    recorded_before,
    refuse_unusable,
)
from gpu_triage.record.flight.process import WritingProcess
from gpu_triage.record.flight.recorder import MOST_AN_HOUR, Cause, FlightRecorder
from gpu_triage.record.flight.write import write_here
from gpu_triage.record.masking import Masker
from gpu_triage.serve.page.document import document
from gpu_triage_simulator import Scenario, VirtualClock, simulated_machine

pytestmark = pytest.mark.slow

XID = 'at = "30s"\ngpu = 1\neffect = { kind = "xid", code = 79 }'
LOST = 'at = "30s"\ngpu = 1\neffect = { kind = "lost" }'
ROUND_SECONDS = 5
LEAN = only("power", "activity", "pcie", "pcie_limits", "recovery", "identity", sample_fast_seconds=5.0)
NARROW = 'at = "30s"\ngpu = 1\neffect = { kind = "link", width = 4 }'


@dataclass
class Disk:
    """Writes in this process, unless it is full."""

    full: bool = False
    asked: list[str] = field(default_factory=list)

    def __call__(self, directory: Path, name: str, captured: Captured, verdict: str) -> str:
        """As RecordingWriter."""
        self.asked.append(name)
        if self.full:
            raise FlightRecorderError("no_space", "the disk is full")
        return write_here(directory, name, captured, verdict, Masker(b"k" * 32, hosts=["filer1"]))


class Flight:
    """An exporter with a flight recorder, on a virtual clock."""

    def __init__(self, rig: Rig, recorder: FlightRecorder) -> None:
        self.rig = rig
        self.recorder = recorder

    def run(self, seconds: int) -> None:
        """Go on for so many seconds, a multiple of those between two judgments."""
        for _ in range(0, seconds, ROUND_SECONDS):
            self.rig.run(ROUND_SECONDS)
            self.recorder.observe(self.rig.judge.latest)
            self.recorder.round()
        self.rig.run(0)


@contextmanager
def flight(scenario: Scenario, directory: Path, disk: Disk | WritingProcess, config: Config = LEAN) -> Iterator[Flight]:
    clock = VirtualClock()
    with simulated_machine(scenario, clock=clock) as simulated:
        recorder = FlightRecorder(simulated.machine, directory, disk)
        rig = Rig(simulated, clock, config, machine=recorder.machine, flight=recorder)
        yield Flight(rig, recorder)
        recorder.stop()


def codes(report: str) -> set[tuple[str | None, str]]:
    return {(each["gpu"], each["code"]) for each in json.loads(report)["findings"] if each["severity"] == "critical"}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name != ".lock")


def test_a_fault_is_recorded_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "recordings"
    scenario = pair_with(tmp_path, "h100-8", XID, LOST)
    with flight(scenario, directory, Disk(), Config()) as host:
        host.run(25)
        assert names(directory) == []
        assert host.rig.series("gpu_flight_recording_timestamp_seconds") == []
        host.run(20)
        [(labels, at)] = host.rig.series("gpu_flight_recording_timestamp_seconds")
        assert labels["gpu"] == "1"
        assert host.rig.clock.now().wall - 20 < at < host.rig.clock.now().wall
        assert host.rig.value("gpu_exporter_collector_success", collector="flight_recorder") == 1
        page = document(host.rig.judge.latest, FACTS).decode()
        uuid = labels["uuid"]
    [name] = names(directory)
    assert labels["file"] == name
    assert f'recorded as <code class="recording">{name}</code>' in page

    recording = read_recording(directory / name)
    assert 25 < recording.seconds < 40
    assert recording.verdict is not None
    subjects = {subject for subject, _ in codes(recording.verdict)}
    assert subjects == {"1"}
    assert "NVRM: Xid" in (recording.kmsg or "")
    for arguments in (["--replay", str(directory / name), "--for", "5s"], ["--from", str(directory / name)]):
        assert run_cli(group, ["check", "--format", "json", *arguments]) == 1
        seen = codes(capsys.readouterr().out)
        assert codes(recording.verdict) <= seen
        assert {subject for subject, _ in seen} == {"1"}
    assert uuid not in recording.verdict
    assert not [gpu.serial for gpu in scenario.gpus if gpu.serial in recording.verdict]


def test_a_recording_that_is_never_written_to_its_end_is_no_success(tmp_path: Path) -> None:
    seen: list[bool | None] = []

    class HangingDisk(Disk):
        def __call__(self, directory: Path, name: str, captured: Captured, verdict: str) -> str:
            for seconds in (125.0, 10.0):
                host.rig.clock.advance(seconds)
                seen.append(host.recorder.health().success)
            return super().__call__(directory, name, captured, verdict)

    with flight(pair_with(tmp_path, "h100-8", LOST), tmp_path / "recordings", HangingDisk()) as host:
        host.run(45)
        assert seen == [True, False]
        assert host.recorder.health().success is True


def test_a_finding_that_comes_and_goes_is_recorded_once_an_hour(tmp_path: Path) -> None:
    disk = Disk()
    with flight(pair_with(tmp_path, "h100-8", LOST), tmp_path / "recordings", disk) as host:
        host.run(45)
        first = len(disk.asked)
        assert 1 <= first <= 3
        lost = host.rig.judge.latest
        assert lost is not None

        recorded_at = host.recorder._recorded_at.values()
        for at, again in ((min(recorded_at) + 3600 - 0.01, False), (max(recorded_at) + 3600, True)):
            for areas in ((), lost.report.areas):
                report = replace(lost.report, areas=areas)
                host.recorder.observe(replace(lost, report=report, at=Moment(at, at)))
                host.recorder.round()
            assert (len(disk.asked) > first) is again


def test_a_critical_finding_is_recorded_while_it_is_pending(tmp_path: Path) -> None:
    """When it is confirmed, the minutes in which it began are hardly there any more."""
    disk = Disk()
    with flight(pair_with(tmp_path, "h100-8", NARROW), tmp_path / "recordings", disk) as host:
        host.run(90)
        assert [name.partition("-")[2] for name in disk.asked] == ["gpu-1-pcie.width.tar.gz"]
        latest = host.rig.judge.latest
    assert latest is not None
    assert {finding.state for finding in latest.report.findings} == {State.PENDING}


def test_a_full_disk_is_told_and_costs_nothing_else(tmp_path: Path) -> None:
    disk = Disk(full=True)
    with flight(pair_with(tmp_path, "h100-8", LOST), tmp_path / "recordings", disk) as host:
        host.run(45)
        assert disk.asked != []
        assert host.rig.value("gpu_exporter_errors_total", collector="flight_recorder", error="no_space") == 1
        assert host.rig.value("gpu_exporter_collector_success", collector="flight_recorder") == 0
        assert host.rig.series("gpu_flight_recording_timestamp_seconds") == []
        assert host.rig.value("gpu_up", gpu="0") == 1
        disk.full = False
        # The directory is looked at again by and by.
        host.rig.clock.advance(300)
        host.run(5)
        assert host.rig.value("gpu_exporter_collector_success", collector="flight_recorder") == 1


def test_a_directory_that_cannot_be_used_is_told_before_there_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with flight(pair_with(tmp_path, "h100-8"), tmp_path / "file" / "recordings", Disk()) as host:
        host.run(10)
        assert host.rig.value("gpu_exporter_collector_success", collector="flight_recorder") == 0
        assert host.rig.value("gpu_exporter_errors_total", collector="flight_recorder", error="missing") == 1


def test_a_restarted_exporter_names_the_recording_that_there_is(tmp_path: Path) -> None:
    directory = tmp_path / "recordings"
    directory.mkdir()
    (directory / ".20260115T000000Z-gpu-3-gpu.lost.tar.gz.new").write_text("half")
    for _ in range(2):
        with flight(pair_with(tmp_path, "h100-8", LOST), directory, Disk()) as host:
            host.run(45)
            [(labels, _at)] = host.rig.series("gpu_flight_recording_timestamp_seconds")
        assert names(directory) == [labels["file"]]


def test_the_child_process_writes_what_this_one_would_or_says_what_went_wrong(tmp_path: Path) -> None:
    directory = tmp_path / "recordings"
    with flight(pair_with(tmp_path, "h100-8", LOST), directory, WritingProcess()) as host:
        host.run(45)
        assert host.rig.value("gpu_exporter_collector_success", collector="flight_recorder") == 1
        [name] = names(directory)
        here = read_recording(directory / name)
        assert {subject for subject, _ in codes(here.verdict or "")} == {"1"}
        assert here.answers
        assert here.files
    with flight(pair_with(tmp_path, "h100-8", LOST), directory, WritingProcess()) as host:
        host.run(25)
        shutil.rmtree(directory)
        directory.touch()
        host.run(20)
        assert host.rig.value("gpu_exporter_errors_total", collector="flight_recorder", error="io_error") == 1
        assert host.rig.value("gpu_exporter_collector_success", collector="flight_recorder") == 0


@pytest.mark.parametrize(
    ("full", "earlier", "error", "each"),
    [
        pytest.param(True, 0, "no_space", False, id="what lasts is logged once"),
        pytest.param(False, MOST_AN_HOUR, "too_many", True, id="a recording left out is logged, and nothing is wrong"),
        pytest.param(False, MOST_AN_HOUR - 1, "", True, id="one more is written"),
    ],
)
def test_what_was_not_recorded_is_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, earlier: int, error: str, *, full: bool, each: bool
) -> None:
    with flight(pair_with(tmp_path, "h100-8", LOST), tmp_path / "recordings", Disk(full=full)) as host:
        now = host.rig.clock.now().monotonic
        before = {Cause("host", f"{number}", HOST_LABELS): now - number for number in range(earlier)}
        host.recorder._recorded_at.update(before)
        host.run(45)
        lost = host.rig.judge.latest
        assert lost is not None
        host.recorder._recorded_at = dict(before)
        for areas in ((), lost.report.areas):
            host.recorder.observe(replace(lost, report=replace(lost.report, areas=areas)))
            host.recorder.round()
        host.rig.run(0)
        errors = host.rig.series("gpu_exporter_errors_total", collector="flight_recorder")
        counted = {labels["error"]: value for labels, value in errors}
        success = host.rig.value("gpu_exporter_collector_success", collector="flight_recorder")
    logged = sum(record.getMessage() == "the flight recorder cannot record" for record in caplog.records)
    assert set(counted) == ({error} if error else set())
    assert success == (error != "no_space")
    if error:
        assert counted[error] >= 2
        assert logged == (counted[error] if each else 1)


MIDNIGHT = 1768435200.0
"""15 January 2026, 00:00:00 UTC."""
MASKER = Masker(b"k" * 32, hosts=[])


def recording(wall: float = MIDNIGHT) -> tuple[str, Captured, str]:
    captured = Captured(Moment(100.0, wall - 600), 600.0, (), {"f": (((0, 4),),)}, kmsg=None)
    return file_name(wall, "GPU 3", "gpu.lost"), captured, "{}"


def all_names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_link_that_somebody_planted_is_not_locked(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(FlightRecorderError, match="delete the link") as raised:
        write_here(tmp_path, *recording(), MASKER)
    assert raised.value.reason == "not_a_file"
    assert not (tmp_path / "victim").exists()


def test_of_two_exporters_that_see_the_same_finding_the_second_takes_the_recording_of_the_first(tmp_path: Path) -> None:
    first = ProcessLock(tmp_path / LOCK)
    first.acquire()
    answers: list[str] = []
    second = threading.Thread(target=lambda: answers.append(write_here(tmp_path, *recording(MIDNIGHT + 60), MASKER)))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    name, _, _ = recording()
    (tmp_path / name).write_bytes(b"of the first")
    first.release()
    second.join(20)
    assert answers == [name]
    assert (tmp_path / name).read_bytes() == b"of the first"


@pytest.mark.parametrize(
    ("subject", "code", "name"),
    [
        ("GPU 3", "xid.critical", "20260115T000000Z-gpu-3-xid.critical.tar.gz"),
        ("host", "driver.unavailable", "20260115T000000Z-host-driver.unavailable.tar.gz"),
        ("GPU at 0000:65:00.0", "xid.critical", "20260115T000000Z-gpu-at-0000-65-00.0-xid.critical.tar.gz"),
        ("GPU ../../etc", "a/b", "20260115T000000Z-gpu-..-..-etc-a-b.tar.gz"),
    ],
)
def test_a_name_says_when_who_and_what(subject: str, code: str, name: str) -> None:
    assert file_name(MIDNIGHT, subject, code) == name
    assert "/" not in name


def test_the_oldest_go_first_and_foreign_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "backup.tar.gz").write_text("mine too")
    made = [file_name(MIDNIGHT + hour * 3600, "GPU 3", "gpu.lost") for hour in range(MOST_FILES + 3)]
    for name in made:
        (tmp_path / name).write_bytes(b"x")
    prune(tmp_path)
    assert all_names(tmp_path) == sorted([*made[3:], "backup.tar.gz", "notes.txt"])


def test_all_of_them_together_are_bounded_and_the_newest_stays(tmp_path: Path) -> None:
    made = [file_name(MIDNIGHT + hour * 3600, "GPU 3", "gpu.lost") for hour in range(4)]
    for name in made:
        with (tmp_path / name).open("wb") as file:
            file.truncate(MOST_BYTES // 2)
    prune(tmp_path)
    assert all_names(tmp_path) == made[2:]
    with (tmp_path / made[3]).open("wb") as file:
        file.truncate(2 * MOST_BYTES)
    prune(tmp_path)
    assert all_names(tmp_path) == made[3:]


def test_the_same_finding_within_the_hour_is_known(tmp_path: Path) -> None:
    early, other = file_name(MIDNIGHT, "GPU 3", "gpu.lost"), file_name(MIDNIGHT + 60, "GPU 2", "gpu.lost")
    for name in (early, other, "99999999T999999Z-gpu-3-gpu.lost.tar.gz"):
        (tmp_path / name).write_bytes(b"x")
    assert recorded_before(tmp_path, file_name(MIDNIGHT + 3000, "GPU 3", "gpu.lost"), 3600) == early
    assert recorded_before(tmp_path, file_name(MIDNIGHT + 3601, "GPU 3", "gpu.lost"), 3600) is None
    assert recorded_before(tmp_path, file_name(MIDNIGHT + 3000, "GPU 3", "xid.critical"), 3600) is None


def test_a_recording_from_before_the_clock_was_set_back_suppresses_no_other(tmp_path: Path) -> None:
    (tmp_path / file_name(MIDNIGHT + 60, "GPU 3", "gpu.lost")).write_bytes(b"x")
    assert recorded_before(tmp_path, file_name(MIDNIGHT + 59, "GPU 3", "gpu.lost"), 3600) is None
    assert recorded_before(tmp_path, file_name(MIDNIGHT + 60, "GPU 3", "gpu.lost"), 3600) is not None


def test_the_directory_is_made_for_the_exporter_alone_and_a_place_that_is_no_folder_is_told(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "recordings"
    refuse_unusable(directory)
    assert (directory.stat().st_mode & 0o007, all_names(directory)) == (0, [])
    (tmp_path / "file").touch()
    with pytest.raises(FlightRecorderError, match="cannot be written") as raised:
        refuse_unusable(tmp_path / "file" / "below")
    assert raised.value.reason == "missing"


@pytest.mark.slow
def test_what_was_not_handed_over_whole_is_not_written(tmp_path: Path) -> None:
    given = pickle.dumps((tmp_path, *recording()))
    cuts = ((len(given), recording()[0]), (len(given) - 10, "ended before it had handed over"), (0, "ended"))
    for cut, said in cuts:
        stdout, code = ChildProcess("gpu_triage.record.flight.write").run(60, given[:cut])
        assert (code, said in stdout.decode()) == (0, True)
    assert all_names(tmp_path) == [".lock", recording()[0]]
