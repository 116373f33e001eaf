"""Days of a healthy host, a scrape a minute: nobody is woken, nobody gets a ticket.

A day of two A10 costs some 35 s of a CPU. So continuous integration plays six hours of one host and three of
another, and ``--long`` a week of every scenario that is quiet from end to end.

The rules for capacity reviews stay out: promtool loads at most ten thousand samples for one expression, and a day of
eight GPUs is more.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import ask
from tests.recordings import DRILL
from tests.rules.cases import load_any
from tests.rules.examine import FIRING, UNDECIDED, run_of
from tests.rules.rulefile import alert_files
from tests.rules.verdict import WATCHDOG, named

from gpu_triage_simulator import list_scenarios
from gpu_triage_simulator.history import record_history

HOUR_SECONDS = 3600
EVALUATION_MINUTES = 2
"""Whatever fires stays for longer than that."""
QUICK_HOURS = {"idle-downshift": 6, "rtx-4070-ti-super": 3}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a host: up to a day of the quick ones, or a week of all."""
    if "healthy" in metafunc.fixturenames:
        every = metafunc.config.getoption("--long")
        names = [summary.name for summary in list_scenarios()]
        quiet = (name for name in names if all(expectation.quiet for expectation in load_any(name).expectations))
        hours = dict.fromkeys(quiet, 168) if every else QUICK_HOURS
        metafunc.parametrize(("healthy", "hours"), hours.items())


@pytest.mark.timeout(3600)
def test_days_of_a_healthy_host_raise_no_alert(
    healthy: str, hours: int, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    scenario = load_any(healthy)
    history = record_history(scenario, seconds=hours * HOUR_SECONDS, step_seconds=60, target=DRILL)
    run = run_of(history, scenario, alert_files())
    # Step by step: promtool loads at most ten thousand samples for one answer.
    minutes = [60.0 * minute for minute in range(0, hours * 60 + 1, EVALUATION_MINUTES)]
    questions = tuple((question, at) for question in (FIRING, UNDECIDED) for at in minutes)
    asked = replace(run.asking(questions), evaluation_seconds=60.0 * EVALUATION_MINUTES)
    answers = ask(requires_tool("promtool"), asked, tmp_path)
    fired = Counter(named(sample.labels) for at in minutes for sample in answers.samples[FIRING, at])
    watchdog = f'{WATCHDOG}{{severity="none"}}'
    assert set(fired) == {watchdog}
    # Over a week promtool leaves out one of the ten thousand evaluations; it may not leave out more.
    assert fired[watchdog] >= len(minutes) - 1
    assert [at for at in minutes if answers.samples[UNDECIDED, at]] == []
