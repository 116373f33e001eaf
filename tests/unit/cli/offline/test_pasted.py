"""Outputs that were quoted, indented, wrapped, cut out or cut off, or are in a form that nobody here has seen.

What is not in them is not gone from the host; a line in an unknown form is not read and named, and nothing else changes
for it. A cause outside the GPU is told, takes no GPU out of use, and no healthy output hides it."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click import unstyle
from tests.gathered import every
from tests.offline_files import (
    AT,
    TABLE_END,
    TABLE_HEAD,
    TABLE_PROCESSES,
    UUID,
    XML,
    assert_found,
    codes,
    file_of,
    lspci,
    measured,
    report_on_text,
    rows_of,
    smi,
    smi_gpu,
    summary,
    table_row,
)

from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import render_text

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


MARK = "\u2603"

DRIVER_610 = file_of("driver-610.txt")


def test_driver_610_is_read_under_its_new_labels(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, DRIVER_610)
    assert report.driver == "610.57.04"
    assert codes(report) == ["power.limit"]
    (gpu,) = report.gpus
    assert (gpu.readings.power_watts, gpu.readings.power_limit_watts) == (120, 130)
    assert not [line for line in report.not_read if "unknown form" in line]


def test_the_version_of_driver_610_is_read_without_its_newer_label(tmp_path: Path) -> None:
    assert report_on_text(tmp_path, DRIVER_610.replace("KMD Version      ", "Something Else   ")).driver == "610.57.04"


def all_told(report: Report) -> str:
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
        if MARK in all_told(report):
            continue  # a name of the board or of a program: any text is one
        assert all_told(report) == all_told(whole) or lost, changed
        read += bool(lost)
    return read


FAULTY = {"uncorrectable": "3", "remap pending": "Yes", "width": "8x", "margin": "2 C", "limit": "400.00 W"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "least"),
    [
        (smi(smi_gpu(processes=["77 python3"])), 40),
        (smi(smi_gpu(facts=FAULTY)), 40),
        (DRIVER_610, 7),
        (XML.replace("><", ">\n<"), 10),
    ],
    ids=["healthy", "sick", "driver 610", "XML"],
)
def test_a_fact_in_an_unknown_form_is_not_read_and_named_with_its_line(tmp_path: Path, text: str, least: int) -> None:
    assert check_every_line(tmp_path, text) >= least


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


LISTED = "GPU 0: NVIDIA A10 (UUID: GPU-00000000-1111-2222-3333-444444444444)\n"
NVML = "Failed to initialize NVML: "
CLI = "nvidia-container-cli: "


def mig(current: str, pending: str) -> str:
    """An output of one GPU with these MIG modes."""
    modes = f"    MIG Mode\n        Current : {current}\n        Pending : {pending}\n    Serial"
    return smi(re.sub(r" {4}MIG Mode.*?Serial", modes, smi_gpu(), flags=re.DOTALL))


@pytest.mark.parametrize("failed", ["", "Mar 14 09:50:00 gpu-7 "])
def test_a_license_ends_no_failure_in_another_file(tmp_path: Path, failed: str) -> None:
    licensed = "2026-03-14T08:00:00+0000 gpu-7 nvidia-gridd[812]: License acquired successfully. (Info: 192.0.2.10)\n"
    texts = [licensed, f"{failed}nvidia-gridd: Failed to acquire/renew license from license server.\n"]
    for each in (texts, texts[::-1]):
        assert codes(report_on_text(tmp_path, *each)) == ["vgpu.unlicensed"]


@pytest.mark.parametrize(("code", "says", "lines"), rows_of("outside.tsv"))
@pytest.mark.parametrize("beside", ["", LISTED])
def test_a_cause_outside_the_gpu_is_told(tmp_path: Path, code: str, says: str, lines: str, beside: str) -> None:
    report = report_on_text(tmp_path, f"{beside}{lines}\n")
    assert codes(report) == ([code] if code else [])
    assert (report.verdict is Verdict.DRAIN, report.blocked is None) == (False, bool(code or beside))
    for finding in report.findings:
        text = f"{finding.subject} {finding.measured} {finding.advice.meaning} {finding.advice.decision}"
        assert [words for words in says.split(",") if words not in text] == []


def test_of_several_causes_each_is_told(tmp_path: Path) -> None:
    lines = f"{NVML}Unknown Error\n{CLI}initialization error: WSL environment detected but no adapters were found"
    (finding,) = report_on_text(tmp_path, lines).findings
    words = ("Unknown Error", "WSL", "Windows", "daemon-reload")
    assert [each for each in words if each not in f"{finding.measured} {finding.advice.meaning}"] == []


@pytest.mark.parametrize(
    ("current", "pending", "found"),
    [
        ("Disabled", "Enabled", "enabled after a reset"),
        ("Enabled", "Disabled", "disabled after a reset"),
        ("Enabled", "Enabled", ""),
        ("N/A", "N/A", ""),
    ],
)
def test_a_mig_mode_that_differs_from_the_one_to_come_is_pending(
    tmp_path: Path, current: str, pending: str, found: str
) -> None:
    report = report_on_text(tmp_path, mig(current, pending))
    assert codes(report) == (["mig.pending"] if found else [])
    assert not found or found in measured(report, "mig.pending")


LOST = "Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost.  Reboot the system\n"
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Wed Jan  1 00:00:00 UTC 2026\n"


def test_gpus_on_the_bus_are_not_counted_as_silent(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(attached=1).replace("Attached", "x"), VERSION + LOST, THREE_LISTED)
    said = str(summary(report, Area.DRIVER))
    assert "3 x " in said
    assert "0 of 1" not in said


LOST_AT_ONCE = "".join(
    f"[{seconds}.000000] NVRM: Xid (PCI:0000:{bus}:00): 79, GPU has fallen off the bus.\n"
    for seconds, bus in ((1084456, "06"), (1084457, "09"), (1084459, "0c"))
)


def test_gpus_that_were_lost_at_once_share_something(tmp_path: Path) -> None:
    found = {each.pci_bus_id[5:7]: each.measured for each in report_on_text(tmp_path, LOST_AT_ONCE).findings}
    assert [bus for bus, text in found.items() if "2 GPUs at once" in text and "share" in text] == ["06", "09"]
    assert "at once" not in found["0c"]
    # Days, where seconds say nothing to a person.
    assert [bus for bus, text in found.items() if "13 days after the boot" in text] == ["06", "09", "0c"]


@pytest.mark.parametrize("name", ["GeForce RTX 3080 Laptop GPU", "Quadro T2000 Mobile", "GTX 1650 with Max-Q Design"])
@pytest.mark.parametrize("width", ["8", "4"])
def test_laptops_are_wired_with_eight_lanes(tmp_path: Path, name: str, width: str) -> None:
    text = smi(re.sub(r"(Product Name +: ).*", rf"\1NVIDIA {name}", smi_gpu(facts={"width": f"{width}x"})))
    listing = lspci(width=int(width)).replace("GH100 [H100 SXM5 80GB]", f"GA104M [{name}]")
    unnamed = smi(smi_gpu(facts={"width": f"{width}x"}))
    for texts in ((text,), (listing,), (unnamed, listing)):
        found = [code for code in codes(report_on_text(tmp_path, *texts)) if code.startswith("pcie.width")]
        assert bool(found) == (width == "4")


def test_gpus_that_two_tables_give_one_index_are_named_by_their_address(tmp_path: Path) -> None:
    tables = [f"index, pci.bus_id, uuid\n0, 00000000:{bus}:00.0, GPU-1-{bus}\n" for bus in ("41", "42")]
    assert [gpu.gpu for gpu in report_on_text(tmp_path, *tables).gpus] == ["0000:41:00.0", "0000:42:00.0"]


def test_moments_that_are_days_apart_are_so(tmp_path: Path) -> None:
    later = smi(smi_gpu(), at=AT.replace("14", "16"))
    assert "2 days apart" in render_text(report_on_text(tmp_path, smi(smi_gpu(), at=AT), later))


@pytest.mark.parametrize(("told", "untold", "text"), rows_of("claims.tsv"))
def test_a_report_says_what_the_paste_says_and_no_more(tmp_path: Path, told: str, untold: str, text: str) -> None:
    said = unstyle(render_text(report_on_text(tmp_path, f"{text}\n")))
    assert [each for each in every(told.split("\n")) if re.search(each, said) is None] == []
    assert [each for each in every(untold.split("\n")) if each and re.search(each, said)] == []


def test_kernel_messages_of_two_hosts_are_not_mixed(tmp_path: Path) -> None:
    lines = "Mar 14 09:{}:00 {} kernel: NVRM: Xid (PCI:0000:{}:00): 79, GPU has fallen off the bus.\n"
    one = lines.format(50, "gpu-7", 41) + lines.format(51, "gpu-7.example.org", 42) + lines.format(52, "localhost", 43)
    assert "xid.79" in codes(report_on_text(tmp_path, one))
    with pytest.raises(ConfigError, match="different hosts: gpu-7, gpu-8"):
        report_on_text(tmp_path, one, lines.format(53, "gpu-8", 41))
    talos = "10.5.0.{0}: kern: warning: [2026-03-14T09:50:00.45Z]: NVRM: Xid (PCI:0000:41:00): 62, halted\n"
    with pytest.raises(ConfigError, match=r"different hosts: 10\.5\.0\.3, 10\.5\.0\.4"):
        report_on_text(tmp_path, talos.format(3) + talos.format(4))
