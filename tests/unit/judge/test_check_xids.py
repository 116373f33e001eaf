"""What `check` makes of Xids and of the memory errors that come with them."""

from __future__ import annotations

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


def test_a_nonfatal_nvlink_xid_is_a_warning_and_drains_nothing(tmp_path: Path) -> None:
    effect = event('kind = "xid", code = 149, fatal = false')
    report = look_at(scenario_with(tmp_path, "rtx-4070-ti-super", effect), AT)
    found = finding(report, "xid.nonfatal")
    assert (found.subject, found.check.severity.value) == ("GPU 0", "warning")
    assert "Xid 149 (nonfatal)" in found.measured
    assert report.gpus[0].bottleneck.name != "sick"
    assert report.gpus[0].verdict is Verdict.WATCH


CONTAINED = (
    event('kind = "xid", code = 48'),
    event('kind = "xid", code = 94'),
    event('kind = "ecc", uncorrected = 1'),
    event('kind = "recovery_action", action = 4'),
)


def test_a_contained_memory_error_is_a_ticket_and_drains_nothing(tmp_path: Path) -> None:
    report = look_at(scenario_with(tmp_path, "idle-downshift", *CONTAINED), AT)
    assert codes(report, "GPU 0") >= {"xid.94", "ecc.contained", "recovery.drain_and_reset"}
    assert report.gpus[0].bottleneck.name != "sick"
    assert report.gpus[0].verdict is Verdict.WATCH


def test_a_double_bit_error_that_was_not_contained_drains(tmp_path: Path) -> None:
    report = look_at(scenario_with(tmp_path, "idle-downshift", CONTAINED[0], CONTAINED[2]), AT)
    assert codes(report, "GPU 0") >= {"xid.48", "ecc.uncorrected"}
    assert report.gpus[0].verdict is Verdict.DRAIN


def test_a_fatal_nvlink_xid_drains(tmp_path: Path) -> None:
    report = look_at(scenario_with(tmp_path, "rtx-4070-ti-super", event('kind = "xid", code = 149')), AT)
    assert "Xid 149 (fatal)" in finding(report, "xid.149").measured
    assert report.gpus[0].bottleneck.name == "sick"
    assert report.gpus[0].verdict is Verdict.DRAIN


def test_an_old_nonfatal_xid_is_not_told_as_a_critical_one_of_earlier(tmp_path: Path) -> None:
    effect = event('kind = "xid", code = 149, fatal = false')
    assert codes(look_at(scenario_with(tmp_path, "rtx-4070-ti-super", effect), 3700), "GPU 0") == set()


def test_a_few_xids_of_an_application_are_its_own_business(tmp_path: Path) -> None:
    few = scenario_with(tmp_path, "rtx-4070-ti-super", event('kind = "xid", code = 31, times = 3'))
    assert {each.check.code for each in look_at(few, AT).findings} <= {"p2p.through_host"}
    many = scenario_with(tmp_path, "rtx-4070-ti-super", event('kind = "xid", code = 31, times = 4'))
    assert codes(look_at(many, AT), "GPU 0") == {"xid.31"}


def test_a_critical_xid_drains_for_an_hour_and_is_mentioned_after_that(tmp_path: Path) -> None:
    scenario = scenario_with(tmp_path, "rtx-4070-ti-super", event('kind = "xid", code = 48'))
    assert codes(look_at(scenario, 3000), "GPU 0") == {"xid.48"}
    report = look_at(scenario, 2 * 3600)
    assert codes(report, "GPU 0") == {"xid.earlier"}
    assert report.gpus[0].verdict is Verdict.KEEP


def test_a_critical_xid_drains_for_as_long_as_the_damage_lasts(tmp_path: Path) -> None:
    lasting = (event('kind = "xid", code = 48'), event('kind = "recovery_action", action = 1'))
    scenario = scenario_with(tmp_path, "idle-downshift", *lasting)
    assert "xid.48" in codes(look_at(scenario, 2 * 3600), "GPU 0")


@pytest.mark.full
def test_a_critical_xid_of_more_than_a_day_ago_is_only_mentioned(tmp_path: Path) -> None:
    lasting = (event('kind = "xid", code = 48'), event('kind = "recovery_action", action = 1'))
    scenario = scenario_with(tmp_path, "idle-downshift", *lasting)
    assert "xid.48" in codes(look_at(scenario, 8 * 3600), "GPU 0")
    assert "xid.earlier" in codes(look_at(scenario, 30 * 3600), "GPU 0")


def test_a_critical_xid_from_before_a_reset_is_only_mentioned(tmp_path: Path) -> None:
    reset = 'at = 120\nuntil = 180\neffect = { kind = "driver_not_loaded" }'
    scenario = scenario_with(tmp_path, "rtx-4070-ti-super", event('kind = "xid", code = 48'), reset)
    assert codes(look_at(scenario, 400), "GPU 0") == {"xid.earlier"}
