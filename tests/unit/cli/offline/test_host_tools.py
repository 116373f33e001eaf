"""What other tools than nvidia-smi print of a host and its jobs: made up, in the forms of their versions.

Bug reports, listings of lspci, and files that are packed, cut off or oddly encoded.
"""

import re
from pathlib import Path
from typing import Final

import pytest
from tests.offline_files import (
    UUID,
    bug_report,
    codes,
    file_of,
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
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.report import Report

NAMES = ("mpstat", "iostat", "iostat-old", "sar-d", "sar-n", "vmstat")
MPSTAT, IOSTAT, OLD_IOSTAT, DISKS, LINKS, VMSTAT = (file_of(f"{name}.txt") for name in NAMES)
"""Tables of CPUs that wait, full disks and links, and a host that swaps; iostat and vmstat begin with idle ones."""
SWAPS: Final = "03:10:01 PM  pswpin/s pswpout/s\n03:10:02 PM   5120.00   2000.00\n"

OF_CPUS: Final = "CPUs 25% busy; 25% iowait"
FORMS: Final = {
    "mpstat": (MPSTAT, OF_CPUS),
    "decimal comma": (MPSTAT.replace(".", ","), OF_CPUS),
    "12 hours": (MPSTAT.replace("10:11:12 ", "10:11:12 AM IST ").replace("10:11:13 ", "10:11:13 AM IST "), OF_CPUS),
    "another language": (MPSTAT.replace("Average:", "Moyenne :"), OF_CPUS),
    "percent of a CPU": (MPSTAT.replace("20.50", "82.00").replace("4.50 ", "18.0 ").replace("25.00", "100.0")
                         .replace("50.00", "200.0"), OF_CPUS),
    "other columns before": (SWAPS.replace("pswpout", "other").replace("5120", "1") + SWAPS, "20.0 MiB/s swapped in"),
    "a prompt and colors": (f"[root@gpu-7 ~]# mpstat -P ALL 1 1\n\x1b[1m{MPSTAT}\x1b[0m", OF_CPUS),
    "sar": (MPSTAT.replace("%usr", "%user").replace("  %sys", "%system").replace("%guest  %gnice", "%g %h"), OF_CPUS),
    "iostat": (IOSTAT, f"{OF_CPUS}; busiest disk 96%"),
    "iostat, a run before": (IOSTAT.replace("20.00", "40.00") + IOSTAT, f"{OF_CPUS}; busiest disk 96%"),
    "old iostat": (OLD_IOSTAT, "busiest disk 96%"),
    "sar -d": (DISKS, "busiest disk 96%"),
    "sar -n DEV": (LINKS, "busiest adapter 95% of line rate"),
    "sar -W": (SWAPS, "20.0 MiB/s swapped in"),
    "vmstat": (VMSTAT, f"{OF_CPUS}; 40.0 MiB/s swapped in"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_version_is_read(tmp_path: Path, form: str) -> None:
    text, said = FORMS[form]
    report = report_on_text(tmp_path, text)
    assert str(summary(report, Area.HOST)).startswith(said)
    assert len(report.files[0].kinds) == 1
    assert report.gpus == ()


def test_of_tools_that_tell_the_same_the_last_one_counts(tmp_path: Path) -> None:
    text = MPSTAT + FORMS["sar"][0].replace("20.50", "60.50") + MPSTAT
    assert str(summary(report_on_text(tmp_path, text), Area.HOST)).startswith(OF_CPUS)


HEADINGS: Final = (
    *(MPSTAT.splitlines()[2:3]),
    SWAPS.splitlines()[0],
    "  PID STAT COMMAND",
    "       total   used   free",
)


@pytest.mark.parametrize("heading", HEADINGS)
def test_headings_alone_hold_nothing_and_replace_nothing(tmp_path: Path, heading: str) -> None:
    report = report_on_text(tmp_path, f"{heading}\n")
    assert (report.files[0].kinds, report.blocked is None) == ((), False)
    report = report_on_text(tmp_path, MPSTAT + SWAPS, f"{heading}\n")
    assert str(summary(report, Area.HOST)).startswith(f"{OF_CPUS}; 20.0 MiB/s swapped in")


NO_IOWAIT: Final = MPSTAT.replace("25.00", " 1.00")
FOUND: Final = {
    "a full disk": (DISKS, ["storage.saturated"]),
    "a disk with room": (DISKS.replace("96.00", "85.00"), []),
    "an image": (DISKS.replace("  sda", "loop0"), []),
    "iowait": (MPSTAT.replace("99.00", "90.00").replace(" 1.00\n", "10.00\n"), ["storage.saturated"]),
    "a full CPU": (NO_IOWAIT, ["cpu.saturated"]),
    "a CPU with room": (NO_IOWAIT.replace("99.00", "90.00").replace(" 1.00\n", "10.00\n"), []),
    "a full link": (LINKS, ["network.saturated"]),
    "a link with room": (LINKS.replace("95.36", "75.00"), []),
}


@pytest.mark.parametrize("case", FOUND)
def test_one_judge_judges_the_host(tmp_path: Path, case: str) -> None:
    text, found = FOUND[case]
    assert codes(report_on_text(tmp_path, text)) == found


DMON: Final = "# gpu   pwr  temp    sm   mem\n# Idx     W     C     %     %\n"
WAITS: Final = DMON + "".join(
    f"    0   {watts}    50    {busy}     5\n" for watts, busy in ((180, 60), (85, 8), (190, 63))
)


@pytest.mark.parametrize(
    ("dmon", "name"),
    [
        (WAITS, "storage"),
        ("\n".join(WAITS.split("\n")[:-2]), "unattributed"),  # two samples do not show how a GPU works
        (WAITS.replace("   8  ", "  80  ").replace("6", "9"), "unattributed"),  # it does not wait
    ],
)
def test_a_gpu_starves_if_it_was_watched_and_what_it_lacks_was_measured(tmp_path: Path, dmon: str, name: str) -> None:
    report = report_on_text(tmp_path, IOSTAT, dmon)
    assert [gpu.bottleneck.name for gpu in report.gpus] == [name]
    assert ("in turn: 8% to 63% busy, 85 to 190 W" in str(summary(report, Area.WORK))) == (name == "storage")
    assert codes(report) == [f"storage.{'starved' if name == 'storage' else 'saturated'}"]


FREE: Final = "      total  used  free  shared  buff/cache  available\nMem:  503Gi  212Gi  21Gi  2.1Gi  270Gi  286Gi\n"
LSMOD: Final = "Module     Size  Used by\n{}    126976  2\n"
PS: Final = """USER   PID %CPU STAT START   TIME COMMAND
root     1  0.0 Ss   Jan01   0:12 /sbin/init
bob      8  3.0 {}   10:00  12:13 python /home/bob/x.py --token abc
bob      9  0.0 S    10:00   0:00 sh
bob     10  0.0 S    10:00   0:00 sh
"""
NUMACTL: Final = "node 0 cpus: 0 1 2 3\nnode 0 size: 257672 MB\npolicy: bind\nphyscpubind: 4 5 6 7 \nmembind: {} \n"
SAID: Final = (
    ("free", FREE + "Swap:   16Gi  {}  8.5Gi\n", "7.5Gi", Area.HOST, "7.5Gi of 16Gi of swap in use"),
    ("free", FREE + "Swap:   16Gi  {}  16Gi\n", "0B", Area.HOST, "286Gi of 503Gi of memory available; no swap in use"),
    ("numactl", NUMACTL, "1", Area.WORK, "node 0 has CPUs 0-3; the process that ran numactl is bound to CPUs 4-7 and"),
    ("lscpu", "  NUMA node1 CPU(s):     {}\n", "32-63,96-127", Area.WORK, "NUMA node 1 has CPUs 32-63,96-127"),
    ("lsmod", LSMOD, "nvidia", Area.DRIVER, "nvidia; nvidia_uvm is not among them"),
    ("lsmod", LSMOD, "ext4", Area.DRIVER, "none is listed"),
    ("ps", PS, "D ", Area.WORK, "python (8) waiting in the kernel"),
    ("ps", PS, "Zl", Area.WORK, "python (8) a zombie (Zl)"),
    ("NCCL's log", "n1:34:35 [0] NCCL INFO {}\n", "NET/IB : No device found.", Area.HOST, "no InfiniBand or RoCE"),
    ("NCCL's log", "n1:34:35 [0] NCCL INFO {}\n", "NET/Socket : Using [0]eth0:1.2.3<0>", Area.HOST, "Socket over eth0"),
)


@pytest.mark.parametrize("case", SAID, ids=lambda case: f"{case[0]}: {case[2]}")
def test_what_is_not_judged_is_told(tmp_path: Path, case: tuple[str, str, str, Area, str]) -> None:
    command, form, value, area, fact = case
    report = report_on_text(tmp_path, form.format(value))
    assert fact in str(summary(report, area))
    assert (report.files[0].kinds[-1], codes(report), report.verdict) == (command, [], Verdict.NOT_READ)
    assert "token" not in str(report)


def test_a_process_bound_to_another_node_is_told(tmp_path: Path) -> None:
    topology = "        GPU0  GPU1  CPU Affinity  NUMA Affinity\nGPU0  X  SYS  0-3  0\nGPU1  SYS  X  4-7  1\n"
    report = report_on_text(tmp_path, topology, "physcpubind: 0 1 2 3\nmembind: 0\n")
    assert str(summary(report, Area.WORK)).endswith("GPU 1 is on another node")


RANKS: Final = "".join(
    f"[rank{rank}]:[E1 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
    f"WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 60008{rank} milliseconds before timing out.\n"
    for rank in (0, 3)
)
PEER: Final = "k:3:3 [4] ib_plugin.c:1 NCCL WARN NET/IB : Got completion from peer 10.2.2.2 with status={} opcode=0\n"


def test_nccl_proves_a_hang_and_lost_requests(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, RANKS + PEER.format(12))
    assert codes(report) == ["network.timeouts", "work.collective_hang"]
    assert measured(report, "work.collective_hang") == "NCCL's watchdog: ALLREDUCE of ranks 0, 3 timed out after 600 s"
    assert codes(report_on_text(tmp_path, PEER.format(5))) == []


def test_gpus_named_by_address_index_and_uuid_are_joined_in_bus_order(tmp_path: Path) -> None:
    listed = "".join(f"GPU {index}: NVIDIA A10 (UUID: {UUID.format(index)})\n" for index in (0, 1))
    links = "".join(
        f"GPU 00000000:{bus}:00.0\n    Link Width\n        Current : {width}\n        Max : x16\n"
        for bus, width in (("B3", "x16"), ("41", "x8"))
    )
    used = "index, memory.used [MiB], memory.free [MiB]\n0, 23000 MiB, 500 MiB\n1, 100 MiB, 23400 MiB\n"
    report = report_on_text(tmp_path, listed + links + used)
    assert [(gpu.gpu, gpu.uuid, gpu.readings.pcie_width) for gpu in report.gpus] == [
        ("0", UUID.format(0), 8.0),
        ("1", UUID.format(1), 16.0),
    ]
    assert codes(report) == ["pcie.width_idle", "work.memory_imbalance"]
    more = report_on_text(tmp_path, links + used + "2, 100 MiB, 23400 MiB\n")
    assert len(more.gpus) == 5  # two addresses and three indices do not tell which is which


def test_a_part_that_names_no_gpu_is_no_further_gpu(tmp_path: Path) -> None:
    errors = "ECC Errors\n    Aggregate\n        Single Bit\n            Device Memory : 2\n            {}\n"
    alone = report_on_text(tmp_path, errors.format("Total : 5"))
    assert "over the lifetime of GPU 0: 5 corrected" in str(summary(alone, Area.HEALTH))
    report = report_on_text(tmp_path, smi(smi_gpu(), smi_gpu(1)), errors.format("Cache : 1"))
    assert [gpu.gpu for gpu in report.gpus] == ["0", "1"]
    assert "over the lifetime of GPU ?: 3 corrected" in str(summary(report, Area.HEALTH))


@pytest.mark.parametrize(("argument", "told"), [("r", "2 x read not_supported"), ("n", "2 x nvlink not_supported")])
def test_peer_access_is_told(tmp_path: Path, argument: str, told: str) -> None:
    matrix = " \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX\n\nLegend:\n  NS = Not supported\n"
    report = report_on_text(tmp_path, f"$ nvidia-smi topo -p2p {argument}\n{matrix}")
    assert f"peer access: {told}" in str(summary(report, Area.PEERS))
    assert len(report.gpus) == 2


def test_pieces_that_grep_cuts_out_are_of_the_gpus_before_them(tmp_path: Path) -> None:
    piece = "PCI\n  Bus : 0x{}\n  Device : 0x00\n  Domain : 0x0000\n--\nLink Width : {}\nBridge Chip\n--\n"
    report = report_on_text(tmp_path, piece.format("B3", "16x") + piece.format("41", "8x"))
    assert [(gpu.pci_bus_id, gpu.readings.pcie_width) for gpu in report.gpus] == [
        ("0000:41:00.0", 8),
        ("0000:b3:00.0", 16),
    ]
    assert codes(report) == ["pcie.width_from_boot"]


REPORTED = ["xid.119", "pcie.width_from_boot"]


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
    assert judged(report) == REPORTED
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
        packed_bug_report(sick_bug_report()),
        *(
            sick_bug_report().replace("\n", newline).encode(encoding)
            for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32")
            for newline in ("\n", "\r\n")
        ),
    ],
    ids=[
        "as the script packs it",
        *(f"{name} {end}" for name in ("UTF-16", "LE", "BE", "signed UTF-8", "UTF-32") for end in ("Unix", "DOS")),
    ],
)
def test_a_file_is_read_to_its_end_however_it_is_packed_encoded_and_called(tmp_path: Path, packed: bytes) -> None:
    path = tmp_path / "attachment"
    path.write_bytes(packed)
    report = report_on(path)
    assert judged(report) == REPORTED
    assert report.files[0].note == ""


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32"])
def test_lines_that_follow_each_other_still_do_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "topology"
    path.write_bytes(file_of("topology.txt").replace("\n", "\r\n").encode(encoding))
    assert str(summary(report_on(path), Area.PEERS)).startswith("topology: 1 x NV12, 2 x SYS")


@pytest.mark.parametrize(
    "date",
    [
        *("sam. 14 mars 2026 10:00:00 UTC", "2026年 03月 14日 星期六 10:00:00 UTC", "sab 14 mar 2026, 10.00.00, UTC"),
        *("Sat Mar 14 10:00:00 AM UTC 2026", "Sa 14. Mär 10:00:00 UTC 2026", "2026. 03. 14. (토) 10:00:00 UTC"),
    ],
)
def test_the_date_of_a_report_is_read_in_many_languages(tmp_path: Path, date: str) -> None:
    listed = "*** ls: -r--r--r-- 1 root root 0 2026-03-14 10:00:09.123 +0000 /proc/driver/nvidia/version"
    report = report_on_text(tmp_path, bug_report(("*** /proc/driver/nvidia/version", listed), date=date))
    assert report.files[0].written == f"2026-03-14 10:00:0{9 if '토' in date else 0}"


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
        ((lspci(8, 8),), []),
        # A GPU on the bus that nvidia-smi does not show is missing, unless a virtual machine has it.
        ((smi(smi_gpu(1)), lspci() + second(lspci())), ["gpu.missing"]),
        ((smi(smi_gpu(1)), lspci(driver="vfio-pci") + second(lspci())), []),
        # A configuration space of all ones is that of a lost GPU.
        ((lspci(4, revision="ff"),), ["gpu.lost"]),
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
