"""The command line: flags, help, version, checks of a configuration, and the one line and exit code of each mistake."""

import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from tests.certificates import Authority
from tests.faults.stand_in import StandIn

from gpu_triage import __version__
from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli
from gpu_triage.driver.nvml import probe
from gpu_triage.errors import DriverUnavailable, ScenarioError
from gpu_triage.options.config import Config
from gpu_triage.options.option_table import CollectorSwitch, all_options
from gpu_triage.options.options_command import OptionsCommand, serve_options, version_option

SWITCHES = (
    CollectorSwitch("process", "Processes on each GPU.", default=True),
    CollectorSwitch("host_disk", "Disk use.", default=True),
)


def program(seen: list[Config]) -> click.Group:
    """A command line like the real one, whose serve command notes its Config."""

    @click.group(params=[version_option(lambda: "driver 580.95.05, NVML 13.580.95.05, CUDA 13.0")])
    def group() -> None:
        """Why is this GPU job slow or failing?"""

    @group.command(cls=OptionsCommand)
    @serve_options(SWITCHES, lambda _scenario: {})
    @click.option("--once", is_flag=True, help="Serve one scrape.")
    def serve(config: Config, *, once: bool) -> int:
        """Serve metrics."""
        seen.append(config)
        return 7 if once else 0

    @group.command()
    @click.argument("how")
    def fail(how: str) -> None:
        """Fail."""
        errors: dict[str, BaseException] = {
            "scenario": ScenarioError("no scenario 'x'; one of: healthy"),
            "driver": DriverUnavailable("driver_not_loaded", "line one\nline two"),
            "interrupt": KeyboardInterrupt(),
            "pipe": BrokenPipeError(32, "Broken pipe"),
            "file": click.FileError("a.toml", "is a folder"),
            "fault": ZeroDivisionError(),
        }
        raise errors[how]

    return group


def serve(*arguments: str) -> Config:
    seen: list[Config] = []
    assert run_cli(program(seen), ["serve", *arguments]) == 0
    return seen[0]


@pytest.fixture(autouse=True)
def _no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in all_options(SWITCHES):
        monkeypatch.delenv(option.variable, raising=False)


def test_flags_reach_the_command_as_one_config() -> None:
    config = serve(
        "--web.listen-address=127.0.0.1:1",
        "--web.listen-address",
        "127.0.0.1:2",
        "--sample.fast=250ms",
        "--no-collector.host",
        "--collector.host_disk",
    )
    assert config == Config(
        web_listen_addresses=("127.0.0.1:1", "127.0.0.1:2"),
        sample_fast_seconds=0.25,
        collectors={"host": False, "host_disk": True},
    )


def test_the_commands_own_parameters_and_exit_code_pass_through() -> None:
    assert run_cli(program([]), ["serve", "--once"]) == 7


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("serve --sample.fast 5", "--sample.fast: '5' has no unit; write 5s"),
        ("serve --no-collector.host --no-collector.process", "every collector is switched off; leave at least one on"),
        ("serve --sample.fsat 5s", "no such option --sample.fsat; did you mean --sample.fast?"),
        ("serve --no-colector.host", "no such option --no-colector.host; did you mean --no-collector.host?"),
        ("serve --zzzzzz", "no such option --zzzzzz; gpu-triage serve --help-all lists them"),
        ("serve --sample.fast", "Option '--sample.fast' requires an argument; write --sample.fast DURATION"),
        ("serve --collector.host=1", "Option '--collector.host' does not take a value; write --[no-]collector.host"),
        ("serve now", "Got unexpected extra argument (now); gpu-triage serve --help shows what is right"),
        ("fail", "HOW is missing; write gpu-triage fail HOW"),
        ("fail scenario", "no scenario 'x'; one of: healthy"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str], arguments: str, line: str) -> None:
    assert run_cli(program([]), arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.err == f"gpu-triage: error: {line}\n"
    assert captured.out == ""


def test_unprintable_text_from_the_command_line_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("--a\nb\u2028c\x1b[31m\udcff", "--log.level=\x85\n\udcff"):
        assert run_cli(program([]), ["serve", text]) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert error.rstrip("\n").isprintable()


def test_other_failures_of_the_program_are_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(program([]), ["fail", "driver"]) == 1
    assert capsys.readouterr().err == "gpu-triage: error: driver_not_loaded: line one line two\n"
    assert run_cli(program([]), ["fail", "file"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_fault_of_the_program_is_told_apart_from_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(program([]), ["fail", "fault"]) == 70
    said = capsys.readouterr().err
    assert said.startswith("gpu-triage: this is a bug, please report it:\nTraceback")
    assert "ZeroDivisionError" in said


def test_an_interrupt_ends_with_130() -> None:
    assert run_cli(program([]), ["fail", "interrupt"]) == 130


TALK = """
import sys, click
from gpu_triage.cli.run import run_cli
@click.command()
def talk():
    sys.stdin.read()
    for _ in range(100_000): {}
sys.exit(run_cli(talk, []))
"""


@pytest.mark.parametrize(
    "write", ["click.echo('line')", "sys.stdout.write('line')", "sys.stdout.write('') or sys.stdout.flush()"]
)
def test_output_that_cannot_be_written_is_one_line_and_no_finding_and_without_a_reader_no_words(write: str) -> None:
    command = [sys.executable, "-c", TALK.format(write)]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, check=False)
    if "''" not in write:
        assert (ended.returncode, ended.stderr.count(b"\n")) == (70, 1)
        assert b"No space left on device" in ended.stderr
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()  # only now may it write: nobody reads any more
        assert process.stderr.read() == b""


def test_called_with_nothing_the_program_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    run_cli(program([]), [])
    captured = capsys.readouterr()
    assert "Usage: gpu-triage" in captured.out + captured.err


def test_version_names_program_version_python_and_driver(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(program([]), ["--version"]) == 0
    expected = f"gpu-triage-exporter {__version__} (Python {platform.python_version()})\ndriver 580.95.05, "
    expected += "NVML 13.580.95.05, CUDA 13.0\n"
    assert capsys.readouterr().out == expected


def test_help_shows_every_option_once_with_default_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(program([]), ["serve", "--help-all"]) == 0
    output = capsys.readouterr().out
    flowing = " ".join(output.split())
    for option in all_options(SWITCHES):
        assert len(re.findall(rf"^  {re.escape(option.synopsis)}(?: |$)", output, re.MULTILINE)) == 1, option.key
        assert f"[default: {option.shown_default}; env: {option.variable}]" in flowing
    assert max(map(len, output.splitlines())) <= 100


def test_help_is_grouped_by_subject(capsys: pytest.CaptureFixture[str]) -> None:
    run_cli(program([]), ["serve", "--help-all"])
    headings = re.findall(r"^(\w[\w ]*):$", capsys.readouterr().out, re.MULTILINE)
    assert headings == [
        *("Web", "Sampling", "Expectations", "Findings", "Metrics", "Collectors", "Schedulers", "Paths", "Logging"),
        *("Simulation", "Configuration file", "Options"),
    ]


HASH = "$2b$04$abcdefghijklmnopqrstuuO3lS8zPFVJuXdeLaPgJ5xQ3h1kQ0D1C"


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, list[str]]:
    code = run_cli(group, ["config", "check", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, [line.removeprefix("gpu-triage: error: ") for line in err.splitlines()]


def test_what_can_be_used_is_ok_and_says_what_was_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web, baseline, options = tmp_path / "web.yml", tmp_path / "baseline.json", tmp_path / "options.yml"
    web.write_text(Authority(tmp_path).server() + f'basic_auth_users:\n  ada: "{HASH}"\n')
    assert run_cli(group, ["baseline", "write", str(baseline), "--simulate", "rtx-4070-ti-super"]) == 0
    capsys.readouterr()
    options.write_text(f"web:\n  config:\n    file: {web}\nbaseline:\n  file: {baseline}\n")
    code, out, err = check(capsys, options)
    assert (code, err) == (0, [])
    first, second, last = out.splitlines()
    assert first == f"{web}: HTTPS, 1 user"
    assert re.fullmatch(rf"{re.escape(str(baseline))}: 2 GPUs, recorded \S+Z", second)
    assert last == "OK"
    assert check(capsys) == (0, "OK\n", [])
    assert "named twice" in check(capsys, options, "--config.file", options)[2][0]


def test_every_mistake_is_a_line_and_the_exit_code_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken"
    broken.write_text("{")
    flags = ("--web.config.file", broken, "--baseline.file", broken, "--metrics.exclude", "gpu_nothing")
    code, out, err = check(capsys, *flags)
    assert (code, out) == (2, "")
    assert [line.split(":")[0] for line in err] == ["metrics.exclude", str(broken), str(broken)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("expect:\n  gpu-count: many\n", "expect.gpu-count: 'many' is invalid; write a whole number from 0 to 64"),
        ("expect:\n  gpu-cuont: 8\n", "line 2: expect.gpu-cuont: unknown key; did you mean gpu-count?"),
        ("sample:\n  fast: 10s\n", "sample.medium (5s, the default) is shorter than sample.fast (10s, "),
    ],
)
def test_an_unusable_option_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    path = tmp_path / "config.yml"
    path.write_text(text)
    code, _, (line,) = check(capsys, path)
    assert code == 2
    assert said in line
    assert str(path) in line
    assert check(capsys, "--config.file", path)[2] == [line]


def test_a_certificate_that_is_not_there_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web = tmp_path / "web.yml"
    web.write_text("tls_server_config:\n  cert_file: gone.pem\n  key_file: gone.key\n")
    code, _, (line,) = check(capsys, "--web.config.file", web)
    assert code == 2
    assert str(tmp_path / "gone.pem") in line


@pytest.mark.slow
def test_the_driver_tells_its_versions_and_one_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    host = StandIn(tmp_path, gpus=1)
    command = [sys.executable, "-c", f"from {probe.__name__} import *; print(versions_in_words(float(sys.argv[1])))"]

    def told(seconds: str) -> str:
        ended = subprocess.run([*command, seconds], env=host.environment, capture_output=True, text=True, check=True)
        return ended.stdout.rstrip("\n")

    assert re.fullmatch(r"driver \S+, NVML \S+, CUDA \S+", told("60"))
    host.set("host hang nvmlInit")
    began = time.monotonic()
    assert told("1") == "the driver does not answer within 1 s"
    assert time.monotonic() - began < 30
    host.replace("unloaded")
    assert told("60") == "no driver: driver_not_loaded"
