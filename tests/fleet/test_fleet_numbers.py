"""The dashboards show the same above two shards, and in VictoriaMetrics, as in one Prometheus that has all hosts."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from dashboards.selectors import MOST_ROWS
from deploy.generate.fleet import OF_THE_FLEET, federated, remote_written
from tests.conftest import RequiresTool
from tests.dashboards.grafana import all_targets, substitute
from tests.dashboards.store import Series, Store, serving
from tests.fleet.sharded import MINUTES, only, record, victoria_metrics
from tests.gathered import for_each

from gpu_triage.cli.fleet.fleet_view import Selection, offender_query, queries
from gpu_triage.cli.fleet.job_pace import slow_queries
from gpu_triage.cli.fleet.review import daily_queries, table_queries

pytestmark = pytest.mark.timeout(1200)  # the first test waits for the hosts to be recorded, beside whatever else runs

MOMENTS = (25, 50, MINUTES - 1)


def _of_all(expr: str) -> str:
    """The query of a panel of the highest or lowest series, of all of them: of equals, each server takes others."""
    found, chosen = re.subn(r"\nand\n(?:top|bottom)k\(40, .*\Z", "", expr, flags=re.DOTALL)
    found = found.removeprefix("label_replace(") if chosen else found  # it would give hosts their short names
    return found.replace(f"k({MOST_ROWS}, ", "k(400, ")


DASHBOARDS = {target.name: substitute(_of_all(target.expr), 1800) for target in all_targets()}
GLOBAL = {t.name: substitute(_of_all(t.expr), 1800) for t in all_targets() if t.file in OF_THE_FLEET}


def _tables(selection: Selection) -> Mapping[str, Mapping[str, str]]:
    found = table_queries(str(selection), "719h")
    return {
        section: {f"{section} {name}": each for name, each in columns.items()} for section, columns in found.items()
    }


COMMANDS = {
    f"gpu-triage {command}: {name}{' of a cluster' if selection.cluster else ''}": query
    for selection in (Selection(), Selection(cluster=".*"))
    for command, asked in (
        ("fleet", queries(selection)),
        ("fleet", slow_queries(selection)),
        ("report", daily_queries(selection)),
        *(("report", columns) for columns in _tables(selection).values()),
        ("report", {"offenders": offender_query(selection, "30d")}),
    )
    for name, query in asked.items()
}
COUNTED_OTHERWISE = {
    *("detail: Time in each class A", "detail: ECC errors per hour B", "job: Class of each GPU, the 20 slowest A"),
    *("job: GPUs, the 20 slowest now A", "job: GPUs, the 20 slowest now E", "job: Hosts, the 20 slowest now C"),
}
"""MetricsQL's increase() and rate() differ: they do not extrapolate to the ends of the window, and they count what a
counter had when its series began."""
BEGINS_LATER = re.compile(r"quantile_over_time\(|:10?m\]")
"""Where one value at the very beginning of a window changes much: it counts in Prometheus 2, and neither in
VictoriaMetrics nor in Prometheus 3. A second later it is out of the window there, too."""

Rows = Mapping[frozenset[tuple[str, str]], list[float]]


@dataclass(frozen=True, slots=True)
class Stores:
    """Who has the hosts: one Prometheus, the one above two shards, and the VictoriaMetrics that two shards send to."""

    single: Store
    above: Store
    victoria: Store


@pytest.fixture(scope="module")
def stores(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Stores]:
    prometheus, promtool = requires_tool("prometheus"), requires_tool("promtool")
    victoria = requires_tool("victoria-metrics")
    folders = [tmp_path_factory.mktemp(name) for name in ("single", "above", "victoria")]
    sharded = record(promtool, folders[0])
    handed_up, sent = (
        only(sharded.together, frozenset(names).__contains__)
        for names in (federated(repository), remote_written(repository))
    )
    with ExitStack() as running:
        yield Stores(
            running.enter_context(serving(sharded.single, prometheus, promtool, folders[0])),
            running.enter_context(
                serving(replace(sharded.single, history=handed_up), prometheus, promtool, folders[1])
            ),
            running.enter_context(victoria_metrics(sent, victoria, folders[2], sharded.single)),
        )


def rows(found: list[Series]) -> Rows:
    """Values by labels, without the one that tells shards apart, and without 0/0, which VictoriaMetrics leaves out."""
    by_labels: dict[frozenset[tuple[str, str]], list[float]] = defaultdict(list)
    # It is about hosts that differ: those of each shard are alike.
    for each in (one for one in found if "GpuDriverVersionDrift" not in one.labels.values()):
        labels = frozenset((k, v) for k, v in each.labels.items() if k != "shard")
        by_labels[labels] += [value for value in each.values.values() if not math.isnan(value)]
    return by_labels


def differences(one: Rows, other: Rows) -> list[str]:
    return [
        f"{dict(row)}: {one.get(row)} and {other.get(row)}"
        for row in sorted({*one, *other}, key=sorted)
        if not _equal(one.get(row, []), other.get(row, []))
    ]


def _equal(some: list[float], others: list[float]) -> bool:
    return len(some) == len(others) and all(
        math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
        for one, other in zip(sorted(some), sorted(others), strict=True)
    )


def between(one: Store, other: Store, query: str, one_asked_later: float = 0) -> list[str]:
    return [
        f"minute {minute:g}: {each}"
        for minute in MOMENTS
        for each in differences(rows(one.at(query, minute * 60 + one_asked_later)), rows(other.at(query, minute * 60)))
    ]


@for_each("name", [*GLOBAL, *COMMANDS])
def test_the_server_above_the_shards_answers_as_one_server_would(stores: Stores, name: str) -> None:
    assert between(stores.single, stores.above, (GLOBAL | COMMANDS)[name]) == []


@for_each("name", [*DASHBOARDS, *COMMANDS])
def test_victoria_metrics_answers_as_prometheus_would(stores: Stores, name: str) -> None:
    query = (DASHBOARDS | COMMANDS)[name]
    found = between(stores.single, stores.victoria, query, 1.0 if BEGINS_LATER.search(query) else 0.0)
    if name in COUNTED_OTHERWISE:
        assert found, "no longer an exception"
        assert re.search(r"\b(increase|rate)\(", query)
    else:
        assert found == []


def test_most_queries_have_an_answer(stores: Stores) -> None:
    asked = [*DASHBOARDS.values(), *COMMANDS.values()]
    answered = [query for query in asked if any(stores.single.at(query, minute * 60) for minute in MOMENTS)]
    assert len(answered) >= 0.75 * len(asked)
