"""HTML building blocks for the pages; all external values are escaped with `safe`. Durations and times for display."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from html import escape
from typing import Final

from gpu_triage.documents import printable
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import CLUSTER, COLORS, Verdict, Words

UNKNOWN: Final = '<span class="soft">&ndash;</span>'
"""Placeholder for unreported values."""

OF_SEVERITY: Final[Mapping[Severity, str]] = {
    Severity.CRITICAL: "sick",
    Severity.WARNING: "held",
    Severity.INFO: "starved",
}
"""Tone by severity of a finding; the tones of verdicts are in the verdict table."""


def safe(value: object) -> str:
    """Escape a value, so that it neither contains markup nor hides or reorders the text around it."""
    return escape(printable(str(value)), quote=True)


def foreign(value: object) -> str:
    """An untrusted name, wrapped so that its writing direction doesn't affect the text around it."""
    return f"<bdi>{safe(value)}</bdi>"


def chip(text: str, tone: str) -> str:
    return f'<span class="chip {safe(tone)}">{safe(text)}</span>'


def verdict_chip(verdict: Verdict, words: Words = CLUSTER) -> str:
    return chip(words.verdicts[verdict], COLORS[verdict].tone)


def class_chip(name: str, verdict: Verdict = Verdict.KEEP) -> str:
    """A bottleneck class in its color; gray for a GPU that was not read."""
    return chip(name, COLORS[verdict].tone if verdict is Verdict.NOT_READ else f"class c-{name}")


def soft(text: str) -> str:
    """A second line in small type, from unescaped text; "" for empty text."""
    return f'<br><small class="soft">{safe(text)}</small>' if text else ""


def bar(share: float) -> str:
    """A bar filled to a share of 0-1; hidden from screen readers, since the number is next to it."""
    width = 100 * min(1.0, max(0.0, share))
    return (
        '<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{width:.0f}" height="4"/></svg>'
    )


def row(first: str, cells: Iterable[str], **attributes: object) -> str:
    """A table row: heading and cells as HTML, and unescaped attributes (``data_gpu`` becomes data-gpu)."""
    written = "".join(f' {name.replace("_", "-")}="{safe(value)}"' for name, value in attributes.items())
    return f'<tr{written}><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def table(caption: str, heads: Iterable[str], rows: Iterable[str], name: str = "") -> str:
    """A table in a box that scrolls sideways; `caption` is for screen readers, `rows` are complete ``tr`` elements."""
    columns = "".join(f'<th scope="col">{safe(head)}</th>' for head in heads)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{safe(caption)}">\n<table class="{safe(name)}">\n'
        f"<thead><tr>{columns}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>\n</div>"
    )


def section(name: str, title: str, body: str) -> str:
    return f'<section id="{safe(name)}">\n<h2>{safe(title)}</h2>\n{body}\n</section>'


def whole_page(title: str, icon: str, sheet: str, body: str, head: str = "") -> bytes:
    """A complete page as UTF-8 HTML; `title` is unescaped, `icon` is the favicon's URL, `head` is further HTML."""
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{head}<title>{safe(title)}</title>
<link rel="icon" href="{icon}">
<style>{sheet}</style>
</head>
<body>
{body}
</body>
</html>
"""
    return page.encode("utf-8", "replace")


_MINUTE: Final = 60.0


def window(seconds: float) -> str:
    """The time range that was judged: ``the last minute``, ``the last 40 s``."""
    if seconds < 1:
        return "the first readings"
    return "the last minute" if round(seconds) == _MINUTE else f"the last {length_of_time(seconds)}"


def clock_time(wall: float) -> str:
    """The time of day, UTC: ``00:33``."""
    return _utc(wall).strftime("%H:%M")


def date_time(wall: float) -> str:
    return _utc(wall).strftime("%Y-%m-%d %H:%M:%S UTC")


def moment(wall: float) -> str:
    return f'<time datetime="{_machine(wall)}">{date_time(wall)}</time>'


def lasting(since: float | None, now: float) -> str:
    """How long something has lasted, with its start time as a tooltip; "" if unknown."""
    if since is None:
        return ""
    text = f"for {length_of_time(now - since)}" if now - since >= 1 else "just now"
    return f'<time class="soft" datetime="{_machine(since)}" title="since {date_time(since)}">{text}</time>'


def _machine(wall: float) -> str:
    return _utc(wall).isoformat(timespec="seconds")


def _utc(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, tz=timezone.utc)
