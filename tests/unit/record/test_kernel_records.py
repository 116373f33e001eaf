"""A recording keeps of the kernel log what is judged, without the names of hosts."""

from __future__ import annotations

from pathlib import Path

from gpu_triage.record.masking import Masker, kernel_records

KEPT = (
    "NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
    "nfs: server nas01.example.com not responding, still trying",
    "nfs: server nas01.example.com OK",
)
NOT_KEPT = ("usb 1-1: new high-speed USB device number 2 using xhci_hcd", "audit: login of alice from 192.0.2.7")
FROM_A_PROCESS = "14,99,99,-;NVRM: Xid (PCI:0000:41:00): 79, said by a process\n"


def test_what_is_judged_is_kept_and_nothing_else(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    lines = [f"4,{number},{number}000000,-;{text}\n" for number, text in enumerate((*KEPT, *NOT_KEPT), 1)]
    log.write_text("".join(lines) + FROM_A_PROCESS, encoding="ascii")
    recorded = kernel_records(log, Masker(b"k" * 32)) or ""
    texts = [line.partition(";")[2] for line in recorded.splitlines()]
    assert texts[:3] == list(KEPT[:3])
    assert len(texts) == len(KEPT)
    assert "nas01" not in recorded
    _, _, first, *_ = texts[3].split()
    _, _, second, *_ = texts[4].split()
    assert first == second != ""


def test_a_host_without_a_kernel_log_has_no_records(tmp_path: Path) -> None:
    assert kernel_records(tmp_path / "kmsg", Masker(b"k" * 32)) is None
