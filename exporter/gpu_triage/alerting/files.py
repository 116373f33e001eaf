"""The files written from source and settings, as text by path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpu_triage.alerting.build import built
from gpu_triage.alerting.settings import DEFAULTS, Settings
from gpu_triage.alerting.sources import INHIBITIONS, SOURCE, read_inhibitions, read_sources
from gpu_triage.alerting.tokens import filled_in
from gpu_triage.alerting.writer import MARK, commented, to_yaml

_DASHBOARDS: Final = Path(__file__).parent / "dashboards"
_DASHBOARDS_RUNBOOKS: Final = "http://${exporter:raw}/runbooks"


def rule_files(settings: Settings = DEFAULTS, source: Path = SOURCE) -> dict[str, str]:
    """Files of rules by path below their folder; one whose rules are all disabled is left out.

    Raises:
        SourceError: the source is wrong.
    """
    files = (built(each, settings) for each in read_sources(source))
    return {file.path: to_yaml(file) for file in files if file.groups}


def inhibitions(settings: Settings = DEFAULTS, source: Path = SOURCE) -> str:
    """The inhibitions for Alertmanager; "" if the source has none."""
    text = read_inhibitions(source)
    if not text:
        return ""
    return f"{commented(MARK)}\n\n{filled_in(INHIBITIONS, text, {'target': settings.target, 'fleet': settings.fleet})}"


def dashboards(settings: Settings = DEFAULTS) -> dict[str, str]:
    """The dashboards for Grafana, by file name; they link to the same runbooks as the alerts."""
    base = settings.runbook_base_url.replace("{{ $labels.instance }}", "${exporter:raw}")
    return {
        path.name: path.read_text(encoding="utf-8").replace(_DASHBOARDS_RUNBOOKS, json.dumps(base)[1:-1])
        for path in sorted(_DASHBOARDS.glob("*.json"))
    }


def shipped(source: Path = SOURCE) -> Mapping[str, str]:
    """What stands in the repository's folder ``rules/``, by path below it."""
    text = inhibitions(source=source)
    return rule_files(source=source) | ({INHIBITIONS: text} if text else {})
