"""``gpu-triage accept`` and ``gpu-triage repaired`` beside a running exporter: what they write, print and refuse."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.command_line import Ran, Run
from tests.incident_hosts import restarted
from tests.rig import Rig, only, rig

from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.read.incidents.decisions import read_decisions
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

CODE = "gpu.repeat_offender"
SOON = time.strftime("%Y-%m-%d", time.localtime(time.time() + 86_400))
ACCEPT = (CODE, "--gpu", "1", "--until", SOON, "--reason", "swap on Monday", "--by", "jd")

Command = Callable[..., Ran]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Rig]:
    """A GPU that is lost in a slot that has lost two boards."""
    read = ("power", "recovery", "identity", "access", "decisions")
    with rig(
        load_scenario("repeat-offender"), only(*read, state_directory=folder, sample_fast_seconds=10.0)
    ) as running:
        running.run_to(15 * 60)
        yield restarted(running)


@pytest.fixture
def command(run: Run, running: Rig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    monkeypatch.setattr(time, "time", lambda: running.clock.now().wall)
    options = ("--state.directory", folder, "--path.procfs", running.simulated.machine.procfs)
    yield lambda name, *arguments: run(name, *arguments, *options)
    (folder / "decisions.json").unlink(missing_ok=True)


def test_a_finding_is_accepted_listed_and_withdrawn(command: Command, folder: Path) -> None:
    assert command("accept").out == ""
    assert command("accept", *ACCEPT).out.startswith(f"{CODE} of GPU 1 is accepted by jd until ")
    (accepted,) = read_decisions(folder).accepted
    assert (accepted.value, accepted.severity, accepted.reason) == (3.0, "warning", "swap on Monday")
    last = time.localtime(accepted.until - 1)
    assert (time.strftime("%Y-%m-%d", last), last.tm_hour) == (SOON, 23), "the end of that day"
    again = command("accept", *ACCEPT[:-4], "--reason", "later", "--by", "ms")
    assert again.code == 0
    assert [each.by for each in read_decisions(folder).accepted] == ["ms"]
    assert command("accept").out == again.out.replace(" 1 is accepted", f" {accepted.uuid}:")
    other = command("accept", "pcie.width", "--gpu", "1", "--withdraw")
    assert (other.code, f"is not accepted; what is: {CODE} of GPU {accepted.uuid}" in other.err) == (2, True)
    assert command("accept", CODE, "--gpu", accepted.uuid, "--withdraw").code == 0
    assert command("accept").out == ""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("xid.79", *ACCEPT[1:]), 2, "xid.79 cannot be accepted: jobs on GPU 1 fail or compute wrong results"),
        (("pcie.width", *ACCEPT[1:]), 2, "GPU 1 has no finding 'pcie.width'; it has"),
        ((CODE, "--gpu", "7", *ACCEPT[3:]), 2, "GPU 7 has no finding"),
        ((*ACCEPT[:4], "2099-01-01", *ACCEPT[5:]), 2, "not within the next 180 days"),
        (ACCEPT[:5], 2, "it takes --until TIME --reason TEXT"),
        ((CODE,), 2, "FINDING and --gpu belong together"),
        ((*ACCEPT[:6], "x" * 101), 2, "one line of at most 100 characters"),
    ],
)
def test_what_it_refuses_and_says(command: Command, arguments: tuple[str, ...], code: int, says: str) -> None:
    refused = command("accept", *arguments)
    assert refused.code == code
    assert says in refused.err.replace('"', "'")


def test_a_broken_file_is_named_and_left_alone(command: Command, folder: Path) -> None:
    (folder / "decisions.json").write_text("[]")
    for arguments in (("accept",), ("accept", *ACCEPT), ("repaired", "--gpu", "1")):
        refused = command(*arguments)
        assert (refused.code, "decisions.json: is not a table" in refused.err) == (1, True)
    assert (folder / "decisions.json").read_text() == "[]"


def test_another_user_is_told_to_run_it_as_root(run: Run) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        if is_root := os.geteuid() == 0:
            os.seteuid(65534)
        try:
            refused = run("accept", CODE, "--gpu", "1", "--withdraw", "--state.directory", folder)
        finally:
            if is_root:
                os.seteuid(0)
    assert (refused.code, "run this as root, or as the exporter's user" in refused.err) == (1, True)


def test_without_a_running_exporter_it_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    assert "name the exporter's with --state.directory" in run("accept", "--state.directory", tmp_path / "none").err
    assert "does the exporter run" in run("accept", *ACCEPT, "--state.directory", tmp_path).err
    assert "does the exporter run" in run("repaired", "--gpu", "1", "--state.directory", tmp_path).err


def test_a_repair_recorded_with_a_clock_that_was_ahead_hides_nothing(
    command: Command, running: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = running.clock.now().wall + 3 * 365 * 86_400
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert command("repaired", "--gpu", "1").code == 0
    running.run(60)
    assert running.value("gpu_incidents_recent", gpu="1", kind="79", by="slot", days="30") == 3
    assert running.report.repairs == ()


def test_after_a_repair_what_was_before_no_longer_counts(command: Command, running: Rig, folder: Path) -> None:
    running.run(60)
    assert running.value("gpu_incidents_recent", gpu="1", kind="79", by="slot", days="30") == 3
    command("accept", *ACCEPT)
    before = json.loads((folder / "decisions.json").read_text())
    before["accepted"].append(before["accepted"][0] | {"uuid": "GPU-the-board-before"})
    (folder / "decisions.json").write_text(json.dumps(before))
    repaired = command("repaired", "--gpu", "1", "--note", "new riser <b>", "--by", "jd")
    assert (repaired.code, repaired.out.startswith("GPU 1, GPU-")) == (0, True)
    assert read_decisions(folder).accepted == ()
    running.run(16 * 60)
    for name in ("gpu_incidents_recent", "gpu_incident_boards_recent"):
        assert running.series(name, gpu="1", kind="79") == []
    ((labels, _),) = running.series("gpu_repaired_timestamp_seconds")
    assert (labels["gpu"], labels["by"], labels["note"]) == ("1", "jd", "new riser <b>")
    codes = {each.check.code for each in running.report.findings}
    assert CODE not in codes
    assert running.report.verdict is Verdict.DRAIN, "it is still lost"
    (line,) = running.report.repairs
    assert line.startswith("GPU 1, 20")
    assert line.endswith(" by jd: new riser <b>")
    document = json.loads((folder / "decisions.json").read_text())
    assert len(document["repairs"]) == 1
