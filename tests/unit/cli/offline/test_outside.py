"""Causes outside the GPU, and claims that the files must not contradict.

The advice is for a person, takes no GPU out of use, and no healthy output hides it.
"""

import re
from pathlib import Path

import pytest
from tests.offline_files import AT, codes, lspci, measured, report_on_text, smi, smi_gpu, summary

from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.text import render_text

LISTED = "GPU 0: NVIDIA A10 (UUID: GPU-00000000-1111-2222-3333-444444444444)\n"
NVML = "Failed to initialize NVML: "
CLI = "nvidia-container-cli: "


ROWS = [
    row.split("\t")
    for row in (Path(__file__).parent / "files/outside.tsv").read_text(encoding="utf-8").splitlines()[1:]
]
"""Finding, words of it, and lines."""


def mig(current: str, pending: str) -> str:
    """An output of one GPU with these MIG modes."""
    modes = f"    MIG Mode\n        Current : {current}\n        Pending : {pending}\n    Serial"
    return smi(re.sub(r" {4}MIG Mode.*?Serial", modes, smi_gpu(), flags=re.DOTALL))


@pytest.mark.parametrize(("code", "says", "lines"), ROWS)
@pytest.mark.parametrize("beside", ["", LISTED])
def test_a_cause_outside_the_gpu_is_told(tmp_path: Path, code: str, says: str, lines: str, beside: str) -> None:
    report = report_on_text(tmp_path, f"{beside}{lines}\n".replace("\\n", "\n"))
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


def test_a_throttle_reason_that_nvidia_smi_does_not_know_is_one(tmp_path: Path) -> None:
    text = smi(re.sub(r"(\n +)(Idle +: Not Active)", r"\1\2\1Unknown : Active", smi_gpu()))
    said = summary(report_on_text(tmp_path, text), Area.CLOCKS)
    assert said is not None
    assert "unknown" in said
    assert "no throttle reason" not in said


def test_gpus_that_two_tables_give_one_index_are_named_by_their_address(tmp_path: Path) -> None:
    tables = [f"index, pci.bus_id, uuid\n0, 00000000:{bus}:00.0, GPU-1-{bus}\n" for bus in ("41", "42")]
    assert [gpu.gpu for gpu in report_on_text(tmp_path, *tables).gpus] == ["0000:41:00.0", "0000:42:00.0"]


def test_moments_that_are_days_apart_are_so(tmp_path: Path) -> None:
    later = smi(smi_gpu(), at=AT.replace("14", "16"))
    assert "2 days apart" in render_text(report_on_text(tmp_path, smi(smi_gpu(), at=AT), later))
