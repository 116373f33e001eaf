"""Alertmanager examples: inserts the rules' inhibitions into the route, and the route into the full configuration."""

import re
from pathlib import Path
from typing import Final

from gpu_triage.alerting.files import inhibitions

ROUTE: Final = Path("deploy/alertmanager/gpu-triage-route.yml")
ALERTMANAGER: Final = Path("deploy/alertmanager/alertmanager.yml")

_LISTS: Final = {"route": "  routes:\n", "receivers": "", "inhibit_rules": ""}
"""The merged lists, by top-level key, with the line between the key and the list's first entry."""
_MARKED: Final = re.compile(
    r"^( *# <gpu-triage-route\.yml>\n).*?^( *# </gpu-triage-route\.yml>\n)", re.MULTILINE | re.DOTALL
)


def alertmanager_files(repository: Path) -> dict[Path, str]:
    """The text of both files, by path, with the shared parts regenerated."""
    head = _read(repository, ROUTE).partition("\ninhibit_rules:\n")[0]
    route = f"{head}\ninhibit_rules:\n{_list(inhibitions(), 'inhibit_rules')}"
    merged = iter([_list(route, key) for key in _LISTS])
    whole = _MARKED.sub(lambda found: found[1] + next(merged) + found[2], _read(repository, ALERTMANAGER))
    return {ROUTE: route, ALERTMANAGER: whole}


def _list(text: str, key: str) -> str:
    """The lines of a list below a top-level key, with comments; they can be inserted below the same key elsewhere."""
    body = text.partition(f"\n{key}:\n{_LISTS[key]}")[2]
    end = re.search(r"^(?=\S)", body, re.MULTILINE)
    return (body[: end.start()] if end else body).rstrip("\n") + "\n"


def _read(repository: Path, path: Path) -> str:
    return (repository / path).read_text(encoding="utf-8")
