import os
import pty
import subprocess
import sys

import bcrypt
import pytest
from click.testing import CliRunner

from gpu_triage.cli.main import group


@pytest.mark.slow
def test_at_a_terminal_a_password_is_asked_for_twice_and_only_its_hash_printed() -> None:
    keyboard, terminal = pty.openpty()
    command = [sys.executable, "-m", "gpu_triage", "web-password", "--cost", "4"]
    process = subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, start_new_session=True)
    for prompt in (b"Password: ", b"Repeat for confirmation: "):
        written = b""
        while not written.endswith(prompt):
            written += os.read(keyboard, 1024)
        os.write(keyboard, b"scrape\n")
    printed = process.communicate(timeout=40)[0].rstrip(b"\n")
    os.close(keyboard)
    os.close(terminal)
    assert process.returncode == 0
    assert printed.startswith(b"$2b$04$")
    assert bcrypt.checkpw(b"scrape", printed)


@pytest.mark.parametrize("piped", [b"scrape\n", b"scrape", b"scrape\r\nmore\n"])
def test_a_password_that_is_piped_in_is_read_once_and_only_its_hash_printed(piped: bytes) -> None:
    result = CliRunner().invoke(group, ["web-password", "--cost", "4"], input=piped)
    assert result.exit_code == 0
    assert bcrypt.checkpw(b"scrape", result.output.rstrip("\n").encode())


@pytest.mark.parametrize("typed", ["x" * 73, "ü" * 37, "x" * 100_000])
def test_a_password_of_which_bcrypt_would_see_a_part_is_refused(typed: str) -> None:
    result = CliRunner().invoke(group, ["web-password"], input=f"{typed}\n")
    assert result.exit_code == 2
    assert "choose a shorter one" in result.output


@pytest.mark.parametrize("piped", ["", "\n"])
def test_without_a_password_there_is_no_hash(piped: str) -> None:
    result = CliRunner().invoke(group, ["web-password"], input=piped)
    assert result.exit_code == 2
    assert "no password on standard input" in result.output
