"""The command `gpu-triage judge`: a recording that is replayed with the settings in force, and with others."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.command_line import config_from
from tests.recorded import KEY, captured
from tests.rig import Rig, only, scenario_with

from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli
from gpu_triage.judge.findings.settings import judge_settings
from gpu_triage.record.bundle import write_recording
from gpu_triage.record.masking import Masker, masked
from gpu_triage_simulator import VirtualClock, simulated_machine

pytestmark = pytest.mark.slow

SECONDS = 80
LEAN = only("throttle", "thermal", "power", "clocks", "activity", "identity")
START = 1_768_435_200.0
HOT = 'at = 20\ngpu = 0\neffect = { kind = "thermal_throttle", source = "hw", sm_clock_mhz = 900 }'


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 s of a host with two GPUs, of which one is hot from second 20 on."""
    folder = tmp_path_factory.mktemp("hot")
    clock = VirtualClock(wall=START)
    scenario = scenario_with(folder, "rtx-4070-ti-super", HOT)
    with (
        simulated_machine(scenario, clock=clock) as simulated,
        captured(replace(simulated.machine, pods=None)) as capture,
    ):
        Rig(simulated, clock, LEAN, machine=capture.machine).run(SECONDS)
        write_recording(masked(capture.captured(), Masker(KEY)), folder / "night.tar.gz")
    return folder / "night.tar.gz"


@pytest.fixture
def run(recording: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def judge(*arguments: str) -> str:
        assert run_cli(group, ["judge", "--replay", str(recording), *arguments]) == 0
        return capsys.readouterr().out

    return judge


def test_each_finding_is_told_with_when_it_came(run: Callable[..., str], recording: Path) -> None:
    first, *rest = run().splitlines()
    assert first.startswith(f"{recording}: 2026-01-15 00:00:0")
    hot = next(place for place, line in enumerate(rest) if line.startswith("critical GPU 0 thermal.hw: "))
    assert rest[hot + 1].startswith("  pending 00:00:2")
    assert rest[hot + 1].endswith(", not confirmed by the end")


def test_other_settings_stand_beside_the_default_and_what_differs_comes_first(run: Callable[..., str]) -> None:
    lines = run("--set", "thermal.hw.wait=30s").splitlines()
    assert lines[1] == "  thermal.hw waits 30 seconds instead of 10 minutes"
    assert lines[3].startswith("1 of ")
    assert lines[3].endswith(" findings differs.")
    assert lines[5].startswith("critical GPU 0 thermal.hw: ")
    assert lines[6].startswith("  default              pending 00:00:2")
    assert lines[6].endswith(", not confirmed by the end")
    assert lines[7].startswith("  with these settings  pending 00:00:2")
    assert ", confirmed 00:00:5" in lines[7]


def test_programs_get_the_same_as_json(run: Callable[..., str]) -> None:
    document = json.loads(run("--set", "thermal.hw.wait=30s", "--set", "thermal.hw.share=50%", "--format", "json"))
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


def test_settings_of_a_file_are_what_is_compared_with(run: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text("judge: {thermal.hw: {wait: 30s}}")
    lines = run("--config.file", str(file), "--set", "thermal.hw.wait=1m").splitlines()
    assert lines[1] == "  thermal.hw waits 1 minute instead of 30 seconds"
    hot = next(place for place, line in enumerate(lines) if line.startswith("critical GPU 0 thermal.hw: "))
    assert lines[hot + 1].startswith("  as configured        pending ")


def test_a_host_without_faults_has_no_findings(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["judge", "--simulate", "rtx-4070-ti-super", "--for", "1m", "--format", "json"]
    assert run_cli(group, arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ended_at"] - found["began_at"] == 60
    assert [each for each in found["findings"] if each["severity"] != "info"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to judge; name a recording with --replay, or a scenario with --simulate"),
        (["--replay", "/dev/null", "--for", "1m"], "--for is for scenarios; a recording is replayed to its end"),
        (["--replay", "/dev/null"], "/dev/null: cannot be read"),
        (["--simulate", "dual-a10", "--set", "thermal.hw.wait=5"], "--set: thermal.hw.wait: '5' is invalid"),
        (["--simulate", "dual-a10", "--set", "thermal.hv.wait=5m"], "--set: there is no finding 'thermal.hv'"),
        (["--simulate", "dual-a10", "--set", "5m"], "'5m' is invalid; write a finding, a setting of it and a value"),
    ],
)
def test_a_wrong_replay_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(group, ["judge", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_all_settings_are_printed_as_a_file_of_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(group, ["judge", "--print-config"]) == 0
    text = capsys.readouterr().out
    file = tmp_path / "config.yml"
    file.write_text(text)
    options = config_from([f"--config.file={file}"]).judge
    assert judge_settings(options).changed == ()
    assert len(options) == sum(len(each) for each in yaml.safe_load(text)["judge"].values())
