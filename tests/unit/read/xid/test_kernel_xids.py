"""The kernel log, its lines about Xids, and their table: one code, one kind, one meaning, one action."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_triage.errors import HostReadFailed
from gpu_triage.read.xid.kernel_records import ROUND_BYTES, KernelLog
from gpu_triage.read.xid.xid_events import (
    CardFound,
    DriverLoaded,
    KernelNews,
    XidReport,
    XidSource,
    nvlink_error,
    parse_news,
    parse_xid,
)

NOW = 1000.0
GPU = "0000:65:00.0"
XID = "NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def record(sequence: int, seconds: float, text: str = XID, priority: int = 4, flags: str = "-") -> str:
    return f"{priority},{sequence},{round(seconds * 1e6)},{flags};{text}\n"


def log(tmp_path: Path, *records: str) -> Path:
    path = tmp_path / "kmsg"
    path.write_text("".join(records))
    return path


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def codes(kernel: KernelLog) -> list[int | None]:
    """The Xids that the log has now."""
    return [xid.code for found in kernel.read(NOW) if (xid := parse_xid(found.message)) is not None]


def test_a_file_is_read_on_from_where_it_ended(tmp_path: Path) -> None:
    path = log(tmp_path, record(1, 100.0))
    kernel = KernelLog(path)
    assert codes(kernel) == [79]
    assert kernel.read(NOW) == []
    append(path, record(2, 1000.0, XID.replace("79", "48")).encode())
    assert codes(kernel) == [48]


def test_a_clock_that_fell_behind_is_put_right_by_no_more_than_the_last_reading_proves(tmp_path: Path) -> None:
    path = log(tmp_path)
    kernel = KernelLog(path)
    kernel.read(100.0)
    append(path, record(1, 90.0).encode())
    assert [found.at for found in kernel.read(105.0)] == [100.0]


def test_a_line_that_is_not_written_to_its_end_is_kept_for_later(tmp_path: Path) -> None:
    path = log(tmp_path)
    kernel = KernelLog(path)
    line = record(1, 100.0).encode()
    for cut in (b"", line[:30], line[30:]):
        assert kernel.read(NOW) == []
        append(path, cut)
    assert codes(kernel) == [79]


def test_lines_that_continue_a_record_are_passed_over(tmp_path: Path) -> None:
    continued = " SUBSYSTEM=pci\n DEVICE=+pci:0000:65:00.0\n"
    path = log(tmp_path, record(1, 99.0, flags="-,caller=T1"), continued, record(2, 100.0))
    assert codes(KernelLog(path)) == [79, 79]


@given(st.binary(max_size=300))
@example(b"\x00\xff\xfe\n,,,;\n4,x,1,-;" + XID.encode() + b"\n;\n4,5,6,-;NVRM: Xid \xff\xfe(PCI:")
def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "junk"
    path.write_bytes(junk + b"\n" + record(1, 10.0).encode())
    assert codes(KernelLog(path)) == [79]


def test_an_enormous_line_is_dropped_and_the_next_is_read(tmp_path: Path) -> None:
    path = log(tmp_path, record(1, 9.0, "x" * 300_000), record(2, 10.0))
    kernel_log = KernelLog(path)
    assert [len(found.text) <= 8192 for found in kernel_log.read(NOW)] == [True]
    append(path, b"4,3,4,-;" + b"y" * 100_000)
    assert kernel_log.read(NOW) == []
    assert len(kernel_log._partial) <= 8192
    append(path, b"yyy\n" + record(4, 10.0).encode())
    assert [found.sequence for found in kernel_log.read(NOW)] == [4]


def test_a_round_is_bounded_and_the_rest_comes_later(tmp_path: Path) -> None:
    one = record(1, 9.0, "usb 1-1: " + "x" * 1000)
    path = log(tmp_path, one * (2 * ROUND_BYTES // len(one)), record(2, 10.0))
    kernel = KernelLog(path)
    sizes: list[int] = []
    drained: list[bool] = []
    while not drained or not drained[-1]:
        sizes.append(sum(len(found.text) for found in kernel.read(NOW)))
        drained.append(kernel.drained)
    assert max(sizes) <= ROUND_BYTES
    assert drained == [False, False, True]


class Device:
    """Answers read(2) as /dev/kmsg does: a record a call, or an error."""

    def __init__(self, *answers: str | OSError) -> None:
        self.answers = list(answers)

    def read(self, _file: int, _size: int) -> bytes:
        answer = self.answers.pop(0) if self.answers else BlockingIOError()
        if isinstance(answer, OSError):
            raise answer
        return answer.encode()


def test_a_log_that_is_overwritten_all_the_time_does_not_hold_the_round_up(tmp_path: Path) -> None:
    device = Device(*[BrokenPipeError() for _ in range(1000)])
    kernel = KernelLog(log(tmp_path), device.read)
    assert kernel.read(NOW) == []
    assert not kernel.drained
    assert len(device.answers) > 0


def test_records_that_were_overwritten_are_counted_by_their_numbers(tmp_path: Path) -> None:
    """Documentation/ABI/testing/dev-kmsg: after EPIPE, the sequence numbers tell how many messages were lost."""
    device = Device(BrokenPipeError(), record(7, 9.0), BrokenPipeError(), BrokenPipeError(), record(50, 10.0))
    kernel = KernelLog(log(tmp_path), device.read)
    assert [found.sequence for found in kernel.read(NOW)] == [7, 50]
    assert kernel.drained
    assert kernel.lost == 42  # and none before the first: nobody had read them anyway
    device.answers = [record(51, 11.0), BrokenPipeError(), BlockingIOError(), record(53, 12.0)]
    kernel.read(NOW)
    assert kernel.lost == 42
    kernel.read(NOW)
    assert kernel.lost == 43


def test_what_was_overwritten_while_the_log_could_not_be_read_is_counted_once(tmp_path: Path) -> None:
    device = Device(record(7, 9.0))
    kernel = KernelLog(log(tmp_path), device.read)
    kernel.read(NOW)
    device.answers = [BrokenPipeError(), record(20, 10.0), OSError(5, "Input/output error")]
    with pytest.raises(HostReadFailed):
        kernel.read(NOW)
    assert kernel.lost == 0
    device.answers = [record(20, 10.0), record(21, 10.0)]
    assert [found.sequence for found in kernel.read(NOW)] == [20, 21]
    assert kernel.lost == 12


def test_after_an_error_it_goes_on_behind_the_last_record(tmp_path: Path) -> None:
    path = log(tmp_path, record(1, 9.0), record(2, 10.0))
    failing: list[OSError] = []

    def read(file: int, size: int) -> bytes:
        if failing:
            raise failing.pop()
        return os.read(file, size)

    kernel = KernelLog(path, read)
    assert [found.sequence for found in kernel.read(NOW)] == [1, 2]
    append(path, record(3, 11.0).encode())
    failing.append(OSError(5, "Input/output error"))
    with pytest.raises(HostReadFailed) as error:
        kernel.read(NOW)
    assert error.value.reason == "io_error"
    assert [found.sequence for found in kernel.read(NOW)] == [3]


def refused(_file: int, _size: int) -> bytes:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize(
    ("path", "read", "reason"),
    [("none", os.read, "missing"), (".", os.read, "io_error"), ("kmsg", refused, "no_permission")],
)
def test_an_unreadable_log_says_so(tmp_path: Path, path: str, read: Callable[[int, int], bytes], reason: str) -> None:
    log(tmp_path)
    with pytest.raises(HostReadFailed) as error:
        KernelLog(tmp_path / path, read).read(NOW)
    assert error.value.reason == reason


def test_a_printk_clock_that_drifted_is_put_right_by_the_first_new_record(tmp_path: Path) -> None:
    path = log(tmp_path, record(1, 700.0, "old"))
    kernel = KernelLog(path)
    kernel.read(NOW)
    # printk is 100 s behind: written within this second, it is stamped 900.5.
    append(path, record(2, 900.5).encode())
    (found,) = kernel.read(NOW + 1)
    assert NOW <= found.at <= NOW + 1


LOADING = "NVRM: loading NVIDIA UNIX "
CARD = "pci 0000:65:00.0: [10de:2330] type 00 class 0x030200"
LOST = r"NVRM: The NVIDIA GPU 0000:65:00.0\x0aNVRM: (PCI ID: 10de:2330) has\x0aNVRM: fallen off the bus and"
KERNEL, PROCESS = 4, 12


@pytest.mark.parametrize(
    ("text", "priority", "seconds", "news"),
    [
        (XID, KERNEL, 100.0, XidReport(GPU, 79, XidSource.KMSG, 100.0, 100.0)),
        (XID, KERNEL, 1060.0, XidReport(GPU, 79, XidSource.KMSG, NOW, NOW)),  # no Xid is of the future
        (LOST, KERNEL, 9.0, XidReport(GPU, None, XidSource.KMSG, 9.0, 9.0)),  # escapes are undone
        (f"{LOADING}x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30", KERNEL, 9.0, DriverLoaded(9.0)),
        (f"{LOADING}Open Kernel Module for x86_64  580.95.05", KERNEL, 9.0, DriverLoaded(9.0)),
        (f"systemd[1]: {LOADING}x86_64 Kernel Module  550.54.14", KERNEL, 9.0, None),
        (CARD, KERNEL, 9.0, CardFound(GPU, 9.0)),
        (f"{CARD} PCIe Endpoint", KERNEL, 9.0, CardFound(GPU, 9.0)),
        ("pci 10000:01:00.0: [10de:2684] type 00 class 0x030000", KERNEL, 9.0, CardFound("10000:01:00.0", 9.0)),
        ("pci 0000:65:00.1: [10de:22ba] type 00 class 0x040300", KERNEL, 9.0, None),
        ("pci 0000:65:00.0: [15b3:1021] type 00 class 0x020700", KERNEL, 9.0, None),
        ("pci 0000:65:00.0: BAR 0: assigned [mem 0xd0000000-0xd0ffffff]", KERNEL, 9.0, None),
        ("NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x62:0xffff:2477)", KERNEL, 9.0, None),
        ("usb 1-1: new device", KERNEL, 9.0, None),
        # What a process writes into the log is not the kernel's word.
        (XID, PROCESS, 9.0, None),
        (CARD, PROCESS, 9.0, None),
    ],
)
def test_a_record_is_news(tmp_path: Path, text: str, priority: int, seconds: float, news: KernelNews | None) -> None:
    found = KernelLog(log(tmp_path, record(1, seconds, text, priority))).read(NOW)
    assert [parse_news(each.message, each.at) for each in found] == ([news] if priority == KERNEL else [])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", (GPU, 79)),
        ("NVRM: Xid (0000:65:00): 13, 0003 00000000 0000a06f 00000b1c 00000000 00000000", (GPU, 13)),
        ("NVRM: Xid (PCI:00000000:65:00): 48, pid=1234, An uncorrectable double bit error", (GPU, 48)),
        ("NVRM: Xid (PCI:0000:65:00.0): 63, Row Remapper: New row marked for remapping", (GPU, 63)),
        ("NVRM: Xid (PCI:0000:65:00 GPU-I:05): 94, pid=7194, Contained: SM (0x1)", (GPU, 94)),
        ("NVRM: Xid (PCI:0008:01:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 00", ("0008:01:00.0", 145)),
        ("NVRM: Xid (PCI:10000:01:00): 62, 2351 (d0f)", ("10000:01:00.0", 62)),
        ("NVRM: Xid (PCI:0000:BA:00): 119, pid=2, Timeout after 6s of waiting for RPC", ("0000:ba:00.0", 119)),
        ("NVRM: Xid (PCI:0000:65:00): 99999", (GPU, 99999)),
        ("NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.", (GPU, None)),
        ("NVRM: GPU at PCI:0000:65:00: GPU has fallen off the bus.", (GPU, None)),
        ("NVRM: GPU at 0000:65:00.0 has fallen off the bus.", (GPU, None)),
        (
            "NVRM: The NVIDIA GPU 0000:65:00.0\nNVRM: (PCI ID: 10de:2330) has\nNVRM: fallen off the bus and is not",
            (GPU, None),
        ),
        *(
            (text, None)
            for text in (
                "NVRM: GPU at PCI:0000:65:00: GPU-4c59a93f-fe36-2e46-c3c6-6f22e3c89d8a",
                "NVRM: Xid (PCI:0000:65:00): unknown, pid=1",
                "NVRM: Xid (PCI:65:00): 79, GPU has fallen off the bus.",
                "systemd[1]: NVRM: Xid (PCI:0000:65:00): 79, said somebody else",
                "pcieport 0000:64:00.0: device has fallen off the bus",
            )
        ),
    ],
)
def test_what_the_driver_prints_is_understood_and_nothing_else(text: str, found: tuple[str, int | None] | None) -> None:
    xid = parse_xid(text)
    assert (None if xid is None else (xid.gpu, xid.code)) == found


@pytest.mark.parametrize(
    ("code", "rest", "says"),
    [
        (149, ", NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)", True),
        (149, ", NETIR_LINK_EVT/NETIR_LINK_DOWN Nonfatal XC1 i0 Link 13 (0x00000011)", False),
        (144, ", SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001)", False),
        (150, ", MSE_WATCHDOG Fatal", True),
        (145, ", %s %s XC0 i0 Link 00 (%s %s 0x00000000)", None),
        (145, ", RLW_CTRL FATAL XC0", None),
        (145, ", RLW_CTRL  Fatal XC0", True),
        (145, ", RLW_CTRL XC0 Fatal i0", None),
        (145, " Fatal", None),
        (146, ", pid=1, name=Fatal Nonfatal XC0", None),
        (145, ", pid=4242, name=python3, RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x1)", False),
        (145, ", pid=4242, name=ray::Worker, RLW_RXPIPE Fatal XC0 i0 Link 13 (0x1)", True),
        (145, ", pid=4242, name=a, X Nonfatal , RLW_RXPIPE Fatal XC0 i0 Link 13 (0x1)", None),
        (146, f", {'A' * 65} Fatal XC0", None),
        (79, ", GPU Fatal XC0", None),
        (1440, ", SAW_MVB Fatal XC0", None),
    ],
)
def test_only_the_word_after_the_unit_of_an_nvlink_5_xid_says_whether_it_is_fatal(
    code: int,
    rest: str,
    says: bool | None,  # noqa: FBT001 - a parameter of the table
) -> None:
    found = parse_xid(f"NVRM: Xid (PCI:0000:04:00): {code}{rest}")
    assert found is not None
    assert (found.code, found.fatal) == (code, says)


# Each row is one of NVIDIA's sheet "Xid 144-150 Decode", or a line of a driver.
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008 0x00000000)", "0x8; uncorrected memory errors"),
        ("144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000004 0x00000000)", "0x4"),
        ("144, SAW_MVB Fatal XC0 i0 Link 0 (0x00000001 0x00000002 0x00000000)", "0x2"),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 0 (0x00000004 0x00000020 0x00000000)", "0x20; the program has died"),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 0 (0x00000004 0x00000100 0x00000000)", "0x100"),
        ("145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x0)", "0x8; the program has died"),
        ("145, RLW_RXPIPE Nonfatal XC0 i0 Link 3 (0x00000006 0x00000004 0x0)", "0x4; packets were lost"),
        ("146, TLW_RX/TLW_RX_PIPE1 Nonfatal XC0 i0 Link 3 (0x0b 0x00000002 0x0)", "0x2; uncorrected memory errors"),
        ("146, TLW_TX/TLW_TX_PIPE0 Nonfatal XC0 i0 Link 3 (0x0c 0x80000000 0x0)", "0x80000000"),
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)", "link 1 down: the device at its other"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)", "link 8 down: a bad signal"),
        ("149, NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]", "link 1 down"),
    ],
)
def test_an_nvlink_5_xid_tells_what_it_does_to_jobs_or_why_the_link_is_down(line: str, says: str) -> None:
    told = nvlink_error(f"NVRM: Xid (PCI:0008:01:00): {line}")
    assert says in told
    assert bool(re.search("[;:]", told)) is bool(re.search("[;:]", says)), "nothing beyond"


@given(st.text(), st.sampled_from(["", "NVRM: Xid (", "NVRM: Xid (PCI:0000:65:00", "NVRM: GPU 0000:65:00.0"]))
def test_no_text_is_too_strange(text: str, head: str) -> None:
    found = parse_xid(head + text)
    assert found is None or found.gpu == GPU
