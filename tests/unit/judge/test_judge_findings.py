"""The judge and the findings of an earlier process: what it cannot see yet it neither ends nor forgets."""

from pathlib import Path

import pytest
from tests.judged import judged
from tests.rig import only, pair_with, scenario_with

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.past import Memory
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.states import UNSEEN_SECONDS, EndReason, Life
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.judge.host_judge import HostJudge
from gpu_triage.judge.report.report import JudgedHost, Report
from gpu_triage.machine import Moment

NOW, WINDOW = 100_000.0, 60.0
HOT = Finding(BY_CODE["thermal.hw"], "hot", "0", "GPU-a", value=0.5)
MISSING = Finding(BY_CODE["gpu.missing"], "7 of 8", value=1)
STEP = only("power", "recovery", "activity", "identity", sample_fast_seconds=5.0)


def life(finding: Finding, unseen_seconds: float = 0.0) -> Life:
    return Life(finding, State.CONFIRMED, 5000.0, 900.0, NOW - 20, NOW - 40, None, unseen_seconds=unseen_seconds)


def judge_of(*lives: Life) -> HostJudge:
    judge = HostJudge(JudgedHost("gpu-7", continuous=True), longest_gap_seconds=WINDOW)
    judge.states.restore(lives)
    return judge


def look(judge: HostJudge, now: float) -> Report:
    """What it says when nothing was read of any GPU or of the host."""
    return judge.judge(HostEvidence(0.0, Moment(now, 1.7e9 + now), {}, Memory())).report


def test_while_nothing_was_read_the_findings_of_before_stay_as_they_were() -> None:
    judge = judge_of(life(HOT), life(MISSING))
    for now in (NOW, NOW + 1, NOW + WINDOW - 1):
        report = look(judge, now)
        assert {(each.check.code, each.state) for each in report.findings} == {
            ("thermal.hw", State.CONFIRMED),
            ("gpu.missing", State.CONFIRMED),
        }
        assert {each.lasted_seconds for each in report.findings} == {900.0}
        assert report.ended == ()


def test_a_gpu_that_stays_unread_keeps_its_finding_and_one_unseen_for_a_day_says_so() -> None:
    judge = judge_of(life(HOT, unseen_seconds=UNSEEN_SECONDS - 100))
    look(judge, NOW)
    (finding,) = look(judge, NOW + 79).findings
    assert finding.state is State.CONFIRMED
    report = look(judge, NOW + 80)
    assert report.findings == ()
    (ended,) = report.ended
    assert ended.state is State.ENDED
    assert (ended.measured, ended.end) == ("hot", EndReason.UNSEEN.value)


ASKED = 'at = 20\nuntil = 100\ngpu = 0\neffect = { kind = "recovery_action", action = 1 }'
LOST = 'at = 20\nuntil = 100\ngpu = 1\neffect = { kind = "lost" }'
RELOADED = 'at = 100\nuntil = 110\neffect = { kind = "driver_not_loaded" }'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("events", "gpu", "code"),
    [((ASKED,), "0", "recovery.action"), ((LOST, RELOADED), "1", "gpu.lost"), ((LOST, RELOADED), "1", "xid.79")],
)
def test_what_a_reset_cured_is_over_with_the_reset(
    tmp_path: Path, events: tuple[str, ...], gpu: str, code: str
) -> None:
    with judged(scenario_with(tmp_path, "idle-downshift", *events), STEP) as seen:
        seen.run_to(95)
        assert [state for _, state in seen.lives[gpu, code]] == [State.CONFIRMED]
        assert seen.running.value("gpu_verdict", gpu=gpu) == 2
        assert seen.running.value("gpu_finding_since_timestamp_seconds", gpu=gpu, code=code) is not None
        seen.run_to(200)
        assert [state for _, state in seen.lives[gpu, code]] == [State.CONFIRMED, State.ENDED]
        assert seen.running.value("gpu_verdict", gpu=gpu) == 0
        assert seen.running.value("gpu_finding_since_timestamp_seconds", gpu=gpu, code=code) is None, "it is over"
        (ended,) = (each for each in seen.report.ended if each.check.code == code)
        assert ended.end == EndReason.RESET.value


GSP = 'at = 60\ngpu = 0\neffect = { kind = "xid", code = 119 }'
AWAY = 'at = 120\nuntil = 600\neffect = { kind = "driver_not_loaded" }'
EXPECTED = {"xid.119", "driver.unavailable"}


@pytest.mark.slow
def test_an_xid_and_the_absence_of_the_driver_that_it_took_with_it_end_together(tmp_path: Path) -> None:
    """If the driver's finding was held for longer, the end of the Xid that explains it would let its page out."""
    with judged(pair_with(tmp_path, "h100-8", GSP, AWAY), only("power", "activity", "identity")) as host:
        host.run_to(595)
        states = []
        for second in range(595, 720, 5):
            host.run_to(second)
            confirmed = {code for (_, code), state in host.findings().items() if state is State.CONFIRMED}
            states.append(frozenset(confirmed & EXPECTED))
    assert list(dict.fromkeys(states)) == [EXPECTED, set()]
