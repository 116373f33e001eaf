"""Placeholders in the rules' source, ``${name}``: macros, and values from the settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from gpu_triage.alerting.rule_source import SourceError, read_expressions, read_macros
from gpu_triage.read.xid.codes import NONFATAL_ACTION, NONFATAL_MEANING, XID_CODES, XidCode, XidKind
from gpu_triage.read.xid.xid_events import NEVER_FROM_NVML

PLACEHOLDER: Final = re.compile(r"\$\{([a-z][a-z0-9_]*(?::[a-z]+)?)\}")
_FIRST_XIDS: Final = ("79", "95", "64", "140", "48", "94")
"""If several Xids came together, a text is about the first of these, or else about another one."""


def filled_in(where: str, text: str, values: Mapping[str, str]) -> str:
    """Replace every placeholder with its value; `where` is the name for error messages.

    Raises:
        SourceError: a placeholder has no value, or is malformed.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise SourceError(f"{where}: {found[0]} is unknown; known are {', '.join(sorted(values))}")
        return values[found[1]]

    if "${" in PLACEHOLDER.sub("", text):
        raise SourceError(f"{where}: '${{' begins no token; write ${{name}} in lower case")
    return PLACEHOLDER.sub(value, text)


def expanded_expr(expr: str) -> str:
    """Expand shared parts and lists of Xid codes in an expression; placeholders for settings are kept."""
    return _expanded(expr, expression_macros())


def expanded_text(text: str) -> str:
    """Expand the macros in a summary or description; placeholders for settings are kept."""
    return _expanded(text, text_macros())


@cache
def expression_macros() -> Mapping[str, str]:
    """Macros of expressions, by name: lists of Xid codes, and parts that several rules share."""
    found = dict(xid_lists())
    for name, text in read_expressions().items():
        found[name] = _expanded(text, found)
    return MappingProxyType(found)


@cache
def text_macros() -> Mapping[str, str]:
    """Macros of summaries and descriptions, by name, expanded to Prometheus templates."""
    found = {**xid_lists(), **xid_texts()}
    for name, text in read_macros().items():
        found[name] = _expanded(text, found)
    return MappingProxyType(found)


@cache
def xid_lists() -> Mapping[str, str]:
    """Lists of Xid codes as regular expressions for label matchers, ``46|48|…``, by macro."""
    every = XID_CODES.values()
    page = [each for each in every if each.kind is XidKind.PAGE]
    lists: dict[str, Iterable[XidCode]] = {
        **{f"xids_{kind.value}": [each for each in every if each.kind is kind] for kind in XidKind},
        "xids_page_nvlink": [each for each in page if each.nvlink],
        "xids_page_other": [each for each in page if not each.nvlink],
        "xids_fatal_in_text": [each for each in every if each.fatal_in_text],
        "xids_listed": every,
    }
    return MappingProxyType({name: "|".join(str(each.code) for each in codes) for name, codes in lists.items()})


@cache
def xid_texts() -> Mapping[str, str]:
    """Prometheus templates with the meaning of, or action for, the most important code in ``$codes``, by macro."""
    texts = {}
    for kind in (XidKind.PAGE, XidKind.TICKET):
        codes = [(str(each.code), each.meaning, each.action) for each in XID_CODES.values() if each.kind is kind]
        if kind is XidKind.TICKET:
            codes.append(("nonfatal", NONFATAL_MEANING, NONFATAL_ACTION))
        texts[f"xid_words_{kind.value}"] = _template((code, meaning) for code, meaning, _ in codes)
        texts[f"xid_action_{kind.value}"] = _template((code, action) for code, _, action in codes)
    *first, last = NEVER_FROM_NVML
    texts["xids_never_from_nvml"] = f"{', '.join(map(str, first))} and {last}"
    return MappingProxyType(texts)


def plain(number: float) -> str:
    """Format a number without exponent or trailing zeros, as the Helm template does."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def percent(share: float) -> str:
    """Format a ratio as a percentage, as the Helm template does."""
    return f"{share * 100:.4f}".rstrip("0").rstrip(".") + "%"


def _expanded(text: str, macros: Mapping[str, str]) -> str:
    """Replace the placeholders that are macros; the lines of a macro get the indentation of the line that it is in."""

    def value(found: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, found.start()) + 1 :]
        return macros.get(found[1], found[0]).replace("\n", "\n" + " " * (len(line) - len(line.lstrip(" "))))

    return PLACEHOLDER.sub(value, text)


def _template(text_of_code: Iterable[tuple[str, str]]) -> str:
    def place(code: str) -> int:
        return _FIRST_XIDS.index(code) if code in _FIRST_XIDS else len(_FIRST_XIDS)

    codes_by_text: dict[str, list[str]] = {}
    for code, text in sorted(text_of_code, key=lambda each: place(each[0])):
        codes_by_text.setdefault(text, []).append(code)
    branches = [f'if match " ({"|".join(codes)}) " $codes }}}}{t}{{{{ ' for t, codes in codes_by_text.items()]
    return "{{ " + "else ".join(branches) + "end }}"
