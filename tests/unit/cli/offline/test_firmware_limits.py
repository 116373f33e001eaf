"""Laptops and workstations that their firmware slows down: that is never as if nothing held them back."""

from pathlib import Path

from tests.offline_files import codes, measured, report_on_text

from gpu_triage.judge.findings.verdicts import Verdict

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
