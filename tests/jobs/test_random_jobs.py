"""Random jobs, of each kind at least one: the culprit is named, the loss is right, and healthy jobs are quiet."""

from collections.abc import Mapping

import pytest
from tests.conftest import RequiresTool
from tests.jobs.played import OF_JOBS, Outcome, play
from tests.jobs.random_jobs import FROM_THE_START, HANGS, HEALTHY, SLOW, cases

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

SEED = 7
KINDS = (*SLOW, *HANGS, *HEALTHY)


@pytest.fixture(scope="module")
def outcomes(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """One job of each kind, the smallest of some: the time grows with their GPUs."""
    drawn = sorted(cases(120, SEED), key=lambda case: len(case.job.ranks))
    large = [each for each in drawn if each.truth.loss == 0 or each.truth.loss >= 0.12]
    chosen = [next(each for each in large if each.kind == kind) for kind in KINDS]
    played = play(requires_tool("promtool"), requires_tool("prometheus"), tmp_path_factory.mktemp("jobs"), chosen)
    return {each.case.kind: each for each in played}


@pytest.mark.parametrize("kind", SLOW)
def test_a_slow_job_is_told_with_what_it_waits_for_and_what_it_loses(
    kind: str, outcomes: Mapping[str, Outcome]
) -> None:
    outcome = outcomes[kind]
    assert outcome.right, (outcome.named, outcome.case.truth.culprit)
    assert outcome.told["GpuJobSlow"] <= 10
    assert outcome.lost == pytest.approx(
        outcome.case.truth.loss, abs=0.05 if kind == f"silent{FROM_THE_START}" else 0.03
    )
    host, _ = outcome.case.truth.culprit or ("", None)
    assert host in outcome.document["summary"]


@pytest.mark.parametrize("kind", HANGS)
def test_a_rank_that_leaves_is_told_within_three_minutes(kind: str, outcomes: Mapping[str, Outcome]) -> None:
    outcome = outcomes[kind]
    assert outcome.right, (outcome.named, outcome.case.truth.culprit)
    assert outcome.told["GpuJobHung"] <= 3


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_job_is_quiet(kind: str, outcomes: Mapping[str, Outcome]) -> None:
    assert not OF_JOBS & set(outcomes[kind].told)
    assert outcomes[kind].named is None
