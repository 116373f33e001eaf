"""What `check` makes of Xids and of the memory errors that come with them."""

from pathlib import Path

import pytest
from tests.one_shot import codes, finding, look_at
from tests.rig import scenario_with

from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.read.xid.codes import XID_CODES

pytestmark = pytest.mark.slow

AT = 60


def event(effect: str) -> str:
    return f"at = 0\ngpu = 0\neffect = {{ {effect} }}"


@pytest.mark.parametrize(
    ("code", "expected", "severity"),
    [
        (48, "xid.48", "critical"),
        (94, "xid.94", "warning"),
        (54, "xid.54", "warning"),
        (998, "xid.unlisted", "warning"),
    ],
)
def test_an_xid_of_now_is_found_by_its_code(tmp_path: Path, code: int, expected: str, severity: str) -> None:
    report = look_at(scenario_with(tmp_path, "rtx-4070-ti-super", event(f'kind = "xid", code = {code}')), AT)
    found = finding(report, expected)
    assert (found.subject, found.check.severity.value) == ("GPU 0", severity)
    assert f"Xid {code}, last 60 s ago" in found.measured


def test_a_listed_xid_is_told_in_the_words_of_the_table(tmp_path: Path) -> None:
    report = look_at(scenario_with(tmp_path, "rtx-4070-ti-super", event('kind = "xid", code = 54')), AT)
    advice = finding(report, "xid.54").check.advice
    assert advice.meaning == f"T{XID_CODES[54].meaning[1:]}."
    assert advice.decision == XID_CODES[54].action


XID_48, XID_94, ECC = 'kind = "xid", code = 48', 'kind = "xid", code = 94', 'kind = "ecc", uncorrected = 1'
NONFATAL, FATAL = 'kind = "xid", code = 149, fatal = false', 'kind = "xid", code = 149'
RESET_LATER = 'kind = "recovery_action", action = 4'


@pytest.mark.parametrize(
    ("effects", "found", "verdict"),
    [
        pytest.param((NONFATAL,), {"xid.nonfatal"}, Verdict.WATCH, id="nonfatal"),
        pytest.param((FATAL,), {"xid.149"}, Verdict.DRAIN, id="fatal"),
        pytest.param(
            (XID_48, XID_94, ECC, RESET_LATER),
            {"xid.94", "ecc.contained", "recovery.drain_and_reset"},
            Verdict.WATCH,
            id="contained",
        ),
        pytest.param((XID_48, ECC), {"xid.48", "ecc.uncorrected"}, Verdict.DRAIN, id="not contained"),
    ],
)
def test_only_what_is_fatal_or_not_contained_drains(
    tmp_path: Path, effects: tuple[str, ...], found: set[str], verdict: Verdict
) -> None:
    report = look_at(scenario_with(tmp_path, "idle-downshift", *map(event, effects)), AT)
    assert codes(report, "GPU 0") >= found
    assert report.gpus[0].verdict is verdict
    assert (report.gpus[0].bottleneck.name == "sick") is (verdict is Verdict.DRAIN)


@pytest.mark.parametrize(("effect", "words"), [(NONFATAL, "(nonfatal)"), (FATAL, "(fatal)")])
def test_the_kernels_word_stands_beside_the_code(tmp_path: Path, effect: str, words: str) -> None:
    report = look_at(scenario_with(tmp_path, "rtx-4070-ti-super", event(effect)), AT)
    assert any(f"Xid 149 {words}" in each.measured for each in report.findings)


def test_an_old_nonfatal_xid_is_not_told_as_a_critical_one_of_earlier(tmp_path: Path) -> None:
    assert codes(look_at(scenario_with(tmp_path, "rtx-4070-ti-super", event(NONFATAL)), 3700), "GPU 0") == set()


def test_a_few_xids_of_an_application_are_its_own_business(tmp_path: Path) -> None:
    few = scenario_with(tmp_path, "rtx-4070-ti-super", event('kind = "xid", code = 31, times = 3'))
    assert {each.check.code for each in look_at(few, AT).findings} <= {"p2p.through_host"}
    many = scenario_with(tmp_path, "rtx-4070-ti-super", event('kind = "xid", code = 31, times = 4'))
    assert codes(look_at(many, AT), "GPU 0") == {"xid.31"}


DAMAGE = 'kind = "recovery_action", action = 1'
RESET = 'at = 120\nuntil = 180\neffect = { kind = "driver_not_loaded" }'


@pytest.mark.parametrize(
    ("events", "at", "found"),
    [
        pytest.param((event(XID_48),), 3000, "xid.48", id="for an hour"),
        pytest.param((event(XID_48),), 7200, "xid.earlier", id="after that it is mentioned"),
        pytest.param((event(XID_48), event(DAMAGE)), 7200, "xid.48", id="for as long as the damage lasts"),
        pytest.param((event(XID_48), event(DAMAGE)), 8 * 3600, "xid.48", id="for hours", marks=pytest.mark.full),
        pytest.param((event(XID_48), event(DAMAGE)), 30 * 3600, "xid.earlier", id="a day", marks=pytest.mark.full),
        pytest.param((event(XID_48), RESET), 400, "xid.earlier", id="until a reset"),
    ],
)
def test_how_long_a_critical_xid_drains(tmp_path: Path, events: tuple[str, ...], at: int, found: str) -> None:
    report = look_at(scenario_with(tmp_path, "idle-downshift", *events), at)
    assert {code for code in codes(report, "GPU 0") if code.startswith("xid.")} == {found}
    drains = {event(DAMAGE) in events, found == "xid.48"} & {True}
    assert report.gpus[0].verdict is (Verdict.DRAIN if drains else Verdict.KEEP)
