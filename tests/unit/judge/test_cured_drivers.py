"""A driver that is loaded anew ends the finding that it was away together with the Xid that explains it.

If the driver's finding was held for longer, the end of the Xid would let its page out.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rig import Rig, only, pair_with, rig

from gpu_triage.judge.findings.finding import State

pytestmark = pytest.mark.slow

GSP = 'at = 60\ngpu = 0\neffect = { kind = "xid", code = 119 }'
AWAY = 'at = 120\nuntil = 600\neffect = { kind = "driver_not_loaded" }'
EXPECTED = {"xid.119", "driver.unavailable"}
LEAN = only("power", "activity", "identity", sample_fast_seconds=5.0)
"""Findings are judged every 5 s."""


def confirmed(running: Rig) -> set[str]:
    """Which of the two are."""
    assert running.judge.latest is not None
    findings = running.judge.latest.report.findings
    return {each.check.code for each in findings if each.state is State.CONFIRMED} & EXPECTED


def test_an_xid_and_the_absence_of_the_driver_that_it_took_with_it_end_together(tmp_path: Path) -> None:
    with rig(pair_with(tmp_path, "h100-8", GSP, AWAY), LEAN) as running:
        running.run_to(595)
        assert confirmed(running) == EXPECTED
        seen = []
        for second in range(600, 720, 5):
            running.run_to(second)
            seen.append(frozenset(confirmed(running)))
    assert list(dict.fromkeys(seen)) == [EXPECTED, set()]
