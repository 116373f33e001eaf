"""Lists the series that the Prometheus servers in deploy/fleet forward, and the rule that needs all hosts.

The series are those used by the dashboards, the fleet commands and the rules.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gpu_triage.alerting.build import built
from gpu_triage.alerting.files import to_yaml
from gpu_triage.alerting.rule_source import RecordingRule
from gpu_triage.alerting.settings import DEFAULTS
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.cli.fleet.fleet_view import Selection, offender_query, queries
from gpu_triage.cli.fleet.job_pace import slow_queries
from gpu_triage.cli.fleet.review import daily_queries, table_queries
from gpu_triage.cli.job import job_facts
from gpu_triage.cli.job.job_runs import JobKey, Kind, Run
from gpu_triage.read.registry import METRICS

FEDERATING: Final = Path("deploy/fleet/prometheus/above.yml")
SENDING: Final = Path("deploy/fleet/prometheus/shard-remote-write.yml")
DRIFT: Final = Path("deploy/fleet/rules/drift.yml")
DRIFT_ALERT: Final = "GpuDriverVersionDrift"
"""The only alert that compares hosts of different shards."""
DRIFT_METRIC: Final = "gpu_driver_info"

OF_THE_FLEET: Final = ("fleet.json", "capacity.json")
"""Dashboards that cover many hosts; the others are opened for a few."""
OF_OTHERS: Final = ("ALERTS", "ALERTS_FOR_STATE", "up", "kube_pod_labels")
"""Metrics of Prometheus itself and kube-state-metrics."""

_WORD: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_:]*")
_MARKED: Final = re.compile(
    r"^(?P<indent> *)(?P<begin># <made by make regenerate>\n).*?^(?P<end> *# </made by make regenerate>\n)",
    re.MULTILINE | re.DOTALL,
)
_WIDTH: Final = 100


def fleet_files(repository: Path) -> dict[Path, str]:
    """The text of each file, by path; in configurations, the part between the markers is regenerated."""
    return {
        FEDERATING: _marked(repository / FEDERATING, _matchers(federated(repository))),
        SENDING: _marked(repository / SENDING, _regex(remote_written(repository))),
        DRIFT: _drift(),
    }


def federated(repository: Path) -> tuple[str, ...]:
    """Metrics used by the fleet and capacity dashboards, ``gpu-triage fleet`` and ``gpu-triage report``."""
    boards = (repository / "dashboards" / name for name in OF_THE_FLEET)
    return _names((*_of_commands(), *(text for board in boards for text in _queries(board)), DRIFT_METRIC))


def remote_written(repository: Path) -> tuple[str, ...]:
    """Metrics used by all dashboards and the commands."""
    boards = sorted((repository / "dashboards").glob("*.json"))
    return _names((*_of_commands(), *(text for board in boards for text in _queries(board))))


def _of_commands() -> Iterator[str]:
    for selection in (Selection(), Selection(cluster=".+")):
        yield from queries(selection).values()
        yield from (*slow_queries(selection).values(), *daily_queries(selection).values())
        yield from (each for columns in table_queries(str(selection), "30d").values() for each in columns.values())
        yield offender_query(selection, "30d")
    some_job = JobKey(Kind.SLURM, "", "", "4711")
    run = Run(some_job, frozenset(), frozenset(), frozenset(), start=0.0, end=3600.0, gpus=1)
    window = job_facts.window_of(run, None)
    yield from job_facts.queries(Selection(), run, window).values()
    yield from job_facts.late_queries(Selection(), run, window, 0.0).values()


def _queries(board: Path) -> Iterator[str]:
    """The queries in a dashboard's panels, variables and annotations."""

    def below(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            for key, value in node.items():
                yield from (value,) if key in {"expr", "query"} and isinstance(value, str) else below(value)
        elif isinstance(node, list):
            for each in node:
                yield from below(each)

    return below(json.loads(board.read_text(encoding="utf-8")))


def _names(texts: Iterable[str]) -> tuple[str, ...]:
    """The metrics used in PromQL expressions, sorted; limited to known metrics and recording rules."""
    rules = [rule for source in shipped_sources() for group in source.groups for rule in group.rules]
    recorded = {rule.name for rule in rules if isinstance(rule, RecordingRule)}
    known = {spec.name for spec in METRICS} | recorded | {*OF_OTHERS, "gpu_job_steps_total"}
    return tuple(sorted(known & {word for text in texts for word in _WORD.findall(text)}))


def _lines(names: Iterable[str]) -> list[str]:
    """The names joined by ``|``, in lines of readable length."""
    lines: list[str] = []
    for name in names:
        if lines and len(lines[-1]) + len(name) < _WIDTH:
            lines[-1] += f"|{name}"
        else:
            lines.append(name)
    return lines


def _matchers(names: Iterable[str]) -> list[str]:
    return ['"match[]":', *(f"""  - '{{__name__=~"{line}"}}'""" for line in _lines(names))]


def _regex(names: Iterable[str]) -> list[str]:
    """One regular expression: in double quotes, YAML joins lines that end with a backslash."""
    lines = [*_lines(names)]
    return ['regex: "\\', *(f"  {line}|\\" for line in lines[:-1]), f'  {lines[-1]}"']


def _marked(path: Path, lines: Iterable[str]) -> str:
    def renewed(found: re.Match[str]) -> str:
        inner = "".join(f"{found['indent']}{line}\n" for line in lines)
        return f"{found['indent']}{found['begin']}{inner}{found['end']}"

    return _MARKED.sub(renewed, path.read_text(encoding="utf-8"))


def _drift() -> str:
    """The rule alone, as in rules/, for a server with the series of all hosts."""
    groups = (group for source in shipped_sources() for group in built(source, DEFAULTS))
    (found,) = (
        (replace(group, about=""), (rule,))
        for group, rules in groups
        for rule in rules
        if rule.fields.get("alert") == DRIFT_ALERT
    )
    about = (
        "The alert that compares hosts, for the Prometheus that has the series of all shards. Alerts about many hosts "
        "are not here: each shard counts its own."
    )
    mark = "Made by `make regenerate` from rules/; the shards do not send it (alert_relabel_configs)."
    return to_yaml(about, (found,), mark)
