"""Handbook pages under ``/runbooks/``, served from the package, so that they work offline."""

from collections.abc import Iterable
from typing import Final

import click

from gpu_triage.documents import packaged
from gpu_triage.serve.handbook.markdown import render_html
from gpu_triage.serve.handbook.pages import INDEX, UnknownPage, find
from gpu_triage.serve.handbook.terminal import render_terminal
from gpu_triage.serve.messages import Answer, html, text
from gpu_triage.serve.page.markup import safe, whole_page
from gpu_triage.serve.page.style import ICONS, STYLE, policy

_TEXT_WIDTH: Final = 100
_VARY: Final = (b"vary", b"accept")

_SHEET: Final = STYLE + packaged(__package__, "runbook.css")
_LINKS: Final = (
    ("../", "This host"),
    ("./", "Runbooks"),
    ("playbook", "Playbook"),
    ("xids", "Xid codes"),
    ("metrics", "Metrics"),
    ("configuration", "Options"),
)
"""Relative to ``/runbooks/``, so that they work behind any URL prefix."""

_POLICY: Final = policy(_SHEET)


def runbook_answer(name: str, *, plain: bool) -> Answer:
    """The page with this name, the index for "", or a 404 with similar names and the index."""
    try:
        page = find(name or INDEX)
    except UnknownPage as unknown:
        if plain:
            near = f"; did you mean {', '.join(unknown.nearest)}?" if unknown.nearest else "."
            return text(404, f"no such page{near} All pages: /runbooks/", _VARY)
        return html(_missing_page(unknown.nearest), _POLICY, _VARY, status=404)
    if plain:
        return Answer(200, click.unstyle(render_terminal(page, _TEXT_WIDTH)).encode(), headers=(_VARY,))
    return html(_page(page.partition("\n")[0].removeprefix("# "), render_html(page)), _POLICY, _VARY)


def _missing_page(nearest: Iterable[str]) -> bytes:
    names = "".join(f'<li><a href="{safe(name)}">{safe(name)}</a></li>\n' for name in nearest)
    near = f"<p>Did you mean:</p>\n<ul>\n{names}</ul>\n" if names else ""
    body = "<h1>No such page</h1>\n<p>Nothing in the handbook has this name: no alert, no finding, no Xid.</p>\n"
    return _page("No such page", f"{body}{near}<hr>\n{render_html(find(INDEX))}")


def _page(title: str, body: str) -> bytes:
    links = " · ".join(f'<a href="{to}">{name}</a>' for to, name in _LINKS)
    return whole_page(title, ICONS["idle"], _SHEET, f"<nav>{links}</nav>\n<main>\n{body}</main>")
