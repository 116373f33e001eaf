"""Settings of the judge: written as flags, in a variable, a file and a scenario, and all of them combined."""

from pathlib import Path

import pytest
from tests.command_line import config_from

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config, JudgeOption, Origin, Setting
from gpu_triage.options.option_sources import config_of_scenario, judge_options_now
from gpu_triage.options.option_table import all_options

FILE = """
judge:
  thermal.hw: {wait: 5m, hold: 15m, share: 20 %}
  xid.79:
    wait: 1m
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yml"
    path.write_text(FILE)
    return path


def test_the_file_has_a_table_for_each_finding(file: Path) -> None:
    assert config_from([f"--config.file={file}"]).judge == (
        JudgeOption("thermal.hw", "wait", "5m"),
        JudgeOption("thermal.hw", "hold", "15m"),
        JudgeOption("thermal.hw", "share", "20 %"),
        JudgeOption("xid.79", "wait", "1m"),
    )


def test_what_several_sources_say_is_combined_and_the_flag_comes_last(file: Path) -> None:
    scenario = {"judge": Setting(("power.cap.share=0.8",), "the scenario")}
    config = config_from(
        [f"--config.file={file}", "--judge=thermal.hw.wait=1m", "--judge", "pcie.aer.count=5", "--simulate=x"],
        {"GPU_TRIAGE_JUDGE": "thermal.hw.wait=2m,thermal.sw.wait=3m"},
        of_scenario=lambda _name: scenario,
    )
    said = [(each.code, each.name, each.text, each.origin, each.place) for each in config.judge]
    assert said == [
        ("power.cap", "share", "0.8", Origin.SCENARIO, "the scenario"),
        ("thermal.hw", "wait", "5m", Origin.FILE, f"{file}: judge"),
        ("thermal.hw", "hold", "15m", Origin.FILE, f"{file}: judge"),
        ("thermal.hw", "share", "20 %", Origin.FILE, f"{file}: judge"),
        ("xid.79", "wait", "1m", Origin.FILE, f"{file}: judge"),
        ("thermal.hw", "wait", "2m", Origin.VARIABLE, "environment variable GPU_TRIAGE_JUDGE"),
        ("thermal.sw", "wait", "3m", Origin.VARIABLE, "environment variable GPU_TRIAGE_JUDGE"),
        ("thermal.hw", "wait", "1m", Origin.FLAG, "--judge"),
        ("pcie.aer", "count", "5", Origin.FLAG, "--judge"),
    ]


def test_a_scenario_that_is_not_run_by_a_command_says_it_too() -> None:
    settings = {"judge": Setting(("power.cap.share=0.8",), "the scenario")}
    (option,) = config_of_scenario(all_options(()), settings, Config()).judge
    assert (option, option.origin, option.place) == (
        JudgeOption("power.cap", "share", "0.8"),
        Origin.SCENARIO,
        "the scenario",
    )


@pytest.mark.parametrize("text", ["", "thermal.hw.wait", "wait=5m", "thermal.hw wait=5m", "=5m"])
def test_what_is_no_setting_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--judge: .* is invalid; write .*, such as thermal.hw.wait=5m"):
        config_from([f"--judge={text}"])


@pytest.mark.parametrize(
    ("content", "right"),
    [
        ("judge: 5m", "judge: is '5m'; write a table for each finding, such as thermal.hw: {wait: 5m}"),
        ("judge: [a]", "judge: is a list; write a table for each finding, such as thermal.hw: {wait: 5m}"),
        ("judge: {thermal.hw: 5m}", "judge: is a table; thermal.hw: write its settings as a table, such as {wait: 5m}"),
        ("judge: {thermal.hw: {wait: [5m]}}", "judge: is a table; thermal.hw.wait: write one value, such as 5m"),
        ("judge: {thermal.hw: {wait: }}", "judge: is a table; thermal.hw.wait: write one value, such as 5m"),
    ],
)
def test_a_section_of_another_form_is_refused_with_the_right_one(file: Path, content: str, right: str) -> None:
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        config_from([f"--config.file={file}"])
    assert str(caught.value) == f"{file}: line 1: {right}"


def test_reading_again_takes_the_files_settings_and_leaves_the_others(file: Path) -> None:
    config = config_from(
        [f"--config.file={file}", "--judge=thermal.hw.hold=1m"], {"GPU_TRIAGE_JUDGE": "xid.79.wait=9m"}
    )
    file.write_text("judge: {thermal.hw: {wait: 7m}}")
    assert judge_options_now(config, all_options(())) == (
        JudgeOption("thermal.hw", "wait", "7m"),
        JudgeOption("xid.79", "wait", "9m"),
        JudgeOption("thermal.hw", "hold", "1m"),
    )


def test_without_a_file_nothing_is_read_again() -> None:
    config = config_from(["--judge=thermal.hw.hold=1m"])
    assert judge_options_now(config, all_options(())) is config.judge


@pytest.mark.parametrize("content", ["jugde: {}", "judge: 5", "["])
def test_a_file_with_a_mistake_is_refused_when_it_is_read_again(file: Path, content: str) -> None:
    config = config_from([f"--config.file={file}"])
    file.write_text(content)
    with pytest.raises(ConfigError, match=str(file)):
        judge_options_now(config, all_options(()))
