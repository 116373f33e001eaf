"""Rules written with labels of one's own for clusters and replicas: they mean the same for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.parts import some
from tests.rules.cases import load_any
from tests.rules.examine import prepare
from tests.rules.promtool import Run, ask
from tests.rules.rulefile import rule_files as shipped

from gpu_triage.alerting.files import rule_files
from gpu_triage.alerting.settings import Settings

MINUTES = 40
END = MINUTES * 60.0
FIRING = ('ALERTS{alertstate="firing"}', END)
OWN = Settings(cluster_label="region", replica_labels=("replica", "zone"))


def written(folder: Path, settings: Settings) -> tuple[Path, ...]:
    """The rules of these settings as files, in the order of those that are shipped."""
    texts = rule_files(settings)
    for path in shipped():
        (folder / path.name).write_text(texts[path.name], encoding="utf-8")
    return tuple(folder / path.name for path in shipped())


@pytest.mark.parametrize("name", some(["dual-a10", "path-peers", "held-back"], {"path-peers"}))
def test_a_ruler_that_sees_every_replica_judges_each_by_itself(
    name: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    promtool = requires_tool("promtool")
    run = prepare(load_any(name), shipped(), step_seconds=60, seconds=END)
    alone = ask(promtool, run.asking((FIRING,)), tmp_path).samples[FIRING]
    replicas = {
        f'{key.removesuffix("}")},region="{region}",replica="{replica}"}}': values
        for key, values in run.series.items()
        for region, replica in (("east", "a"), ("east", "b"), ("west", "a"))
    }
    # It raises when any rule fails at any minute.
    asked = Run(written(tmp_path, OWN), run.groups, 60, replicas, (FIRING,))
    together = ask(promtool, asked, tmp_path).samples[FIRING]
    for region, replica in (("east", "a"), ("east", "b"), ("west", "a")):
        theirs = [
            {label: value for label, value in sample.labels.items() if label not in ("region", "replica")}
            for sample in together
            if (sample.labels.get("region"), sample.labels.get("replica")) == (region, replica)
        ]
        # What is about no target at all fires once.
        own = [dict(sample.labels) for sample in alone if sample.labels["alertname"] != "GpuTriageWatchdog"]
        assert sorted(map(sorted, map(dict.items, theirs))) == sorted(map(sorted, map(dict.items, own)))
    assert alone
