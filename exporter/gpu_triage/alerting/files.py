"""Generates files from the rules' source and settings, and writes them to a folder.

Rules are uniform YAML with comments.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import yaml

from gpu_triage.alerting.build import BuiltGroup, built, filled_in
from gpu_triage.alerting.rule_source import INHIBITIONS, SOURCE
from gpu_triage.alerting.settings import DEFAULTS, Settings
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.documents.files import write_file
from gpu_triage.errors import ConfigError, OutputNotWritten

_LONGEST_LINE: Final = 100
_WORD: Final = re.compile(r"[a-z_]+")
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
    for group, rules in groups:
        lines += [*comment(group.about), f"- name: {group.name}", f"  interval: {group.interval}", "  rules:"]
        for rule in rules:
            written = yaml.dump([rule.fields], Dumper=_Dumper, sort_keys=False, allow_unicode=True)
            lines += [*comment(rule.about, 2), indent(written, "  ")]
    return "\n".join(lines)


def comment(text: str, margin: int = 0) -> Iterator[str]:
    return (f"{' ' * margin}# {line}".rstrip() for line in text.splitlines())


class _Dumper(yaml.SafeDumper):
    """Folds long texts, but keeps templates on one line, however long: docs/alerts.md shows them in readable form."""

    def process_scalar(self) -> None:
        self.best_width = _LONGEST_LINE if self.style == ">" else sys.maxsize
        super().process_scalar()


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    folded = ">" if len(text) > _LONGEST_LINE and "{{" not in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else folded)


def _table(dumper: _Dumper, table: dict[str, Any]) -> yaml.Node:
    words = all(isinstance(value, str) and _WORD.fullmatch(value) for value in table.values())
    return dumper.represent_mapping("tag:yaml.org,2002:map", table, flow_style=words)


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(str, _text)  # of settings, as the user's file has them
_Dumper.add_representer(dict, _table)
