"""Two clusters whose hosts, GPUs and jobs have the same names: no query mixes them, and one of them can be chosen.

Beside them are hosts of these names without a cluster, as in a fleet that does not use the label.
"""

import re
from collections.abc import Iterator

import pytest
from tests.conftest import RequiresTool
from tests.dashboards.fleet import record_fleet, with_two_clusters
from tests.dashboards.grafana import FILES, Target, all_targets, read, substitute
from tests.dashboards.store import ANY_OF_EQUALS, Series, Store, serving
from tests.gathered import for_each
from tests.rules.cases import load_any

pytestmark = pytest.mark.timeout(1800)  # the first test waits for the hosts to be recorded, beside whatever else runs

HOSTS = ("h100-8-bad-night", "allocated", "path-network", "repeat-offender")
"""Few enough for the GPUs of two clusters not to exceed what a panel shows."""
MOMENTS = (30, 55, 75)
TARGETS = all_targets()

Row = frozenset[tuple[str, str]]


@pytest.fixture(scope="module")
def clusters(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A Prometheus that has watched the same hosts in two clusters and without a cluster."""
    prometheus, promtool = requires_tool("prometheus"), requires_tool("promtool")
    directory = tmp_path_factory.mktemp("clusters")
    fleet = with_two_clusters(record_fleet(promtool, directory, {name: load_any(name) for name in HOSTS}))
    with serving(fleet, prometheus, promtool, directory) as running:
        yield running


def rows(found: list[Series]) -> dict[Row, str]:
    return {frozenset(each.labels.items()): f"{value:.9g}" for each in found for value in each.values.values()}


def of_cluster(name: str, found: dict[Row, str]) -> dict[Row, str]:
    """The rows of a cluster, and those that are of none."""
    return {row: value for row, value in found.items() if dict(row).get("cluster", name) == name}


def unnamed(name: str, found: dict[Row, str]) -> dict[Row, str]:
    """The rows as they would be if their cluster had no name."""
    return {
        frozenset(
            (label, word.removeprefix(f"{name}/")) for label, word in row if (label, word) != ("cluster", name)
        ): value
        for row, value in found.items()
    }


def answers(store: Store, target: Target, cluster: str) -> list[dict[Row, str]]:
    # All of them: of equals, those beyond the number that a panel holds are chosen by chance.
    every = re.sub(r"\b(top|bottom)k\(40,", r"\1k(4000,", target.expr)
    expr = substitute(every, 1800, cluster=cluster)
    return [rows(store.at(expr, minute * 60)) for minute in MOMENTS]


@for_each("target", TARGETS, ids=lambda target: target.name)
def test_each_cluster_has_its_own_rows_and_one_can_be_chosen(clusters: Store, target: Target) -> None:
    without = answers(clusters, target, "")
    east, west = answers(clusters, target, "east"), answers(clusters, target, "west")
    both, everything = answers(clusters, target, "(east|west)"), answers(clusters, target, ".*")
    by_cluster = any(label == "cluster" for found in east for row in found for label, _ in row)
    if target.name in ANY_OF_EQUALS:
        assert [len(found) for found in east] == [len(found) for found in without]
        return
    assert [unnamed("east", found) for found in east] == without
    if not by_cluster:
        return
    first_rows_only = target.instant and ("topk" in target.expr or "bottomk" in target.expr)
    for one, other, two, three in zip(east, west, both, everything, strict=True):
        apart = {**one, **other}
        if first_rows_only:
            assert two.items() <= apart.items()
            assert bool(two) == bool(apart)
        else:
            assert two == apart
        if "topk" not in target.expr and "bottomk" not in target.expr:
            assert of_cluster("east", three).items() >= one.items()


def test_the_hosts_show_something_in_most_panels(clusters: Store) -> None:
    shown = [target for target in TARGETS if any(answers(clusters, target, "east"))]
    assert len(shown) >= 0.75 * len(TARGETS)


def test_the_readings_of_the_two_clusters_differ(clusters: Store) -> None:
    (target,) = (each for each in TARGETS if each.name == "diagnosis: Bottleneck of each GPU A")
    east, west = (answers(clusters, target, name) for name in ("east", "west"))
    assert [unnamed("east", found) for found in east] != [unnamed("west", found) for found in west]


@for_each(
    ("file", "mark"),
    [(file, mark) for file in FILES for mark in read(file)["annotations"].get("list", ())],
    ids=lambda case: f"{case[0]}: {case[1]['name']}",
)
def test_marks_of_one_cluster_are_not_shown_of_the_other(clusters: Store, file: str, mark: dict[str, str]) -> None:
    def marks(cluster: str) -> set[Row]:
        found = clusters.over_time(substitute(mark["expr"], 1800, cluster=cluster))
        return {frozenset(each.labels.items()) for each in found}

    assert marks("(east|west)") == marks("east") | marks("west"), file
    assert {dict(row)["cluster"] for row in marks("east")} <= {"east"}
