import re
from pathlib import Path

import pytest
from tests.one_shot import look_at
from tests.rig import scenario_with

from gpu_triage.cli.machines import Host
from gpu_triage.cli.main import group
from gpu_triage.cli.measure import measure
from gpu_triage.cli.run import EXIT_BROKEN, EXIT_USAGE, run_cli
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import EXIT_COULD_NOT_LOOK, EXIT_FINDINGS, EXIT_SOUND, Verdict
from gpu_triage.options.config import Config
from gpu_triage_simulator import load_scenario, simulated_machine

HANG = 'at = 0\neffect = { kind = "hang", function = "nvmlDeviceGetCount_v2" }'


@pytest.mark.parametrize(
    ("effect", "cause", "next_step"),
    [
        ("driver_not_loaded", "driver_not_loaded", "modprobe nvidia"),
        ("library_missing", "library_not_found", "NVIDIA runtime"),
        ("version_mismatch", "version_mismatch", "reboot"),
    ],
)
def test_without_a_driver_it_says_why_and_what_to_do_and_could_not_look(
    tmp_path: Path, effect: str, cause: str, next_step: str
) -> None:
    scenario = scenario_with(tmp_path, "idle-downshift", f'at = 0\neffect = {{ kind = "{effect}" }}')
    report = look_at(scenario, 60)
    assert report.blocked is not None
    assert report.blocked.startswith(cause)
    assert next_step in report.blocked
    assert [found.check.code for found in report.findings] == ["driver.unavailable"]
    assert report.exit_code(Severity.CRITICAL) == EXIT_COULD_NOT_LOOK
    assert report.verdict is Verdict.WATCH, "a driver is reloaded within minutes"


def test_a_driver_that_hangs_is_given_up_after_the_patience(tmp_path: Path) -> None:
    report = look_at(scenario_with(tmp_path, "idle-downshift", HANG), 60, patience_seconds=20)
    assert report.blocked is not None
    assert "does not answer in time" in report.blocked
    assert report.exit_code(Severity.CRITICAL) == EXIT_COULD_NOT_LOOK


def test_slow_rounds_do_not_cut_the_measurement_short(tmp_path: Path) -> None:
    scenario = scenario_with(tmp_path, "dual-a10", 'at = 0\ngpu = 1\neffect = { kind = "hang" }')
    config = Config(sample_fast_seconds=10.0, sample_medium_seconds=20.0)
    assert look_at(scenario, 60, seconds=40, patience_seconds=1, config=config).measured_seconds == 40


def test_a_host_that_should_have_no_gpu_is_sound_without_a_driver(tmp_path: Path) -> None:
    gone = (f'at = 0\ngpu = {gpu}\neffect = {{ kind = "removed" }}' for gpu in (0, 1))
    scenario = scenario_with(tmp_path, "no-driver", *gone)
    assert look_at(scenario, 60).blocked is not None
    report = look_at(scenario, 60, config=Config(simulate="no-driver", expect_gpu_count=0))
    assert (report.blocked, report.findings) == (None, ())
    assert report.exit_code(Severity.INFO) == EXIT_SOUND


def test_the_least_severe_finding_that_fails_is_chosen(tmp_path: Path) -> None:
    narrow = scenario_with(tmp_path, "idle-downshift", 'at = 0\ngpu = 0\neffect = { kind = "link", width = 8 }')
    report = look_at(narrow, 60)
    assert report.exit_code(Severity.CRITICAL) == EXIT_SOUND
    assert report.exit_code(Severity.WARNING) == EXIT_FINDINGS


@pytest.mark.slow
def test_in_real_time_it_sees_the_same_through_threads_and_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with simulated_machine(load_scenario("idle-downshift")) as simulated:
        report = measure(simulated.machine, Config(), 2.0, patience_seconds=10.0).report
    assert report.blocked is None
    assert report.measured_seconds >= 2.0
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"measuring, [01] of 2 s", err)
    assert err.endswith("\r\x1b[K")


def test_a_bug_never_reads_as_a_sick_host(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> Host:
        raise ZeroDivisionError

    monkeypatch.setattr("gpu_triage.cli.measure.stepped_host", broken)
    assert run_cli(group, ["check"]) == EXIT_BROKEN
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "json", "lines"])
def test_a_host_that_cannot_be_looked_at_is_reported_and_wrong_options_are_not(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(group, ["check", "--simulate", "no-driver", "--format", form]) == EXIT_COULD_NOT_LOOK
    assert "driver_not_loaded" in capsys.readouterr().out
    assert run_cli(group, ["check", "--simulate", "no-driver", "--format", form, "--for", "soon"]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert "soon" in err
