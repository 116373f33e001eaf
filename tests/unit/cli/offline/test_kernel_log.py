"""What kernel logs say, in every form that people attach."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.offline_files import codes, measured, report_on, report_on_text, smi, smi_gpu

from gpu_triage.judge.findings.table import Area, Severity
from gpu_triage.judge.findings.verdicts import EXIT_FINDINGS, Verdict

XID = "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
AT = "Sat Mar 14 10:00:00 2026"


@pytest.mark.parametrize(
    ("log", "when"),
    [
        (f"[Sat Mar 14 09:50:00 2026] {XID}", "2026-03-14 09:50:00, 10 min before the report"),
        (f"Mar 14 09:50:00 gpu-7 kernel: {XID}", "2026-03-14 09:50:00, 10 min before the report"),
        (f"Mar 14 09:50:00 gpu-7 kernel: [ 5000.123456] {XID}", "2026-03-14 09:50:00, 10 min before the report"),
        (f"2026-03-14T09:50:00.123456+01:00 gpu-7 kernel: {XID}", "2026-03-14 09:50:00, 10 min before the report"),
        (f"2026-03-14T09:50:00,123456+0100 {XID}", "2026-03-14 09:50:00, 10 min before the report"),
        (f"mars 14 09:50:00 gpu-7 kernel: {XID}", "2026-03-14 09:50:00, 10 min before the report"),
        (f"3月 14 09:50:00 gpu-7 kernel: {XID}", "2026-03-14 09:50:00, 10 min before the report"),
        (
            f"[ 5000.123456] {XID}\n[ 5600.000000] usb 1-1: reset",
            "5000 s after the boot, 10 min or more before the report",
        ),
        (f"[ 5000.123456][ T812] {XID}\n[ 5600.000000][    C0] usb", "5000 s after the boot, 10 min or more before"),
        (f"<3>[ 5000.123456] {XID}\n<6>[ 5600.000000] usb 1-1: reset", "5000 s after the boot, 10 min or more before"),
        (f"kern  :err   : [ 5000.123456] {XID}\nkern  :info  : [ 5600.0] usb", "5000 s after the boot, 10 min or more"),
        (f"3,812,5000123456,-;{XID}\n6,813,5600000000,-;usb 1-1: reset", "5000 s after the boot, 10 min or more"),
        (f"kern.log:12:Mar 14 09:50:00 gpu-7 kernel: {XID}", "2026-03-14 09:50:00, 10 min before the report"),
        (f"[Mar14 09:50] {XID}", "2026-03-14 09:50:00, 10 min before the report"),
        (f"[Mar14 09:50] usb 1-1: reset\n[  +0.001234] {XID}", "2026-03-14 09:50:00, 10 min before the report"),
        (f"Sat 2026-03-14 09:50:00.123456 CET gpu-7 kernel: {XID}", "2026-03-14 09:50:00, 10 min before the report"),
        (f"    MESSAGE={XID}", "at a time that the log does not tell"),
        (XID, "at a time that the log does not tell"),
        (
            json.dumps(
                {
                    "MESSAGE": XID,
                    "SYSLOG_IDENTIFIER": "kernel",
                    "__REALTIME_TIMESTAMP": str(1773481800 * 10**6),
                }
            ),
            "2026-03-14 09:50:00, 10 min before the report",
        ),
    ],
)
def test_an_xid_is_told_with_its_time(tmp_path: Path, log: str, when: str) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(), at=AT), log)
    assert codes(report) == ["xid.79"]
    assert measured(report, "xid.79").startswith(f"Xid 79, last {when}")
    assert report.gpus[0].verdict is Verdict.DRAIN


@pytest.mark.parametrize(
    "line",
    [
        f"Mar 14 09:50:00 gpu-7 dcgm[812]: {XID}",
        f"Mar 14 09:50:00 gpu-7 user: saw {XID}",
        f"14,812,5000123456,-;{XID}",
    ],
)
def test_only_the_kernels_words_count(tmp_path: Path, line: str) -> None:
    assert codes(report_on_text(tmp_path, smi(smi_gpu(), at=AT), line)) == []


def test_one_event_in_several_logs_is_one(tmp_path: Path) -> None:
    logs = (
        f"[ 5000.1] {XID}\n[ 5600.0] x",
        f"Mar 14 09:50:00 gpu-7 kernel: {XID}\n",
        f"[Sat Mar 14 09:50:01 2026] {XID}",
    )
    report = report_on_text(tmp_path, smi(smi_gpu(), at=AT), *logs)
    assert measured(report, "xid.79") == "Xid 79, last 2026-03-14 09:50:00, 10 min before the report"


def test_a_log_that_was_taken_after_the_report_has_its_own_end(tmp_path: Path) -> None:
    log = f"[Sat Mar 14 10:05:00 2026] {XID}\n[Sat Mar 14 10:15:00 2026] usb 1-1: reset\n"
    report = report_on_text(tmp_path, smi(smi_gpu(), at=AT), log)
    assert measured(report, "xid.79") == "Xid 79, last 2026-03-14 10:05:00, 10 min before the end of the log"


def test_repeated_events_are_counted(tmp_path: Path) -> None:
    lines = "".join(
        f"[Sat Mar 14 09:{minute}:00 2026] NVRM: Xid (PCI:0000:41:00): 119, pid=1, name=python3, Timeout {minute}\n"
        for minute in (10, 20, 50)
    )
    report = report_on_text(tmp_path, smi(smi_gpu(), at=AT), lines)
    assert measured(report, "xid.119") == (
        "Xid 119, last 2026-03-14 09:50:00, 10 min before the report, 3 times since the kernel log begins"
    )


def test_a_critical_xid_of_yesterday_is_context(tmp_path: Path) -> None:
    log = "[Fri Mar 13 10:00:00 2026] NVRM: Xid (PCI:0000:41:00): 119, pid=1, name=python3, Timeout"
    assert codes(report_on_text(tmp_path, smi(smi_gpu(), at=AT), log)) == ["xid.earlier"]


def test_an_xid_before_the_driver_was_loaded_again_is_context(tmp_path: Path) -> None:
    log = (
        "[Sat Mar 14 09:40:00 2026] NVRM: Xid (PCI:0000:41:00): 119, pid=1, name=python3, Timeout\n"
        "[Sat Mar 14 09:45:00 2026] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n"
    )
    assert codes(report_on_text(tmp_path, smi(smi_gpu(), at=AT), log)) == ["xid.earlier"]


def test_a_log_alone_names_gpus_by_their_address(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, f"[Sat Mar 14 09:50:00 2026] {XID}\n[Sat Mar 14 09:55:00 2026] usb 1-1: reset\n")
    assert [(f.check.code, f.subject) for f in report.findings] == [("xid.79", "GPU at 0000:41:00.0")]
    assert measured(report, "xid.79") == "Xid 79, last 2026-03-14 09:50:00, 5 min before the end of the log"
    assert report.exit_code(Severity.CRITICAL) == EXIT_FINDINGS
    assert report.blocked is None


def test_the_driver_being_loaded_ties_seconds_to_the_clock(tmp_path: Path) -> None:
    loading = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05  Wed Jan  1 00:00:00 UTC 2026"
    dmesg = f"[   10.000000] {loading}\n[ 3010.000000] {XID}\n"
    journal = f"Mar 14 09:00:00 gpu-7 kernel: {loading}\n"
    report = report_on_text(tmp_path, smi(smi_gpu(), at=AT), dmesg, journal)
    assert measured(report, "xid.79") == "Xid 79, last 2026-03-14 09:50:00, 10 min before the report"


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        (
            (
                "NVRM: GPU 0000:42:00.0: RmInitAdapter failed! (0x62:0x40:2393)\n"
                "NVRM: GPU 0000:42:00.0: rm_init_adapter failed, device minor number 1"
            ),
            "driver.init_failed",
            "RmInitAdapter failed (0x62:0x40:2393)",
        ),
        (
            (
                "NVRM: GPU 0000:42:00.0: RmInitAdapter: Cannot initialize GSP firmware RM\n"
                "NVRM: GPU 0000:42:00.0: RmInitAdapter failed! (0x62:0x65:1860)"
            ),
            "driver.init_failed",
            "GSP",
        ),
        (
            (
                "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
                "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:42:00.0)"
            ),
            "driver.bar",
            "BAR1 is 0M at 0x0",
        ),
        (
            (
                "NVRM: API mismatch: the client has the version 535.161.08, but\n"
                "NVRM: this kernel module has the version 535.154.05.  Please\n"
            ),
            "driver.version_mismatch",
            "client 535.161.08, kernel module 535.154.05",
        ),
        (
            "NVRM: API mismatch: the client 'chrome-headless' (pid 4242) has the version 595.84,",
            "driver.version_mismatch",
            "client 595.84",
        ),
        ("NVRM: GPU has fallen off the bus.", "gpu.lost", "not which"),
        ("nouveau 0000:42:00.0: NVIDIA GA102 (172000a1)", "driver.nouveau", "it logged"),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30",
            "nvswitch.sxid_fatal",
            "20034",
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
            "nvswitch.sxid",
            "12028",
        ),
        (
            "Out of memory: Killed process 4242 (python3)",
            "memory.oom_killed",
            "python3 (4242)",
        ),
        ("Memory cgroup out of memory: Killed process 77 (pt_main) total-vm:1kB", "memory.oom_killed", "pt_main (77)"),
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "storage.read_only", "the filesystem on nvme0n1p2"),
        ("nvme nvme0: I/O 0 QID 0 timeout, reset controller", "storage.nvme", "nvme0 was reset, once "),
        ("nfs: server nas01 not responding, still trying", "storage.not_responding", "NFS server nas01"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [python3:1]", "host.lockup", "soft lockup of CPU 3"),
        ("{1}[Hardware Error]: event severity: recoverable", "host.hardware_error", "an unnamed part"),
        (
            "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 4: e600000000020408",
            "host.hardware_error",
            "uncorrected hardware error of CPU 2",
        ),
        ("EDAC MC1: 1 UE Multi-bit ECC on P1-DIMMA1 (csrow:0)", "host.hardware_error", "memory error of P1-DIMMA1"),
        (
            "pcieport 0000:a9:10.0: DPC: containment event, status:0x2009 source:0x0000",
            "pcie.dpc",
            "port 0000:a9:10.0 shut its link",
        ),
        (
            "INFO: task a:1 blocked for more than 122 seconds.\nINFO: task b:2 blocked for more than 122 seconds.",
            "host.hung_task",
            "a (1) hung, once ",
        ),
    ],
)
def test_other_messages_of_the_kernel_are_findings(tmp_path: Path, lines: str, code: str, words: str) -> None:
    log = "".join(f"[Sat Mar 14 09:50:00 2026] {line}\n" for line in lines.splitlines())
    report = report_on_text(tmp_path, log)
    assert codes(report) == [code]
    assert words in measured(report, code)
    assert "2026-03-14 09:50:00" in measured(report, code)


def test_servers_are_not_named_where_names_are_not_to_be_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("[Sat Mar 14 09:50:00 2026] nfs: server nas01 not responding, still trying\n")
    report = report_on(log, redact=True)
    assert "NFS server (not named) does not respond" in measured(report, "storage.not_responding")


def test_trouble_of_the_host_that_is_over_is_no_finding(tmp_path: Path) -> None:
    log = (
        "[Sat Mar 14 09:50:00 2026] nfs: server nas01 not responding, still trying\n"
        "[Sat Mar 14 09:51:00 2026] nfs: server nas01 OK\n"
        "[Sat Mar 14 09:52:00 2026] nfs: server nas02 OK\n"
        "[Sat Mar 14 09:53:00 2026] nfs: server nas02 not responding, still trying\n"
        "[Sat Mar 14 09:54:00 2026] EXT4-fs (sda3): Remounting filesystem read-only\n"
        "[Sat Mar 14 09:55:00 2026] EXT4-fs (sda3): mounted filesystem with ordered data mode. Opts: (null)\n"
        "[Sat Mar 14 09:56:00 2026] INFO: task a:1 blocked for more than 122 seconds.\n"
        "[Sat Mar 14 09:57:00 2026] systemd[1]: Mounting XFS (sda4): Shutting down filesystem\n"
    )
    report = report_on_text(tmp_path, log)
    assert codes(report) == ["storage.not_responding"]
    assert "nas02" in measured(report, "storage.not_responding")
    assert "nas01" not in measured(report, "storage.not_responding")


def test_a_message_that_goes_on_without_a_time_is_read(tmp_path: Path) -> None:
    report = report_on_text(
        tmp_path,
        "[Sat Mar 14 09:50:00 2026] NVRM: API mismatch: the client has the version 535.247.01, but\n"
        "                 NVRM: this kernel module has the version 535.230.02.  Please\n",
    )
    assert measured(report, "driver.version_mismatch").startswith(
        "client 535.247.01, kernel module 535.230.02, once 2026-03-14 09:50:00"
    )


def test_fallen_off_the_bus_beside_its_xid_is_told_once(tmp_path: Path) -> None:
    log = f"[Sat Mar 14 09:50:00 2026] {XID}\n[Sat Mar 14 09:50:00 2026] NVRM: GPU has fallen off the bus.\n"
    log += "[Sat Mar 14 09:50:00 2026] NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.\n"
    assert codes(report_on_text(tmp_path, log)) == ["xid.79"]


def test_what_was_mended_since_is_history(tmp_path: Path) -> None:
    log = (
        "NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x62:0x40:2393)\n"
        "NVRM: API mismatch: the client has the version 535.161.08, but\n"
        "nouveau 0000:41:00.0: NVIDIA GA102 (172000a1)\n"
        "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:41:00.0)\n"
    )
    report = report_on_text(tmp_path, smi(smi_gpu(), at=AT), log)
    assert codes(report) == ["driver.earlier"]
    assert "client 535.161.08" in measured(report, "driver.earlier")
    assert report.verdict is Verdict.KEEP


def test_pcie_errors_of_the_gpu_and_of_the_port_above_it_are_one_finding(tmp_path: Path) -> None:
    port = "pcieport 0000:40:01.0"
    log = "".join(
        f"[Sat Mar 14 09:5{minute}:00 2026] {line}\n"
        for minute, line in enumerate(
            [
                f"{port}: AER: Corrected error message received from 0000:41:00.0",
                f"{port}: AER: Corrected error received: 0000:41:00.0",
                f"{port}: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
                "nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer",
                "nvidia 0000:41:00.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
                "nvme 0000:03:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
            ]
        )
    )
    report = report_on_text(tmp_path, smi(smi_gpu(), at=AT), log)
    assert codes(report) == ["pcie.aer"]
    told = measured(report, "pcie.aer")
    assert "nonfatal on the port 0000:40:01.0 above it" in told
    assert "fatal on the GPU" in told
    assert "correctable" not in told


def test_a_year_that_syslog_leaves_out_is_the_last_one_that_fits(tmp_path: Path) -> None:
    report = report_on_text(
        tmp_path, smi(smi_gpu(), at="Thu Jan  1 00:10:00 2026"), f"Dec 31 23:50:00 gpu-7 kernel: {XID}"
    )
    assert measured(report, "xid.79") == "Xid 79, last 2025-12-31 23:50:00, 20 min before the report"


def test_a_kernel_log_without_a_word_of_gpus_is_one_all_the_same(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(), at=AT), "[    1.000000] usb 1-1: reset\n" * 5)
    assert report.files[1].kinds == ("kernel log",)
    health = next(area.summary for area in report.areas if area.area is Area.HEALTH)
    assert (health or "").startswith("no Xid errors (sources: kernel log); ECC on for 1 of 1")


def test_the_log_of_x_is_none_of_the_kernels(tmp_path: Path) -> None:
    log = "[     5.813] (II) LoadModule: glx\n[     5.814] \tABI class\n" * 5
    assert report_on_text(tmp_path, smi(smi_gpu()), log).files[1].kinds == ()


def test_a_log_without_gpus_is_named_as_nothing_known(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_text("Mar 14 09:50:00 gpu-7 sshd[1]: hello\n" * 10)
    report = report_on(path)
    assert report.files[0].kinds == ()
    assert report.blocked is not None
