"""The command `gpu-triage judge`: a recording that is replayed with the settings in force, and with others."""

import json
from pathlib import Path

import pytest
import yaml
from tests.command_line import Run, config_from
from tests.recorded import KEY, recorder
from tests.rig import only, scenario_with

from gpu_triage.judge.findings.settings import judge_settings
from gpu_triage.record.bundle import write_recording
from gpu_triage.record.masking import Masker
from gpu_triage_simulator import START_OF_TIME

pytestmark = pytest.mark.slow

SECONDS = 80
LEAN = only("throttle", "thermal", "power", "clocks", "activity", "identity")
HOT = 'at = 20\ngpu = 0\neffect = { kind = "thermal_throttle", source = "hw", sm_clock_mhz = 900 }'


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 s of a host with two GPUs, of which one is hot from second 20 on."""
    path = tmp_path_factory.mktemp("hot") / "night.tar.gz"
    with recorder(scenario_with(path.parent, "rtx-4070-ti-super", HOT), LEAN) as (host, made):
        host.run(SECONDS)
        write_recording(made(Masker(KEY)), path)
    return path


def judge(run: Run, recording: Path, *arguments: str) -> str:
    ran = run("judge", "--replay", recording, *arguments)
    assert ran.code == 0
    return ran.out


def test_other_settings_stand_beside_the_default_and_what_differs_comes_first(run: Run, recording: Path) -> None:
    lines = judge(run, recording, "--set", "thermal.hw.wait=30s").splitlines()
    assert lines[1] == "  thermal.hw waits 30 seconds instead of 10 minutes"
    assert lines[3].startswith("1 of ")
    assert lines[3].endswith(" findings differs.")
    assert lines[5].startswith("critical GPU 0 thermal.hw: ")
    assert lines[6].startswith("  default              pending 00:00:2")
    assert lines[6].endswith(", not confirmed by the end")
    assert lines[7].startswith("  with these settings  pending 00:00:2")
    assert ", confirmed 00:00:5" in lines[7]


def test_programs_get_the_same_as_json(run: Run, recording: Path) -> None:
    document = json.loads(
        judge(run, recording, "--set", "thermal.hw.wait=30s", "--set", "thermal.hw.share=50%", "--format", "json")
    )
    assert (document["format"], document["version"]) == ("gpu-triage-judge", 1)
    assert [each["words"] for each in document["settings"]] == [
        "thermal.hw waits 30 seconds instead of 10 minutes",
        "thermal.hw share 50% instead of 10%",
    ]
    (hot,) = (each for each in document["findings"] if each["code"] == "thermal.hw")
    assert (hot["gpu"], hot["severity"], hot["differs"]) == ("0", "critical", True)
    (before,), (after,) = hot["periods"]["default"], hot["periods"]["with these settings"]
    assert before["confirmed_at"] is before["ended_at"] is None
    assert after["confirmed_at"] - after["pending_at"] == pytest.approx(30, abs=5)


def test_a_finding_that_ends_and_returns_is_told_twice(run: Run, tmp_path: Path) -> None:
    hot = (HOT.replace("at = 20", f"at = {at}\nuntil = {at + 60}") for at in (20, 480))
    scenario_with(tmp_path, "rtx-4070-ti-super", *hot)
    (path,) = tmp_path.iterdir()
    others = ("--set", "thermal.hw.wait=30s", "--set", "thermal.hw.hold=1m")
    document = json.loads(run("judge", "--simulate", str(path), "--for", "10m", "--format", "json", *others).out)
    (found,) = (each["periods"] for each in document["findings"] if each["code"] == "thermal.hw")
    for periods, confirmed, lasted in ((found["default"], False, 0), (found["with these settings"], True, 60)):
        first, second = periods
        assert (first["confirmed_at"] is not None) is confirmed
        # The condition looks at one minute.
        assert first["ended_at"] - START_OF_TIME == pytest.approx(80 + 60 + lasted, abs=10)
        # After an earlier spell, it is the share of the time since that ended: a tenth of it in the second minute.
        assert second["pending_at"] - START_OF_TIME == pytest.approx(550, abs=10)
        assert second["ended_at"] is None


def test_settings_of_a_file_are_what_is_compared_with(run: Run, recording: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text("judge: {thermal.hw: {wait: 30s}}")
    lines = judge(run, recording, "--config.file", str(file), "--set", "thermal.hw.wait=1m").splitlines()
    assert lines[1] == "  thermal.hw waits 1 minute instead of 30 seconds"
    hot = next(place for place, line in enumerate(lines) if line.startswith("critical GPU 0 thermal.hw: "))
    assert lines[hot + 1].startswith("  as configured        pending ")


def test_a_host_without_faults_has_no_findings(run: Run) -> None:
    found = json.loads(run("judge", "--simulate", "rtx-4070-ti-super", "--for", "1m", "--format", "json").out)
    assert found["ended_at"] - found["began_at"] == 60
    assert [each for each in found["findings"] if each["severity"] != "info"] == []


def test_all_settings_are_printed_as_a_file_of_defaults(tmp_path: Path, run: Run) -> None:
    code, text, _ = run("judge", "--print-config")
    assert code == 0
    file = tmp_path / "config.yml"
    file.write_text(text)
    options = config_from([f"--config.file={file}"]).judge
    assert judge_settings(options).changed == ()
    assert len(options) == sum(len(each) for each in yaml.safe_load(text)["judge"].values())
