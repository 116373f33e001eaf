"""Serves the handbook under ``/runbooks/``: from the package, so that it is there when no network is."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from gpu_triage.web.answer import Answer, text

PREFIX: Final = "/runbooks/"
_MOST_KEPT: Final = 128
"""Rendered pages that are kept, about 10 kB each; there are about 60 runbooks, and as many findings."""
_TEXT_WIDTH: Final = 100
_HTML: Final = "text/html; charset=utf-8"
_VARY: Final = (b"vary", b"accept")


class Runbooks:
    """The pages, rendered when first asked for: a daemon that nobody asks never loads what renders them.

    Not thread-safe: ask it on one thread.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, bool], Answer] = OrderedDict()

    def answer(self, path: str, accept: str) -> Answer:
        """The page at a path that begins with `PREFIX`, or a 404 with the nearest names and the index.

        Args:
            path: of the request, decoded.
            accept: the client's Accept header, "" where it sent none. Plain text is for those who prefer it.
        """
        word, plain = path.removeprefix(PREFIX), prefers_text(accept)
        kept = self._kept.get((word, plain))
        if kept is None:
            kept = _text_answer(word) if plain else _html_answer(word)
            # A 404 is not kept: there are endlessly many names that nothing has.
            if kept.status == 200:  # noqa: PLR2004 - the status that says it
                self._kept[word, plain] = kept
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return kept


def prefers_text(accept: str) -> bool:
    """Whether an Accept header names plain text or Markdown, and not HTML."""
    types = {item.partition(";")[0].strip().lower() for item in accept.split(",")}
    return bool(types & {"text/plain", "text/markdown"}) and "text/html" not in types


def _text_answer(word: str) -> Answer:
    from gpu_triage.handbook.pages import INDEX, UnknownPage, find  # noqa: PLC0415 - see Runbooks
    from gpu_triage.handbook.terminal import render_terminal  # noqa: PLC0415 - likewise

    try:
        rendered = render_terminal(find(word or INDEX).text, _TEXT_WIDTH, styled=False)
    except UnknownPage as unknown:
        near = f"; did you mean {', '.join(unknown.nearest)}?" if unknown.nearest else "."
        return text(404, f"no such page{near} All pages: {PREFIX}", (_VARY,))
    return Answer(200, rendered.encode(), headers=(_VARY,))


def _html_answer(word: str) -> Answer:
    from gpu_triage.handbook.html import render_html  # noqa: PLC0415 - see Runbooks
    from gpu_triage.handbook.pages import INDEX, UnknownPage, find  # noqa: PLC0415 - likewise
    from gpu_triage.web.page.runbook import POLICY, missing_page, runbook_page  # noqa: PLC0415 - likewise

    headers = ((b"content-security-policy", POLICY), (b"referrer-policy", b"no-referrer"), _VARY)
    try:
        page = find(word or INDEX)
    except UnknownPage as unknown:
        body = missing_page(unknown.nearest, render_html(find(INDEX).text))
        return Answer(404, body, _HTML, headers)
    return Answer(200, runbook_page(page.title, render_html(page.text)), _HTML, headers)
