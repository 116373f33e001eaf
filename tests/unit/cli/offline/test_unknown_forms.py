"""What a driver prints in a form that nobody here knows is not read, with its line; nothing else changes for it.

Causes outside the GPU, and claims that the files must not contradict.

The advice is for a person, takes no GPU out of use, and no healthy output hides it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.offline_files import (
    AT,
    XML,
    codes,
    file_of,
    lspci,
    measured,
    of_real_files,
    report_on_text,
    rows_of,
    smi,
    smi_gpu,
    summary,
)

from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import render_text

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


LISTED = "GPU 0: NVIDIA A10 (UUID: GPU-00000000-1111-2222-3333-444444444444)\n"
NVML = "Failed to initialize NVML: "
CLI = "nvidia-container-cli: "


def mig(current: str, pending: str) -> str:
    """An output of one GPU with these MIG modes."""
    modes = f"    MIG Mode\n        Current : {current}\n        Pending : {pending}\n    Serial"
    return smi(re.sub(r" {4}MIG Mode.*?Serial", modes, smi_gpu(), flags=re.DOTALL))


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


THREE = "".join(lspci(domain="0000:").replace("0000:41:", f"0000:{bus}:") for bus in ("41", "42", "43"))
LOST = "Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost.  Reboot the system\n"
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Wed Jan  1 00:00:00 UTC 2026\n"


def test_gpus_on_the_bus_are_not_counted_as_silent(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(attached=1).replace("Attached", "x"), VERSION + LOST, THREE)
    said = summary(report, Area.DRIVER)
    assert said is not None
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
