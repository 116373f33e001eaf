"""Text that was quoted, indented, wrapped, cut out or cut off; what is not in it is not gone from the host."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.offline_files import (
    TABLE_END,
    TABLE_HEAD,
    TABLE_PROCESSES,
    UUID,
    assert_found,
    codes,
    file_of,
    lspci,
    of_real_files,
    report_on_text,
    smi,
    smi_gpu,
    table_row,
)

from gpu_triage.judge.findings.verdicts import Verdict
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
TWO_IN_A_TABLE = TABLE_HEAD + table_row(0, 0x41) + table_row(1, 0x42) + TABLE_PROCESSES + TABLE_END
SICK_TABLE = TABLE_HEAD + table_row(0, 0x41, "2") + table_row(1, 0x42) + TABLE_PROCESSES + TABLE_END
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
    report = report_on_text(tmp_path, WAYS[way](SICK_TABLE))
    assert codes(report) == ["ecc.uncorrected"]
    assert report.files[0].written == "2026-03-14 10:00:00"
    assert told(report) == told(report_on_text(tmp_path, SICK_TABLE))


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


PART = file_of("part.txt")


def test_the_same_part_of_several_gpus_is_of_each(tmp_path: Path) -> None:
    cool, hot = (PART.format(slowdown=slowdown).partition("\n")[2] for slowdown in ("Not Active", "Active"))
    report = report_on_text(tmp_path, f"{cool}--\n{hot}--\n{cool}")
    assert len(report.gpus) == 3
    assert [(each.check.code, each.subject) for each in report.findings] == [("thermal.hw", "GPU 1")]


THREE = smi(smi_gpu(), smi_gpu(1), smi_gpu(2))
LATER = "Sat Mar 14 10:01:00 2026"


def cut(text: str, after: str) -> str:
    """A text up to these words and with them."""
    return text[: text.index(after) + len(after)]


def listed(*buses: int) -> str:
    """What lspci lists of GPUs at these buses."""
    return "".join(lspci(domain="0000:").replace("0000:41:00.0", f"0000:{bus:02x}:00.0") for bus in buses)


def test_a_second_output_that_was_cut_off_loses_no_gpu(tmp_path: Path) -> None:
    second = cut(smi(smi_gpu(), smi_gpu(1), smi_gpu(2), at=LATER), UUID.format(1))
    report = report_on_text(tmp_path, THREE, second)
    assert codes(report) == []
    assert report.verdict is Verdict.KEEP
    assert len(report.gpus) == 3
    (line,) = [line for line in report.not_read if "GPU 2" in line]
    assert "2026-03-14 10:00:00" in line


def test_a_gpu_that_is_gone_from_a_whole_output_is_lost(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, THREE, smi(smi_gpu(), smi_gpu(2), at=LATER))
    assert [(each.check.code, each.subject) for each in report.findings][:1] == [("gpu.lost", "GPU 1")]
    assert report.verdict is Verdict.DRAIN


def test_a_whole_output_that_others_were_cut_out_of_is_no_loss(tmp_path: Path) -> None:
    """Somebody pasted the blocks of two GPUs of eight; the output itself counts eight."""
    report = report_on_text(tmp_path, smi(smi_gpu(), smi_gpu(5), attached=8), listed(*range(0x41, 0x49)))
    assert codes(report) == []
    assert [line for line in report.not_read if "6 of 8 GPUs" in line]


@pytest.mark.parametrize(("end", "uses"), [(TABLE_END, "no compute process"), ("", "0% busy at that moment")])
def test_a_list_of_processes_that_was_cut_off_calls_no_gpu_idle(tmp_path: Path, end: str, uses: str) -> None:
    report = report_on_text(
        tmp_path, TABLE_HEAD + table_row(0, 0x41) + table_row(1, 0x42).replace("100%", "  0%") + TABLE_PROCESSES + end
    )
    assert uses == report.gpus[1].bottleneck.because


@pytest.mark.parametrize("end", ["    Processes\n", "GPU instance ID", "Compute instance ID"])
def test_a_list_that_was_cut_off_at_its_start_is_not_empty(tmp_path: Path, end: str) -> None:
    text = smi(smi_gpu(facts={"busy": "0 %"}, processes=["4242 python3"])).replace(
        "GPU instance ID                   : N/A\n", "GPU instance ID : N/A\n        Compute instance ID : N/A\n"
    )
    assert report_on_text(tmp_path, text).gpus[0].readings.compute_processes == 1
    assert report_on_text(tmp_path, cut(text, end)).gpus[0].readings.compute_processes is None


def test_outputs_of_single_gpus_are_of_one_host(tmp_path: Path) -> None:
    other = smi(smi_gpu(1, facts={"width": "8x"}), at="Sat Mar 14 10:00:30 2026", attached=2)
    report = report_on_text(tmp_path, smi(smi_gpu(), attached=2), other)
    assert len(report.gpus) == 2
    # How many GPUs come before it, no output tells.
    assert [(each.check.code, each.subject) for each in report.findings] == [("pcie.width", "GPU 0000:42:00.0")]


def wrapped_at(width: int, text: str) -> str:
    """A text as a terminal breaks it, or as a mail does: at the last space."""
    lines = (line for each in text.splitlines() for line in _pieces(each, width))
    return "\n".join(lines) + "\n"


def _pieces(line: str, width: int) -> list[str]:
    end = line.rfind(" ", 0, width) if line.startswith("|") and len(line) > width else width
    return [line] if len(line) <= width else [line[:end], *_pieces(line[end:], width)]


@pytest.mark.parametrize("width", [80, 72, 60])
def test_a_table_that_was_wrapped_says_what_it_said(tmp_path: Path, width: int) -> None:
    report = report_on_text(tmp_path, wrapped_at(width, SICK_TABLE))
    assert codes(report) == ["ecc.uncorrected"]
    assert [gpu.readings.power_watts for gpu in report.gpus] == [60, 60]
    assert report.gpus == report_on_text(tmp_path, SICK_TABLE).gpus


THREE_LISTED = listed(0x41, 0x42, 0x43)
BRAKED = smi_gpu(1, facts={"brake": "Active", "clock": "345 MHz", "busy": "100 %"})


@pytest.mark.parametrize("start", ["Persistence Mode", "Serial Number", "Performance State", "Clocks Event Reasons"])
def test_an_output_that_begins_in_the_middle_is_of_each_of_its_gpus(tmp_path: Path, start: str) -> None:
    text = smi(BRAKED, smi_gpu(2))
    report = report_on_text(tmp_path, text[text.rindex("\n", 0, text.index(start)) + 1 :])
    assert codes(report) == ["power.brake"]
    braked, other = sorted(report.gpus, key=lambda gpu: "power.brake" not in gpu.codes)
    assert "0000:43" in f"{other.gpu} {other.uuid}" or other.uuid == UUID.format(2)
    assert braked.uuid != other.uuid


def licensed(mode: str, status: str) -> str:
    return smi(
        smi_gpu().replace(
            "    PCI\n",
            f"    GPU Virtualization Mode\n        Virtualization Mode : {mode}\n    vGPU Software Licensed Product\n"
            f"        Product Name : NVIDIA RTX Virtual Workstation\n        License Status : {status}\n    PCI\n",
            1,
        )
    )


def sections(*parts: str) -> str:
    """Extracts of one GPU, a second apart."""
    head = "\n==============NVSMI LOG==============\n\nTimestamp : Sat Mar 14 10:00:{:02} 2026\nAttached GPUs : 1\n"
    return "".join(f"{head.format(second)}GPU 00000000:41:00.0\n{part}" for second, part in enumerate(parts, 1))


SLOWED = sections(
    "    Performance State : P0\n    Clocks Event Reasons\n        HW Slowdown : Active\n"
    "            HW Power Brake Slowdown : Active\n",
    "    Clocks\n        SM : 345 MHz\n    Max Clocks\n        SM : 1410 MHz\n",
    "    Temperature\n        GPU Current Temp : 44 C\n",
    "    Utilization\n        Gpu : 100 %\n",
)
PARTS: list[tuple[tuple[str, ...], dict[str, str]]] = [
    ((PART.format(slowdown="Active") + "Is this bad? Yes : no\n",), {"thermal.hw": ""}),
    ((file_of("license.txt"),), {"vgpu.unlicensed": "NVIDIA Virtual Compute Server: unlicensed"}),
    ((file_of("license.xml"),), {"vgpu.unlicensed": "NVIDIA RTX Virtual Workstation: unlicensed, restricted"}),
    # Only a vGPU needs a license.
    ((licensed("VGPU", "Unlicensed (Restricted)"),), {"vgpu.unlicensed": ""}),
    ((licensed("VGPU", "Unlicensed (Unrestricted)"),), {"vgpu.unlicensed": ""}),
    ((licensed("VGPU", "Licensed (Expiry: 2026-7-7 16:1:44 GMT)"),), {}),
    *(((licensed(*each),), {}) for each in (("VGPU", "N/A"), ("Pass-Through", "Unlicensed"), ("None", "Unlicensed"))),
    # What a GPU said before is not said of the time since.
    (
        (smi(smi_gpu(), BRAKED), cut(smi(smi_gpu(), BRAKED, at=LATER), UUID.format(0))),
        {"power.brake": "hw_power_brake at that moment"},
    ),
    # An output that was cut off misses no GPU of lspci, a whole one does.
    *(
        ((text, THREE_LISTED), {})
        for text in (
            *(
                cut(THREE, end)
                for end in ("Serial Number", "Clocks Event Reasons", "GPU 00000000:42:0", UUID.format(1))
            ),
            cut(THREE, "CUDA Version"),
            TABLE_HEAD + table_row(0, 0x41),
            TABLE_HEAD + table_row(0, 0x41) + cut(table_row(1, 0x42), "00000000:4"),
            table_row(0, 0x41) + table_row(1, 0x42),
            TABLE_HEAD + table_row(0, 0x41) + cut(table_row(1, 0x42), "34C"),
        )
    ),
    ((TWO_IN_A_TABLE, THREE_LISTED), {"gpu.missing": ""}),
    ((SLOWED,), {"power.brake": "hw_power_brake at that moment, 44 °C, SM clock 345 of 1410 MHz"}),
]


@pytest.mark.parametrize(("texts", "found"), PARTS)
def test_what_is_found_in_parts_of_outputs(tmp_path: Path, texts: tuple[str, ...], found: dict[str, str]) -> None:
    report = report_on_text(tmp_path, *texts)
    assert_found(report, found)
    assert (report.verdict is Verdict.DRAIN, report.measured_seconds in (0, 60)) == ("gpu.missing" in found, True)
    assert {gpu.name for gpu in report.gpus} != {"NVIDIA RTX Virtual Workstation"}
