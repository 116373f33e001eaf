"""Kernel logs in every form that people attach or paste: shipped, quoted, of other tools and in other languages."""

import json
from html import escape
from pathlib import Path

import pytest
from tests.offline_files import (
    AT,
    LOADING,
    XID,
    codes,
    logged,
    measured,
    report_on,
    report_on_text,
    rows_of,
    smi,
    smi_gpu,
    summary,
)

from gpu_triage.judge.findings.table import Area, Severity
from gpu_triage.judge.findings.verdicts import EXIT_FINDINGS, Verdict
from gpu_triage.judge.report.report import Report

STAMP = "1773481800000000"  # microseconds at 09:50:00 on 14 March 2026, ten minutes before `AT`
EXACT = "2026-03-14 09:50:00, 10 min before the report"
AFTER_BOOT = "5000 s after the boot, 10 min or more before the report"
UNKNOWN = "at a time that the log does not tell"

AER = "pcieport 0000:40:01.0: AER: Uncorrected (Fatal) error received: 0000:41:00.0"
BOOTED = f"[ 5000.123456] {XID}"
STAMPED = "2026-03-14T09:50:00.123456789"


def vector(**fields: object) -> str:
    """A record as Vector ships it: the journal's fields, its own beside them, more than a log's line is long."""
    own = {"PRIORITY": "4", "_KERNEL_DEVICE": "x" * 3000, "host": "gpu-7", "source_type": "journald"}
    return json.dumps({**own, **fields})


def beside_smi(folder: Path, *logs: str) -> Report:
    """The report on logs beside an output of nvidia-smi of `AT`."""
    return report_on_text(folder, smi(smi_gpu(), at=AT), *logs)


def rows(whose: str) -> list[tuple[str, str]]:
    """Logs with one Xid in this kind of line, and what is known of its time."""
    when = {"exact": EXACT, "boot": AFTER_BOOT, "unknown": UNKNOWN, "": ""}
    return [(log.replace("XID", XID), when[known]) for kind, known, log in rows_of("kernel-log.tsv") if kind == whose]


def test_the_afternoon_of_a_twelve_hour_clock_is_not_the_morning(tmp_path: Path) -> None:
    for log in ("[Sat Mar 14 09:50:00 PM 2026] ", "Sat Mar 14 09:50:00 PM 2026 gpu-7 kernel: "):
        report = report_on_text(tmp_path, smi(smi_gpu(), at="Sat Mar 14 22:00:00 2026"), f"{log}{XID}\n")
        assert "last 2026-03-14 21:50:00" in measured(report, "xid.79")


@pytest.mark.parametrize(
    ("log", "when"),
    [
        *rows("own"),
        *(
            (log, EXACT)
            for log in (
                json.dumps({"MESSAGE": XID, "SYSLOG_IDENTIFIER": "kernel", "__REALTIME_TIMESTAMP": STAMP}),
                json.dumps({"MESSAGE": list(XID.encode()), "_TRANSPORT": "kernel", "__REALTIME_TIMESTAMP": STAMP}),
                f"1 2026-03-14T09:50:00Z gpu-7 kernel - - - \ufeff{XID}",
                vector(
                    SYSLOG_IDENTIFIER="kernel", _TRANSPORT="kernel", message=XID, timestamp="2026-03-14T09:50:00.0Z"
                ),
                vector(message=f"Mar 14 09:50:00 gpu-7 kernel: [ 5000.1] {XID}", file="/var/log/kern.log"),
                vector(appname="kernel", facility="kern", message=XID, timestamp="2026-03-14T09:50:00Z"),
            )
        ),
    ],
)
def test_an_xid_is_told_with_its_time(tmp_path: Path, log: str, when: str) -> None:
    report = beside_smi(tmp_path, log)
    assert codes(report) == ["xid.79"]
    assert measured(report, "xid.79") == f"Xid 79, last {when}"
    assert report.gpus[0].verdict is Verdict.DRAIN


@pytest.mark.parametrize(
    "log",
    [
        *(log for log, _ in rows("quoted")),
        vector(SYSLOG_IDENTIFIER="dcgm", message=XID, timestamp="2026-03-14T09:50:00Z"),
        vector(_TRANSPORT="stdout", message=f"Mar 14 09:50:00 gpu-7 kernel: {XID}"),
        vector(message=f"Mar 14 09:50:00 gpu-7 user: {XID}"),
    ],
)
def test_of_what_others_say_only_an_xid_counts_and_as_quoted(tmp_path: Path, log: str) -> None:
    assert "quoted" in measured(beside_smi(tmp_path, log), "xid.79")
    assert codes(beside_smi(tmp_path, log.replace(XID, AER))) == []
    # The kernel's own line counts instead.
    assert measured(beside_smi(tmp_path, f"{log}\n{logged(XID)}"), "xid.79") == f"Xid 79, last {EXACT}"


@pytest.mark.parametrize(
    ("log", "when"),
    [
        *rows("wrapped"),
        *(
            (log, EXACT)
            for log in (
                vector(time="2026-03-14T09:50:00Z", log=BOOTED),
                json.dumps({"log": f"{BOOTED}\n", "stream": "stdout", "time": f"{STAMPED}Z"}),
                json.dumps({"data": {"result": [{"values": [[f"{STAMP}000", BOOTED], [f"{STAMP}001", "x"]]}]}}),
                vector(
                    message=XID, event={"original": f"Mar 14 09:50:00 gpu-7 kernel: {XID}"}, ts="2026-03-14 09:50:00"
                ),
                f"Mar 14 09:50:00 gpu-7 kern: {json.dumps({'log': BOOTED})}",
                json.dumps([{"line": BOOTED, "timestamp": f"{STAMP}000"}]),
                json.dumps({"_source": {"message": BOOTED, "@timestamp": "2026-03-14T09:50:00Z"}}),
                json.dumps({"result": {"_raw": f"Mar 14 09:50:00 gpu-7 kernel: {BOOTED}", "_time": "?"}}),
                json.dumps({"date": int(STAMP) / 1e6, "log": json.dumps({"MESSAGE": XID})}),
                json.dumps({"events": [{"timestamp": int(STAMP) // 1000, "message": BOOTED}]}),
                f"&gt; Mar 14 09:50:00 gpu-7 kernel: {escape(XID)}",
                f"> Mar 14 09:50:00 gpu-7 kernel: {XID.replace('Xid ', 'Xid' + chr(10) + '> ')}",
                f"> > Mar 14 09:50:00 gpu-7 kernel: {XID.replace('NVRM: ', 'NVRM:' + chr(10) + '> > ')}",
                f">Mar 14 09:50:00 gpu-7 kernel: {XID.replace('): ', '):' + chr(10) + '>')}",
                f"Mar 14 09:50:00 gpu-7 kernel: {XID.replace('0000:', '0000:' + chr(10))}",
            )
        ),
        (f"<pre>{escape(BOOTED)}\r\n[ 5600.000000] usb", AFTER_BOOT),
    ],
)
def test_a_kernels_line_is_read_in_what_wraps_it(tmp_path: Path, log: str, when: str) -> None:
    assert measured(beside_smi(tmp_path, log), "xid.79") == f"Xid 79, last {when}"
    if XID in log:
        assert codes(beside_smi(tmp_path, log.replace(XID, AER))) == ["pcie.aer"]


TIMEOUT = "NVRM: Xid (PCI:0000:41:00): 119, pid=1, name=python3, Timeout"


@pytest.mark.parametrize(
    ("logs", "code", "words"),
    [
        # One event in several logs is one.
        (
            (
                f"[ 5000.1] {XID}\n[ 5600.0] x",
                f"Mar 14 09:50:00 gpu-7 kernel: {XID}\n",
                f"[Sat Mar 14 09:50:01 2026] {XID}",
            ),
            "xid.79",
            f"Xid 79, last {EXACT}",
        ),
        ((logged(XID), smi(smi_gpu(), at="Sat Mar 14 08:00:00 2026")), "xid.79", f"Xid 79, last {EXACT}"),
        # A log that was taken after the report has its own end.
        (
            (logged(XID, at="10:05:00") + logged("usb 1-1: reset", at="10:15:00"),),
            "xid.79",
            "Xid 79, last 2026-03-14 10:05:00, 10 min before the end of the log",
        ),
        (
            ("".join(logged(f"{TIMEOUT} {minute}", at=f"09:{minute}:00") for minute in (10, 20, 50)),),
            "xid.119",
            f"Xid 119, last {EXACT}, by python3 (1), 3 times since the kernel log begins",
        ),
        # The driver being loaded ties seconds to the clock.
        (
            (f"[   10.000000] {LOADING}\n[ 3010.000000] {XID}\n", f"Mar 14 09:00:00 gpu-7 kernel: {LOADING}\n"),
            "xid.79",
            f"Xid 79, last {EXACT}",
        ),
        # A critical Xid of yesterday, or before the driver was loaded again, is context.
        ((logged(TIMEOUT, at="10:00:00", day=13),), "xid.earlier", ""),
        ((logged(TIMEOUT, at="09:40:00") + logged(LOADING, at="09:45:00"),), "xid.earlier", ""),
    ],
)
def test_when_events_were_and_how_often(tmp_path: Path, logs: tuple[str, ...], code: str, words: str) -> None:
    report = beside_smi(tmp_path, *logs)
    assert codes(report) == [code]
    assert not words or measured(report, code) == words


SMALLER = "NVRM: Xid (PCI:0000:42:00): 62, x"
NEWEST, MIXED = "newest lines first", "lines not in the order of their times"


def at(*lines: tuple[str, str]) -> str:
    """Lines of syslog of March, each with its day and time."""
    return "".join(f"Mar {moment} n1 kernel: {line}\n" for moment, line in lines)


def since_boot(*lines: tuple[float, str]) -> str:
    return "".join(f"[ {seconds}] {line}\n" for seconds, line in lines)


@pytest.mark.parametrize(
    ("log", "found", "words", "note"),
    [
        # Newest first, as of ``journalctl -r`` and ``dmesg | tac``
        (since_boot((900.1, XID), (9.0, LOADING)), "xid.79", "900 s after the boot, 0 s before the end", NEWEST),
        (since_boot((909.0, LOADING), (9.1, XID)), "xid.earlier", "9 s after the boot, 15 min before", NEWEST),
        (at(("14 10:00:00", LOADING), ("13 10:00:00", XID)), "xid.earlier", "03-13 10:00:00, 24 h before", NEWEST),
        (at(("14 10:00:00", XID), ("13 10:00:00", LOADING)), "xid.79", "03-14 10:00:00, 0 s before", NEWEST),
        # Within one second, the order of the lines counts, in the log's direction.
        (logged(XID, LOADING) + logged("x", at="09:51:00"), "xid.earlier", "2026-03-14 09:50:00, 60 s", ""),
        (logged("x", at="09:51:00") + logged(XID, LOADING), "xid.79", "2026-03-14 09:50:00, 60 s", NEWEST),
        (logged(XID, LOADING), "xid.79", "2026-03-14 09:50:00, 0 s", ""),
        # Two pastes, the later one first: the other is two days old, and nothing shows that it is over.
        (
            at(("29 15:38:50", TIMEOUT), ("29 15:39:00", TIMEOUT), ("27 17:40:36", SMALLER)),
            *("xid.62", "03-27 17:40:36, 46 h before", MIXED),
        ),
        # A second boot and what was pasted below cannot be told apart without dates.
        (since_boot((900.1, XID), (1.0, TIMEOUT), (100.0, LOADING), (101.0, "x")), "xid.79", "900 s", MIXED),
        # ``dmesg -t | tac``
        (f"{XID}\n{LOADING}\n", "xid.79", UNKNOWN, "kernel messages without times"),
    ],
)
def test_events_are_in_the_order_of_their_own_times(
    tmp_path: Path, log: str, found: str, words: str, note: str
) -> None:
    report = report_on_text(tmp_path, log)
    assert found in codes(report)
    assert measured(report, found).partition(", last ")[2].startswith(words)
    assert report.files[0].note == note


def test_of_several_earlier_faults_the_worst_and_latest_is_told_first(tmp_path: Path) -> None:
    xids = [f"[ {at}.0] NVRM: Xid (PCI:0000:41:00): {code}, x\n" for at, code in enumerate((119, 62, 79, 79, 63), 100)]
    report = report_on_text(tmp_path, "".join(xids) + f"[ 200.0] {LOADING}\n")
    assert [word.split(",")[0] for word in measured(report, "xid.earlier").split("; ")] == [
        *("Xid 79", "Xid 62", "Xid 119", "1 more")
    ]
    assert report.findings[0].value == 5


def test_a_log_alone_names_gpus_by_their_address(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, logged(XID) + logged("usb 1-1: reset", at="09:55:00"))
    assert [(f.check.code, f.subject) for f in report.findings] == [("xid.79", "GPU at 0000:41:00.0")]
    assert measured(report, "xid.79") == "Xid 79, last 2026-03-14 09:50:00, 5 min before the end of the log"
    assert report.exit_code(Severity.CRITICAL) == EXIT_FINDINGS
    assert report.blocked is None


def test_a_year_that_syslog_leaves_out_is_the_last_one_that_fits(tmp_path: Path) -> None:
    before_midnight = f"Dec 31 23:50:00 gpu-7 kernel: {XID}"
    report = report_on_text(tmp_path, smi(smi_gpu(), at="Thu Jan  1 00:10:00 2026"), before_midnight)
    assert measured(report, "xid.79") == "Xid 79, last 2025-12-31 23:50:00, 20 min before the report"


@pytest.mark.parametrize(
    ("log", "when"),
    [
        (f"[jeu. août 25 20:30:39 2022] {XID}\n[jeu. août 25 20:35:39 2022] usb 1-1: reset\n", "2022-08-25 20:30:39"),
        # Only the file's own time tells the year.
        (f"Aug 25 20:30:39 gpu-7 kernel: {XID}\nAug 25 20:35:39 gpu-7 kernel: usb 1-1: reset\n", "08-25 20:30:39"),
    ],
)
def test_a_year_is_named_if_the_log_has_it(tmp_path: Path, log: str, when: str) -> None:
    expected = f"Xid 79, last {when}, 5 min before the end of the log"
    assert measured(report_on_text(tmp_path, log), "xid.79") == expected


def test_a_quoted_mail_is_read_with_all_that_it_quotes(tmp_path: Path) -> None:
    mail = f"Hi,\n\n{smi(smi_gpu(facts={'remap pending': 'Yes'}), at=AT)}\n{logged(XID)}"
    quoted = "".join(f"> {line}\n" if line else ">\n" for line in mail.splitlines())
    report = report_on_text(tmp_path, f"On Saturday, somebody wrote:\n{quoted}\nHave you tried a reset?\n")
    assert {"xid.79", "memory.row_remap_pending"} <= set(codes(report))


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


def test_a_sentence_that_the_file_cuts_off_or_other_messages_interrupt_is_read(tmp_path: Path) -> None:
    cut_off = report_on_text(tmp_path, f"[ 1.0] {FIRST}")
    assert measured(cut_off, "driver.version_mismatch").startswith("client 535.54.03, once")
    log = f"[ 1.0] {FIRST}\n[ 1.0] {XID}\n[ 1.1] NVRM: rm_init_adapter failed, device minor number 1\n"
    assert set(codes(report_on_text(tmp_path, log))) == {"xid.79", "driver.version_mismatch"}


def test_the_installers_view_of_the_log_is_of_another_day(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-bug-report.log"
    line = "_" * 44
    path.write_text(
        f"{line}\n\nStart of NVIDIA bug report log file.\n\n{line}\n\n*** /var/log/nvidia-installer.log\n*** ls: x\n"
        f"-> Kernel messages:\n[ 4007.5] {XID}\n[ 4007.6] NVRM: API mismatch: the client has the version 1.2, but\n\n"
        f"{line}\n\ndmesg:\n\n[ 1.0] {LOADING}\n"
    )
    assert codes(report_on(path)) == []


@pytest.mark.parametrize(
    ("log", "kinds"),
    [
        ("[    1.000000] usb 1-1: reset\n" * 5, ("kernel log",)),
        # The log of X, and one of other programs.
        ("[     5.813] (II) LoadModule: glx\n[     5.814] \tABI class\n" * 5, ()),
        ("Mar 14 09:50:00 gpu-7 sshd[1]: hello\n" * 10, ()),
    ],
)
def test_a_kernel_log_without_a_word_of_gpus_is_one(tmp_path: Path, log: str, kinds: tuple[str, ...]) -> None:
    report = beside_smi(tmp_path, log)
    assert report.files[1].kinds == kinds
    said = "no Xid errors (sources: kernel log); ECC on for 1 of 1"
    assert str(summary(report, Area.HEALTH)).startswith(said) == bool(kinds)
    assert (report_on_text(tmp_path, log).blocked is None) == bool(kinds)
