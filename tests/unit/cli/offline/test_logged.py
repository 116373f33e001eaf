"""What logs say of the driver, of PCIe, network adapters and the host, and of failures that are over."""

from pathlib import Path

import pytest
from tests.offline_files import (
    AT,
    LOADING,
    XID,
    bug_report,
    codes,
    logged,
    lspci,
    measured,
    report_on,
    report_on_text,
    rows_of,
    smi,
    smi_gpu,
    summary,
)

from gpu_triage.cli.offline.logs import EventKey, EventKind, LogSection, MemoryBudget
from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict

GPU, PORT = "0000:41:00.0", "0000:40:01.0"
MISMATCH = (
    "NVRM: API mismatch: the client has the version 535.161.08, but",
    "NVRM: this kernel module has the version 535.154.05.  Please",
)
INIT = f"NVRM: GPU {GPU}: RmInitAdapter failed! (0x62:0x40:2393)"
LOST_AT_PROBE = (
    f"NVRM: The NVIDIA GPU {GPU}",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
    "NVRM: The NVIDIA probe routine failed for 1 device(s).",
)
HEARTBEAT = "NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 8 heartbeat 1"
FATAL = "PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer, (Receiver ID)"
FOUND = f"pci {GPU}: [10de:2330] type 00 class 0x030200 PCIe Endpoint"
USED = "NVRM: Xid (PCI:0000:41:00): 31, pid=1, name=python3, Ch 1"
"""A message about the GPU that isn't an error of its link."""


def bare(*lines: str) -> str:
    """Lines without a time."""
    return "".join(f"{line}\n" for line in lines)


def flapping(*states: str) -> list[str]:
    return [f"[{at}.5] mlx5_core 0000:5c:00.0 ens1f0np0: Link {state}" for at, state in enumerate(states)]


@pytest.mark.parametrize(("code", "words", "lines"), rows_of("logged.tsv"))
def test_a_failure_is_a_finding_with_its_time(tmp_path: Path, code: str, words: str, lines: str) -> None:
    report = report_on_text(tmp_path, logged(*lines.split("\n")))
    assert codes(report) == [code]
    assert words in measured(report, code)
    assert "2026-03-14 09:50:00" in measured(report, code)


@pytest.mark.parametrize(
    "lines",
    [
        flapping("down"),
        flapping("up"),
        flapping("up", "down", "up"),
        ["EDAC MC1: 1 CE memory read error on CPU_SrcID#0_DIMM#0 (channel:1 slot:0)"],
        # A virtual machine has the GPU.
        [f"NVRM: GPU {GPU} is already bound to vfio-pci.", LOADING],
        [FOUND, *(f"{device}: {FATAL}" for device in ("nvme 0000:03:00.0", "pcieport 0000:00:01.0"))],
        [FOUND, f"nvidia-nvswitch 0000:c1:00.0: {FATAL}"],
        [
            f"nvidia {GPU}: Unable to change power state from D3cold to D0, device inaccessible",
            f"nvidia {GPU}: ready 2047ms after resume",
        ],
    ],
)
def test_what_is_normal_now_and_then_or_of_other_devices_is_no_finding(tmp_path: Path, lines: list[str]) -> None:
    assert codes(report_on_text(tmp_path, logged(*lines))) == []


def test_a_rejected_module_is_not_the_driver_if_that_was_loaded(tmp_path: Path) -> None:
    lines = ("[ 1.0] Loading of unsigned module is rejected", f"[ 9.0] {LOADING}")
    assert codes(report_on_text(tmp_path, bare(*lines))) == []
    assert codes(report_on_text(tmp_path, bare(*reversed(lines)))) == []
    assert codes(report_on_text(tmp_path, bare(lines[0]))) == ["driver.module_rejected"]


def test_trouble_of_the_host_that_is_over_is_no_finding(tmp_path: Path) -> None:
    log = "".join(
        logged(line, at=f"09:5{minute}:00")
        for minute, line in enumerate(
            (
                *("nfs: server nas01 not responding, still trying", "nfs: server nas01 OK", "nfs: server nas02 OK"),
                "nfs: server nas02 not responding, still trying",
                "EXT4-fs (sda3): Remounting filesystem read-only",
                "EXT4-fs (sda3): mounted filesystem with ordered data mode. Opts: (null)",
                "systemd[1]: Mounting XFS (sda4): Shutting down filesystem",
            )
        )
    )
    report = report_on_text(tmp_path, log)
    assert codes(report) == ["storage.not_responding"]
    assert "nas02" in measured(report, "storage.not_responding")
    assert "nas01" not in measured(report, "storage.not_responding")


def test_servers_are_not_named_where_names_are_not_to_be_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(logged("nfs: server nas01 not responding, still trying"))
    assert "NFS server (not named)" in measured(report_on(log, redact=True), "storage.not_responding")


XID_119 = "NVRM: Xid (PCI:0000:41:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
STARS = "NVRM: GPU0 _kgspLogRpcTimeout: ********************************* GSP Timeout *********************"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((XID, "NVRM: GPU has fallen off the bus.", f"NVRM: GPU {GPU}: GPU has fallen off the bus."), ["xid.79"]),
        ((STARS, XID_119), ["xid.119"]),
    ],
)
def test_what_is_told_beside_its_xid_is_told_once(tmp_path: Path, lines: tuple[str, ...], found: list[str]) -> None:
    assert codes(report_on_text(tmp_path, logged(*lines))) == found


@pytest.mark.parametrize("lines", [MISMATCH, (INIT,), (HEARTBEAT,), ("NVRM: RmInitAdapter failed! (0x25:0x40:1084)",)])
def test_what_the_driver_that_was_loaded_later_ended_is_history(tmp_path: Path, lines: tuple[str, ...]) -> None:
    for logs in (
        (logged(*lines, day=13) + logged(LOADING),),
        (logged(*lines, day=13), logged(LOADING)),
        (bare(*(f"[  100.{place}] {line}" for place, line in enumerate((*lines, LOADING)))),),
    ):
        report = report_on_text(tmp_path, *logs)
        assert codes(report) == ["driver.earlier"]
        assert report.verdict is Verdict.NOT_READ


@pytest.mark.parametrize(
    ("log", "found"),
    [
        # A GPU fell off the bus before the driver was loaded for the others.
        (logged(*LOST_AT_PROBE, LOADING), ["gpu.lost"]),
        (bare(*LOST_AT_PROBE, LOADING), ["gpu.lost"]),
        # A failure at a start of the driver is over after the next one.
        (logged(*LOST_AT_PROBE, LOADING, day=13) + logged(LOADING), ["driver.earlier"]),
        (logged(*MISMATCH, day=12) + logged(LOADING, day=13) + logged(INIT), ["driver.init_failed", "driver.earlier"]),
    ],
)
def test_what_failed_since_the_driver_was_loaded_is_of_now(tmp_path: Path, log: str, found: list[str]) -> None:
    report = report_on_text(tmp_path, log)
    assert codes(report) == found
    assert (report.verdict is Verdict.DRAIN) == (found[0] != "driver.earlier")


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (logged(INIT, *MISMATCH, f"nouveau {GPU}: NVIDIA GA102 (172000a1)"), ["driver.earlier"]),
        (logged(f"NVRM: BAR1 is 0M @ 0x0 (PCI:{GPU})"), ["driver.earlier"]),
        # A GSP that timed out within the hour counts though nvidia-smi shows the GPUs.
        (logged(HEARTBEAT), ["gpu.gsp_timeout"]),
        (logged(HEARTBEAT, at="07:50:00"), ["driver.earlier"]),
    ],
)
def test_a_gpu_that_answers_was_started_since(tmp_path: Path, log: str, found: list[str]) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(), at=AT), log)
    assert codes(report) == found
    assert (report.verdict is Verdict.KEEP) == (found == ["driver.earlier"])


def test_a_library_that_is_not_there_is_why_the_driver_does_not_answer(tmp_path: Path) -> None:
    said = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display\n"
    report = report_on_text(tmp_path, bug_report(("/usr/bin/nvidia-smi --query", said), ("lspci", lspci())))
    assert codes(report) == ["driver.unavailable"]
    assert (report.blocked or "").startswith("library_not_found")


def test_an_xid_names_the_one_that_caused_it(tmp_path: Path) -> None:
    log = logged(
        "NVRM: Xid (PCI:0000:41:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
        *("NVRM: Xid (PCI:0000:42:00): 45, pid=7, name=python3, Ch 2 caused by previous Xid 94" for _ in range(9)),
        "NVRM: Xid (PCI:0000:42:00): 94, pid=7, name=python3, Contained: SM",
    )
    report = report_on_text(tmp_path, log)
    assert measured(report, "xid.nonfatal").endswith("; named as the cause of another Xid")
    alone, often = (each.measured for each in report.findings if each.check.code == "xid.45")
    assert alone.endswith(", by python3 (1818990); caused by Xid 149")
    assert ", by python3 (7); caused by Xid 94, 9 times" in often
    assert codes(report).count("xid.94") == 1


def test_an_xid_154_is_told_with_what_the_driver_asks_for(tmp_path: Path) -> None:
    changed = "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x{} ({}) to 0x{} ({})"
    asked = logged(changed.format(0, "None", 1, "GPU Reset Required"))
    assert measured(report_on_text(tmp_path, asked), "xid.154").endswith("; the driver asks for: GPU Reset Required")
    withdrawn = logged(changed.format(1, "x", 0, "None"), at="09:51:00")
    assert codes(report_on_text(tmp_path, asked + withdrawn)) == []


def test_a_gpu_with_the_same_xid_after_a_reset_is_a_repeat_offender(tmp_path: Path) -> None:
    log = "".join(logged(XID, day=day) + logged(LOADING, at="10:00:00", day=day) for day in (10, 11, 12))
    report = report_on_text(tmp_path, log)
    assert codes(report) == ["xid.earlier", "gpu.repeat_offender"]
    assert measured(report, "gpu.repeat_offender") == "Xid 79 in 3 runs of the driver within 7 days"


def test_an_area_that_nothing_is_wrong_with_says_what_was_read_of_it(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, logged(LOADING) + lspci())
    on_the_bus = "on the bus: 1 x H100 SXM5 80GB (driver in use: nvidia); kernel module 580.95.05"
    assert summary(report, Area.DRIVER) == on_the_bus
    assert str(summary(report, Area.HEALTH)).startswith("no Xid errors in ")
    assert summary(report, Area.PCIE) == "by lspci: 1 x gen 1 x16"
    assert str(summary(report, Area.HOST)).startswith("no killed or hung processes")
    assert summary(report, Area.CLOCKS) is None


def test_what_is_told_of_the_driver_is_that_of_the_first_file(tmp_path: Path) -> None:
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Wed Jan  1\n"
    no_driver = "Failed to initialize NVML: Driver Not Loaded\n"
    now, before = version.format("580.95.05"), version.format("535.10.05")
    report = report_on_text(tmp_path, f"{LOADING}\n{now}", f"{LOADING}\n{before}")
    assert summary(report, Area.DRIVER) == "kernel module 580.95.05"
    mismatch = no_driver.replace("Driver Not Loaded", "Driver/library version mismatch")
    for first in (no_driver, mismatch + no_driver):
        assert str(report_on_text(tmp_path, first, mismatch).blocked).startswith("driver_not_loaded")


@pytest.mark.parametrize(
    "lines",
    [
        (f"nvidia {GPU}: {FATAL}",),
        (f"vfio-pci {GPU}: {FATAL}", f"vfio-pci {GPU}:   device [10de:2330] error status/mask=00000010/00000000"),
        (FOUND, f"pci {GPU}: {FATAL}"),
        (USED, f"pci {GPU}: {FATAL}"),
        (USED, f"pcieport {PORT}: AER: Uncorrectable (Fatal) error message received from {GPU}"),
    ],
)
def test_what_else_the_log_says_of_an_address_makes_it_a_gpus(tmp_path: Path, lines: tuple[str, ...]) -> None:
    report = report_on_text(tmp_path, logged(*lines))
    found = [(each.check.code, each.subject) for each in report.findings if each.check.code != "xid.31"]
    assert found == [("pcie.aer", f"GPU at {GPU}")]
    assert measured(report, "pcie.aer").startswith("fatal on the GPU, once 2026-03-14 09:50:00")


CORRECTED = f"nvidia {GPU}: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)"
END = "0 s before the end of the log"
NONFATAL = f"pcieport {PORT}: {FATAL.replace('(Fatal)', '(Non-Fatal)')}"
RECEIVED = f"pcieport {PORT}: AER: Correctable error message received from {GPU}"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([CORRECTED] * 9, ""),
        ([CORRECTED] * 10, "correctable on the GPU, 10 times, last"),
        ([RECEIVED, CORRECTED] * 12, "correctable on the GPU, 12 times, last"),
        ([RECEIVED] * 11 + [CORRECTED], "correctable on the GPU, 11 times, last"),
        ([RECEIVED, CORRECTED, NONFATAL], f"nonfatal on the port {PORT} above it, once"),
        (
            [f"nvidia {GPU}: {FATAL}", RECEIVED, NONFATAL],
            f"fatal on the GPU, once 2026-03-14 09:50:00, {END}; nonfatal on the port {PORT} above it, once",
        ),
    ],
)
def test_corrected_errors_count_from_ten_on_and_once(tmp_path: Path, lines: list[str], told: str) -> None:
    report = report_on_text(tmp_path, logged(*lines))
    assert [each.measured[: len(told)] for each in report.findings] == [told] * bool(told)


LOST = "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SLOT = f"pcieport {PORT}: pciehp: Slot(2): Link Down"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([f"[ 100.0] pcieport {PORT}: {FATAL}", f"[ 110.0] {LOST}"], f"fatal on the port {PORT} above it, once"),
        ([f"[ 100.0] {SLOT}", f"[ 100.1] {LOST}"], f"link lost on the port {PORT} above it, once"),
        ([f"[ 100.0] pcieport {PORT}: {FATAL}", f"[ 110.1] {LOST}"], ""),
        ([f"[ 100.0] {LOST}", f"[ 100.1] {SLOT}"], ""),
        # Which of two ports is above it, is unknown.
        ([f"[ 100.0] {SLOT}", f"[ 100.0] {SLOT.replace('40:01', '80:01')}", f"[ 100.1] {LOST}"], ""),
        ([f"[ 100.0] pcieport {PORT}: {FATAL.replace('Uncorrectable (F', 'Correctable (F')}", f"[ 100.1] {LOST}"], ""),
        (
            [f"{{1}}[Hardware Error]: {said}" for said in (
                "event severity: fatal", f"  device_id: {GPU}", "  vendor_id: 0x10de, device_id: 0x2330")],
            "fatal on the GPU, once",
        ),
        (
            [f"{{1}}[Hardware Error]: {said}" for said in (
                "event severity: fatal", "  port_type: 4, root port", f"  device_id: {PORT}", "  vendor_id: 0x8086")]
            + [LOST],
            f"fatal on the port {PORT} above it, once",
        ),
    ],
)  # fmt: skip
def test_what_a_port_or_the_firmware_said_before_a_gpu_was_lost_is_its_cause(
    tmp_path: Path, lines: list[str], told: str
) -> None:
    found = [each for each in report_on_text(tmp_path, bare(*lines)).findings if each.check.code == "pcie.aer"]
    assert [(each.pci_bus_id, each.measured[: len(told)]) for each in found] == [(GPU, told)] * bool(told)


XID_OF = "[ {}] NVRM: Xid (PCI:0000:41:00): {}, pid={}, name={}, Ch 1"


@pytest.mark.parametrize("code", [8, 13, 31, 43, 45, 69])
def test_in_a_file_a_single_xid_of_a_program_is_told_with_all_that_it_says(tmp_path: Path, code: int) -> None:
    log = bare(XID_OF.format("5.0", code, 77, "Isaac Sim"), "[ 86400.0] usb 1-1: reset", f"[ 86404.0] {LOADING}")
    report = report_on_text(tmp_path, log)
    assert codes(report) == [f"xid.{code}"]
    words = f"Xid {code}, last 5 s after the boot, 24 h before the end of the log, by Isaac_Sim (77)"
    assert measured(report, f"xid.{code}") == words


@pytest.mark.parametrize(
    ("before", "explained"),
    [
        (XID_OF.format("40.0", 13, 7, "a"), "; explained by Xid 13 of the same process"),
        (XID_OF.format("39.9", 13, 7, "a"), ""),
        (XID_OF.format("100.5", 13, 7, "a"), ""),
        (XID_OF.format("99.0", 13, 8, "a"), ""),
        (XID_OF.format("99.0", 48, 7, "a"), ""),
        (XID_OF.format("99.0", 13, 7, "a").replace("41:00", "42:00"), ""),
    ],
)
def test_an_exception_of_the_same_process_explains_what_follows(tmp_path: Path, before: str, explained: str) -> None:
    report = report_on_text(tmp_path, bare(before, XID_OF.format("100.0", 109, 7, "a")))
    assert measured(report, "xid.109").partition(", by a (7)")[2] == explained


def test_lines_with_words_of_error_that_are_not_judged_are_listed(tmp_path: Path) -> None:
    unknown = "NVRM: GPU0 kgspUnloadRm_IMPL: GSP-RM unload failed during driver unload"
    log = logged(
        *(f"foo{chr(97 + place)}: bar {place} failed" for place in range(8)), unknown, unknown, INIT, "x: fine"
    )
    report = report_on_text(tmp_path, log)
    listed = [line for line in report.not_read if line.startswith("a kernel line")]
    assert listed[0] == f"a kernel line with words of error, 2 times: {unknown}"
    assert len(listed) == 6
    assert [line for line in report.not_read if line.startswith("3 more")]
    assert [area.is_known for area in report.areas if area.area is Area.HEALTH] == [False]
    assert not [line for line in report_on(tmp_path / "file-0", redact=True).not_read if "NVRM" in line]


def test_an_event_that_is_no_finding_is_not_denied(tmp_path: Path) -> None:
    hung = logged("INFO: task a:1 blocked for more than 122 seconds.", day=12)
    said = str(summary(report_on_text(tmp_path, hung + logged("x")), Area.HOST))
    assert said.startswith("earlier: hung task once 2026-03-12 09:50:00, 2 days before ")


def test_errors_of_a_port_above_several_gpus_say_so(tmp_path: Path) -> None:
    above = "pcieport 0000:00:01.0"
    received = [f"{above}: AER: Correctable error message received from 0000:{bus}:00.0" for bus in (41, 42)]
    report = report_on_text(tmp_path, logged(FOUND, FOUND.replace("41", "42"), *received, f"{above}: {FATAL}"))
    told = [each.measured for each in report.findings]
    assert len(told) == 2
    assert all(each.startswith("fatal on the port 0000:00:01.0 above it and 1 others, once") for each in told)


def test_the_port_that_lspci_shows_is_the_one_above_a_gpu(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, lspci(domain="0000:") + logged(f"pcieport {PORT}: {FATAL}"))
    assert measured(report, "pcie.aer").startswith(f"fatal on the port {PORT} above it, once")


def test_of_many_sorts_of_events_the_last_ones_are_kept(tmp_path: Path) -> None:
    kills = [f"Out of memory: Killed process {pid} (python3)" for pid in range(1, 3000)]
    report = report_on_text(tmp_path, logged(USED, *kills))
    assert "python3 (2999)" in measured(report, "memory.oom_killed")


def test_logs_share_what_may_be_kept() -> None:
    room = MemoryBudget(sorts=3, events=4)
    sections = [LogSection(room), LogSection(room)]
    for number in range(20):
        for section in sections:
            section.feed(f"[ 1.{number}] NVRM: Xid (PCI:0000:41:00): 31, {number}")
            section.feed(f"[ 1.{number}] Out of memory: Killed process {number} (x)")
    kept = [tally for section in sections for sorts in section.tallies.values() for tally in sorts.values()]
    assert len(kept) == 3
    assert sum(len(tally.kept) for tally in kept) <= 4 + len(kept)
    xids = sections[0].tallies[EventKind.XID][EventKey(EventKind.XID, GPU, "31")]
    assert xids.count == 20
    assert xids.kept[-1].text.endswith(", 19")
