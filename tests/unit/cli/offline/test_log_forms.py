"""Kernel logs in the forms that people paste: quoted, shipped, of other tools and in other languages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.offline_files import codes, measured, report_on, report_on_text, smi, smi_gpu

XID = "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
AT = "Sat Mar 14 10:00:00 2026"
TOLD = "2026-03-14 09:50:00, 10 min before the report"


def vector(**fields: str) -> str:
    """A record as Vector ships it: the journal's fields, its own beside them, more than a log's line is long."""
    return json.dumps(
        {
            "PRIORITY": "4",
            "_BOOT_ID": "c974f369cb4a4fc0b8a1f19886f272e4",
            "_KERNEL_DEVICE": "x" * 3000,
            "host": "gpu-7",
            "source_type": "journald",
            **fields,
        }
    )


@pytest.mark.parametrize(
    "log",
    [
        f"10.5.0.3: kern: warning: [2026-03-14T09:50:00.458998481Z]: {XID}",
        f"kern:    info: [2026-03-14T09:50:00.458998481Z]: {XID}",
        f"<4>1 2026-03-14T09:50:00.123456+01:00 gpu-7 kernel - - - {XID}",
        f'<4>1 2026-03-14T09:50:00+01:00 gpu-7 kernel - - [meta sequenceId="7" x="y"] [ 5000.123456] {XID}',
        f"1 2026-03-14T09:50:00Z gpu-7 kernel - - - \ufeff{XID}",
        vector(SYSLOG_IDENTIFIER="kernel", _TRANSPORT="kernel", message=XID, timestamp="2026-03-14T09:50:00.046528Z"),
        vector(message=f"Mar 14 09:50:00 gpu-7 kernel: [ 5000.1] {XID}", file="/var/log/kern.log"),
        vector(appname="kernel", facility="kern", message=XID, timestamp="2026-03-14T09:50:00Z"),
        json.dumps({"MESSAGE": list(XID.encode()), "_TRANSPORT": "kernel", "__REALTIME_TIMESTAMP": "1773481800000000"}),
        f"[Sa Mär 14 09:50:00 2026] {XID}",
        f"[sam. mars 14 09:50:00 2026] {XID}",
        f"[六 3月 14 09:50:00 2026] {XID}",
        f"[Сб мар 14 09:50:00 2026] {XID}",  # noqa: RUF001 - Russian
        f"[la maalis 14 09:50:00 2026] {XID}",
        f"[mar mar 14 09:50:00 2026] {XID}",
        f"sam. 2026-03-14 09:50:00 CET gpu-7 kernel: {XID}",
        f"Sat Mar 14 09:50:00 2026 gpu-7 kernel: {XID}",
        f"Mar 14 2026 09:50:00 gpu-7 kernel: {XID}",
        f"marca 14 09:50:00 gpu-7 kernel: {XID}",
        f"[3月14 09:50] {XID}",
        f"> [Sat Mar 14 09:50:00 2026] {XID}",
        f">> > Mar 14 09:50:00 gpu-7 kernel: {XID}",
    ],
)
def test_an_xid_is_told_with_its_time(tmp_path: Path, log: str) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(), at=AT), log)
    assert measured(report, "xid.79") == f"Xid 79, last {TOLD}"


@pytest.mark.parametrize(
    "log",
    [
        f"10.5.0.3: user: warning: [2026-03-14T09:50:00.458998481Z]: [talos] {XID}",
        f"<12>1 2026-03-14T09:50:00.123456+01:00 gpu-7 kernel - - - {XID}",
        f"<4>1 2026-03-14T09:50:00.123456+01:00 gpu-7 dcgm 812 - - {XID}",
        vector(SYSLOG_IDENTIFIER="dcgm", message=XID, timestamp="2026-03-14T09:50:00Z"),
        vector(_TRANSPORT="stdout", message=f"Mar 14 09:50:00 gpu-7 kernel: {XID}"),
        vector(message=f"Mar 14 09:50:00 gpu-7 user: {XID}"),
        vector(message=vector(message=XID)),
        json.dumps({"MESSAGE": {"x": XID}, "message": 7}),
    ],
)
def test_only_the_kernels_words_count(tmp_path: Path, log: str) -> None:
    assert codes(report_on_text(tmp_path, smi(smi_gpu(), at=AT), log)) == []


def test_a_year_that_the_log_has_is_not_guessed(tmp_path: Path) -> None:
    log = f"[jeu. août 25 20:30:39 2022] {XID}\n[jeu. août 25 20:35:39 2022] usb 1-1: reset\n"
    assert measured(report_on_text(tmp_path, log), "xid.79") == (
        "Xid 79, last 2022-08-25 20:30:39, 5 min before the end of the log"
    )


def test_a_year_that_only_the_files_own_time_tells_is_not_named(tmp_path: Path) -> None:
    log = f"Aug 25 20:30:39 gpu-7 kernel: {XID}\nAug 25 20:35:39 gpu-7 kernel: usb 1-1: reset\n"
    assert measured(report_on_text(tmp_path, log), "xid.79") == (
        "Xid 79, last 08-25 20:30:39, 5 min before the end of the log"
    )


def test_a_quoted_mail_is_read_with_all_that_it_quotes(tmp_path: Path) -> None:
    mail = f"Hi,\n\n{smi(smi_gpu(facts={'remap pending': 'Yes'}), at=AT)}\n[Sat Mar 14 09:50:00 2026] {XID}\n"
    quoted = "".join(f"> {line}\n" if line else ">\n" for line in mail.splitlines())
    report = report_on_text(tmp_path, f"On Saturday, somebody wrote:\n{quoted}\nHave you tried a reset?\n")
    assert {"xid.79", "memory.row_remap_pending"} <= set(codes(report))


@pytest.mark.parametrize("indent", ["    ", "\t", " "])
def test_what_was_pasted_as_code_is_read(tmp_path: Path, indent: str) -> None:
    text = smi(smi_gpu(facts={"remap pending": "Yes"}, processes=["42 /usr/bin/python3"]), at=AT)
    plain = report_on_text(tmp_path, text)
    report = report_on_text(tmp_path, "".join(f"{indent}{line}\n" for line in text.splitlines()))
    assert codes(report) == codes(plain) == ["memory.row_remap_pending"]
    assert [area.summary for area in report.areas] == [area.summary for area in plain.areas]


HEAD = "Jun 30 11:07:05 gpu-0 kernel: "
FIRST = "NVRM: API mismatch: the client has the version 535.54.03, but"
REST = (
    "NVRM: this kernel module has the version 530.30.02.  Please",
    "NVRM: make sure that this kernel module and all NVIDIA driver",
    "NVRM: components have the same version.",
)
FROM_570 = (
    "NVRM: API mismatch: the client 'kwin_wayland' (pid 1005)",
    "NVRM: has the version 535.54.03, but this kernel module has",
    "NVRM: the version 530.30.02.  Please make sure that this",
)


@pytest.mark.parametrize(
    "sentence",
    [
        f"{HEAD}{'#012'.join((FIRST, *REST))}\n",
        f"{HEAD}{FIRST}\n" + "".join(f"               {line}\n" for line in REST),
        f"{HEAD}{FIRST}\n{HEAD}usb 1-1: reset\n" + "".join(f"{HEAD}{line}\n" for line in REST[:2]),
        "".join(f"{HEAD}{line}\n" for line in FROM_570),
    ],
    ids=["rsyslog", "dmesg", "syslog", "570"],
)
def test_a_sentence_that_the_driver_breaks_is_put_together(tmp_path: Path, sentence: str) -> None:
    report = report_on_text(tmp_path, sentence * 3)
    assert measured(report, "driver.version_mismatch").startswith("client 535.54.03, kernel module 530.30.02, 3 times")


def test_a_sentence_that_the_file_cuts_off_is_read(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, "[ 1.0] NVRM: API mismatch: the client has the version 535.54.03, but")
    assert measured(report, "driver.version_mismatch").startswith("client 535.54.03, once")


def test_messages_between_the_lines_of_a_sentence_are_their_own(tmp_path: Path) -> None:
    log = (
        "[ 1.0] NVRM: API mismatch: the client has the version 535.54.03, but\n"
        f"[ 1.0] {XID}\n"
        "[ 1.1] NVRM: rm_init_adapter failed, device minor number 1\n"
    )
    assert set(codes(report_on_text(tmp_path, log))) == {"xid.79", "driver.version_mismatch"}


def test_the_installers_view_of_the_log_is_of_another_day(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-bug-report.log"
    line = "_" * 44
    path.write_text(
        f"{line}\n\nStart of NVIDIA bug report log file.\n\n{line}\n\n*** /var/log/nvidia-installer.log\n*** ls: x\n"
        f"-> Kernel messages:\n[ 4007.5] {XID}\n[ 4007.6] NVRM: API mismatch: the client has the version 1.2, but\n\n"
        f"{line}\n\ndmesg:\n\n[ 1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.107.02  Wed\n"
    )
    assert codes(report_on(path)) == []
