"""A week of a healthy host, a scrape a minute: nobody is woken, nobody gets a ticket.

Continuous integration plays the quickest hosts; ``make week`` plays every scenario that is quiet from end to end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_triage.simulator import list_scenarios
from tests.conftest import RequiresTool
from tests.rules.cases import load_any
from tests.rules.examine import FIRING, UNDECIDED, prepare
from tests.rules.promtool import ask
from tests.rules.rulefile import rule_files
from tests.rules.verdict import WATCHDOG, named

WEEK_SECONDS = 7 * 86400
QUICK = ("idle-downshift", "rtx-4070-ti-super")
EVER_FIRED = f"count_over_time({FIRING}[{WEEK_SECONDS}s])"
EVER_UNDECIDED = f"count_over_time(({UNDECIDED})[{WEEK_SECONDS}s:1m])"


def quiet_scenarios() -> list[str]:
    """Names of the shipped scenarios in which nothing is ever wrong."""
    names = [summary.name for summary in list_scenarios()]
    return [name for name in names if all(expectation.quiet for expectation in load_any(name).expectations)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a scenario: the quick ones, or all."""
    if "healthy" in metafunc.fixturenames:
        every = metafunc.config.getoption("--every-week")
        metafunc.parametrize("healthy", quiet_scenarios() if every else QUICK)


@pytest.mark.timeout(1800)
def test_a_week_of_a_healthy_host_raises_no_alert(healthy: str, requires_tool: RequiresTool, tmp_path: Path) -> None:
    scenario = load_any(healthy)
    run = prepare(scenario, rule_files(), step_seconds=60, seconds=WEEK_SECONDS, sample_seconds=60)
    questions = ((EVER_FIRED, float(WEEK_SECONDS)), (EVER_UNDECIDED, float(WEEK_SECONDS)))
    answers = ask(requires_tool("promtool"), run.asking(questions), tmp_path)
    fired = {named(sample.labels): sample.value for sample in answers.samples[questions[0]]}
    assert fired.pop(f'{WATCHDOG}{{severity="none"}}') == WEEK_SECONDS / 60 + 1
    assert fired == {}
    assert answers.samples[questions[1]] == ()


def test_the_weeks_of_continuous_integration_are_of_quiet_scenarios() -> None:
    assert len(QUICK) >= 2
    assert set(QUICK) - set(quiet_scenarios()) == set()
