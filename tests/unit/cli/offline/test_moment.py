"""What one output of nvidia-smi says holds a GPU back, where nothing tells for how long, or firmware does."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from click import unstyle
from tests.offline_files import codes, measured, report_on_text, smi, smi_gpu, summary

from gpu_triage.judge.findings.table import Area, Severity
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import render_text

SLOW = {"busy": "100 %", "clock": "345 MHz"}

PERFORMANCE = (Path(__file__).parent / "files/performance.txt").read_text(encoding="utf-8")
"""What ``nvidia-smi -q -d PERFORMANCE`` prints."""


def performance(at: str = "10:00:00", **active: str) -> str:
    return PERFORMANCE.format(at=at, **{**dict.fromkeys(("slowdown", "brake", "heat"), "Not Active"), **active})


def severities(report: Report) -> list[Severity]:
    return [finding.urgency for finding in report.findings]


@pytest.mark.parametrize(
    ("facts", "code", "bottleneck"),
    [
        ({"brake": "Active"}, "power.brake", "power_brake"),
        ({"hw thermal": "Active"}, "thermal.hw", "thermal"),
        ({"sw thermal": "Active"}, "thermal.sw", "thermal"),
        ({"hw slowdown": "Active"}, "power.hw_slowdown", "power_brake"),
    ],
)
def test_a_gpu_slowed_down_is_watched(tmp_path: Path, facts: Mapping[str, str], code: str, bottleneck: str) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(facts={**SLOW, **facts})))
    assert codes(report) == [code]
    assert severities(report) == [Severity.WARNING]
    assert "at that moment, 61 °C, SM clock 345 of 1980 MHz" in measured(report, code)
    assert report.gpus[0].bottleneck.name == bottleneck
    assert (report.gpus[0].verdict, report.verdict) == (Verdict.WATCH, Verdict.WATCH)
    assert f"runbook   gpu-triage explain {code}" in unstyle(render_text(report))
    assert "warning   clocks, heat, power" in unstyle(render_text(report))
    assert report.exit_code(Severity.CRITICAL) == 0


@pytest.mark.parametrize(
    "facts",
    [
        {"clock": "1600 MHz"},  # 0.81 of 1980 MHz
        {"busy": "0 %", "clock": "345 MHz"},
        {"busy": "100 %", "clock": "345 MHz", "state": "P8"},
    ],
    ids=["near its highest clock", "at rest", "in a P-state of rest"],
)
def test_a_slowdown_that_costs_nothing_is_no_finding(tmp_path: Path, facts: Mapping[str, str]) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(facts={"busy": "100 %", **facts, "hw slowdown": "Active"})))
    assert codes(report) == []
    assert report.verdict is Verdict.KEEP


def test_two_moments_of_one_slowdown_tell_how_long_it_has_lasted_at_least(tmp_path: Path) -> None:
    braked = smi_gpu(facts={**SLOW, "brake": "Active"})
    first, second = smi(braked), smi(braked, at="Sat Mar 14 10:01:00 2026")
    report = report_on_text(tmp_path, first, second)
    assert measured(report, "power.brake").startswith("hw_power_brake for at least 60 s")
    assert severities(report) == [Severity.WARNING]
    assert report.verdict is Verdict.WATCH
    assert report.gpus[0].bottleneck.because == "hw_power_brake for at least 60 s"


def test_a_slowdown_that_began_between_two_moments_is_of_the_last_one(tmp_path: Path) -> None:
    first = smi(smi_gpu(facts=SLOW))
    second = smi(smi_gpu(facts={**SLOW, "brake": "Active"}), at="Sat Mar 14 10:01:00 2026")
    assert measured(report_on_text(tmp_path, first, second), "power.brake").startswith("hw_power_brake at that moment")


def test_what_the_driver_counted_between_two_moments_counts_in_full(tmp_path: Path) -> None:
    hot = {**SLOW, "hw thermal": "Active"}
    first = smi(smi_gpu(facts={**hot, "hw thermal us": "1000000 us"}))
    second = smi(smi_gpu(facts={**hot, "hw thermal us": "31000000 us"}), at="Sat Mar 14 10:01:00 2026")
    report = report_on_text(tmp_path, first, second)
    assert measured(report, "thermal.hw").startswith("hw_thermal 50% of the time")
    assert severities(report) == [Severity.WARNING], "a minute confirms nothing that must last ten"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (performance(slowdown="Active", brake="Active"), ["power.brake"]),
        # Alone, without clocks, it may be the flash that every change of the P-state shows.
        (performance(slowdown="Active"), []),
        (performance(heat="Active"), []),
    ],
)
def test_an_extract_without_clocks_counts_what_no_p_state_sets(tmp_path: Path, text: str, found: list[str]) -> None:
    report = report_on_text(tmp_path, text)
    assert codes(report) == found


def test_two_extracts_a_minute_apart_are_no_flash(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, performance(slowdown="Active"), performance("10:01:00", slowdown="Active"))
    assert measured(report, "power.hw_slowdown").startswith("hw_slowdown for at least 60 s")


@pytest.mark.parametrize("heat", ["Active", "Not Active"])
def test_an_extract_without_processes_says_what_holds_the_gpu_back(tmp_path: Path, heat: str) -> None:
    report = report_on_text(tmp_path, performance(heat=heat))
    text = unstyle(render_text(report))
    assert [words for words in ("in use", "no compute process", "nothing holds it back") if words in text] == []
    assert "idle" not in text.partition("verdict:")[2]
    assert summary(report, Area.WORK) is None
    held = "held by sw_thermal at that moment"
    assert (f"GPU 0 {held}" in text) == (held in report.gpus[0].bottleneck.because) == (heat == "Active")


def test_that_nothing_holds_a_gpu_back_is_said_where_it_was_read(tmp_path: Path) -> None:
    read = report_on_text(tmp_path, performance())
    assert read.gpus[0].bottleneck.because == "no throttle reason active at that moment"
    assert summary(read, Area.CLOCKS) == "no throttle reason active at that moment"
    memory = performance().partition("    Clocks Throttle")[0] + "    FB Memory Usage\n        Used : 1 MiB\n"
    unread = report_on_text(tmp_path, memory)
    assert unread.gpus[0].bottleneck.because == "throttle reasons not in these files"
    assert summary(unread, Area.CLOCKS) is None


def test_a_lowered_limit_that_holds_the_clocks_is_the_bottleneck_of_that_moment(tmp_path: Path) -> None:
    held = {**SLOW, "sw cap": "Active", "limit": "400.00 W", "power": "398.00 W"}
    report = report_on_text(tmp_path, smi(smi_gpu(facts=held)))
    assert measured(report, "power.cap") == "limit 400 W, default 700 W; it holds the clocks at that moment"
    assert report.gpus[0].bottleneck.name == "power_cap"
    assert report.verdict is Verdict.KEEP


def test_one_moment_is_told_by_one_sentence(tmp_path: Path) -> None:
    first = smi(smi_gpu(facts={"busy": "0 %", "power": "75.00 W"}))
    second = smi(smi_gpu(facts={"power": "625.00 W"}), at="Sat Mar 14 10:01:00 2026")
    report = report_on_text(tmp_path, first, second)
    assert "; 89% of the power limit;" in str(summary(report, Area.CLOCKS))


LAPTOP = (Path(__file__).parent / "files/laptop.txt").read_text(encoding="utf-8")

TEMPERATURE = (Path(__file__).parent / "files/temperature.txt").read_text(encoding="utf-8")


def laptop(power: str = "588.44 W", clock: str = "210 MHz", capped: str = "Active") -> str:
    return LAPTOP.format(power=power, clock=clock, capped=capped)


def test_a_power_reading_that_cannot_be_is_the_finding(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, laptop())
    assert codes(report) == ["power.reading"]
    assert measured(report, "power.reading") == "reads 588 W, its highest limit is 60 W, SM clock 210 of 3105 MHz"
    assert report.verdict is Verdict.WATCH
    assert report.gpus[0].bottleneck.because == "100% busy at that moment, held by sw_power_cap at that moment"


def test_power_near_its_limit_is_no_wrong_reading(tmp_path: Path) -> None:
    for text in (laptop("61.00 W"), laptop(clock="3000 MHz"), laptop(capped="Not Active")):
        assert codes(report_on_text(tmp_path, text)) == []


def test_a_gpu_at_a_limit_far_below_its_slowdown_temperature_is_told(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, TEMPERATURE.format(heat=56, limit=57))
    assert measured(report, "thermal.low_limit") == "56 °C, its limit is 57 °C; the board slows down at 97 °C"
    assert report.verdict is Verdict.WATCH


def test_a_limit_near_the_slowdown_temperature_or_far_from_the_gpu_is_no_finding(tmp_path: Path) -> None:
    for heat, limit in ((93, 94), (40, 57), (74, 75)):
        found = codes(report_on_text(tmp_path, TEMPERATURE.format(heat=heat, limit=limit)))
        assert "thermal.low_limit" not in found
