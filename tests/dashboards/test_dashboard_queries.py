"""Every query of every panel, run as Grafana runs it, against a real Prometheus that holds the scenarios' history."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests.dashboards.grafana import FILES, Target, all_targets, read, substitute
from tests.dashboards.store import Series, Store

pytestmark = pytest.mark.timeout(600)  # the first test waits for the fleet to be recorded

LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
MOMENTS = (9, 12, 30, 45, 55, 61, 75, 79, 89, 95, 107, 125)
"""Minutes at which tables are looked at: each fault of the scenarios is there at one of them."""

TARGETS = all_targets()
of_each_table = pytest.mark.parametrize(
    "panel",
    {target.panel["id"]: target.panel for target in TARGETS if target.panel["type"] == "table"}.values(),
    ids=lambda panel: panel["title"],
)


def answer(store: Store, target: Target) -> list[Series]:
    """Every series that the query yields, at any time."""
    expr = substitute(target.expr, store.end - store.start)
    if not target.instant:
        return store.over_time(expr)
    return [series for minute in MOMENTS for series in store.at(expr, minute * 60)]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_query_finds_data_in_some_scenario_with_the_labels_that_its_panel_shows(store: Store, target: Target) -> None:
    found = answer(store, target)
    assert found, "no scenario shows anything here"
    labels = {label for series in found for label in series.labels}
    assert set(LABEL.findall(target.legend)) - labels == set()


@of_each_table
def test_a_table_has_the_columns_that_it_names(store: Store, panel: Mapping[str, Any]) -> None:
    mine = [target for target in TARGETS if target.panel is panel]
    fields = {"Value"} if len(mine) == 1 else {f"Value #{target.ref}" for target in mine}
    fields |= {label for target in mine for series in answer(store, target) for label in series.labels}
    transformations = {each["id"]: each["options"] for each in panel["transformations"]}
    if "groupingToMatrix" in transformations:
        matrix = transformations["groupingToMatrix"]
        assert {matrix[key] for key in ("rowField", "columnField", "valueField")} - fields == set()
        return
    assert set(transformations["filterFieldsByName"]["include"]["names"]) - fields == set()
    renamed = transformations["organize"]["renameByName"]
    assert set(renamed) == set(transformations["filterFieldsByName"]["include"]["names"])
    shown = set(renamed.values())
    assert {each["matcher"]["options"] for each in panel["fieldConfig"]["overrides"]} - shown == set()
    assert {each["displayName"] for each in panel["options"].get("sortBy") or ()} - shown == set()


@of_each_table
def test_the_queries_of_a_table_share_the_labels_that_join_their_rows(store: Store, panel: Mapping[str, Any]) -> None:
    mine = [target for target in TARGETS if target.panel is panel]
    shared = frozenset.intersection(*(_labels(answer(store, target)) for target in mine))
    assert "instance" in shared


def _labels(found: Iterable[Series]) -> frozenset[str]:
    return frozenset(label for series in found for label in series.labels)


@pytest.mark.parametrize(
    "panel",
    {
        target.panel["id"]: target.panel
        for target in TARGETS
        if target.panel["fieldConfig"]["defaults"].get("mappings") and target.panel["type"] == "state-timeline"
    }.values(),
    ids=lambda panel: panel["title"],
)
def test_a_timeline_has_a_word_for_every_value(store: Store, panel: Mapping[str, Any]) -> None:
    named = {
        float(value)
        for mapping in panel["fieldConfig"]["defaults"]["mappings"]
        if mapping["type"] == "value"
        for value in mapping["options"]
    }
    mine = [target for target in TARGETS if target.panel is panel]
    seen = {value for target in mine for series in answer(store, target) for value in series.values.values()}
    assert seen - named == set()


@pytest.mark.parametrize(
    ("file", "annotation"),
    [
        pytest.param(file, annotation, id=f"{file}: {annotation['name']}")
        for file in FILES
        for annotation in read(file)["annotations"].get("list", ())
    ],
)
def test_a_mark_appears_in_some_scenario_with_the_labels_of_its_title(
    store: Store, file: str, annotation: Mapping[str, Any]
) -> None:
    found = store.over_time(substitute(annotation["expr"], store.end - store.start))
    assert found, f"{file}: no scenario shows it"
    # A mark lasts while the value is above 0.
    assert all(value > 0 for series in found for value in series.values.values())
    named = {*LABEL.findall(annotation["titleFormat"]), *filter(None, annotation["tagKeys"].split(","))}
    assert named - _labels(found) == set()
