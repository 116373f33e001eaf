"""``gpu-triage simulate NAME --history``: its flags, its file and its errors."""

import io
import re
from pathlib import Path

import pytest
from tests.command_line import config_from

from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli
from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Setting
from gpu_triage.read.registry import COLLECTOR_SWITCHES
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.history import record_history, write_openmetrics
from gpu_triage_simulator.history_command import HistoryRequest, estimate, write_history

SHORT = ("simulate", "dual-a10", "--history", "1m")


def test_the_file_holds_what_the_python_interface_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "history.om"
    flags = "--step 30s --start 2026-01-15T00:00:00Z --instance a:1 --job j --label rack=r2 --output"
    assert run_cli(group, [*SHORT, *flags.split(), str(output)]) == 0
    target = {"instance": "a:1", "job": "j", "rack": "r2"}
    history = record_history(
        load_scenario("dual-a10"), seconds=60, step_seconds=30, target=target, start_seconds=1_768_435_200
    )
    expected = io.StringIO()
    write_openmetrics(history, expected)
    assert output.read_text() == expected.getvalue()
    said = capsys.readouterr()
    assert said.out == ""
    assert f"promtool tsdb create-blocks-from openmetrics {output} " in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["history.om"]


def test_a_history_is_not_written_through_a_link_that_was_planted(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    for name in ("history.om", "history.om.partial", ".history.om.new"):
        (tmp_path / name).symlink_to(tmp_path / "victim")
    assert run_cli(group, [*SHORT, "--output", str(tmp_path / "history.om")]) == 0
    assert (tmp_path / "victim").read_text() == "precious"
    assert "# EOF" in (tmp_path / "history.om").read_text()


def test_without_a_file_the_history_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(group, [*SHORT, "--start", "1700000000"]) == 0
    said = capsys.readouterr()
    assert said.out.endswith("# EOF\n")
    assert " 1700000060\n" in said.out
    assert said.err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("dual-a10 --history soon", "--history: is 'soon'; write a duration"),
        ("dual-a10 --history 1m --step 1", "--step: is '1'; write a duration"),
        ("dual-a10 --history 1m --step 0s", "has no two scrapes"),
        ("dual-a10 --history 1m --step 2m", "has no two scrapes"),
        ("dual-a10 --history 1m --start yesterday", "write Unix seconds, or a time such as"),
        ("dual-a10 --history 1m --start 2026-01-15T00:00:00", "write Unix seconds, or a time such as"),
        ("dual-a10 --history 1m --label rack", "write name=value"),
        ("dual-a10 --history 1m --label __name__=x", "write name=value"),
        ("dual-a10 --history 3650d --step 1s", "take a longer step or a shorter time"),
        ("dual-a10 --step 1m", "--step says nothing without --history"),
        ("dual-a10 --label a=b", "--label says nothing without --history"),
        ("--list --history 1m", "--history needs the NAME of one scenario"),
    ],
)
def test_flags_that_cannot_be_used_end_with_a_line_that_says_what_would_be_right(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: str, message: str
) -> None:
    output = ("--output", str(tmp_path / "x.om")) if "10 --history" in arguments else ()
    assert run_cli(group, ["simulate", *arguments.split(), *output]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_file_is_a_failure_with_its_cause(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_cli(group, [*SHORT, "--output", str(tmp_path / "none" / "x.om")]) == 1
    assert "cannot be written: No such file or directory; name another file" in capsys.readouterr().err


def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("gpu_triage.options.progress._QUIET_SECONDS", 0.0)
    monkeypatch.setattr("gpu_triage.options.progress._EVERY_SECONDS", 0.0)
    write_history(HistoryRequest("idle-downshift", "1m", "15s", str(tmp_path / "night.om")), 1_800_000_000.0)
    assert re.search(r"recording, \d+ %, about \d+ s left", terminal.getvalue())
    assert "writing" in terminal.getvalue()


@pytest.mark.full
def test_size_of_a_long_history_is_told_beforehand(tmp_path: Path) -> None:
    scenario = load_scenario("a100-power-capped")
    assert estimate(scenario, 600, 60, {}) is None, "a short one"
    told = estimate(scenario, 2 * 3600, 60, {})
    assert told is not None
    match = re.fullmatch(r"121 scrapes of about ([0-9,]+) series: about ([0-9]+) MB, and about .+", told)
    assert match is not None, told
    path = tmp_path / "night.om"
    write_history(HistoryRequest("a100-power-capped", "2h", "60s", output=str(path)), 1e9)
    assert int(match[2]) == pytest.approx(path.stat().st_size / 1e6, rel=0.3)


def test_a_file_names_the_scenario_and_every_other_source_overrules_its_options(tmp_path: Path) -> None:
    scenario = {"expect.gpu-count": Setting(("8",), "x.toml"), "stale-after": Setting(("5",), "x.toml")}
    file = tmp_path / "config.yml"
    file.write_text("simulate: x.toml\nstale-after: 9\n")
    for arguments, environment, stale_after in (
        (["--simulate=x.toml"], {"GPU_TRIAGE_STALE_AFTER": "7"}, 7),
        ([f"--config.file={file}"], {}, 9),
        ([], {"GPU_TRIAGE_CONFIG_FILE": str(file)}, 9),
        (["--simulate=x.toml", f"--config.file={file}"], {}, 9),
        (["--simulate=x.toml"], {"GPU_TRIAGE_CONFIG_FILE": str(file)}, 9),
    ):
        config = config_from(arguments, environment, COLLECTOR_SWITCHES, {"x.toml": scenario}.__getitem__)
        assert (config.simulate, config.expect_gpu_count, config.stale_after) == ("x.toml", 8, stale_after)


def test_a_baseline_of_the_operator_overrules_that_a_scenario_learns_its_own() -> None:
    scenario = {"baseline.from-host": Setting(("true",), "x.toml: exporter.options.baseline.from-host")}
    of_scenario = {"x.toml": scenario}.__getitem__
    assert config_from(["--simulate=x.toml"], of_scenario=of_scenario).baseline_from_host
    for arguments, environment in ((["--baseline.file=b.json"], {}), ([], {"GPU_TRIAGE_BASELINE_FILE": "b.json"})):
        config = config_from(["--simulate=x.toml", *arguments], environment, of_scenario=of_scenario)
        assert (config.baseline_file, config.baseline_from_host) == (Path("b.json"), False)
    with pytest.raises(ConfigError, match=r"baseline\.from-host \(--baseline.from-host\) records a baseline where"):
        config_from(["--simulate=x.toml", "--baseline.file=b.json", "--baseline.from-host"], of_scenario=of_scenario)
