"""Days of a healthy host, a scrape a minute: nobody is woken, nobody gets a ticket.

A day of two A10 costs some 35 s of a CPU. So continuous integration plays a day of two hosts, and ``make long`` a
week of every scenario that is quiet from end to end.

The rules for capacity reviews stay out: promtool loads at most ten thousand samples for one expression, and a day of
eight GPUs is more. No alert and no class is made of them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from tests.conftest import RequiresTool
from tests.rules.cases import load_any
from tests.rules.examine import FIRING, UNDECIDED, prepare
from tests.rules.expressions import uses
from tests.rules.promtool import ask
from tests.rules.rulefile import read_rules, rule_files
from tests.rules.verdict import WATCHDOG, named

from gpu_triage.simulator import list_scenarios

DAY_SECONDS = 86400
QUICK = ("idle-downshift", "rtx-4070-ti-super")
CAPACITY = "gpu-triage-capacity"
"""What the names of the groups for capacity reviews begin with."""


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
    rules = without_capacity(tmp_path)
    run = prepare(load_any(healthy), rules, step_seconds=60, seconds=days * DAY_SECONDS, sample_seconds=60)
    # Minute by minute: promtool loads at most ten thousand samples for one answer.
    minutes = [60.0 * minute for minute in range(days * DAY_SECONDS // 60 + 1)]
    questions = tuple((question, at) for question in (FIRING, UNDECIDED) for at in minutes)
    answers = ask(requires_tool("promtool"), run.asking(questions), tmp_path)
    fired = Counter(named(sample.labels) for at in minutes for sample in answers.samples[FIRING, at])
    watchdog = f'{WATCHDOG}{{severity="none"}}'
    assert set(fired) == {watchdog}
    # Over a week promtool leaves out one of the ten thousand evaluations; it may not leave out more.
    assert fired[watchdog] >= len(minutes) - 1
    assert [at for at in minutes if answers.samples[UNDECIDED, at]] == []


def without_capacity(directory: Path) -> tuple[Path, ...]:
    """Copies of the shipped rule files, without the groups for capacity reviews."""
    copies = []
    for path in rule_files():
        groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        kept = [group for group in groups if not group["name"].startswith(CAPACITY)]
        copy = directory / path.name
        copy.write_text(yaml.safe_dump({"groups": kept}), encoding="utf-8")
        copies.append(copy)
    return tuple(copies)


def test_what_a_week_leaves_out_is_read_by_no_rule_in_it(tmp_path: Path) -> None:
    kept = read_rules(without_capacity(tmp_path))
    left_out = {rule.name for rule in read_rules(rule_files())} - {rule.name for rule in kept}
    expressions = [query for rule in kept for query in (rule.expr, *rule.queries())] + [FIRING, UNDECIDED]
    assert left_out
    assert left_out & {use.metric for expression in expressions for use in uses(expression)} == set()


def test_the_hosts_of_continuous_integration_are_of_quiet_scenarios() -> None:
    assert len(QUICK) >= 2
    assert set(QUICK) - set(quiet_scenarios()) == set()
