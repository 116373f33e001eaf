"""A target whose labels are edited: no rule may fail over it, for a rule that fails is silent about every host."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.parts import some
from tests.rules.cases import load_any
from tests.rules.examine import CLASSES, prepare
from tests.rules.promtool import Run, ask
from tests.rules.rulefile import rule_files

STEP_SECONDS = 60
EDITED = 12
"""Minute at which the label comes."""
MINUTES = 16


def relabelled(series: str, values: list[float]) -> dict[str, list[float]]:
    """A series that ends when its target gets a label, and the one that goes on with it."""
    named, _ = re.subn(r"\}$", ',workload="serving"}', series)
    return {
        series: [value if minute < EDITED else math.nan for minute, value in enumerate(values)],
        named: [value if minute >= EDITED else math.nan for minute, value in enumerate(values)],
    }


@pytest.mark.parametrize("name", some(["dual-a10", "h100-mig", "starved-not"], {"starved-not"}))
def test_an_edited_target_label_breaks_no_rule_and_leaves_each_gpu_its_class(
    name: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    scenario = load_any(name)
    run = prepare(scenario, rule_files(), step_seconds=STEP_SECONDS, seconds=MINUTES * STEP_SECONDS)
    series = {key: column for old, values in run.series.items() for key, column in relabelled(old, [*values]).items()}
    end = float(MINUTES * STEP_SECONDS)
    # It raises when any rule fails at any minute: windows hold both series then.
    answers = ask(
        requires_tool("promtool"), Run(run.rules, run.groups, run.step_seconds, series, ((CLASSES, end),)), tmp_path
    )
    decided = [(sample.labels["gpu"], sample.labels["workload"]) for sample in answers.samples[CLASSES, end]]
    assert sorted(decided) == [(str(gpu), "serving") for gpu in range(len(scenario.gpus))]
