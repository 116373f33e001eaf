import re
from collections import Counter
from dataclasses import replace

import pytest
from tests.gathered import every

from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Action, Measure, Unit, length_in_words
from gpu_triage.serve.handbook.pages import alert_names


def test_each_code_is_there_once() -> None:
    assert [code for code, count in every(Counter(check.code for check in CHECKS).items()) if count > 1] == []


def test_each_finding_has_a_title_and_says_what_it_means_and_what_to_do_in_a_sentence() -> None:
    for check in CHECKS:
        assert 5 < len(check.title) < 110, check.code
        assert not check.title.endswith("."), check.code
        for words in every(check.advice):
            assert words[0].isupper(), check.code
            assert words.endswith("."), check.code


def test_a_decision_and_its_action_agree_on_whether_to_drain() -> None:
    """Schedulers act on the label, and people on the text."""
    told = {check.code for check in CHECKS if check.decision.startswith("{Drain}")}
    drained = {check.code for check in CHECKS if check.action is Action.DRAIN}
    assert drained <= told
    assert told - drained <= {check.code for check in CHECKS if check.action is Action.RESET}, "a reset drains first"


def test_a_measure_words_one_value() -> None:
    for check in CHECKS:
        if check.measure is not None:
            assert check.measure.text.count("{}") == 1, check.code
            assert "{" not in check.measure.said(3.0), check.code
            assert "$value" in check.measure.template, check.code


@pytest.mark.parametrize(
    ("measure", "value", "said"),
    [
        (Measure(Unit.RATIO, "throttled {} of the time"), 0.34, "throttled 34% of the time"),
        (Measure(Unit.LANES, "link width x{}"), 4.0, "link width x4"),
        (Measure(Unit.COUNT, "{} process(es)"), 1.0, "1 process"),
        (Measure(Unit.COUNT, "{} process(es)"), 2.0, "2 processes"),
        (Measure(Unit.CELSIUS, "{} left"), -2.0, "-2 °C left"),
        (Measure(Unit.HERTZ, "SM clock {}"), 1.41e9, "SM clock 1410 MHz"),
        (Measure(Unit.BYTES, "{} held"), 1024.0**3, "1.0 GiB held"),
        (Measure(Unit.BYTES_PER_SECOND, "{} read back"), 1024.0**2, "1.0 MiB/s read back"),
        (Measure(Unit.SECONDS, "waiting for {}"), 312.4, "waiting for 312 s"),
    ],
)
def test_a_value_is_said_in_its_unit(measure: Measure, value: float, said: str) -> None:
    assert measure.said(value) == said


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 seconds"), (1, "1 second"), (30, "30 seconds"), (60, "1 minute"), (90, "90 seconds"), (5400, "90 minutes")],
)
def test_a_length_of_time_is_told_in_the_largest_unit_that_divides_it(seconds: float, words: str) -> None:
    assert length_in_words(seconds) == words


def test_a_life_is_told_in_words() -> None:
    check = replace(BY_CODE["gpu.lost"], wait_seconds=600, hold_seconds=3600)
    assert check.life == "confirmed after 10 minutes, ends 1 hour after it is gone"
    assert replace(check, wait_seconds=0, hold_seconds=0).life == "confirmed at once, ends as soon as it is gone"


def test_no_wait_or_hold_stands_in_an_advice_or_a_title() -> None:
    for check in CHECKS:
        words = " ".join((check.title, *check.advice))
        for seconds in (check.wait_seconds, check.hold_seconds):
            assert not re.search(rf"\b{length_in_words(seconds)}\b", words), check.code


def test_what_is_latched_waits_for_nothing() -> None:
    latched = ("gpu.lost", "xid.79", "xid.94", "memory.row_remap_failure", "ecc.uncorrected", "storage.read_only")
    assert {BY_CODE[code].wait_seconds for code in latched} == {0.0}


def test_a_cause_is_held_for_as_long_as_what_it_explains() -> None:
    held = {code: check.hold_seconds for code, check in BY_CODE.items()}
    pairs = [(code, cause) for code, check in BY_CODE.items() for cause in check.explained_by]
    assert [(code, cause) for code, cause in every(pairs) if held[cause] < held[code]] == []


def test_findings_with_one_alert_and_one_severity_ask_for_the_same_or_for_what_is_scarce() -> None:
    asked = {(check.alert, check.severity, check.action) for check in CHECKS if check.alert is not None}
    twice = {alert for (alert, _), count in Counter(each[:2] for each in asked).items() if count > 1}
    assert twice == {"GpuStarved"}


def test_a_runbook_is_the_page_of_an_alert() -> None:
    assert {check.runbook for check in CHECKS} - {""} <= set(alert_names())
