"""What is recorded of a host, counted: a fleet pays for every series."""

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import ask
from tests.rules.cases import load_any
from tests.rules.examine import prepare
from tests.rules.rulefile import rule_files

MOST = {"h100-8": 148, "h100-8-bad-night": 358}
"""Series of a host of eight GPUs, healthy and in trouble: seven of each GPU are about its job, and a few about
the job as a whole."""
STEP_SECONDS = 60
RECORDED = 'label_replace({__name__=~".+:.+"}, "recorded", "$1", "__name__", "(.+)")'


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "minutes"), [("h100-8", 60), ("h100-8-bad-night", 90)])
def test_a_host_of_eight_costs_few_recorded_series(
    name: str, minutes: int, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    question = (RECORDED, minutes * 60.0)
    run = prepare(load_any(name), rule_files(), step_seconds=STEP_SECONDS, seconds=question[1])
    found = ask(requires_tool("promtool"), run.asking((question,)), tmp_path).samples[question]
    assert {"instance_gpu_name:gpu_busy:last5m", "instance_name:gpu_used_hours:sum1d"} <= {
        each.labels["recorded"] for each in found
    }
    assert len(found) <= MOST[name]
