"""A board, a driver or a kernel that does not report something costs what is judged by it, and nothing else."""

from dataclasses import replace

import pytest
from tests.evidence import evidence_of
from tests.gathered import for_each
from tests.rig import rig

from gpu_triage.judge.host_judge import HostJudge
from gpu_triage.judge.report.report import JudgedHost
from gpu_triage.read.exporter import judgment
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.metrics.metric import Sample
from gpu_triage_simulator import Scenario, load_scenario

pytestmark = pytest.mark.slow

GPUS = 4
SEEN_AT = (40.0, 60.0, 80.0, 100.0)


def few(scenario: Scenario) -> Scenario:
    """The first GPUs of a scenario, enough to compare one with its peers."""
    processes = tuple(process for process in scenario.processes if process.gpu < GPUS)
    return replace(scenario, gpus=scenario.gpus[:GPUS], processes=processes, expectations=(), events=())


Rounds = list[tuple[float, list[tuple[str, Sample]]]]
"""What is published at some moments, each sample with its collector, without what the judge adds."""


@pytest.fixture(scope="module")
def rounds() -> Rounds:
    seen: Rounds = []
    with rig(few(load_scenario("h100-8"))) as running:
        for at in SEEN_AT:
            running.run_to(at)
            store = running.sampler.store
            outcomes = [each for name in store.collectors if name != judgment.NAME for each in store.of(name)]
            seen.append((at, [(one.collector, each) for one in outcomes for each in one.samples]))
    return seen


def test_each_metric_and_all_of_a_collector_may_be_missing(rounds: Rounds) -> None:
    published = {(name, sample.spec.name) for _, samples in rounds for name, sample in samples}

    @for_each("missing", {each for names in published for each in names} - {GPU_UP.name})
    def judged_without(missing: str) -> None:
        less = [
            (at, [each for name, each in samples if missing not in (name, each.spec.name)]) for at, samples in rounds
        ]
        report = HostJudge(JudgedHost("host")).judge(evidence_of(*less)).report
        assert len(report.gpus) == GPUS or missing == "presence"

    judged_without()
