"""Days of a healthy host, a scrape a minute: nobody is woken, nobody gets a ticket.

A day of two A10 costs some 35 s of a CPU. So continuous integration plays a day of two hosts, and ``make long`` a
week of every scenario that is quiet from end to end.

The rules for capacity reviews stay out: promtool loads at most ten thousand samples for one expression, and a day of
eight GPUs is more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.cases import load_any
from tests.rules.examine import FIRING, UNDECIDED, prepare
from tests.rules.promtool import ask
from tests.rules.pruned import rules_of_alerts
from tests.rules.verdict import WATCHDOG, named

from gpu_triage.simulator import list_scenarios

DAY_SECONDS = 86400
EVALUATION_MINUTES = 2
"""Whatever fires stays for longer than that."""
QUICK = ("idle-downshift", "rtx-4070-ti-super")


def quiet_scenarios() -> list[str]:
    """Names of the shipped scenarios in which nothing is ever wrong."""
    names = [summary.name for summary in list_scenarios()]
    return [name for name in names if all(expectation.quiet for expectation in load_any(name).expectations)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a host: a day of the quick ones, or a week of all."""
    if "healthy" in metafunc.fixturenames:
        every = metafunc.config.getoption("--long")
        names, days = (quiet_scenarios(), 7) if every else (QUICK, 1)
        metafunc.parametrize(("healthy", "days"), [(name, days) for name in names])


@pytest.mark.timeout(3600)
def test_days_of_a_healthy_host_raise_no_alert(
    healthy: str, days: int, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    rules = rules_of_alerts(tmp_path, (FIRING, UNDECIDED))
    run = prepare(load_any(healthy), rules, step_seconds=60, seconds=days * DAY_SECONDS, sample_seconds=60)
    # Step by step: promtool loads at most ten thousand samples for one answer.
    minutes = [60.0 * minute for minute in range(0, days * DAY_SECONDS // 60 + 1, EVALUATION_MINUTES)]
    questions = tuple((question, at) for question in (FIRING, UNDECIDED) for at in minutes)
    asked = replace(run.asking(questions), evaluation_seconds=60.0 * EVALUATION_MINUTES)
    answers = ask(requires_tool("promtool"), asked, tmp_path)
    fired = Counter(named(sample.labels) for at in minutes for sample in answers.samples[FIRING, at])
    watchdog = f'{WATCHDOG}{{severity="none"}}'
    assert set(fired) == {watchdog}
    # Over a week promtool leaves out one of the ten thousand evaluations; it may not leave out more.
    assert fired[watchdog] >= len(minutes) - 1
    assert [at for at in minutes if answers.samples[UNDECIDED, at]] == []


def test_the_hosts_of_continuous_integration_are_of_quiet_scenarios() -> None:
    assert len(QUICK) >= 2
    assert set(QUICK) - set(quiet_scenarios()) == set()
