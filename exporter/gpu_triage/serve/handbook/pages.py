"""Handbook pages, found by alert, finding, Xid or page name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.documents import packaged
from gpu_triage.judge.findings.table import BY_CODE, Check, xid_check
from gpu_triage.read.xid.codes import UNLISTED_MEANING, XID_CODES, XidCode, XidKind

INDEX: Final = "index"
PLAYBOOK: Final = "playbook"
XIDS: Final = "xids"
METRICS: Final = "metrics"
CONFIGURATION: Final = "configuration"
_OWN_PAGES: Final = (PLAYBOOK, XIDS, METRICS, CONFIGURATION)

FATAL_IN_TEXT: Final = (
    "The kernel log has Fatal or Nonfatal after the code. A Nonfatal error is a ticket: the GPU keeps working."
)
_URGENCIES: Final[Mapping[XidKind, str]] = MappingProxyType(
    {
        XidKind.PAGE: "critical, pages on-call: the GPU must be taken out of use",
        XidKind.TICKET: "a ticket for the working day",
        XidKind.APPLICATION: "a matter of the job: a program caused it",
        XidKind.INFORMATION: "context only: no alert",
    }
)

_LISTED: Final = re.compile(r"\((Gpu\w+)\.md\)")
_COMMENT: Final = re.compile(r"^<!--.*?-->\n?", re.MULTILINE | re.DOTALL)
_XID: Final = re.compile(r"(?:xid)?[ ._#-]?(\d{1,4})")
_UNLISTED_ALERT: Final = "GpuXidUnlisted"
_LONGEST_WORD: Final = 64
"""No handbook page has a longer name, so a longer word is not compared with them."""


class Page(NamedTuple):
    title: str
    text: str


class UnknownPage(LookupError):
    """No page has this name; `nearest` holds similar names, most similar first."""

    def __init__(self, word: str, nearest: tuple[str, ...]) -> None:
        super().__init__(f"no alert, finding or Xid {word!r}")
        self.nearest = nearest


def alert_names() -> tuple[str, ...]:
    """Names of all alerts with a runbook, sorted."""
    return tuple(sorted(set(_LISTED.findall(_own_page(INDEX)))))


def first_sentence(text: str) -> str:
    """The first sentence under a page's title."""
    return " ".join(text.split("\n\n")[1].split()).split(". ")[0].removesuffix(".") + "."


def summary_of(alert: str) -> str:
    return first_sentence(_file(f"runbooks/{alert}"))


def meaning_of(xid: XidCode) -> str:
    """The meaning of an Xid as a sentence without a period, with the GPUs that report it."""
    since = f", on {xid.since}" if xid.since else ""
    return f"{xid.meaning[:1].upper()}{xid.meaning[1:]}{since}"


def find(word: str) -> Page:
    """Find a page by alert (``GpuLost``), finding (``gpu.lost``), Xid (``79``, ``xid-79``) or page name.

    Case-insensitive. The page of a finding or Xid ends with its runbook. Raises UnknownPage if there is no such page.
    """
    plain = " ".join(word.split()).removesuffix(".md").casefold()
    own = {name.casefold(): name for name in (*alert_names(), *_OWN_PAGES, INDEX)}
    if plain in own:
        text = _own_page(own[plain])
    elif number := _XID.fullmatch(plain):
        text = _xid_page(int(number[1]))
    elif check := BY_CODE.get(plain):
        text = _finding_page(check)
    else:
        raise UnknownPage(word, _nearest(plain))
    return Page(text.partition("\n")[0].removeprefix("# "), text)


def _nearest(plain: str) -> tuple[str, ...]:
    if len(plain) > _LONGEST_WORD:
        return ()
    names = {name.casefold(): name for name in (*BY_CODE, *alert_names(), *_OWN_PAGES)}
    # Match alert names without the "Gpu" prefix, too.
    names |= {name.casefold().removeprefix("gpu"): name for name in alert_names()}
    found = get_close_matches(plain, names, n=5, cutoff=0.55)
    found += sorted(name for name in names if plain and plain in name)
    return tuple(dict.fromkeys(names[each] for each in found))[:5]


def _own_page(name: str) -> str:
    if name in {METRICS, CONFIGURATION}:
        # Imported lazily: only these two pages need the options and their values.
        from gpu_triage.serve.handbook.reference import configuration_markdown, metrics_markdown  # noqa: PLC0415

        return metrics_markdown() if name == METRICS else configuration_markdown()
    if name in {PLAYBOOK, XIDS}:
        return _file(name)
    return _file(f"runbooks/{'README' if name == INDEX else name}")


def _file(name: str) -> str:
    return _COMMENT.sub("", packaged(__package__, f"{name}.md"))


def _finding_page(check: Check) -> str:
    severity = f"- **Severity:** {check.severity.value}\n"
    return _before_runbook(f"Finding {check.code}\n\n{check.advice.meaning}", check, severity, check.runbook)


def _xid_page(number: int) -> str:
    xid, check = XID_CODES.get(number), xid_check(str(number))
    meaning = f"The driver reported Xid {number}: {UNLISTED_MEANING}" if xid is None else meaning_of(xid)
    urgency = f"- **Urgency:** {_URGENCIES[XidKind.TICKET if xid is None else xid.kind]}\n"
    about = f"Xid {number}\n\n{meaning}."
    if xid is None:
        return _before_runbook(about, check, urgency, _UNLISTED_ALERT)
    fatal = f"- **Fatal or Nonfatal:** {FATAL_IN_TEXT}\n" if xid.fatal_in_text else ""
    return _before_runbook(about, check, urgency, check.runbook, f"{fatal}- **All codes:** [Xid codes](../xids.md)\n")


def _before_runbook(about: str, check: Check, urgency: str, runbook: str, more: str = "") -> str:
    """What to do, how long a finding must last and how it ends (exporter options can change both), and its runbook."""
    stands_still = "; while the GPU is not under load, both clocks stand still" if check.under_load else ""
    life = f"- **By default:** {check.life}{stands_still}\n"
    head = f"# {about}\n\n- **Do now:** {check.advice.anywhere}\n{urgency}{life}{more}"
    return f"{head}\n---\n\n{_file(f'runbooks/{runbook}')}" if runbook else head
