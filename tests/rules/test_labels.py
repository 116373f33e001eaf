"""Labels of targets: two clusters, replicas of a server, an edited label. No rule fails over them.

A rule that fails is silent about every host; promtool ends with an error when one does at any minute.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import Run, Sample, ask
from tests.rules.cases import load_any
from tests.rules.examine import CLASSES, prepare
from tests.rules.handwritten import FIRING
from tests.rules.rulefile import rule_files

from gpu_triage.alerting.files import rule_files as written
from gpu_triage.alerting.settings import Settings

MINUTES, EDITED = 40, 12
END = MINUTES * 60.0
FIRES = ["dual-a10", "path-peers", "held-back"]
"""Scenarios in which alerts fire at the end."""
scenarios = pytest.mark.parametrize("name", [*FIRES, "h100-mig"])


def played(name: str, minutes: int = MINUTES) -> Run:
    return prepare(load_any(name), rule_files(), step_seconds=60, seconds=minutes * 60.0)


def labeled(series: str, **labels: str) -> str:
    """The series as scraped from a target with more labels."""
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f"{series.removesuffix('}')}{more}}}"


def alike(samples: Sequence[Sample], *but: str) -> Counter[frozenset[tuple[str, str]]]:
    """Their labels, but for these, and their values."""
    return Counter(
        frozenset({("", f"{s.value:.9g}"), *((name, value) for name, value in s.labels.items() if name not in but)})
        for s in samples
    )


@pytest.mark.parametrize("name", FIRES)
def test_a_ruler_that_sees_every_replica_judges_each_by_itself(
    name: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    run = played(name)
    own = written(Settings(cluster_label="region", replica_labels=("replica", "zone")))
    for path in run.rules:
        (tmp_path / path.name).write_text(own[path.name], encoding="utf-8")
    targets = [
        {"region": region, "replica": replica} for region, replica in (("east", "a"), ("east", "b"), ("west", "a"))
    ]
    series: Mapping[str, Sequence[float]] = {
        labeled(key, **each): values for key, values in run.series.items() for each in targets
    }
    asked = Run(tuple(tmp_path / path.name for path in run.rules), run.groups, 60, series, ((FIRING, END),))
    promtool = requires_tool("promtool")
    alone = [
        sample
        for sample in ask(promtool, run.asking(((FIRING, END),)), tmp_path).samples[FIRING, END]
        if sample.labels["alertname"] != "GpuTriageWatchdog"  # about no target: it fires once
    ]
    together = ask(promtool, asked, tmp_path).samples[FIRING, END]
    for each in targets:
        theirs = [sample for sample in together if each.items() <= sample.labels.items()]
        assert alike(theirs, *each) == alike(alone) != {}


@scenarios
def test_an_edited_target_label_breaks_no_rule_and_leaves_each_gpu_its_class(
    name: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    """Windows hold the series before and after the edit then."""
    minutes = EDITED + 4
    run, series = played(name, minutes), {}
    for key, values in run.series.items():
        series[key] = [value if minute < EDITED else math.nan for minute, value in enumerate(values)]
        series[labeled(key, workload="serving")] = [
            value if minute >= EDITED else math.nan for minute, value in enumerate(values)
        ]
    question = (CLASSES, minutes * 60.0)
    answers = ask(requires_tool("promtool"), Run(run.rules, run.groups, 60, series, (question,)), tmp_path)
    decided = [(sample.labels["gpu"], sample.labels["workload"]) for sample in answers.samples[question]]
    assert sorted(decided) == [(str(gpu), "serving") for gpu in range(len(load_any(name).gpus))]
