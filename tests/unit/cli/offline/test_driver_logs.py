"""What logs say of drivers that failed, and of failures that are over."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.offline_files import bug_report, codes, lspci, measured, report_on_text, smi, smi_gpu

from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict

AT = "Sat Mar 14 10:00:00 2026"
LOADING = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05  Wed Jan  1 00:00:00 UTC 2026"
MISMATCH = (
    "NVRM: API mismatch: the client has the version 535.161.08, but",
    "NVRM: this kernel module has the version 535.154.05.  Please",
)
INIT = "NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x62:0x40:2393)"
LOST_AT_PROBE = (
    "NVRM: The NVIDIA GPU 0000:41:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
    "NVRM: The NVIDIA probe routine failed for 1 device(s).",
)
HEARTBEAT = "NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 8 heartbeat 1"


def logged(*lines: str, at: str = "09:50:00", day: int = 14) -> str:
    """Lines of ``dmesg -T``, all of one moment."""
    return "".join(f"[Sat Mar {day} {at} 2026] {line}\n" for line in lines)


def bare(*lines: str) -> str:
    """Lines without a time."""
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        (LOST_AT_PROBE, "gpu.lost", "it fell off the bus before the driver could start it, once"),
        ((HEARTBEAT,), "gpu.gsp_timeout", "the GSP of GPU 6 does not answer, once"),
        (("NVRM: _issueRpcAndWait: rpcRecvPoll timedout for fn 76!",), "gpu.gsp_timeout", "the GSP of a GPU"),
        (("NVRM: GPU 0000:41:00.0 is already bound to NovaCore.",), "driver.bound_elsewhere", "NovaCore holds it"),
        (("NVRM: GPU 0000:41:00.0 is already bound to nouveau.",), "driver.nouveau", "nouveau holds it"),
        (
            (
                "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
                "NVRM: This can occur when another driver was loaded and ",
                "NVRM: obtained ownership of the NVIDIA device(s).",
                "NVRM: No NVIDIA devices probed.",
            ),
            "driver.bound_elsewhere",
            "the driver was not loaded, since it was given no GPU",
        ),
        (
            ("NVRM: The NVIDIA probe routine was not called for 2 device(s).", LOADING),
            "driver.not_probed",
            "another driver holds 2 of the GPUs",
        ),
        (
            (
                "NVRM: The NVIDIA GPU 0000:41:00.0 (PCI ID: 10de:2b85)",
                "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
            ),
            "driver.unsupported",
            "the driver reports that it requires use of the NVIDIA open kernel modules",
        ),
        (
            ("nvidia-nvswitch: Version mismatch, kernel version 450.80.02 user version 450.51.06",),
            "fabric.version_mismatch",
            "kernel module 450.80.02, program 450.51.06",
        ),
        (("NVRM: RmInitAdapter: Cannot initialize GSP firmware RM",), "driver.init_failed", "the GSP's firmware"),
        (("NVRM: The NVIDIA probe routine failed for 1 device(s).",), "driver.init_failed", "could not use 1 GPUs"),
        (
            ("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping processing",),
            "network.peermem",
            "detected invalid context",
        ),
    ],
)
def test_a_failure_of_the_driver_is_a_finding(tmp_path: Path, lines: tuple[str, ...], code: str, words: str) -> None:
    report = report_on_text(tmp_path, logged(*lines))
    assert codes(report) == [code]
    assert words in measured(report, code)
    assert "2026-03-14 09:50:00" in measured(report, code)


def test_a_gpu_that_fell_off_the_bus_before_the_driver_was_loaded_for_the_others_is_lost(tmp_path: Path) -> None:
    for log in (logged(*LOST_AT_PROBE, LOADING), bare(*LOST_AT_PROBE, LOADING)):
        report = report_on_text(tmp_path, log)
        assert [(each.check.code, each.subject) for each in report.findings] == [("gpu.lost", "GPU at 0000:41:00.0")]
        assert report.verdict is Verdict.DRAIN


@pytest.mark.parametrize("lines", [MISMATCH, (INIT,), (HEARTBEAT,), ("NVRM: RmInitAdapter failed! (0x25:0x40:1084)",)])
def test_what_the_driver_that_was_loaded_later_ended_is_history(tmp_path: Path, lines: tuple[str, ...]) -> None:
    for log in (
        logged(*lines, day=13) + logged(LOADING),
        bare(*lines, LOADING),
        bare(*(f"[  100.{place}] {line}" for place, line in enumerate((*lines, LOADING)))),
    ):
        report = report_on_text(tmp_path, log)
        assert codes(report) == ["driver.earlier"]
        assert report.verdict is Verdict.NOT_READ


def test_a_driver_that_another_log_says_was_loaded_later_ends_a_failure(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, logged(*MISMATCH, day=13), logged(LOADING))
    assert codes(report) == ["driver.earlier"]
    assert measured(report, "driver.earlier") == (
        "client 535.161.08, kernel module 535.154.05, once 2026-03-13 09:50:00, 24 h before the end of the log"
    )


def test_what_failed_after_the_driver_was_loaded_is_of_now(tmp_path: Path) -> None:
    log = logged(*MISMATCH, day=12) + logged(LOADING, day=13) + logged(INIT)
    assert codes(report_on_text(tmp_path, log)) == ["driver.init_failed", "driver.earlier"]


def test_a_failure_at_a_start_of_the_driver_is_over_after_the_next_one(tmp_path: Path) -> None:
    log = logged(*LOST_AT_PROBE, LOADING, day=13) + logged(LOADING)
    assert codes(report_on_text(tmp_path, log)) == ["driver.earlier"]


def test_a_gpu_that_answers_was_started_since(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(), at=AT), logged(INIT, *MISMATCH))
    assert codes(report) == ["driver.earlier"]
    assert report.verdict is Verdict.KEEP


def test_a_gsp_that_timed_out_within_the_hour_counts_though_nvidia_smi_shows_the_gpus(tmp_path: Path) -> None:
    assert codes(report_on_text(tmp_path, smi(smi_gpu(), at=AT), logged(HEARTBEAT))) == ["gpu.gsp_timeout"]
    assert codes(report_on_text(tmp_path, smi(smi_gpu(), at=AT), logged(HEARTBEAT, at="07:50:00"))) == [
        "driver.earlier"
    ]


def test_a_gsp_timeout_beside_its_xid_is_told_once(tmp_path: Path) -> None:
    xid = "NVRM: Xid (PCI:0000:41:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
    stars = "NVRM: GPU0 _kgspLogRpcTimeout: ********************************* GSP Timeout *********************"
    assert codes(report_on_text(tmp_path, logged(stars, xid))) == ["xid.119"]


def test_a_gpu_that_a_virtual_machine_has_is_no_failure(tmp_path: Path) -> None:
    bound = "NVRM: GPU 0000:41:00.0 is already bound to vfio-pci."
    assert codes(report_on_text(tmp_path, logged(bound, LOADING))) == []


@pytest.mark.parametrize("driver", ["nova_core", "NovaCore"])
def test_another_driver_in_use_is_a_finding(tmp_path: Path, driver: str) -> None:
    report = report_on_text(tmp_path, lspci(driver=driver))
    assert codes(report) == ["driver.bound_elsewhere"]
    assert measured(report, "driver.bound_elsewhere") == f"lspci names {driver} as the driver in use"


def test_a_library_that_is_not_there_is_why_the_driver_does_not_answer(tmp_path: Path) -> None:
    said = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display\n"
    report = report_on_text(tmp_path, bug_report(("/usr/bin/nvidia-smi --query", said), ("lspci", lspci())))
    assert codes(report) == ["driver.unavailable"]
    assert (report.blocked or "").startswith("library_not_found")


def test_a_damaged_inforom_is_told_of_its_gpu(tmp_path: Path) -> None:
    text = smi(smi_gpu(), at=AT) + "\nWARNING: infoROM is corrupted at gpu 0000:41:00.0\n"
    report = report_on_text(tmp_path, text)
    assert [(each.check.code, each.subject) for each in report.findings] == [("gpu.inforom", "GPU 0")]


def test_an_xid_names_the_one_that_caused_it(tmp_path: Path) -> None:
    log = logged(
        "NVRM: Xid (PCI:0000:41:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
        *("NVRM: Xid (PCI:0000:42:00): 45, pid=7, name=python3, Ch 2 caused by previous Xid 94" for _ in range(9)),
        "NVRM: Xid (PCI:0000:42:00): 94, pid=7, name=python3, Contained: SM",
    )
    report = report_on_text(tmp_path, log)
    assert measured(report, "xid.149").endswith("; named as the cause of another Xid")
    assert "; caused by Xid 94, 9 times" in measured(report, "xid.45")
    assert [each.check.code for each in report.findings].count("xid.94") == 1


def test_an_xid_154_is_told_with_what_the_driver_asks_for(tmp_path: Path) -> None:
    changed = "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x{} ({}) to 0x{} ({})"
    asked = changed.format(0, "None", 1, "GPU Reset Required")
    report = report_on_text(tmp_path, logged(asked))
    assert measured(report, "xid.154").endswith("; the driver asks for: GPU Reset Required")
    assert (
        codes(report_on_text(tmp_path, logged(asked) + logged(changed.format(1, "x", 0, "None"), at="09:51:00"))) == []
    )


def test_a_gpu_with_the_same_xid_after_a_reset_is_a_repeat_offender(tmp_path: Path) -> None:
    xid = "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    log = "".join(logged(xid, day=day) + logged(LOADING, at="10:00:00", day=day) for day in (10, 11, 12))
    report = report_on_text(tmp_path, log)
    assert codes(report) == ["xid.earlier", "gpu.repeat_offender"]
    assert measured(report, "gpu.repeat_offender") == "Xid 79 in 3 runs of the driver within 7 days"


def test_an_xid_of_unknown_time_before_the_driver_was_loaded_is_context(tmp_path: Path) -> None:
    xid = "NVRM: Xid (PCI:0000:41:00): 119, pid=1, name=python3, Timeout"
    assert codes(report_on_text(tmp_path, bare(xid, LOADING))) == ["xid.earlier"]


def test_an_area_that_nothing_is_wrong_with_says_what_was_read_of_it(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, logged(LOADING) + lspci())
    said = {area.area: area.summary for area in report.areas}
    assert said[Area.DRIVER] == ("on the bus: 1 x H100 SXM5 80GB (driver in use: nvidia); kernel module 580.95.05")
    assert (said[Area.HEALTH] or "").startswith("no Xid errors in ")
    assert said[Area.PCIE] == "by lspci: 1 x gen 1 x16"
    assert (said[Area.HOST] or "").startswith("no killed or hung processes, storage or hardware errors in ")
    assert said[Area.CLOCKS] is None
