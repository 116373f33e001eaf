"""Text as people paste it: quoted, indented, without its indentation, broken at the width of a terminal, cut out."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.offline_files import codes, of_real_files, report_on_text, smi, smi_gpu
from tests.offline_tables import TABLE_END, TABLE_HEAD, TABLE_PROCESSES, table_row

from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.judge.report.report import Report

SICK = {
    "uncorrectable": "3",
    "remap pending": "Yes",
    "width": "8x",
    "margin": "2 C",
    "limit": "400.00 W",
    "brake": "Active",
    "clock": "345 MHz",
    "busy": "100 %",
}
FOUND = ["ecc.uncorrected", "memory.row_remap_pending", "thermal.margin", "power.brake", "power.limit", "pcie.width"]


def told(report: Report) -> str:
    document = json.loads(render_json(report))
    not_read = [line for line in document["not_read"] if "unknown form" not in line]
    return json.dumps({**document, "files": [], "not_read": not_read})


def each_line(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(f"{change(line)}\n" for line in text.splitlines())


WAYS: dict[str, Callable[[str], str]] = {
    "quoted": each_line(lambda line: f"> {line}"),
    "quoted twice": each_line(lambda line: f">> {line}"),
    "indented": each_line(lambda line: f"    {line}"),
    "indentation lost": each_line(str.lstrip),
    "one space of indentation": each_line(lambda line: re.sub("^ +", " ", line)),
    "spaces collapsed": each_line(lambda line: re.sub(" +", " ", line)),
    "tabs": each_line(lambda line: re.sub("^( {4})+", lambda found: "\t" * (len(found[0]) // 4), line)),
    "hard spaces": lambda text: text.replace(" ", "\xa0"),
    "blank lines between": each_line(lambda line: f"{line}\n"),
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "fenced": lambda text: f"See this:\n\n```\n{text}```\n\nAny ideas?\n    Clocks : slow\n",
    "prompted": lambda text: f"root@gpu-7:~# nvidia-smi -q\n{text}root@gpu-7:~# lspci\n    Temperature : warm\n",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_pasted_output_says_what_it_said(tmp_path: Path, way: str) -> None:
    plain = smi(smi_gpu(facts=SICK, processes=["77 python3"]), smi_gpu(1, processes=["78 a", "79 b"]))
    report = report_on_text(tmp_path, WAYS[way](plain))
    assert codes(report) == FOUND
    assert told(report) == told(report_on_text(tmp_path, plain))
    assert not [line for line in report.not_read if "unknown form" in line]


@pytest.mark.parametrize("way", WAYS)
def test_a_pasted_table_says_what_it_said(tmp_path: Path, way: str) -> None:
    plain = TABLE_HEAD + table_row(0, 0x41, "2") + table_row(1, 0x42) + TABLE_PROCESSES + TABLE_END
    report = report_on_text(tmp_path, WAYS[way](plain))
    assert codes(report) == ["ecc.uncorrected"]
    assert report.files[0].written == "2026-03-14 10:00:00"
    assert told(report) == told(report_on_text(tmp_path, plain))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", of_real_files(lambda folder: sorted((folder / "nvidia-smi-text").iterdir())))
def test_a_real_capture_that_was_pasted_says_what_it_said(tmp_path: Path, path: Path | None, way: str) -> None:
    if path is not None:
        text = path.read_text(encoding="utf-8")
        start = text.rindex("==============NVSMI LOG")
        plain = text[start : text.index("\n\n\n", start)] + "\n"
        assert told(report_on_text(tmp_path, WAYS[way](plain))) == told(report_on_text(tmp_path, plain))


def test_outputs_that_follow_each_other_without_a_gap_are_all_read(tmp_path: Path) -> None:
    power = "GPU 00000000:41:00.0\n    GPU Power Readings\n        Instantaneous Power Draw : {} W\n"
    clocks = "GPU 00000000:41:00.0\n    Clocks\n        SM : 345 MHz\n    Max Clocks\n        SM : 1980 MHz\n"
    text = smi(power.format(99.5), at="Sat Mar 14 10:00:00 2026") + smi(clocks, at="Sat Mar 14 10:00:20 2026")
    report = report_on_text(tmp_path, text)
    assert report.measured_seconds == 0
    assert report.gpus[0].readings.power_watts == 99.5
    assert "345 MHz SM clock" in str([area.summary for area in report.areas])


PART = """$ nvidia-smi -q | grep -A8 'Clocks Throttle'
    Clocks Throttle Reasons
        Idle                        : Not Active
        SW Power Cap                : Not Active
        HW Slowdown                 : {slowdown}
            HW Thermal Slowdown     : {slowdown}
            HW Power Brake Slowdown : Not Active
        SW Thermal Slowdown         : Not Active
"""


def test_a_part_that_grep_cut_out_is_read(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, PART.format(slowdown="Active") + "Is this bad? Yes : no\n")
    assert codes(report) == ["thermal.hw"]


def test_the_same_part_of_several_gpus_is_of_each(tmp_path: Path) -> None:
    cool, hot = (PART.format(slowdown=slowdown).partition("\n")[2] for slowdown in ("Not Active", "Active"))
    report = report_on_text(tmp_path, f"{cool}--\n{hot}--\n{cool}")
    assert len(report.gpus) == 3
    assert [(each.check.code, each.subject) for each in report.findings] == [("thermal.hw", "GPU 1")]


def test_a_license_that_grep_cut_out_is_read(tmp_path: Path) -> None:
    text = """root@vm:~# nvidia-smi -q | grep -A 2 "vGPU Software Licensed"
    vGPU Software Licensed Product
        Product Name                      : NVIDIA Virtual Compute Server
        License Status                    : Unlicensed
"""
    report = report_on_text(tmp_path, text)
    assert [(each.check.code, each.measured) for each in report.findings] == [
        ("vgpu.unlicensed", "NVIDIA Virtual Compute Server: unlicensed")
    ]


@pytest.mark.parametrize(
    ("mode", "status", "found"),
    [
        ("VGPU", "Unlicensed (Restricted)", ["vgpu.unlicensed"]),
        ("VGPU", "Unlicensed (Unrestricted)", ["vgpu.unlicensed"]),
        ("VGPU", "Licensed (Expiry: 2026-7-7 16:1:44 GMT)", []),
        ("VGPU", "N/A", []),
        ("Pass-Through", "Unlicensed", []),
        ("None", "Unlicensed", []),
    ],
)
def test_only_a_vgpu_needs_a_license(tmp_path: Path, mode: str, status: str, found: list[str]) -> None:
    gpu = smi_gpu().replace(
        "    PCI\n",
        f"    GPU Virtualization Mode\n        Virtualization Mode : {mode}\n    vGPU Software Licensed Product\n"
        f"        Product Name : NVIDIA RTX Virtual Workstation\n        License Status : {status}\n    PCI\n",
        1,
    )
    report = report_on_text(tmp_path, smi(gpu))
    assert codes(report) == found
    assert report.gpus[0].name == "NVIDIA H100 80GB HBM3"


def test_an_xml_license_is_read(tmp_path: Path) -> None:
    text = (
        '<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="00000000:00:07.0">'
        "<product_name>NVIDIA L40S-2Q</product_name><vgpu_software_licensed_product>"
        "<licensed_product_name>NVIDIA RTX Virtual Workstation</licensed_product_name>"
        "<license_status>Unlicensed (Restricted)</license_status></vgpu_software_licensed_product></gpu>"
        "</nvidia_smi_log>"
    )
    report = report_on_text(tmp_path, text)
    assert [each.measured for each in report.findings] == ["NVIDIA RTX Virtual Workstation: unlicensed, restricted"]
    assert report.gpus[0].name == "NVIDIA L40S-2Q"
