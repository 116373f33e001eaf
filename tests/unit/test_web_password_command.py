from __future__ import annotations

import bcrypt
import pytest
from click.testing import CliRunner

from gpu_triage.cli import group


def test_a_password_is_asked_for_twice_and_only_its_hash_printed() -> None:
    result = CliRunner().invoke(group, ["web-password", "--cost", "4"], input="scrape\nscrape\n")
    printed = result.stdout.splitlines()[-1]
    assert result.exit_code == 0
    assert printed.startswith("$2b$04$")
    assert bcrypt.checkpw(b"scrape", printed.encode())
    assert "scrape" not in result.output


@pytest.mark.parametrize("typed", ["x" * 73, "ü" * 37])
def test_a_password_of_which_bcrypt_would_see_a_part_is_refused(typed: str) -> None:
    result = CliRunner().invoke(group, ["web-password"], input=f"{typed}\n{typed}\n")
    assert result.exit_code == 2
    assert "choose a shorter one" in result.output
