"""Handbook pages, found by alert, finding, Xid or page name."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Final, NamedTuple

from gpu_triage.documents import packaged, packaged_toml
from gpu_triage.judge.findings.table import BY_CODE, Check, xid_check
from gpu_triage.judge.findings.verdicts import CLASS_COLORS, DESK, Verdict
from gpu_triage.read.xid.codes import UNLISTED_MEANING, XID_CODES, XidCode, XidKind
from gpu_triage.read.xid.xid_events import nvlink_error, parse_xid
from gpu_triage.read.xid.xid_ledger import FATAL_LABELS

INDEX: Final = "index"
PLAYBOOK: Final = "playbook"
XIDS: Final = "xids"
METRICS: Final = "metrics"
CONFIGURATION: Final = "configuration"
_OWN_PAGES: Final = (PLAYBOOK, XIDS, METRICS, CONFIGURATION)

FATAL_IN_TEXT: Final = (
    "The kernel log has Fatal or Nonfatal after the code. Unless it is Fatal, the error is a ticket: the link goes on, "
    "but a job may have died; then Xid 45, 48, 94, 95 or 154 follows."
)
_URGENCIES: Final[Mapping[XidKind, str]] = {
    XidKind.PAGE: "critical, pages on-call: the GPU must be taken out of use",
    XidKind.TICKET: "a ticket for the working day",
    XidKind.APPLICATION: "a matter of the job: a program caused it",
    XidKind.INFORMATION: "context only: no alert",
}

_LISTED: Final = re.compile(r"\((Gpu\w+)\.md\)")
_COMMENT: Final = re.compile(r"^<!--.*?-->\n?", re.MULTILINE | re.DOTALL)
_XID: Final = re.compile(r"(?:xid)?[ ._#-]?(\d{1,4})")
_UNLISTED_ALERT: Final = "GpuXidUnlisted"
_NONFATAL: Final = "xid.nonfatal"
_VERDICTS: Final = {
    Verdict.DRAIN: "*Take it out of use.* A finding is critical: start no new job there, save the evidence, then do as "
    "the first finding says. [How to drain a host](playbook.md#drain-a-host).",
    Verdict.WATCH: "*Use it, but look.* A finding is a warning, or a critical one is pending: go on with it, and deal "
    "with the finding in working hours.",
    Verdict.KEEP: "*Fine.* Nothing that was read speaks against it. What could not be read is listed.",
    Verdict.NOT_READ: "Too little was read for a verdict. The report lists what could not be read, and how to get it.",
}
_LONGEST_WORD: Final = 64
"""No handbook page has a longer name, so a longer word is not compared with them."""


class UnknownPage(LookupError):
    """No page has this name; `nearest` holds similar names, most similar first."""

    def __init__(self, word: str, nearest: tuple[str, ...]) -> None:
        super().__init__(f"no alert, finding or Xid {word!r}")
        self.nearest = nearest


def alert_names() -> tuple[str, ...]:
    """Names of all alerts with a runbook, sorted."""
    return tuple(sorted(set(_LISTED.findall(_own_page(INDEX)))))


def summary_of(alert: str) -> str:
    """The first sentence under the title of its runbook."""
    opening = " ".join(_file(f"runbooks/{alert}").split("\n\n")[1].split())
    return opening.split(". ")[0].removesuffix(".") + "."


def meaning_of(xid: XidCode) -> str:
    """The meaning of an Xid as a sentence without a period, with the GPUs that report it."""
    since = f", on {xid.since}" if xid.since else ""
    return f"{xid.meaning[:1].upper()}{xid.meaning[1:]}{since}"


def find(word: str) -> str:
    """Find a page by alert (``GpuLost``), finding (``gpu.lost``), Xid (``79``, ``xid-79``), class, verdict or page.

    Else by a symptom or a message, in anybody's words. Case-insensitive. The page is Markdown: its title, what to do,
    and the runbook, if it is of a finding or Xid. Raises UnknownPage if there is no such page.
    """
    plain = " ".join(word.split()).removesuffix(".md").casefold()
    own = {name.casefold(): name for name in (*alert_names(), *_OWN_PAGES, INDEX)}
    if plain in own:
        return _own_page(own[plain])
    if number := _XID.fullmatch(plain):
        return _xid_page(int(number[1]))
    if check := BY_CODE.get(plain):
        severity = f"- **Severity:** {check.severity.value}\n"
        return _before_runbook(f"Finding {check.code}\n\n{check.advice.meaning}", check, severity, check.runbook)
    if plain in CLASS_COLORS:
        return _class_page(plain)
    if verdict := next((each for each in Verdict if plain in (each.value, each.text, DESK.verdicts[each])), None):
        return f"# Verdict {verdict.text}\n\n{_VERDICTS[verdict]}\n"
    if text := _page_of_words(word[:_LONGEST_SYMPTOM]):
        return text
    raise UnknownPage(word, _nearest(plain))


def _nearest(plain: str) -> tuple[str, ...]:
    if len(plain) > _LONGEST_WORD:
        return ()
    names = {name.casefold(): name for name in (*BY_CODE, *alert_names(), *_OWN_PAGES)}
    # Match alert names without the "Gpu" prefix, too.
    names |= {name.casefold().removeprefix("gpu"): name for name in alert_names()}
    found = get_close_matches(plain, names, n=5, cutoff=0.55)
    found += sorted(name for name in names if plain and plain in name)
    return tuple(dict.fromkeys(names[each] for each in found))[:5]


class _Entry(NamedTuple):
    """One line of the index: a page, its subject in a sentence, and the short answer if the page has none."""

    page: str
    words: str
    said: list[str] | tuple[()] = ()  # phrases of messages that mean it, in lower case
    cause: str = ""
    fix: str = ""
    title: str = ""  # further words

    @property
    def stems(self) -> set[str]:
        return _stems(f"{self.words} {self.title}")

    @property
    def rank(self) -> float:
        """What puts a symptom before a finding or an alert, and these before an Xid."""
        return 0.3 if self.said or self.cause else -0.2 if self.page.isdecimal() else 0.0


_FILLER: Final = re.compile(
    r"a|an|and|are|at|but|by|does|for|ha[sv]e?|in|is|it|its|no|not|nothing|nvrm|of|on|or|so|the|there|to|was|with"
)
_ENOUGH: Final = 0.6  # share of the words of a symptom, by weight, that a page must have
_MOST_FOUND: Final = 6
_LONGEST_SYMPTOM: Final = 400


def _stems(text: str) -> set[str]:
    """The words of a text without their endings, and without numbers and filler."""
    words = re.findall(r"(?<!\w)[a-z]+(?!\w)", text.casefold())
    return {word.rstrip("s")[:6] for word in words if not _FILLER.fullmatch(word)}


@cache
def _index() -> tuple[tuple[_Entry, ...], Mapping[str, int]]:
    """Everything that has a page, symptoms first; and how many lines have each stem."""
    symptoms = packaged_toml(__package__, "symptoms.toml")["symptom"]
    checks = (check for check in BY_CODE.values() if not check.code.startswith("xid."))
    entries = (
        *(_Entry(**each) for each in symptoms),
        *(_Entry(check.code, check.meaning, title=f"{check.code.replace('_', ' ')} {check.title}") for check in checks),
        *(_Entry(name, summary_of(name)) for name in alert_names()),
        *(_Entry(str(code), meaning_of(xid)) for code, xid in XID_CODES.items()),
    )
    return entries, Counter(stem for entry in entries for stem in entry.stems)


def _found_by(words: str) -> Iterator[_Entry]:
    """The lines of the index that have most of these words, best first."""
    entries, lines = _index()
    plain, stems = " ".join(words.casefold().split()), _stems(words)
    weights = {stem: math.log(len(entries) / lines.get(stem, 1)) for stem in stems}
    total = sum(weights.values())
    scores: dict[int, float] = {}
    for place, entry in enumerate(entries):
        own = entry.stems
        share = sum(weights[stem] for stem in stems & own) / total if total else 0.0
        is_said = any(phrase in plain for phrase in entry.said)
        if is_said or share >= _ENOUGH:
            # Of lines that have all words, the one with the fewest other words is meant.
            scores[place] = is_said + share + len(stems & own) / len(own) + entry.rank
    yield from (entries[place] for place in sorted(scores, key=lambda place: (-scores[place], place)))


def _page_of_words(words: str) -> str:
    """The page that best answers a symptom, after the short answer and what else may be meant; "" if none does."""
    start = words.find("NVRM: Xid")
    xid = None if start < 0 else parse_xid(words[start:])
    if xid is not None and xid.code is not None:
        return _xid_page(xid.code, FATAL_LABELS[xid.fatal], nvlink_error(words[start:]))
    found = [*islice(_found_by(words), _MOST_FOUND)]
    if not found:
        return ""
    best, *others = found
    answer = f"- **Most likely:** {best.cause}\n- **Do:** {best.fix}\n" if best.cause else ""
    also = "".join(f"- **Or:** {each.words}: `{each.page}`\n" for each in others)
    return f"# {best.words}\n\n{answer}- **Page:** `{best.page}`, below\n{also}\n---\n\n{find(best.page)}"


def _class_page(name: str) -> str:
    section = _file(PLAYBOOK).partition(f"\n### {name}\n")[2]
    text = re.split(r"^##", section, maxsplit=1, flags=re.MULTILINE)[0].replace("](#", "](playbook.md#")
    return f"# Class {name}\n{text}"


def _own_page(name: str) -> str:
    if name in {METRICS, CONFIGURATION}:
        # Imported lazily: only these two pages need the options and their values.
        from gpu_triage.serve.handbook.reference import configuration_markdown, metrics_markdown  # noqa: PLC0415

        return metrics_markdown() if name == METRICS else configuration_markdown()
    if name in {PLAYBOOK, XIDS}:
        return _file(name)
    return _file(f"runbooks/{'README' if name == INDEX else name}")


def _file(name: str) -> str:
    """A page without comments; of a runbook, what to do comes before what it means."""
    head, *sections = re.split(r"^(?=## )", _COMMENT.sub("", packaged(__package__, f"{name}.md")), flags=re.MULTILINE)
    return "".join((head, *sorted(sections, key=lambda section: not section.startswith("## Mitigation"))))


def _xid_page(number: int, fatal: str = "true", line: str = "") -> str:
    """The page on an Xid, with what its line in the kernel log contains: whether it is fatal, and `nvlink_error`."""
    xid, check = XID_CODES.get(number), xid_check(str(number), fatal)
    meaning = f"The driver reported Xid {number}: {UNLISTED_MEANING}" if xid is None else meaning_of(xid)
    kind = XidKind.TICKET if xid is None or check.code == _NONFATAL else xid.kind
    urgency = f"- **Urgency:** {_URGENCIES[kind]}\n" + (f"- **The line says:** {line}\n" if line else "")
    about = f"Xid {number}\n\n{meaning}."
    if xid is None:
        return _before_runbook(about, check, urgency, _UNLISTED_ALERT)
    words = f"- **Fatal or Nonfatal:** {FATAL_IN_TEXT}\n" if xid.fatal_in_text else ""
    return _before_runbook(about, check, urgency, check.runbook, f"{words}- **All codes:** [Xid codes](../xids.md)\n")


def _before_runbook(about: str, check: Check, urgency: str, runbook: str, more: str = "") -> str:
    """What to do, how long a finding must last and how it ends (exporter options can change both), and its runbook."""
    stands_still = "; while the GPU is not under load, both clocks stand still" if check.under_load else ""
    life = f"- **By default:** {check.life}{stands_still}\n"
    head = f"# {about}\n\n- **Do now:** {check.advice.anywhere}\n{urgency}{life}{more}"
    return f"{head}\n---\n\n{_file(f'runbooks/{runbook}')}" if runbook else head
