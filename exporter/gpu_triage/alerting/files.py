"""Generates files from the rules' source and settings, and writes them to a folder.

Rules are uniform YAML with comments, and long values as folded scalars, except texts with templates.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import yaml

from gpu_triage.alerting.build import BuiltGroup, Fields, built, filled_in
from gpu_triage.alerting.rule_source import INHIBITIONS, SOURCE
from gpu_triage.alerting.settings import DEFAULTS, Settings
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.documents.files import write_file
from gpu_triage.errors import ConfigError, OutputNotWritten

WIDTH: Final = 120
_PLAIN: Final = re.compile(r"[a-z_]+")
_NOT_FOLDED: Final = re.compile(r"^ | $|\s\s|[^\S ]")
"""Blanks that YAML does not give back where a folded line ends: any but single spaces within the text."""
MARK: Final = "Written by `gpu-triage rules`: change its settings instead of this file."
"""Identifies a file written by this program."""

_DASHBOARDS: Final = Path(__file__).parent / "dashboards"
_DASHBOARDS_RUNBOOKS: Final = "http://${exporter:raw}/runbooks"
_CLUSTER: Final = re.compile(rf"(?<![$-])\b{DEFAULTS.cluster_label}\b(?!:)")
"""The label in queries, legends and columns, but not the variable (``$cluster``, ``var-cluster``) or metric names."""
_NO_LABELS: Final = frozenset({"description", "label", "name", "title"})
_MARKS: Final = (MARK.encode(), b'"uid": "gpu-triage-')
"""Markers of files written by this program: rules and inhibitions, dashboards."""


def rule_files(settings: Settings = DEFAULTS) -> dict[str, str]:
    """Rule files by relative path; without one of which all rules are disabled."""
    files = ((source, built(source, settings)) for source in shipped_sources())
    return {source.path: to_yaml(source.about, groups) for source, groups in files if groups}


def inhibitions(settings: Settings = DEFAULTS) -> str:
    text = (SOURCE / INHIBITIONS).read_text(encoding="utf-8")
    filled = filled_in(INHIBITIONS, text, {"target": settings.target, "fleet": settings.fleet})
    return "\n".join([*comment(MARK), "", filled])


def dashboards(settings: Settings = DEFAULTS) -> dict[str, str]:
    """Grafana dashboards by file name, for these settings; without a URL, links still point to the exporters."""
    base = (settings.runbook_base_url or DEFAULTS.runbook_base_url).replace("{{ $labels.instance }}", "${exporter:raw}")
    return {
        path.name: _with_label(path.read_text(encoding="utf-8"), settings.cluster_label).replace(
            _DASHBOARDS_RUNBOOKS, json.dumps(base)[1:-1]
        )
        for path in sorted(_DASHBOARDS.glob("*.json"))
    }


def _with_label(text: str, label: str) -> str:
    """A dashboard with this cluster label in its queries; the variable keeps its name, because links use it."""
    if label == DEFAULTS.cluster_label:
        return text
    return json.dumps(_relabeled(json.loads(text), label), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _relabeled(node: Any, label: str) -> Any:
    if isinstance(node, dict):
        return {
            _CLUSTER.sub(label, key): value if key in _NO_LABELS else _relabeled(value, label)
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [_relabeled(each, label) for each in node]
    return _CLUSTER.sub(label, node) if isinstance(node, str) else node


def write_files(folder: Path, files: Mapping[str, str], *, force: bool) -> tuple[str, ...]:
    """Write every file atomically; return the paths of removed rule files.

    Rule files written earlier that are no longer generated are removed, or Prometheus would continue to load them.
    Raises ConfigError, having written nothing, if a file of another program is in the way, unless `force`;
    OutputNotWritten after an I/O error.
    """
    try:
        paths = {name: folder / name for name in files}
        foreign = [] if force else [path for path in paths.values() if path.exists() and not _is_ours(path)]
        if foreign:
            raise ConfigError(
                f"{foreign[0]}: was not written by gpu-triage rules; choose another folder, or replace it with --force"
            )
        for name, text in files.items():
            paths[name].parent.mkdir(parents=True, exist_ok=True)
            # Prometheus runs as a different user.
            write_file(paths[name], text.encode(), mode=0o644)
        rules = (path for below in ("rules", "rules/compat") for path in (folder / below).glob("*.yml"))
        gone = {path.relative_to(folder).as_posix() for path in rules if _is_ours(path)} - files.keys()
        for name in gone:
            (folder / name).unlink()
    except OSError as error:
        cause = error.strerror or str(error)
        raise OutputNotWritten(f"{error.filename or folder}: {cause}; choose a folder that you may write to") from error
    return tuple(sorted(gone))


def _is_ours(path: Path) -> bool:
    return path.is_file() and any(mark in path.read_bytes() for mark in _MARKS)


def to_yaml(about: str, groups: Iterable[BuiltGroup], mark: str = MARK) -> str:
    lines = [*comment(f"{about}\n\n{mark}"), "groups:"]
    for number, group in enumerate(groups):
        lines += [*([""] if number else []), *_group(group)]
    return "\n".join(lines) + "\n"


def comment(text: str, indent: int = 0) -> Iterator[str]:
    return (f"{' ' * indent}# {line}".rstrip() for line in text.splitlines())


def _group(group: BuiltGroup) -> Iterator[str]:
    yield from comment(group.about)
    yield f"- name: {group.name}"
    yield f"  interval: {group.interval}"
    yield "  rules:"
    for number, rule in enumerate(group.rules):
        if number:
            yield ""
        yield from comment(rule.about, 2)
        first, *rest = _mapping(rule.fields, 4)
        yield f"  - {first.lstrip()}"
        yield from rest


def _mapping(fields: Fields, indent: int) -> Iterator[str]:
    for key, value in fields.items():
        if not isinstance(value, str):
            if key == "labels" and value and all(map(_is_word, value.values())):
                yield f"{' ' * indent}{key}: {{{', '.join(f'{name}: {each}' for name, each in value.items())}}}"
            elif value:
                yield f"{' ' * indent}{key}:"
                yield from _mapping(value, indent + 2)
        elif "{{" in value:
            # Kept on one line, however long: docs/alerts.md shows these texts in readable form.
            yield f"{' ' * indent}{key}: {_quoted(value)}"
        else:
            yield from _scalar(" " * indent + key, value, indent + 2)


def _scalar(key: str, value: str, indent: int) -> Iterator[str]:
    deeper = " " * indent
    if "\n" in value:
        yield f"{key}: {'|' if value.endswith(chr(10)) else '|-'}"
        yield from (f"{deeper}{line}".rstrip() for line in value.rstrip("\n").split("\n"))
        return
    quoted = _quoted(value)
    lines = (
        [] if _NOT_FOLDED.search(value) else wrap(value, WIDTH - indent, break_long_words=False, break_on_hyphens=False)
    )
    if len(f"{key}: {quoted}") <= WIDTH or len(lines) <= 1:
        yield f"{key}: {quoted}"
        return
    yield f"{key}: >-"
    yield from (f"{deeper}{line}" for line in lines)


def _quoted(value: str) -> str:
    return value if _is_plain(value) else "'" + value.replace("'", "''") + "'"


def _is_word(value: str | Fields) -> bool:
    return isinstance(value, str) and _PLAIN.fullmatch(value) is not None and _is_plain(value)


@lru_cache(maxsize=4096)
def _is_plain(value: str) -> bool:
    try:
        return bool(yaml.safe_load(f"key: {value}") == {"key": value})
    except yaml.YAMLError:
        return False
