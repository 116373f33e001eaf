"""Xids: lines of the kernel log, and their table: one code, one kind, one meaning, one action."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gathered import every

import gpu_triage
from gpu_triage.read.xid import codes
from gpu_triage.read.xid.codes import XID_CODES, XidKind, codes_of
from gpu_triage.read.xid.xid_events import parse_xid

GPU = "0000:65:00.0"


def parse(text: str) -> tuple[str, int | None] | None:
    found = parse_xid(text)
    return None if found is None else (found.gpu, found.code)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", (GPU, 79)),
        ("NVRM: Xid (PCI:0000:65:00): 31, Ch 0000000b, engmask 00000101, intr 10000000", (GPU, 31)),
        ("NVRM: Xid (0000:65:00): 13, 0003 00000000 0000a06f 00000b1c 00000000 00000000", (GPU, 13)),
        ("NVRM: Xid (PCI:00000000:65:00): 48, pid=1234, An uncorrectable double bit error", (GPU, 48)),
        ("NVRM: Xid (PCI:0000:65:00.0): 63, Row Remapper: New row marked for remapping", (GPU, 63)),
        ("NVRM: Xid (PCI:0000:65:00 GPU-I:05): 94, pid=7194, Contained: SM (0x1)", (GPU, 94)),
        ("NVRM: Xid (PCI:0008:01:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 00", ("0008:01:00.0", 145)),
        ("NVRM: Xid (PCI:10000:01:00): 62, 2351 (d0f)", ("10000:01:00.0", 62)),
        ("NVRM: Xid (PCI:0000:BA:00): 119, pid=2, Timeout after 6s of waiting for RPC", ("0000:ba:00.0", 119)),
        ("NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x0 to 0x2", (GPU, 154)),
        ("NVRM: Xid (PCI:0000:65:00): 99999", (GPU, 99999)),
        ("NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.", (GPU, None)),
        ("NVRM: GPU at PCI:0000:65:00: GPU has fallen off the bus.", (GPU, None)),
        ("NVRM: GPU at 0000:65:00.0 has fallen off the bus.", (GPU, None)),
        (
            "NVRM: The NVIDIA GPU 0000:65:00.0\nNVRM: (PCI ID: 10de:2330) has\nNVRM: fallen off the bus and is not",
            (GPU, None),
        ),
    ],
)
def test_what_the_driver_prints_is_understood(text: str, found: tuple[str, int | None]) -> None:
    assert parse(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05",
        "NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x62:0xffff:2477)",
        "NVRM: GPU at PCI:0000:65:00: GPU-4c59a93f-fe36-2e46-c3c6-6f22e3c89d8a",
        "NVRM: Xid (PCI:0000:65:00): unknown, pid=1",
        "NVRM: Xid (PCI:65:00): 79, GPU has fallen off the bus.",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "systemd[1]: NVRM: Xid (PCI:0000:65:00): 79, said somebody else",
        "pcieport 0000:64:00.0: device has fallen off the bus",
        "",
    ],
)
def test_what_is_no_xid_is_none(text: str) -> None:
    assert parse_xid(text) is None


def fatal(code: int, rest: str) -> bool | None:
    found = parse_xid(f"NVRM: Xid (PCI:0000:04:00): {code}{rest}")
    assert found is not None
    assert found.code == code
    return found.fatal


@pytest.mark.parametrize(
    ("code", "rest", "says"),
    [
        (149, ", NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)", True),
        (149, ", NETIR_LINK_EVT/NETIR_LINK_DOWN Nonfatal XC1 i0 Link 13 (0x00000011)", False),
        (144, ", SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001)", False),
        (150, ", MSE_WATCHDOG Fatal", True),
        (145, ", %s %s XC0 i0 Link 00 (%s %s 0x00000000)", None),
        (145, ", RLW_CTRL nonfatal XC0", None),
        (145, ", RLW_CTRL FATAL XC0", None),
        (145, ", RLW_CTRL Nonfatality XC0", None),
        (145, ", RLW_CTRL  Fatal XC0", True),
        (145, ", RLW_CTRL XC0 Fatal i0", None),
        (145, " Fatal", None),
        (145, ", Fatal", None),
        (145, "", None),
        (146, ", pid=1, name=Fatal Nonfatal XC0", None),
        (145, ", pid=4242, name=python3, RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x1)", False),
        (145, ", pid=4242, name=ray::Worker, RLW_RXPIPE Fatal XC0 i0 Link 13 (0x1)", True),
        (145, ", pid=4242, name=a, X Nonfatal , RLW_RXPIPE Fatal XC0 i0 Link 13 (0x1)", None),
        (149, ", NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x1)", True),
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
    assert fatal(code, rest) is says


@given(st.text(), st.sampled_from(["", "NVRM: Xid (", "NVRM: Xid (PCI:0000:65:00", "NVRM: GPU 0000:65:00.0"]))
def test_no_text_is_too_strange(text: str, head: str) -> None:
    found = parse_xid(head + text)
    assert found is None or found.gpu == GPU


SOURCES = Path(gpu_triage.__file__).parents[1]


def test_every_code_is_listed_under_its_own_number_in_order() -> None:
    assert all(code == xid.code for code, xid in XID_CODES.items())
    assert list(XID_CODES) == sorted(XID_CODES)


def test_a_gpu_that_must_not_go_on_pages() -> None:
    known_to_stop_a_gpu = {46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 158, 167, *range(144, 151)}
    assert set(codes_of(XidKind.PAGE)) == known_to_stop_a_gpu


def test_only_nvlink_5_xids_say_in_their_text_whether_they_are_fatal() -> None:
    assert [xid.code for xid in XID_CODES.values() if xid.fatal_in_text] == list(range(144, 151))


def test_no_other_module_keeps_a_list_of_codes() -> None:
    lists = re.compile(r"(?<![0-9])(?:13, 31, 32|48, 62, 64|63, 92, 94|range\(144)")
    found = [
        path.relative_to(SOURCES)
        for path in every(SOURCES.rglob("*.py"))
        if path != Path(codes.__file__) and lists.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []
