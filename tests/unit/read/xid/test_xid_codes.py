"""The table of Xids: one code, one kind, one meaning, one action."""

from __future__ import annotations

import re
from pathlib import Path

from tests.gathered import every

import gpu_triage
from gpu_triage.read.xid import codes
from gpu_triage.read.xid.codes import UNLISTED_MEANING, UNLISTED_REMEDY, XID_CODES, XidKind, codes_of, with_verb

SOURCES = Path(gpu_triage.__file__).parents[1]
MOST_ACTION_CHARACTERS = 120


def test_every_code_is_listed_under_its_own_number_in_order() -> None:
    assert all(code == xid.code for code, xid in XID_CODES.items())
    assert list(XID_CODES) == sorted(XID_CODES)


def test_every_code_is_of_exactly_one_kind() -> None:
    listed = [code for kind in XidKind for code in codes_of(kind)]
    assert sorted(listed) == list(XID_CODES)


def test_a_gpu_that_must_not_go_on_pages() -> None:
    known_to_stop_a_gpu = {46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 158, 167, *range(144, 151)}
    assert set(codes_of(XidKind.PAGE)) == known_to_stop_a_gpu


def test_power_cable_key_rotation_and_nvlink_software_errors_get_a_ticket() -> None:
    assert {54, 151, 155} <= set(codes_of(XidKind.TICKET))


def test_only_nvlink_5_xids_say_in_their_text_whether_they_are_fatal() -> None:
    assert [xid.code for xid in XID_CODES.values() if xid.fatal_in_text] == list(range(144, 151))


def test_meanings_complete_a_sentence_and_actions_are_one() -> None:
    for xid in XID_CODES.values():
        assert re.fullmatch(r"[a-z][^.]*|PCIe [^.]*|ECC [^.]*", xid.meaning), xid
        assert re.fullmatch(r"[A-Z].*\.", xid.action), xid
        assert len(xid.action) <= MOST_ACTION_CHARACTERS, xid
        assert ". " not in xid.action, xid
    assert re.fullmatch(r"[a-z][^.]*", UNLISTED_MEANING)
    assert re.fullmatch(r"[A-Z].*\.", with_verb(UNLISTED_REMEDY))


def test_no_other_module_keeps_a_list_of_codes() -> None:
    lists = re.compile(r"(?<![0-9])(?:13, 31, 32|48, 62, 64|63, 92, 94|range\(144)")
    found = [
        path.relative_to(SOURCES)
        for path in every(SOURCES.rglob("*.py"))
        if path != Path(codes.__file__) and lists.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []
