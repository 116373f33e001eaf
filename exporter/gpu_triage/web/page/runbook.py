"""A page of the handbook around its rendered text, in the style of the status page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpu_triage.web.page.markup import safe
from gpu_triage.web.page.style import ICONS, STYLE, source_hash

_SHEET: Final = (
    STYLE
    + """
body { max-width: 56rem; }
nav { font-size: .9375rem; margin: 0 0 1rem; padding: 0 0 .5rem; border-bottom: 1px solid var(--line); }
main :is(h1, h2, h3) { scroll-margin-top: .5rem; overflow-wrap: anywhere; }
main hr { border: 0; border-top: 1px solid var(--line); margin: 1.5rem 0; }
main li { margin: .25rem 0; }
pre { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem; padding: .6rem .8rem; }
td { white-space: normal; }
.wide { margin: 1rem 0; }
"""
)
_LINKS: Final = (
    ("../", "This host"),
    ("./", "Runbooks"),
    ("playbook", "Playbook"),
    ("xids", "Xid codes"),
    ("metrics", "Metrics"),
    ("configuration", "Options"),
)
"""Relative to ``/runbooks/``, so that they hold behind any prefix."""

POLICY: Final = (
    f"default-src 'none'; style-src '{source_hash(_SHEET)}'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
).encode()
"""The pages' Content-Security-Policy: their own style sheet, by hash, their icon, and nothing else."""


def runbook_page(title: str, body: str) -> bytes:
    """The page, HTML in UTF-8.

    Args:
        title: of the browser's tab, not escaped yet.
        body: HTML.
    """
    links = " · ".join(f'<a href="{to}">{name}</a>' for to, name in _LINKS)
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{safe(title)}</title>
<link rel="icon" href="{ICONS["idle"]}">
<style>{_SHEET}</style>
</head>
<body>
<nav>{links}</nav>
<main>
{body}</main>
</body>
</html>
"""
    return page.encode()


def missing_page(nearest: Iterable[str], index: str) -> bytes:
    """The page for a name that nothing has.

    Args:
        nearest: names like it.
        index: the list of all runbooks, as HTML.
    """
    names = "".join(f'<li><a href="{safe(name)}">{safe(name)}</a></li>\n' for name in nearest)
    near = f"<p>Did you mean:</p>\n<ul>\n{names}</ul>\n" if names else ""
    told = "<h1>No such page</h1>\n<p>Nothing in the handbook has this name: no alert, no finding, no Xid.</p>\n"
    return runbook_page("No such page", f"{told}{near}<hr>\n{index}")
