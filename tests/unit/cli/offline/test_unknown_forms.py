"""What a driver prints in a form that nobody here knows is not read, with its line; nothing else changes for it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.offline_files import XML, codes, of_real_files, report_on_text, smi, smi_gpu

from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.judge.report.report import Report

MARK = "\u2603"

DRIVER_610 = (Path(__file__).parent / "files/driver-610.txt").read_text(encoding="utf-8")


def test_driver_610_is_read_under_its_new_labels(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, DRIVER_610)
    assert report.driver == "610.57.04"
    assert codes(report) == ["power.limit"]
    (gpu,) = report.gpus
    assert (gpu.readings.power_watts, gpu.readings.power_limit_watts) == (120, 130)
    assert not [line for line in report.not_read if "unknown form" in line]


def test_the_version_of_driver_610_is_read_without_its_newer_label(tmp_path: Path) -> None:
    assert report_on_text(tmp_path, DRIVER_610.replace("KMD Version      ", "Something Else   ")).driver == "610.57.04"


def told(report: Report) -> str:
    """Everything that the report says, but for what was not read."""
    document = json.loads(render_json(report))
    del document["not_read"]
    return json.dumps(document, ensure_ascii=False)


def unread(report: Report) -> list[str]:
    return [line for line in report.not_read if "unknown form" in line]


def lines_of_gpus(text: str) -> Iterator[int]:
    """Numbers of the lines that tell a fact of a GPU."""
    seen = False
    for number, line in enumerate(text.splitlines()):
        seen = seen or line.startswith(("GPU 0000", "<gpu id"))
        if seen and (" : " in line or ">" in line.strip()[1:-1]):
            yield number


def mangled(line: str) -> str:
    """The line with a value that no driver prints."""
    if " : " in line:
        label, _, value = line.partition(" : ")
        return f"{label} : {value[: len(value) // 2]}{MARK}{value[len(value) // 2 :]}"
    start, _, end = line.rpartition("</")
    return f"{start}{MARK}</{end}"


def check_every_line(folder: Path, text: str) -> int:
    """Mangle each fact in turn; returns how many of them the report is made of."""
    whole, read = report_on_text(folder, text), 0
    assert unread(whole) == []
    lines = text.splitlines()
    for number in lines_of_gpus(text):
        changed = mangled(lines[number])
        report = report_on_text(folder, "\n".join([*lines[:number], changed, *lines[number + 1 :]]))
        assert set(codes(report)) <= set(codes(whole)), changed
        assert report.verdict.rank <= max(whole.verdict.rank, Verdict.KEEP.rank), changed
        lost = [line for line in unread(report) if MARK in line]
        if MARK in told(report):
            continue  # a name of the board or of a program: any text is one
        assert told(report) == told(whole) or lost, changed
        read += bool(lost)
    return read


SICK = {"uncorrectable": "3", "remap pending": "Yes", "width": "8x", "margin": "2 C", "limit": "400.00 W"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "least"),
    [
        (smi(smi_gpu(processes=["77 python3"])), 40),
        (smi(smi_gpu(facts=SICK)), 40),
        (DRIVER_610, 7),
        (XML.replace("><", ">\n<"), 10),
    ],
    ids=["healthy", "sick", "driver 610", "XML"],
)
def test_a_fact_in_an_unknown_form_is_not_read_and_named_with_its_line(tmp_path: Path, text: str, least: int) -> None:
    assert check_every_line(tmp_path, text) >= least


NAMES = ("nvidia-h100-80gb-hbm3__590.48.01.txt", "nvidia-geforce-rtx-4080-super__595.71.05.txt")


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("path", of_real_files(lambda folder: [folder / "nvidia-smi-text" / name for name in NAMES]))
def test_every_fact_of_a_real_capture_may_be_in_an_unknown_form(tmp_path: Path, path: Path | None) -> None:
    if path is not None:
        text = path.read_text(encoding="utf-8")
        start = text.rindex("==============NVSMI LOG")
        assert check_every_line(tmp_path, text[start : text.index("####", start)]) >= 40


@pytest.mark.parametrize(
    "text",
    [smi(smi_gpu(), at="Sat Mar 14 10\u260300"), smi(smi_gpu(), driver="version \u2603")],
    ids=["time", "driver"],
)
def test_a_head_in_an_unknown_form_is_named(tmp_path: Path, text: str) -> None:
    report = report_on_text(tmp_path, text)
    assert any(MARK in each for each in unread(report))
    assert codes(report) == []


def test_the_head_of_a_gpu_in_an_unknown_form_gives_no_facts_to_the_one_before(tmp_path: Path) -> None:
    other = smi_gpu(1, facts={"uncorrectable": "3"}, processes=["9 other"]).replace(
        "GPU 00000000:42", "GPU #2 at 42", 1
    )
    report = report_on_text(tmp_path, smi(smi_gpu(), other))
    assert codes(report) == []
    assert len(report.gpus) == 1
    assert report.gpus[0].readings.compute_processes == 0
    assert any("GPU #2 at 42" in line for line in unread(report))
    assert any("1 of 2 GPUs that nvidia-smi counts" in line for line in report.not_read)


def test_a_number_in_another_unit_is_not_read(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(facts={"heat": "142 F"})))
    assert report.gpus[0].readings.temperature_celsius is None
    assert unread(report) == ["a line in an unknown form (GPU 0): gpu current temp : 142 F"]
