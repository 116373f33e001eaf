"""The command line: help, version, checks of a configuration, and the one line and exit code of each mistake."""

import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from tests.certificates import Authority
from tests.command_line import Ran, Run
from tests.faults.stand_in import StandIn

from gpu_triage import __version__
from gpu_triage.cli.run import run_cli
from gpu_triage.driver.nvml import probe
from gpu_triage.errors import AddressUnavailable, DriverUnavailable, ScenarioError
from gpu_triage.options.option_table import all_options
from gpu_triage.read.registry import COLLECTOR_SWITCHES


@pytest.fixture(autouse=True)
def _no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in all_options(COLLECTOR_SWITCHES):
        monkeypatch.delenv(option.variable, raising=False)


def test_unprintable_text_from_the_command_line_stays_on_one_line(run: Run) -> None:
    for text in ("--a\nb\u2028c\x1b[31m\udcff", "--log.level=\x85\n\udcff"):
        code, _, error = run("serve", text)
        assert (code, len(error.splitlines())) == (2, 1)
        assert error.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ScenarioError("no scenario 'x'; one of: healthy"), 2, "gpu-triage: error: no scenario 'x'; one of: healthy\n"),
        (
            DriverUnavailable("driver_not_loaded", "line one\nline two"),
            1,
            "gpu-triage: error: driver_not_loaded: line one line two\n",
        ),
        (AddressUnavailable("in use"), 1, "gpu-triage: error: in use\n"),
        (click.FileError("a.toml", "is a folder"), 1, "gpu-triage: error: Could not open file 'a.toml': is a folder"),
        # A fault of the program is told apart from what it found.
        (ZeroDivisionError(), 70, "gpu-triage: this is a bug, please report it:\nTraceback"),
        (KeyboardInterrupt(), 130, "\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_is_an_exit_code_and_a_line(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    @click.command()
    def fail() -> None:
        raise error

    assert run_cli(fail, []) == code
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert code == 70 or len(told.split("\n")) == 2


def test_version_names_program_version_python_and_driver(run: Run) -> None:
    code, out, _ = run("--version")
    program, driver = out.splitlines()
    assert (code, program) == (0, f"gpu-triage-exporter {__version__} (Python {platform.python_version()})")
    assert "driver" in driver


def test_all_help_shows_every_option_once_with_default_and_variable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    output = run("serve", "--help-all").out
    flowing = " ".join(output.split())
    for option in all_options(COLLECTOR_SWITCHES):
        assert len(re.findall(rf"^  {re.escape(option.synopsis)}(?: |$)", output, re.MULTILINE)) == 1, option.key
        assert f"[default: {option.shown_default}; env: {option.variable}]" in flowing
    assert max(map(len, output.splitlines())) <= 100


HASH = "$2b$04$abcdefghijklmnopqrstuuO3lS8zPFVJuXdeLaPgJ5xQ3h1kQ0D1C"


def mistakes(ran: Ran) -> list[str]:
    return [line.removeprefix("gpu-triage: error: ") for line in ran.err.splitlines()]


def test_what_can_be_used_is_ok_and_says_what_was_read(tmp_path: Path, run: Run) -> None:
    web, baseline, options = tmp_path / "web.yml", tmp_path / "baseline.json", tmp_path / "options.yml"
    web.write_text(Authority(tmp_path).server() + f'basic_auth_users:\n  ada: "{HASH}"\n')
    assert run("baseline", "write", baseline, "--simulate", "rtx-4070-ti-super").code == 0
    options.write_text(f"web:\n  config:\n    file: {web}\nbaseline:\n  file: {baseline}\n")
    code, out, err = run("config", "check", options)
    assert (code, err) == (0, "")
    first, second, last = out.splitlines()
    assert first == f"{web}: HTTPS, 1 user"
    assert re.fullmatch(rf"{re.escape(str(baseline))}: 2 GPUs, recorded \S+Z", second)
    assert last == "OK"
    assert run("config", "check") == (0, "OK\n", "")
    assert "named twice" in run("config", "check", options, "--config.file", options).err


def test_every_mistake_is_a_line_and_the_exit_code_is_2(tmp_path: Path, run: Run) -> None:
    broken = tmp_path / "broken"
    broken.write_text("{")
    flags = ("--web.config.file", broken, "--baseline.file", broken, "--metrics.exclude", "gpu_nothing")
    ran = run("config", "check", *flags)
    assert (ran.code, ran.out) == (2, "")
    assert [line.split(":")[0] for line in mistakes(ran)] == ["metrics.exclude", str(broken), str(broken)]


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
