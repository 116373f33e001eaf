"""`gpu-triage explain` prints the page of whatever an alert, a report or a kernel log has named."""

import pytest
from click.testing import CliRunner
from tests.command_line import Run
from tests.gathered import for_each

from gpu_triage.cli.main import group
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.xid.codes import XID_CODES
from gpu_triage.serve.handbook.pages import alert_names

FINDINGS = tuple(code for code in BY_CODE if not code.removeprefix("xid.").isdigit())


def explained(*words: str) -> str:
    result = CliRunner().invoke(group, ["explain", *words])
    assert result.exit_code == 0
    return result.output


@pytest.mark.slow
@for_each("name", [*alert_names(), *FINDINGS])
def test_every_alert_and_every_finding_is_explained(name: str) -> None:
    page = explained(name)
    assert len(page.splitlines()) > 3
    assert not {"](", "**", "\n#", "```", "|---", "\x1b"} & {
        mark for mark in ("](", "**", "```", "|---") if mark in page
    }


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("GpuLots", "no alert, finding or Xid 'GpuLots'; did you mean GpuLost"),
        ("zzz", "no alert, finding or Xid 'zzz'; --list shows them all"),
        ("\x1b[2J", "no alert, finding or Xid '\\\\x1b[2J'"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(word: str, told: str, run: Run) -> None:
    code, out, err = run("explain", word)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


def test_the_list_names_all_that_can_be_explained() -> None:
    listed = {line.split()[0] for line in explained("--list").splitlines() if line.startswith("  ")}
    assert set(alert_names()) <= listed
    assert {str(code) for code in XID_CODES} <= listed
    assert set(FINDINGS) <= listed
