"""Standard streams that are closed, full or broken: the exit code says so, and where a stream is left, a sentence."""

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest
from deploy.demo.processes import free_port
from tests.e2e.processes import wait_for

pytestmark = pytest.mark.slow

NOT_WRITTEN = "gpu-triage: error: the output cannot be written: "


class Case(NamedTuple):
    command: str  # with redirections, for a shell
    code: int
    stdout: str = ""  # what it starts with
    stderr: str = ""


CASES = (
    Case("--help >&-", 70, stderr=f"{NOT_WRITTEN}stdout is closed"),
    Case("--help 1</dev/null", 70, stderr=f"{NOT_WRITTEN}stdout is closed"),
    Case("--help >/dev/full", 70, stderr=f"{NOT_WRITTEN}No space left on device"),
    Case("--help >&- 2>&-", 70),
    Case("--help >/dev/full 2>/dev/full", 70),
    Case("--help 2>&-", 0, stdout="Usage: gpu-triage"),
    Case("--help <&- 2>/dev/full", 0, stdout="Usage: gpu-triage"),
    Case("nosuch 2>&-", 2),
    Case("nosuch 2>/dev/full", 2),
    Case("nosuch <&- >&-", 2, stderr="gpu-triage: error: no such command"),
    Case("web-password <&-", 2, stderr="gpu-triage: error: no password on standard input"),
    Case("check --from - <&-", 2, stdout="files: not read"),
    Case("explain --list | true", 141),
)


@pytest.mark.parametrize("case", CASES, ids=[case.command for case in CASES])
def test_a_stream_that_is_gone_ends_in_an_exit_code_and_a_sentence(case: Case) -> None:
    script = f"set -o pipefail; {sys.executable} -m gpu_triage {case.command}"
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == case.code
    assert (ended.stdout[: len(case.stdout)], ended.stderr[: len(case.stderr)]) == (case.stdout, case.stderr)
    assert bool(ended.stderr) == bool(case.stderr)


TALK = """
import sys, click
from gpu_triage.cli.run import run_cli
sys.exit(run_cli(click.Command("talk", callback=lambda: print("line")), []))
"""


def test_a_reader_that_is_gone_before_the_last_line_is_no_bug() -> None:
    script = f"set -o pipefail; PYTHONUNBUFFERED= {sys.executable} -c '{TALK}' | true"
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-", ">&- 2>/dev/full"])
def test_the_daemon_runs_without_its_streams_and_gives_their_numbers_to_nothing_else(closed: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    flags = f"--simulate dual-a10 --web.listen-address {address}"
    command = ["bash", "-c", f"exec {sys.executable} -m gpu_triage serve {flags} {closed}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: process.poll() is not None or answers(address))
            opened = [str(Path(f"/proc/{process.pid}/fd/{number}").readlink()) for number in range(3)]
            assert set(opened) <= {"/dev/null", "/dev/full"}
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/healthy") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
