"""What logs alone say of PCIe errors, network adapters, the host's memory and tasks that hang."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.offline_files import codes, lspci, measured, report_on_text

from gpu_triage.cli.offline.log_sections import EventKey, EventKind, LogSection, MemoryBudget

GPU = "0000:41:00.0"
PORT = "0000:40:01.0"


def logged(*lines: str, at: str = "09:50:00") -> str:
    """Lines of ``dmesg -T``, all of one moment."""
    return "".join(f"[Sat Mar 14 {at} 2026] {line}\n" for line in lines)


FATAL = "PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer, (Receiver ID)"
FOUND = f"pci {GPU}: [10de:2330] type 00 class 0x030200 PCIe Endpoint"
XID = "NVRM: Xid (PCI:0000:41:00): 31, pid=1, name=python3, Ch 1"


@pytest.mark.parametrize(
    "lines",
    [
        (f"nvidia {GPU}: {FATAL}",),
        (f"vfio-pci {GPU}: {FATAL}", f"vfio-pci {GPU}:   device [10de:2330] error status/mask=00000010/00000000"),
        (FOUND, f"pci {GPU}: {FATAL}"),
        (XID, f"pci {GPU}: {FATAL}"),
        (XID, f"pcieport {PORT}: AER: Uncorrectable (Fatal) error message received from {GPU}"),
        (f"nvidia {GPU}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer, (Receiver ID)",),
    ],
)
def test_what_else_the_log_says_of_an_address_makes_it_a_gpus(tmp_path: Path, lines: tuple[str, ...]) -> None:
    report = report_on_text(tmp_path, logged(*lines))
    assert [(each.check.code, each.subject) for each in report.findings] == [("pcie.aer", f"GPU at {GPU}")]
    assert measured(report, "pcie.aer").startswith("fatal on the GPU, once 2026-03-14 09:50:00")


def test_errors_of_other_devices_are_not_the_gpus(tmp_path: Path) -> None:
    others = (
        f"nvme 0000:03:00.0: {FATAL}",
        f"pcieport 0000:00:01.0: {FATAL}",
        f"nvidia-nvswitch 0000:c1:00.0: {FATAL}",
    )
    assert codes(report_on_text(tmp_path, logged(FOUND, *others))) == []


@pytest.mark.parametrize(("count", "found"), [(9, []), (10, ["pcie.aer"])])
def test_a_few_corrected_errors_are_normal(tmp_path: Path, count: int, found: list[str]) -> None:
    line = f"nvidia {GPU}: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)"
    assert codes(report_on_text(tmp_path, logged(*[line] * count))) == found


def test_what_a_port_received_and_the_gpu_told_is_one_error(tmp_path: Path) -> None:
    received = f"pcieport {PORT}: AER: Correctable error message received from {GPU}"
    error = f"nvidia {GPU}: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)"
    report = report_on_text(tmp_path, logged(*[received, error] * 12))
    assert measured(report, "pcie.aer").startswith("correctable on the GPU, 12 times, last")


def test_errors_of_a_port_above_several_gpus_say_so(tmp_path: Path) -> None:
    received = [
        f"pcieport 0000:00:01.0: AER: Correctable error message received from 0000:{bus}:00.0" for bus in (41, 42)
    ]
    gpus = [FOUND, FOUND.replace("41", "42")]
    report = report_on_text(tmp_path, logged(*gpus, *received, f"pcieport 0000:00:01.0: {FATAL}"))
    told = [each.measured for each in report.findings]
    assert len(told) == 2
    assert all(each.startswith("fatal on the port 0000:00:01.0 above it and 1 others, once") for each in told)


def test_the_port_that_lspci_shows_is_the_one_above_a_gpu(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, lspci(domain="0000:") + logged(f"pcieport {PORT}: {FATAL}"))
    assert measured(report, "pcie.aer").startswith(f"fatal on the port {PORT} above it, once")


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        (
            ("mlx5_core 0000:5c:00.0: Detected insufficient power on the PCIe slot (27W).",),
            "network.adapter_power",
            "the slot of 0000:5c:00.0 does not guarantee enough power, once",
        ),
        (
            ("mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature",),
            "network.adapter_module",
            "cable or module of 0000:5c:00.0 failed, once",
        ),
        (
            (
                "mlx5_core 0000:5c:00.0 mlx5_5: Port: 1 Link ACTIVE",
                "mlx5_core 0000:5c:00.0 mlx5_5: Port: 1 Link DOWN",
            ),
            "network.link_degraded",
            "mlx5_5 port 1 lost its link once 2026-03-14 09:50:00, 0 s before the end of the log: still down",
        ),
        (
            tuple(
                f"[{second}.5] mlx5_core 0000:5c:00.0 ens1f0np0: Link {state}"
                for second, state in enumerate(("up", "down", "up", "down", "up", "down", "up"))
            ),
            "network.link_degraded",
            "ens1f0np0 lost its link 3 times",
        ),
        (
            ("EDAC MC1: 262 CE memory read error on CPU_SrcID#0_DIMM#0 (channel:1 slot:0)",) * 20,
            "host.memory_errors",
            "at least 5240 corrected errors of CPU_SrcID#0_DIMM#0",
        ),
        (
            ("INFO: task nvc:[driver]:5403 blocked for more than 120 seconds.",) * 2,
            "host.hung_task",
            "nvc:[driver] (5403) hung, 2 times",
        ),
    ],
)
def test_trouble_around_the_gpus_is_a_finding(tmp_path: Path, lines: tuple[str, ...], code: str, words: str) -> None:
    report = report_on_text(tmp_path, logged(*lines))
    assert codes(report) == [code]
    assert words in measured(report, code)


@pytest.mark.parametrize(
    "lines",
    [
        ("mlx5_core 0000:5c:00.0 ens1f0np0: Link down",),
        ("mlx5_core 0000:5c:00.0 ens1f0np0: Link up",),
        (
            "[1.0] mlx5_core 0000:5c:00.0 ens1f0np0: Link up",
            "[2.0] mlx5_core 0000:5c:00.0 ens1f0np0: Link down",
            "[3.0] mlx5_core 0000:5c:00.0 ens1f0np0: Link up",
        ),
        ("EDAC MC1: 1 CE memory read error on CPU_SrcID#0_DIMM#0 (channel:1 slot:0)",),
        ("INFO: task nvc:[driver]:5403 blocked for more than 120 seconds.",),
    ],
)
def test_what_is_normal_now_and_then_is_none(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert codes(report_on_text(tmp_path, logged(*lines))) == []


def test_of_many_sorts_of_events_the_last_ones_are_kept(tmp_path: Path) -> None:
    kills = [f"Out of memory: Killed process {pid} (python3)" for pid in range(1, 3000)]
    report = report_on_text(tmp_path, logged(XID, *kills))
    assert "python3 (2999)" in measured(report, "memory.oom_killed")


def test_logs_share_what_may_be_kept() -> None:
    room = MemoryBudget(sorts=3, events=4)
    sections = [LogSection("one", room), LogSection("two", room)]
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
