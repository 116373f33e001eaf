"""Lists and texts of Xid codes for rules, from the one table of codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from gpu_triage.hardware.xid_codes import NONFATAL_ACTION, NONFATAL_MEANING, XID_CODES, XidCode, XidKind

_FIRST: Final = (79, 95, 64, 140, 48, 94)
"""What a text is about if several codes came together: these, in this order, then the others."""


@cache
def code_lists() -> Mapping[str, str]:
    """Lists of codes as patterns of a label matcher, ``46|48|…``, by token."""
    page = [each for each in XID_CODES.values() if each.kind is XidKind.PAGE]
    lists: dict[str, Iterable[XidCode]] = {
        **{f"xids_{kind.value}": [each for each in XID_CODES.values() if each.kind is kind] for kind in XidKind},
        "xids_page_nvlink": [each for each in page if each.nvlink],
        "xids_page_other": [each for each in page if not each.nvlink],
        "xids_fatal_in_text": [each for each in XID_CODES.values() if each.fatal_in_text],
        "xids_listed": XID_CODES.values(),
    }
    return MappingProxyType({name: "|".join(str(each.code) for each in codes) for name, codes in lists.items()})


@cache
def code_texts() -> Mapping[str, str]:
    """Prometheus templates that say what the most important of the codes in ``$codes`` means or asks for, by token."""
    texts = {}
    for kind in (XidKind.PAGE, XidKind.TICKET):
        codes = [(each.code, each.meaning, each.action) for each in XID_CODES.values() if each.kind is kind]
        if kind is XidKind.TICKET:
            # Those that the kernel log calls Nonfatal get a ticket too, after what never says so.
            nonfatal = (each.code for each in XID_CODES.values() if each.fatal_in_text)
            codes += [(code, NONFATAL_MEANING, NONFATAL_ACTION) for code in nonfatal]
        texts[f"xid_words_{kind.value}"] = _chain((code, meaning) for code, meaning, _ in codes)
        texts[f"xid_action_{kind.value}"] = _chain((code, action) for code, _, action in codes)
    return MappingProxyType(texts)


def _chain(text_of_code: Iterable[tuple[int, str]]) -> str:
    by_text: dict[str, list[str]] = {}
    for code, text in sorted(
        text_of_code, key=lambda each: _FIRST.index(each[0]) if each[0] in _FIRST else len(_FIRST)
    ):
        by_text.setdefault(text, []).append(str(code))
    branches = [
        f'if match "(^| )({"|".join(numbers)})( |$)" $codes }}}}{text}{{{{ ' for text, numbers in by_text.items()
    ]
    return "{{ " + "else ".join(branches) + "end }}"
