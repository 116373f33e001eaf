"""Bug reports, listings of lspci, and files that are packed, cut off or oddly encoded."""

import bz2
import gzip
import lzma
import re
from pathlib import Path

import pytest
from tests.offline_files import (
    bug_report,
    codes,
    lspci,
    measured,
    packed_bug_report,
    report_on,
    report_on_text,
    sick_bug_report,
    smi,
    smi_gpu,
    summary,
)

from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.report.report import Report

FOUND = ["xid.119", "pcie.width_from_boot"]


def judged(report: Report) -> list[str]:
    assert (
        measured(report, "xid.119") == "Xid 119, last 2026-03-14 09:50:00, 10 min before the report, by python3 (4242)"
    )
    assert (
        measured(report, "pcie.width_from_boot") == "8 of 16 lanes under load, no more seen since boot, at 0000:41:00.0"
    )
    return codes(report)


def test_every_part_of_a_bug_report_is_read_once(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, sick_bug_report())
    assert judged(report) == FOUND
    (file,) = report.files
    assert file.kinds == ("NVIDIA bug report", "nvidia-smi -q", "lspci", "kernel log")
    assert file.written == "2026-03-14 10:00:00"
    assert (
        summary(report, Area.WORK)
        == "1 compute process on GPU 0; 97% busy; GPU 0 on NUMA node 1; GPU 0: python3 (4242)"
    )


@pytest.mark.parametrize(
    "packed",
    [
        *(pack(sick_bug_report().encode()) for pack in (gzip.compress, bz2.compress, lzma.compress)),
        packed_bug_report(sick_bug_report()),
        *(
            sick_bug_report().replace("\n", newline).encode(encoding)
            for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32")
            for newline in ("\n", "\r\n")
        ),
    ],
    ids=[
        *("gzip", "bzip2", "xz", "as the script packs it"),
        *(f"{name} {end}" for name in ("UTF-16", "LE", "BE", "signed UTF-8", "UTF-32") for end in ("Unix", "DOS")),
    ],
)
def test_a_file_is_read_to_its_end_however_it_is_packed_encoded_and_called(tmp_path: Path, packed: bytes) -> None:
    path = tmp_path / "attachment"
    path.write_bytes(packed)
    report = report_on(path)
    assert judged(report) == FOUND
    assert report.files[0].note == ""


def test_what_is_left_of_a_truncated_archive_is_read_and_the_damage_named(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-bug-report.log.gz"
    packed = gzip.compress((smi(smi_gpu(facts={"uncorrectable": "1"})) + sick_bug_report()).encode())
    path.write_bytes(packed[: len(packed) // 2])
    report = report_on(path)
    assert "ecc.uncorrected" in codes(report)
    assert report.files[0].note.startswith("ends early")


@pytest.mark.parametrize(
    "date",
    [
        "sam. 14 mars 2026 10:00:00 UTC",
        "2026年 03月 14日 星期六 10:00:00 UTC",
        "sab 14 mar 2026, 10.00.00, UTC",
        "Sat Mar 14 10:00:00 AM UTC 2026",
        "Sa 14. Mär 10:00:00 UTC 2026",
    ],
)
def test_the_date_of_a_report_is_read_in_many_languages(tmp_path: Path, date: str) -> None:
    report = report_on_text(tmp_path, bug_report(("dmesg:", "[    1.0] NVRM: x"), date=date))
    assert report.files[0].written == "2026-03-14 10:00:00"


NAMES_ALONE = re.sub(r" \[[0-9a-f]{4}(:[0-9a-f]{4})?\]", "", lspci(4))
"""As without ``-nn``."""


@pytest.mark.parametrize(
    "listing",
    [lspci(4), lspci(4).replace("\t", "    "), NAMES_ALONE, NAMES_ALONE.replace("NVIDIA", "nVidia")],
    ids=["tabs", "blanks", "no numbers", "old spelling"],
)
def test_lspci_alone_tells_of_a_link_that_is_short(tmp_path: Path, listing: str) -> None:
    report = report_on_text(tmp_path, listing)
    found = [(finding.check.code, finding.subject) for finding in report.findings]
    assert found == [("pcie.width_idle", "GPU at 0000:41:00.0")]
    assert summary(report, Area.DRIVER) == "on the bus: 1 x H100 SXM5 80GB (driver in use: nvidia)"


def second(listing: str) -> str:
    """A listing as of the GPU at the next address, below a port of its own."""
    return listing.replace("41", "42").replace("40:", "50:")


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        # A board that splits its lanes shows in two GPUs that have as many.
        ((lspci(8) + second(lspci(8)),), ["pcie.width_built"] * 2),
        ((lspci(4) + second(lspci(4)),), ["pcie.width_idle"] * 2),
        ((lspci(8) + second(lspci(4)),), ["pcie.width_idle"] * 2),
        ((lspci(8) + second(lspci(16)),), ["pcie.width_idle"]),
        # A slot that gives less is what is expected.
        ((smi(smi_gpu(facts={"width": "8x"})), lspci(8, 8)), []),
        # A GPU on the bus that nvidia-smi does not show is missing, unless a virtual machine has it.
        ((smi(smi_gpu(1)), lspci() + second(lspci())), ["gpu.missing"]),
        ((smi(smi_gpu(1)), lspci(driver="vfio-pci") + second(lspci())), []),
        # A configuration space of all ones is that of a lost GPU.
        ((lspci(revision="ff"),), ["gpu.lost"]),
        ((smi(smi_gpu()), lspci(revision="ff")), ["gpu.lost"]),
        *(((lspci(driver=name),), ["driver.bound_elsewhere"]) for name in ("nova_core", "NovaCore")),
        ((lspci(driver="nouveau"),), ["driver.nouveau"]),
    ],
)
def test_what_lspci_tells(tmp_path: Path, texts: tuple[str, ...], found: list[str]) -> None:
    report = report_on_text(tmp_path, *texts)
    assert sorted(codes(report)) == found
    assert not any("the slot above" in line for line in report.not_read)


def test_parts_that_were_written_into_each_other_are_read(tmp_path: Path) -> None:
    xid = "[Sat Mar 14 09:50:00 2026] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n"
    lines = smi(smi_gpu(facts={"uncorrectable": "2"})).splitlines(keepends=True)
    mixed = "".join(line + (xid if place == 40 else "") for place, line in enumerate(lines))
    assert codes(report_on_text(tmp_path, mixed)) == ["xid.79", "ecc.uncorrected"]
