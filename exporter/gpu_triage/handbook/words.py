"""Words for Xids that the pages and the generated tables share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.hardware.xid_codes import XidCode, XidKind

KINDS: Final[Mapping[XidKind, str]] = MappingProxyType(
    {
        XidKind.PAGE: "pages a person: the GPU must not go on",
        XidKind.TICKET: "a ticket for the working day",
        XidKind.APPLICATION: "a matter of the job: a program caused it",
        XidKind.INFORMATION: "context only: nobody is told",
    }
)
"""How urgent the Xids of a kind are."""

FATAL_IN_TEXT: Final = (
    "The kernel log says Fatal or Nonfatal after the code. A Nonfatal error is a ticket: the GPU goes on working."
)


def meaning_of(xid: XidCode) -> str:
    """Its meaning as a sentence without a full stop, with the GPUs that report it."""
    since = f", on {xid.since}" if xid.since else ""
    return f"{xid.meaning[:1].upper()}{xid.meaning[1:]}{since}"


def xid_table(codes: Iterable[XidCode]) -> str:
    """A Markdown table of the codes, one row for those that share meaning and action; ends with a newline."""
    rows: dict[tuple[str, str], list[int]] = {}
    for xid in codes:
        rows.setdefault((meaning_of(xid), xid.action), []).append(xid.code)
    lines = [f"| {_ranges(numbers)} | {meaning} | {action} |" for (meaning, action), numbers in rows.items()]
    return "\n".join(("| Xid | It means | Do now |", "|---|---|---|", *lines, ""))


def _ranges(numbers: list[int]) -> str:
    """``99-105`` for consecutive codes, else ``122, 123``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(
        f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part))  # noqa: PLR2004 - "1, 2" beats "1-2"
        for part in parts
    )
