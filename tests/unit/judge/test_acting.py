"""A page is held against flapping, and what acts on a finding asks whether its condition holds now."""

from pathlib import Path

import pytest
from tests.rig import Rig, only, pair_with, rig

from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage.judge.findings.verdicts import EXIT_FINDINGS, EXIT_SOUND, Verdict
from gpu_triage.judge.report.machine_readable import render_lines

pytestmark = pytest.mark.slow

LEAN = only("power", "activity", "identity")
SOON = 47
"""Seconds after a repair in which a node is given back."""


def hang(at: int, until: int) -> str:
    return f'at = {at}\nuntil = {until}\ngpu = 1\neffect = {{ kind = "hang" }}'


def lost(running: Rig) -> Finding:
    assert running.judge.latest is not None
    (found,) = (each for each in running.judge.latest.report.findings if each.check.code == "gpu.lost")
    return found


def acts(running: Rig) -> bool:
    """Whether anything that acts would take the GPU out of service; all of them agree."""
    assert running.judge.latest is not None
    report = running.judge.latest.report
    severities = [line.split("\t")[3] for line in render_lines(report).splitlines() if line.startswith("finding\t")]
    drains = report.verdict is Verdict.DRAIN
    assert report.exit_code(Severity.CRITICAL) == (EXIT_FINDINGS if drains else EXIT_SOUND)
    assert ("critical" in severities) == drains
    assert [gpu.verdict for gpu in report.gpus] == [Verdict.KEEP, Verdict.DRAIN if drains else Verdict.WATCH]
    assert (running.value("gpu_verdict", gpu="1"), running.value("gpu_host_verdict")) == (1 + drains, 1 + drains)
    return drains


def test_a_repaired_gpu_is_not_drained_again_while_its_page_is_held(tmp_path: Path) -> None:
    with rig(pair_with(tmp_path, "h100-8", hang(60, 300)), LEAN) as running:
        running.run_to(290)
        assert (lost(running).holds, acts(running)) == (True, True)
        running.run_to(300 + SOON)
        assert running.value("gpu_finding", code="gpu.lost") == State.CONFIRMED
        assert (lost(running).holds, acts(running)) == (False, False)
        running.run_to(300 + BY_CODE["gpu.lost"].hold_seconds + 30)
        assert running.value("gpu_finding", code="gpu.lost") == State.ENDED


def test_a_gpu_that_flaps_is_acted_on_whenever_it_fails_and_is_one_incident(tmp_path: Path) -> None:
    falls = [(60 + 240 * number, 120 + 240 * number) for number in range(3)]
    with rig(pair_with(tmp_path, "h100-8", *(hang(*fall) for fall in falls)), LEAN) as running:
        for begin, end in falls:
            running.run_to(begin + 30)
            assert acts(running)
            running.run_to(end + SOON)
            assert not acts(running)
        since = lost(running).since
        assert since is not None
        assert since - (running.clock.now().wall - running.elapsed) == pytest.approx(falls[0][0], abs=15)


def test_what_nobody_can_observe_now_is_not_acted_on(tmp_path: Path) -> None:
    gone = 'at = 60\ngpu = 1\neffect = { kind = "removed" }'
    with rig(pair_with(tmp_path, "h100-8", gone), LEAN) as running:
        running.run_to(120)
        assert acts(running)
        running.sampler.release()
        running.run(SOON)
        assert running.judge.latest is not None
        assert [each.holds for each in running.judge.latest.report.findings if each.check.code == "gpu.lost"] == [None]
        assert running.judge.latest.report.verdict is not Verdict.DRAIN
