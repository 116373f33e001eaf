"""The pages of the handbook, and how one is found: by alert, by finding, by Xid, or by its own name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from gpu_triage.diagnosis.codes import BY_CODE, Check, xid_check
from gpu_triage.handbook.index import first_sentence
from gpu_triage.handbook.words import FATAL_IN_TEXT, KINDS, meaning_of
from gpu_triage.hardware.xid_codes import UNLISTED_ACTION, UNLISTED_MEANING, XID_CODES, XidKind

INDEX: Final = "index"
PLAYBOOK: Final = "playbook"
XIDS: Final = "xids"
METRICS: Final = "metrics"
CONFIGURATION: Final = "configuration"

_HANDBOOK: Final = Path(__file__).resolve().parent
_RUNBOOKS: Final = _HANDBOOK / "runbooks"
_COMMENT: Final = re.compile(r"^<!--.*?-->\n?", re.MULTILINE | re.DOTALL)
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)
_XID: Final = re.compile(r"(?:xid)?[ ._#-]?(\d{1,4})")
_UNLISTED_ALERT: Final = "GpuXidUnlisted"
_LONGEST_WORD: Final = 64
"""Nothing in the handbook has a longer name; a longer word is not worth comparing with all names."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page.

    Attributes:
        name: what finds it, and its address under ``/runbooks/``.
        title: its heading.
        text: Markdown; links lead to other pages by their file names, as in the repository.
    """

    name: str
    title: str
    text: str


class UnknownPage(LookupError):
    """No page has this name.

    Attributes:
        nearest: names like it, the most similar first; may be empty.
    """

    def __init__(self, word: str, nearest: tuple[str, ...]) -> None:
        super().__init__(f"no alert, finding or Xid {word!r}")
        self.nearest = nearest


def alert_names() -> tuple[str, ...]:
    """Names of all alerts that have a runbook, sorted."""
    return tuple(sorted(path.stem for path in _RUNBOOKS.glob("Gpu*.md")))


def summary_of(alert: str) -> str:
    """The first sentence of an alert's runbook."""
    return first_sentence(_file(_RUNBOOKS / f"{alert}.md"))


def find(word: str) -> Page:
    """The page of an alert (``GpuLost``), a finding (``gpu.lost``), an Xid (``79``, ``xid-79``) or of the handbook.

    Case does not matter. A finding or an Xid comes before the runbook that helps with it, on the same page.

    Raises:
        UnknownPage: nothing has that name.
    """
    plain = " ".join(word.split()).removesuffix(".md").casefold()
    for name in (*alert_names(), PLAYBOOK, XIDS, METRICS, CONFIGURATION, INDEX):
        if plain == name.casefold():
            return _named(name)
    number = _XID.fullmatch(plain)
    if number is not None:
        return _xid_page(int(number[1]))
    check = BY_CODE.get(plain)
    if check is not None:
        return _finding_page(check)
    raise UnknownPage(word, _nearest(plain))


def _nearest(plain: str) -> tuple[str, ...]:
    if len(plain) > _LONGEST_WORD:
        return ()
    names = {name.casefold(): name for name in (*BY_CODE, *alert_names(), PLAYBOOK, XIDS, METRICS, CONFIGURATION)}
    # Whoever leaves out "Gpu" still means the alert.
    names |= {name.casefold().removeprefix("gpu"): name for name in alert_names()}
    found = get_close_matches(plain, names, n=5, cutoff=0.55)
    found += sorted(name for name in names if plain and plain in name)
    return tuple(dict.fromkeys(names[each] for each in found))[:5]


def _named(name: str) -> Page:
    if name in {METRICS, CONFIGURATION}:
        # Here and not above: only these two pages need the options and their values.
        from gpu_triage.reference import catalogue_specs, configuration_markdown, metrics_markdown  # noqa: PLC0415

        text = metrics_markdown(catalogue_specs()) if name == METRICS else configuration_markdown()
        return _page(name, text)
    if name in {PLAYBOOK, XIDS}:
        return _page(name, _file(_HANDBOOK / f"{name}.md"))
    return _page(name, _file(_RUNBOOKS / ("README.md" if name == INDEX else f"{name}.md")))


def _page(name: str, text: str) -> Page:
    title = _TITLE.search(text)
    return Page(name, title[1] if title else name, text)


def _file(path: Path) -> str:
    return _COMMENT.sub("", path.read_text(encoding="utf-8"))


def _finding_page(check: Check) -> Page:
    head = (
        f"# Finding {check.code}\n\n"
        f"{check.advice.meaning}\n\n"
        f"- **Do now:** {check.advice.decision}\n"
        f"- **Severity:** {check.severity.value}\n"
    )
    return _before_runbook(check.code, head, check.runbook)


def _xid_page(number: int) -> Page:
    xid = XID_CODES.get(number)
    if xid is None:
        head = (
            f"# Xid {number}\n\n"
            f"The driver reported Xid {number}: {UNLISTED_MEANING}.\n\n"
            f"- **Do now:** {UNLISTED_ACTION}\n"
            f"- **Urgency:** {KINDS[XidKind.TICKET]}\n"
        )
        return _before_runbook(f"xid-{number}", head, _UNLISTED_ALERT)
    fatal = f"- **Fatal or Nonfatal:** {FATAL_IN_TEXT}\n" if xid.fatal_in_text else ""
    head = (
        f"# Xid {number}\n\n"
        f"{meaning_of(xid)}.\n\n"
        f"- **Do now:** {xid.action}\n"
        f"- **Urgency:** {KINDS[xid.kind]}\n"
        f"{fatal}"
        "- **All codes:** [Xid codes](../xids.md)\n"
    )
    return _before_runbook(f"xid-{number}", head, xid_check(str(number)).runbook)


def _before_runbook(name: str, head: str, runbook: str) -> Page:
    title = head.partition("\n")[0].removeprefix("# ")
    if not runbook:
        return Page(name, title, head)
    return Page(name, title, f"{head}\n---\n\n{_file(_RUNBOOKS / f'{runbook}.md')}")
