"""Bug reports, listings of lspci, and files that are packed, cut off or oddly encoded."""

from __future__ import annotations

import bz2
import gzip
import lzma
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
)

from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.report.report import Report

FOUND = ["xid.119", "pcie.width_from_boot"]


def judged(report: Report) -> list[str]:
    assert measured(report, "xid.119") == "Xid 119, last 2026-03-14 09:50:00, 10 min before the report"
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
    work = next(area.summary for area in report.areas if area.area is Area.WORK)
    assert work == "1 compute process on GPU 0; 97% busy; GPU 0 on NUMA node 1"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_packed_files_are_read_whatever_they_are_called(tmp_path: Path, pack: object) -> None:
    path = tmp_path / "attachment"
    path.write_bytes(pack(sick_bug_report().encode()))  # type: ignore[operator]  # a function that packs
    assert judged(report_on(path)) == FOUND


def test_a_bug_report_packed_as_the_script_packs_it_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_bytes(packed_bug_report(sick_bug_report()))
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


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_odd_encodings_and_line_ends_are_read(tmp_path: Path, encoding: str, newline: str) -> None:
    path = tmp_path / "report.txt"
    path.write_bytes(sick_bug_report().replace("\n", newline).encode(encoding))
    assert judged(report_on(path)) == FOUND


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


def test_a_slot_that_gives_less_is_what_is_expected(tmp_path: Path) -> None:
    narrow = lspci(8, 8)
    report = report_on_text(tmp_path, smi(smi_gpu(facts={"width": "8x"})), narrow)
    assert codes(report) == []
    assert not any("the slot above" in line for line in report.not_read)


def test_lspci_alone_tells_of_a_link_that_is_short(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, lspci(4))
    assert [(finding.check.code, finding.subject) for finding in report.findings] == [
        ("pcie.width_idle", "GPU at 0000:41:00.0")
    ]
    driver = next(area.summary for area in report.areas if area.area is Area.DRIVER)
    assert driver == "on the bus: 1 x H100 SXM5 80GB (driver in use: nvidia)"


@pytest.mark.parametrize(
    ("lanes", "other", "found"),
    [
        (8, 8, ["pcie.width_built"] * 2),
        (4, 4, ["pcie.width_idle"] * 2),
        (8, 4, ["pcie.width_idle"] * 2),
        (8, 16, ["pcie.width_idle"]),
    ],
)
def test_lspci_alone_knows_a_board_that_splits_the_lanes(
    tmp_path: Path, lanes: int, other: int, found: list[str]
) -> None:
    both = lspci(lanes) + lspci(other).replace("41", "42").replace("40:", "50:")
    assert sorted(codes(report_on_text(tmp_path, both))) == found


def test_a_gpu_on_the_bus_that_nvidia_smi_does_not_show_is_missing(tmp_path: Path) -> None:
    other = smi(smi_gpu(1))
    both = lspci() + lspci().replace("41", "42").replace("40:", "50:")
    assert codes(report_on_text(tmp_path, other, both)) == ["gpu.missing"]
    passed_through = lspci(driver="vfio-pci") + lspci().replace("41", "42").replace("40:", "50:")
    assert codes(report_on_text(tmp_path, other, passed_through)) == []


def test_a_gpu_whose_configuration_space_is_all_ones_is_lost(tmp_path: Path) -> None:
    assert codes(report_on_text(tmp_path, lspci(revision="ff"))) == ["gpu.lost"]
    assert codes(report_on_text(tmp_path, smi(smi_gpu()), lspci(revision="ff"))) == ["gpu.lost"]


def test_nouveau_as_the_driver_in_use_is_a_finding(tmp_path: Path) -> None:
    assert codes(report_on_text(tmp_path, lspci(driver="nouveau"))) == ["driver.nouveau"]


def test_a_listing_pasted_with_blanks_for_tabs_is_read(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, lspci(4).replace("\t", "    "))
    assert codes(report) == ["pcie.width_idle"]


def test_parts_that_were_written_into_each_other_are_read(tmp_path: Path) -> None:
    xid = "[Sat Mar 14 09:50:00 2026] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n"
    lines = smi(smi_gpu(facts={"uncorrectable": "2"})).splitlines(keepends=True)
    mixed = "".join(line + (xid if place == 40 else "") for place, line in enumerate(lines))
    assert codes(report_on_text(tmp_path, mixed)) == ["xid.79", "ecc.uncorrected"]
