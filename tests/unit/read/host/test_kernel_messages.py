"""Messages as kernels 5.4 to 6.12 print them, each with what is understood of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.read.host.test_driver_messages import DEVICES, DRIVER

from gpu_triage.read.host.kernel_messages import (
    KillOrder,
    ProblemKind,
    parse_host_message,
    parse_kill_order,
    parse_trouble_over,
)

SAID = [
    (
        (
            "Out of memory: Killed process 31337 (python3) total-vm:98765432kB, anon-rss:91234567kB, file-rss:0kB, "
            "shmem-rss:1024kB, UID:1000 pgtables:180000kB oom_score_adj:0"
        ),
        ("oom_kill", "python3 (31337)"),
    ),
    (
        (
            "Memory cgroup out of memory: Killed process 4242 (pt_main_thread) total-vm:71234kB, anon-rss:61234kB, "
            "file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:140kB oom_score_adj:979"
        ),
        ("oom_kill", "pt_main_thread (4242)"),
    ),
    ("Out of memory: Kill process 812 (java) score 901 or sacrifice child", ("oom_kill", "java (812)")),
    ("INFO: task python3:4242 blocked for more than 122 seconds.", ("hung_task", "python3 (4242)")),
    (
        "INFO: task kworker/u256:3:1234 blocked for more than 120 seconds.",
        ("hung_task", "kworker/u256:3 (1234)"),
    ),
    ("INFO: task fio:99 blocked in I/O wait for more than 122 seconds.", ("hung_task", "fio (99)")),
    ("watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python3:4242]", ("soft_lockup", "CPU 12")),
    ("NMI watchdog: BUG: soft lockup - CPU#31 stuck for 23s! [kworker/u642:5:1720]", ("soft_lockup", "CPU 31")),
    ("watchdog: BUG: soft lockup - CPU#11 stuck for 94s!", ("soft_lockup", "CPU 11")),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", ("hard_lockup", "CPU 3")),
    ("watchdog: Watchdog detected hard LOCKUP on cpu 120", ("hard_lockup", "CPU 120")),
    ("watchdog: CPU5: Watchdog detected hard LOCKUP on cpu 5", ("hard_lockup", "CPU 5")),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", ("rcu_stall", "rcu_sched")),
    ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", ("rcu_stall", "rcu_preempt")),
    (
        "rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 3-... } 6023 jiffies s: 1021 root: 0x8/.",
        ("rcu_stall", "rcu_sched"),
    ),
    ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", ("filesystem_read_only", "nvme0n1p2")),
    (
        (
            "XFS (dm-0): Corruption of in-memory data (0x8) detected at xfs_trans_cancel+0x12f/0x150 [xfs] "
            "(fs/xfs/xfs_trans.c:1097).  Shutting down filesystem."
        ),
        ("filesystem_read_only", "dm-0"),
    ),
    ("XFS (sda1): Log I/O Error Detected. Shutting down filesystem", ("filesystem_read_only", "sda1")),
    (
        "XFS (nvme1n1): Filesystem has been shut down due to log error (0x2).",
        ("filesystem_read_only", "nvme1n1"),
    ),
    ("BTRFS info (device nvme0n1p2): forced readonly", ("filesystem_read_only", "nvme0n1p2")),
    ("BTRFS info (device nvme0n1p2: state E): forced readonly", ("filesystem_read_only", "nvme0n1p2")),
    ("nvme nvme0: I/O 12 QID 5 timeout, aborting", ("nvme_timeout", "nvme0")),
    ("nvme nvme0: I/O 12 (I/O Cmd) QID 5 timeout, aborting", ("nvme_timeout", "nvme0")),
    ("nvme nvme3: I/O 7 QID 1 timeout, completion polled", ("nvme_timeout", "nvme3")),
    (
        "nvme nvme2: I/O tag 320 (a140) opcode 0x2 (Read) QID 12 timeout, aborting req_op:READ(0) size:131072",
        ("nvme_timeout", "nvme2"),
    ),
    ("nvme nvme0: I/O 0 QID 0 timeout, reset controller", ("nvme_reset", "nvme0")),
    ("nvme nvme0: I/O 24 QID 0 timeout, disable controller", ("nvme_reset", "nvme0")),
    (
        "nvme nvme0: I/O tag 24 (1018) opcode 0x1 (Write) QID 7 timeout, reset controller",
        ("nvme_reset", "nvme0"),
    ),
    (
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
        ("nvme_reset", "nvme0"),
    ),
    ("nvme nvme0: frozen state error detected, reset controller", ("nvme_reset", "nvme0")),
    ("nvme nvme2: Removing after probe failure status: -19", ("nvme_lost", "nvme2")),
    ("nvme nvme2: Disabling device after reset failure: -19", ("nvme_lost", "nvme2")),
    ("nfs: server nas01.example.com not responding, still trying", ("nfs_not_responding", "nas01.example.com")),
    ("nfs: server 10.0.0.9 not responding, timed out", ("nfs_not_responding", "10.0.0.9")),
    (
        (
            "Lustre: scratch-OST003a-osc-ffff3000ef06c000: Connection to scratch-OST003a (at 10.0.0.43@o2ib) was lost; "
            "in progress operations using this service will wait for recovery to complete"
        ),
        ("lustre_lost", "scratch-OST003a"),
    ),
    (
        (
            "LustreError: 166-1: MGC10.0.0.1@o2ib: Connection to MGS (at 10.0.0.1@o2ib) was lost; in progress "
            "operations using this service will fail"
        ),
        ("lustre_lost", "MGS"),
    ),
    (
        (
            "LustreError: 167-0: scratch-MDT0000-mdc-ffff8: This client was evicted by scratch-MDT0000; in progress "
            "operations using this service will fail."
        ),
        ("lustre_lost", "scratch-MDT0000"),
    ),
    (
        "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 4: e600000000020408",
        ("hardware_uncorrected", "CPU 2"),
    ),
    (
        "mce: [Hardware Error]: CPU 0: Machine Check Exception: f Bank 3: bd80000000070134",
        ("hardware_uncorrected", "CPU 0"),
    ),
    ("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 5: 9c00000000020e0f", ("hardware_corrected", "CPU 0")),
    ("[Hardware Error]: Corrected error, no action required.", ("hardware_corrected", "")),
    ("mce: [Hardware Error]: Deferred error, no action required.", ("hardware_corrected", "")),
    ("[Hardware Error]: Uncorrected, software restartable error.", ("hardware_uncorrected", "")),
    ("[Hardware Error]: Uncorrected, software containable error.", ("hardware_uncorrected", "")),
    ("[Hardware Error]: System Fatal error.", ("hardware_uncorrected", "")),
    ("{3}[Hardware Error]: event severity: corrected", ("hardware_corrected", "")),
    ("{1}[Hardware Error]: event severity: recoverable", ("hardware_uncorrected", "")),
    ("{1}[Hardware Error]: event severity: fatal", ("hardware_uncorrected", "")),
    (
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x12345 offset:0x0)",
        ("memory_corrected", "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"),
    ),
    (
        "EDAC MC2: 3 CE single-symbol chipkill ECC on unknown memory (node: 0 card: 0 module: 0)",
        ("memory_corrected", "MC2"),
    ),
    ("EDAC MC1: 1 UE Multi-bit ECC on P1-DIMMA1 (csrow:0 channel:0)", ("memory_uncorrected", "P1-DIMMA1")),
    (
        "Memory failure: 0xaf34214: recovery action for dirty LRU page: Recovered",
        ("memory_uncorrected", ""),
    ),
    (
        "pcieport 0000:a9:10.0: DPC: containment event, status:0x2009 source:0x0000",
        ("pcie_dpc", "0000:a9:10.0"),
    ),
    (
        "pcieport 0015:00:00.0: DPC: containment event, status:0x200d, ERR_FATAL received from 0015:01:00.0",
        ("pcie_dpc", "0015:00:00.0"),
    ),
    (
        "mce: CPU0: Core temperature above threshold, cpu clock throttled (total events = 171029)",
        ("cpu_thermal", "core"),
    ),
    (
        "CPU96: Package temperature is above threshold, cpu clock is throttled (total events = 1)",
        ("cpu_thermal", "package"),
    ),
]
NOT_TROUBLE = [
    "",
    "nfs: server nas01 OK",
    "nvme nvme0: 128/0/0 default/read/poll queues",
    "nvme nvme0: Abort status: 0x0",
    "nvme nvme0: resetting controller",
    "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:64:0a.0 (INTERRUPT)",
    "mce: [Hardware Error]: Machine check events logged",
    "mce: CPU0: Core temperature/speed normal",
    "{1}[Hardware Error]:  Error 0, type: corrected",
    "XFS (sda1): User initiated shutdown received. Shutting down filesystem",
    "XFS (sda1): Mounting V5 Filesystem",
    "EXT4-fs (sda1): re-mounted. Opts: (null)",
    "Lustre: scratch-OST003a-osc-ffff: Connection restored to scratch-OST003a (at 10.0.0.43@o2ib)",
    "oom_reaper: reaped process 4242 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=979",
    # What a process is called, and what a program may write there.
    "traps: Out of memory: Killed process 1 (init)",
    'audit: type=1400 comm="EXT4-fs (sda1): Remounting filesystem read-only"',
]


@pytest.mark.parametrize(("text", "said"), SAID, ids=[text[:60] for text, _ in SAID])
def test_a_message_of_the_kernel_is_understood(text: str, said: tuple[str, str]) -> None:
    message = parse_host_message(text)
    assert message is not None
    assert (message.trouble.value, message.subject) == said


@pytest.mark.parametrize("text", NOT_TROUBLE)
def test_anything_else_is_no_trouble(text: str) -> None:
    assert parse_host_message(text) is None


@pytest.mark.parametrize(
    ("text", "over"),
    [
        ("nfs: server nas01.example.com OK", ("nfs_not_responding", "nas01.example.com")),
        (
            "Lustre: scratch-OST003a-osc-ffff3000ef06c000: Connection restored to scratch-OST003a (at 10.0.0.43@o2ib)",
            ("lustre_lost", "scratch-OST003a"),
        ),
        (
            "Lustre: scratch-OST003a-osc-ffff3000ef06c000: Connection restored to  (at 10.0.0.43@o2ib)",
            ("lustre_lost", "scratch-OST003a"),
        ),
        (
            "EXT4-fs (nvme0n1p2): re-mounted 5e0f3f2c-4e4e-4b3a-9f3a-1b2c3d4e5f60 r/w. Quota mode: none.",
            ("filesystem_read_only", "nvme0n1p2"),
        ),
        (
            "EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: (null)",
            ("filesystem_read_only", "sda1"),
        ),
        ("XFS (dm-0): Unmounting Filesystem 5e0f3f2c-4e4e-4b3a-9f3a-1b2c3d4e5f60", ("filesystem_read_only", "dm-0")),
        ("XFS (dm-0): Mounting V5 Filesystem", ("filesystem_read_only", "dm-0")),
        ("nvme nvme2: pci function 0000:41:00.0", ("nvme_lost", "nvme2")),
    ],
)
def test_the_kernel_says_when_trouble_is_over(text: str, over: tuple[str, str]) -> None:
    said = parse_trouble_over(text)
    assert said is not None
    assert (said.trouble.value, said.subject) == over
    assert parse_host_message(text) is None


def test_every_kind_has_a_message() -> None:
    assert {kind for _, (kind, _) in (*SAID, *DRIVER, *DEVICES)} == {trouble.value for trouble in ProblemKind}


def test_a_process_is_named_by_its_pid_too() -> None:
    texts = [text for text, (kind, _) in SAID if kind in ("oom_kill", "hung_task")]
    said = [parse_host_message(text) for text in texts]
    assert [each.pid if each else None for each in said] == [31337, 4242, 812, 4242, 1234, 99]


def test_a_name_with_control_characters_is_printed_without_them() -> None:
    message = parse_host_message("INFO: task a\nb\x1b[31m:7 blocked for more than 122 seconds.")
    assert message is None or message.subject.isprintable()


def test_the_oom_killer_says_whose_process_it_chose() -> None:
    text = (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-aa.scope,mems_allowed=0-1,"
        "oom_memcg=/kubepods.slice/kubepods-pod1.slice,task_memcg=/kubepods.slice/kubepods-pod1.slice/"
        "cri-containerd-aa.scope,task=python3,pid=4242,uid=1000"
    )
    cgroup = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-aa.scope"
    assert parse_kill_order(text) == KillOrder(4242, cgroup)
    assert parse_kill_order(text[:-4]) is None
    assert parse_kill_order("Out of memory: Killed process 4242 (python3)") is None


@given(st.text(max_size=400))
def test_no_text_raises(text: str) -> None:
    parse_host_message(text)
    parse_trouble_over(text)
    parse_kill_order("oom-kill:constraint=" + text)
