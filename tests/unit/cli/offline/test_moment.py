"""What one output of nvidia-smi says holds a GPU back, where nothing tells for how long, or firmware does."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from click import unstyle
from tests.offline_files import assert_found, codes, file_of, filled, measured, report_on_text, smi, smi_gpu, summary

from gpu_triage.judge.findings.table import Area, Severity
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.text import render_text

LATER = "Sat Mar 14 10:01:00 2026"
SLOW = {"busy": "100 %", "clock": "345 MHz"}
HOT = {**SLOW, "hw thermal": "Active"}
BRAKED = smi_gpu(facts={**SLOW, "brake": "Active"})

PERFORMANCE, LAPTOP, TEMPERATURE = map(file_of, ("performance.txt", "laptop.txt", "temperature.txt"))
"""What ``nvidia-smi -q -d PERFORMANCE`` prints, and what it does of two GPUs whose firmware is at fault."""


def performance(**facts: str) -> str:
    return filled(PERFORMANCE, facts)


def laptop(**facts: str) -> str:
    return filled(LAPTOP, facts)


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
    assert "at that moment, 61 °C, SM clock 345 of 1980 MHz" in measured(report, code)
    assert report.gpus[0].bottleneck.name == bottleneck
    assert (report.gpus[0].verdict, report.verdict) == (Verdict.WATCH, Verdict.WATCH)
    assert f"runbook   gpu-triage explain {code}" in unstyle(render_text(report))
    assert "warning   clocks, heat, power" in unstyle(render_text(report))
    assert report.exit_code(Severity.CRITICAL) == 0


def test_an_unknown_throttle_reason_is_one(tmp_path: Path) -> None:
    gpu = "GPU 00000000:41:00.0\n    Clocks Throttle Reasons\n        HW Slowdown : Not Active\n"
    gpu += "        SW Power Cap : Not Active\n        Unknown : {}\n"
    for value, told in (
        ("Active", "held by a reason that the driver calls unknown"),
        ("Not Active", "no throttle reason"),
    ):
        assert told in str(summary(report_on_text(tmp_path, smi(gpu.format(value))), Area.CLOCKS))


SLOWDOWN = {"busy": "100 %", "hw slowdown": "Active"}
FOUND: list[tuple[tuple[str, ...], dict[str, str]]] = [
    # A slowdown that costs nothing: near the highest clock (0.81 of it), at rest, in a P-state of rest.
    ((smi(smi_gpu(facts={**SLOWDOWN, "clock": "1600 MHz"})),), {}),
    ((smi(smi_gpu(facts={**SLOWDOWN, **SLOW, "busy": "0 %"})),), {}),
    ((smi(smi_gpu(facts={**SLOWDOWN, **SLOW, "state": "P8"})),), {}),
    # Two moments of one slowdown tell how long it has lasted at least; one that began between them is of the last one.
    ((smi(BRAKED), smi(BRAKED, at=LATER)), {"power.brake": "hw_power_brake for at least 60 s"}),
    ((smi(smi_gpu(facts=SLOW)), smi(BRAKED, at=LATER)), {"power.brake": "hw_power_brake at that moment"}),
    # An output without a time counts as earlier; by how much is unknown.
    (
        (smi(smi_gpu(facts=SLOW)).replace("Timestamp", "Time"), smi(BRAKED)),
        {"power.brake": "hw_power_brake at that moment"},
    ),
    # What the driver counted between two moments counts in full. A minute confirms nothing that must last ten.
    (
        tuple(
            smi(smi_gpu(facts={**HOT, "hw thermal us": f"{seconds}000000 us"}), at=f"Sat Mar 14 10:0{minute}:00 2026")
            for minute, seconds in enumerate((1, 31))
        ),
        {"thermal.hw": "hw_thermal 50% of the time"},
    ),
    # An extract without clocks: alone, a slowdown may be the flash that every change of the P-state shows.
    ((performance(slowdown="Active", brake="Active"),), {"power.brake": ""}),
    ((performance(slowdown="Active"),), {}),
    ((performance(heat="Active"),), {}),
    (
        (performance(slowdown="Active"), performance(at="10:01:00", slowdown="Active")),
        {"power.hw_slowdown": "hw_slowdown for at least 60 s"},
    ),
    # A power reading that cannot be; near its limit it can.
    ((laptop(),), {"power.reading": "reads 588 W, its highest limit is 60 W, SM clock 210 of 3105 MHz"}),
    *(((text,), {}) for text in (laptop(power="61.00 W"), laptop(clock="3000 MHz"), laptop(capped="Not Active"))),
    # A limit far below the slowdown temperature; one near it, or far from the GPU's temperature, is no finding.
    (
        (TEMPERATURE.format(heat=56, limit=57),),
        {"thermal.low_limit": "56 °C, its limit is 57 °C; the board slows down at 97 °C"},
    ),
    ((TEMPERATURE.format(heat=93, limit=94),), {"thermal.margin": ""}),
    ((TEMPERATURE.format(heat=40, limit=57),), {}),
    ((TEMPERATURE.format(heat=74, limit=75),), {}),
]


@pytest.mark.parametrize(("texts", "found"), FOUND)
def test_what_holds_a_gpu_back_is_watched_if_it_costs_something(
    tmp_path: Path, texts: tuple[str, ...], found: dict[str, str]
) -> None:
    report = report_on_text(tmp_path, *texts)
    assert_found(report, found)
    assert {finding.urgency for finding in report.findings} <= {Severity.WARNING}
    assert (report.verdict is Verdict.WATCH) == bool(found)
    for words in found.values():
        assert report.gpus[0].bottleneck.because == words or not words.startswith("hw_power_brake")


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
    report = report_on_text(tmp_path, first, smi(smi_gpu(facts={"power": "625.00 W"}), at=LATER))
    assert "; 89% of the power limit;" in str(summary(report, Area.CLOCKS))
