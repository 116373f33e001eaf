"""What can be said of the dashboards without running them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dashboards.build import dashboards
from dashboards.selectors import bottleneck_in
from dashboards.steps import RUNBOOKS_URL, STEPS, Step
from dashboards.words import BOTTLENECK, CLASS
from tests.dashboards.grafana import FILES, FOLDER, Target, all_targets, find, panels, read, substitute, words_of
from tests.rules.expressions import labels_of, uses
from tests.rules.queries import faults
from tests.rules.rulefile import alerts, read_rules, rule_files
from tests.rules.vocabulary import series_labels

from gpu_triage.diagnosis.findings.verdicts import CLASS_COLOURS
from gpu_triage.handbook.markdown import render_html
from gpu_triage.handbook.pages import find as find_page
from gpu_triage.registry import METRICS
from gpu_triage.subjects.judgement import BOTTLENECK_CLASSES, GPU_BOTTLENECK
from gpu_triage.subjects.metric import GPU_LABELS, MetricSpec

RULES = read_rules(rule_files())
LABELS = series_labels(RULES)
TARGETS = all_targets()
PANELS = [pytest.param(panel, id=f"{file}: {panel['title']}") for file in FILES for panel in panels(read(file))]
VARIABLES = {"job": ("=~", "J"), "instance": ("=~", "I")}

every_file = pytest.mark.parametrize("file", FILES)
every_panel = pytest.mark.parametrize("panel", PANELS)
every_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


def static(expr: str) -> str:
    """The query with words in place of variables."""
    return substitute(expr, 3600, job="J", instance="I", gpu="G")


@every_file
def test_a_file_is_what_its_builder_makes(file: str) -> None:
    assert (FOLDER / file).read_text(encoding="utf-8") == dashboards()[file], "run `make regenerate`"


def test_every_file_has_a_builder() -> None:
    assert {path.name for path in FOLDER.glob("*.json")} == set(dashboards()) == set(FILES)


@every_file
def test_a_dashboard_is_found_by_tag_and_imports_anywhere(file: str) -> None:
    board = read(file)
    assert board["uid"] == f"gpu-triage-{file.removesuffix('.json')}"
    assert board["tags"] == ["gpu-triage"]
    assert board["editable"] is False
    assert board["graphTooltip"] == 1
    assert board["schemaVersion"] == 39
    assert "id" not in board
    (link,) = board["links"]
    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == (
        "dashboards",
        ["gpu-triage"],
        True,
        True,
    )
    variables = [variable["name"] for variable in board["templating"]["list"]]
    assert variables[:3] == ["datasource", "job", "instance"]


def test_alerts_link_to_dashboards_that_exist() -> None:
    uids = {read(file)["uid"] for file in FILES}
    assert {rule.annotations["dashboard_uid"] for rule in alerts(RULES)} - uids == set()


@every_file
def test_ids_and_titles_of_panels_are_their_own(file: str) -> None:
    every = read(file)["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    titles = [panel["title"] for panel in panels(read(file))]
    assert len(set(titles)) == len(titles)


@every_file
def test_panels_lie_side_by_side_within_the_grid(file: str) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in read(file)["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        mine = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert not cells & mine, panel["title"]
        cells |= mine


def test_the_first_screen_of_the_diagnosis_needs_no_scrolling_on_1080_lines() -> None:
    """Grafana gives a row of the grid 38 pixels; browser and Grafana's own bars take some 250 of the lines."""
    first_row = next(panel for panel in read("diagnosis.json")["panels"] if panel["type"] == "row")
    assert first_row["gridPos"]["y"] * 38 <= 1080 - 250


@every_panel
def test_a_panel_has_a_title_a_description_and_a_unit(panel: Mapping[str, Any]) -> None:
    assert panel["title"]
    assert len(panel["description"]) >= 10
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@every_panel
def test_an_empty_panel_never_looks_like_good_news(panel: Mapping[str, Any]) -> None:
    said = panel["fieldConfig"]["defaults"].get("noValue", "No data")
    assert said.startswith("No data") or said == "The rules do not run"


@every_target
def test_a_query_talks_of_series_labels_and_words_that_exist(target: Target) -> None:
    # topk and bottomk choose once for the whole picture (`@ end()`), or for a table of one moment.
    chosen = target.instant or "@ end()" in target.expr
    found = [fault for fault in faults(static(target.expr), LABELS) if not (chosen and "series come and go" in fault)]
    assert found == []
    labels_of(static(target.expr), LABELS)


@every_target
def test_a_query_selects_by_the_variables(target: Target) -> None:
    for use in uses(static(target.expr)):
        named = {label: (operator, value) for label, operator, value in use.matchers}
        if named.get("alertname") == ("=", "GpuTriageWatchdog"):
            continue  # it is of no host: it says that the rules run at all
        for label, matcher in VARIABLES.items():
            if label in LABELS(use.metric):
                assert named.get(label) == matcher, f"{use.metric} is not selected by ${label}"


@every_target
def test_rates_follow_the_time_shown(target: Target) -> None:
    assert not re.search(r"\brate\((?![^)]*\[\$__rate_interval\])", target.expr)


@every_target
def test_a_legend_says_whose_line_it_is(target: Target) -> None:
    if target.panel["type"] in {"table", "stat"}:
        return
    carried = labels_of(static(target.expr), LABELS)
    for label in {"instance", "gpu"} & carried:
        assert f"{{{{{label}}}}}" in target.legend, f"{label} is not in the legend"


def test_the_capacity_review_reads_recorded_series_alone_and_no_ranges() -> None:
    mine = [target for target in TARGETS if target.file == "capacity.json"]
    assert mine
    for target in mine:
        for use in uses(static(target.expr)):
            assert ":" in use.metric, target.name
            assert not use.ranged, target.name


def test_everything_the_exporter_says_of_a_gpu_is_in_its_detail() -> None:
    shown = {use.metric for target in TARGETS if target.file == "detail.json" for use in uses(static(target.expr))}
    known = {spec.name for spec in METRICS if set(GPU_LABELS) <= set(spec.labels)}
    assert known - shown == ELSEWHERE


ELSEWHERE = {
    "gpu_baseline_mismatch",
    "gpu_p2p_status",
    "gpu_exporter_call_inflight_seconds",
    "gpu_nvlink_link_receive_bytes_total",
    "gpu_nvlink_link_transmit_bytes_total",
}
"""Shown in the fleet's dashboard, where hosts are compared with what they were and each pair of GPUs has a cell; by
`check` and the runbooks, as long as a call does not return; and traffic of single links nowhere: it is not published
unless asked for."""


STATES = [spec for spec in METRICS if spec.states]
"""Metrics whose value is a state, with the names of the states."""
CHOICES = frozenset({"max", "min", "count_values"})
"""Aggregations whose result is still a state."""


def shown(spec: MetricSpec) -> list[Target]:
    """Queries whose answer is a state of the metric: not those that compare, count or choose by it."""
    return [
        target
        for target in TARGETS
        for use in uses(static(target.expr))
        if use.metric == spec.name and set(use.inside) <= CHOICES
    ]


@pytest.mark.parametrize("spec", STATES, ids=lambda spec: spec.name)
def test_every_panel_has_the_catalogues_word_for_every_state(spec: MetricSpec) -> None:
    targets = shown(spec)
    assert targets, "no panel shows it"
    for target in targets:
        words = {value: text for value, (text, _) in words_of(target).items()}
        named = {str(value): name for value, name in spec.states.items()}
        assert {value: words.get(value) for value in named} == named, target.name


@pytest.mark.parametrize("target", shown(GPU_BOTTLENECK), ids=lambda target: target.name)
def test_every_panel_has_the_one_colour_of_each_class(target: Target) -> None:
    colours = {text: colour for text, colour in words_of(target).values() if text in CLASS_COLOURS}
    assert colours == CLASS_COLOURS


def test_classes_have_one_name_and_colour_whether_value_or_label() -> None:
    assert [(name, colour) for _, name, colour in BOTTLENECK] == list(CLASS_COLOURS.items())
    assert [(text, colour) for _, text, colour in CLASS] == list(CLASS_COLOURS.items())
    assert [name for name, _, _ in CLASS] == list(BOTTLENECK_CLASSES)


def test_classes_are_compared_by_their_values_and_consecutive_ones_at_once() -> None:
    brake, cap = map(GPU_BOTTLENECK.value_of, ("power_brake", "power_cap"))
    query = bottleneck_in(("clock_cap", "thermal", "power_cap", "power_brake"))
    assert re.findall(r"[<>=]= \d+", query) == [f">= {brake - 1}", f"<= {brake}", f">= {cap}", f"<= {cap + 1}"]
    assert re.findall(r"[<>=]= \d+", bottleneck_in(["sick"])) == [f"== {GPU_BOTTLENECK.value_of('sick')}"]


def test_every_class_and_every_alert_belongs_to_one_step() -> None:
    of_steps = [name for step in STEPS for name in step.classes]
    assert sorted(of_steps) == sorted(set(BOTTLENECK_CLASSES) - {"idle", "unattributed"})
    assert {step.rules for step in STEPS} - {""} == {
        path.name for path in rule_files() if path.name.startswith("alerts")
    }


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.title)
def test_a_verdict_links_a_panel_of_its_step_and_the_playbook(step: Step) -> None:
    tile = find("diagnosis.json", step.title).panel
    look, read_on = tile["links"]
    looked_at = re.search(r"viewPanel=(\d+)", look["url"])
    assert looked_at
    board = read("diagnosis.json")
    assert [panel["title"] for panel in board["panels"] if panel["id"] == int(looked_at[1])] == [step.key_panel]
    page, _, anchor = read_on["url"].removeprefix(f"{RUNBOOKS_URL}/").partition("#")
    assert f'<h3 id="{anchor}">' in render_html(find_page(page).text)


@pytest.mark.parametrize("file", ["diagnosis.json", "detail.json"])
def test_runbooks_are_linked_on_an_exporter_that_can_be_chosen(file: str) -> None:
    board = read(file)
    (exporter,) = (each for each in board["templating"]["list"] if each["name"] == "exporter")
    assert exporter["query"]["query"].startswith("label_values(gpu_exporter_build_info{")
    assert f'"{RUNBOOKS_URL}/${{__value.raw}}"' in json.dumps(board)


@pytest.mark.parametrize("file", FILES)
def test_no_dashboard_links_a_code_host(file: str) -> None:
    assert "github.com" not in json.dumps(read(file))


def test_the_readme_names_every_dashboard(repository: Path) -> None:
    text = (repository / "dashboards" / "README.md").read_text(encoding="utf-8")
    assert [file for file in FILES if file not in text] == []
