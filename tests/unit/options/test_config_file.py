"""The YAML file, mistakes in it, and settings of the judge: in flags, variables, a file and a scenario, combined."""

from pathlib import Path

import pytest
from tests.command_line import config_from

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config, JudgeOption, Origin, Setting
from gpu_triage.options.option_sources import combined, judge_options_now
from gpu_triage.options.option_table import CollectorSwitch, all_options


def config_of(path: Path | str) -> Config:
    return config_from([f"--config.file={path}"], {}, [CollectorSwitch("host_disk", "Disk use.", default=True)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yml"


def refusal(path: Path, content: str) -> str:
    """What is said of the content, without the path every message must begin with."""
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        config_of(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert len(message.splitlines()) == 1
    assert "; " in message, "a refusal says what would be right"
    return message.removeprefix(f"{path}: ")


def test_keys_are_nested_by_the_dots_of_the_options(file: Path) -> None:
    file.write_text(
        """\
        web:
          listen-address: [":9836", "127.0.0.1:9999"]
          telemetry-path: /gpu
        sample: {fast: 500ms}
        stale-after: 4
        expect: {p2p: True, pcie-width: 16}
        collector: {host: false, host_disk: true}
        """
    )
    assert config_of(file) == Config(
        web_listen_addresses=(":9836", "127.0.0.1:9999"),
        web_telemetry_path="/gpu",
        sample_fast_seconds=0.5,
        stale_after=4,
        expect_p2p=True,
        expect_pcie_width=16,
        collectors={"host": False, "host_disk": True},
    )


@pytest.mark.parametrize("content", ["", "# nothing yet\n", "\ufeff---\n", "web:\nsample:\n  # fast: 2s\n"])
def test_a_file_that_sets_nothing_leaves_the_defaults(file: Path, content: str) -> None:
    file.write_text(content, encoding="utf-8")
    assert config_of(file) == Config()


def test_one_value_may_stand_for_a_list(file: Path) -> None:
    file.write_text("web: {listen-address: localhost:9836}")
    assert config_of(file).web_listen_addresses == ("localhost:9836",)


def test_yamls_guesses_about_types_do_not_change_a_value(file: Path) -> None:
    for text in ("010", "1:30", "off", "1e3", "2026-01-02"):
        file.write_text(f"simulate: {text}")
        assert config_of(file).simulate == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sample: {fast: 5}", "sample.fast: '5' has no unit; write 5s"),
        ("sample: {fsat: 1s}", "line 1: sample.fsat: unknown key; did you mean fast?"),
        ("sample.fast: 1s", "line 1: sample.fast: unknown key; did you mean sample?"),
        ("config: {file: other.yml}", "line 1: config: unknown key; "),
        ("stale-after: {a: 1}", "line 1: stale-after: is a table; write one value"),
        ("stale-after: [3]", "line 1: stale-after: is a list; write one value"),
        ("web: {listen-address: [[':1']]}", "line 1: web.listen-address: is a list; write a value or a list"),
        ("web: {listen-address: []}", "line 1: web.listen-address: is a list; write a value or a list"),
        ("simulate: null", "line 1: simulate: has no value; write one or leave the key out"),
    ],
)
def test_a_mistake_is_answered_with_its_place_and_what_would_be_right(file: Path, content: str, message: str) -> None:
    assert refusal(file, content).startswith(message)


def test_no_object_is_made_of_a_tagged_value(file: Path) -> None:
    file.write_text("simulate: !!python/object/apply:os.getcwd []")
    with pytest.raises(ConfigError, match="is a list; write one value"):
        config_of(file)


@pytest.fixture
def judge_file(file: Path) -> Path:
    file.write_text("judge:\n  thermal.hw: {wait: 5m, hold: 15m, share: 20 %}\n  xid.79:\n    wait: 1m\n")
    return file


def test_the_file_has_a_table_for_each_finding(judge_file: Path) -> None:
    assert config_from([f"--config.file={judge_file}"]).judge == (
        JudgeOption("thermal.hw", "wait", "5m"),
        JudgeOption("thermal.hw", "hold", "15m"),
        JudgeOption("thermal.hw", "share", "20 %"),
        JudgeOption("xid.79", "wait", "1m"),
    )


def test_what_several_sources_say_is_combined_and_the_flag_comes_last(judge_file: Path) -> None:
    scenario = {"judge": Setting(("power.cap.share=0.8",), "the scenario")}
    config = config_from(
        [f"--config.file={judge_file}", "--judge=thermal.hw.wait=1m", "--judge", "pcie.aer.count=5", "--simulate=x"],
        {"GPU_TRIAGE_JUDGE": "thermal.hw.wait=2m,thermal.sw.wait=3m"},
        of_scenario=lambda _name: scenario,
    )
    said = [(each.code, each.name, each.text, each.origin, each.place) for each in config.judge]
    assert said == [
        ("power.cap", "share", "0.8", Origin.SCENARIO, "the scenario"),
        ("thermal.hw", "wait", "5m", Origin.FILE, f"{judge_file}: judge"),
        ("thermal.hw", "hold", "15m", Origin.FILE, f"{judge_file}: judge"),
        ("thermal.hw", "share", "20 %", Origin.FILE, f"{judge_file}: judge"),
        ("xid.79", "wait", "1m", Origin.FILE, f"{judge_file}: judge"),
        ("thermal.hw", "wait", "2m", Origin.VARIABLE, "environment variable GPU_TRIAGE_JUDGE"),
        ("thermal.sw", "wait", "3m", Origin.VARIABLE, "environment variable GPU_TRIAGE_JUDGE"),
        ("thermal.hw", "wait", "1m", Origin.FLAG, "--judge"),
        ("pcie.aer", "count", "5", Origin.FLAG, "--judge"),
    ]


def test_a_scenario_that_is_not_run_by_a_command_says_it_too() -> None:
    settings = {"judge": Setting(("power.cap.share=0.8",), "the scenario")}
    (option,) = combined(all_options(()), {Origin.SCENARIO: settings}, Config()).judge
    assert option == JudgeOption("power.cap", "share", "0.8")
    assert (option.origin, option.place) == (Origin.SCENARIO, "the scenario")


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
    ],
)
def test_a_section_of_another_form_is_refused_with_the_right_one(judge_file: Path, content: str, right: str) -> None:
    judge_file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        config_from([f"--config.file={judge_file}"])
    assert str(caught.value) == f"{judge_file}: line 1: {right}"


def test_reading_again_takes_the_files_settings_and_leaves_the_others(judge_file: Path) -> None:
    config = config_from(
        [f"--config.file={judge_file}", "--judge=thermal.hw.hold=1m"], {"GPU_TRIAGE_JUDGE": "xid.79.wait=9m"}
    )
    judge_file.write_text("judge: {thermal.hw: {wait: 7m}}")
    assert judge_options_now(config, all_options(())) == (
        JudgeOption("thermal.hw", "wait", "7m"),
        JudgeOption("xid.79", "wait", "9m"),
        JudgeOption("thermal.hw", "hold", "1m"),
    )


def test_without_a_file_nothing_is_read_again() -> None:
    config = config_from(["--judge=thermal.hw.hold=1m"])
    assert judge_options_now(config, all_options(())) is config.judge


@pytest.mark.parametrize("content", ["jugde: {}", "judge: 5", "["])
def test_a_file_with_a_mistake_is_refused_when_it_is_read_again(judge_file: Path, content: str) -> None:
    config = config_from([f"--config.file={judge_file}"])
    judge_file.write_text(content)
    with pytest.raises(ConfigError, match=str(judge_file)):
        judge_options_now(config, all_options(()))
