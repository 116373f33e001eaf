"""What can be said of the dashboards without running them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dashboards.steps import RUNBOOKS_URL
from tests.dashboards.grafana import FILES, Target, all_targets, panels, read, rows, substitute
from tests.gathered import every, for_each
from tests.promql.expressions import labels_of, uses
from tests.promql.queries import faults
from tests.promql.vocabulary import OF_OTHER_TARGETS, series_labels
from tests.rules.rulefile import alerts, read_rules, rule_files

from gpu_triage.read.metrics.metric import GPU_LABELS
from gpu_triage.read.registry import METRICS

RULES = read_rules(rule_files())
LABELS = series_labels(RULES)
VARIABLES = {"cluster": ("=~", "C"), "job": ("=~", "J"), "instance": ("=~", "I")}


def all_panels() -> list[dict[str, Any]]:
    return [{**panel, "file": file} for file in FILES for panel in panels(read(file))]


every_file = for_each("file", FILES)
every_panel = for_each("panel", all_panels, ids=lambda panel: f"{panel['file']}: {panel['title']}")
every_target = for_each("target", all_targets, ids=lambda target: target.name)


def static(expr: str) -> str:
    return substitute(expr, 3600, cluster="C", job="J", instance="I", gpu="G")


def test_alerts_link_to_dashboards_that_exist() -> None:
    uids = {read(file)["uid"] for file in FILES}
    assert uids == {f"gpu-triage-{file.removesuffix('.json')}" for file in FILES}
    assert {rule.annotations["dashboard_uid"] for rule in alerts(RULES)} - uids == set()


@every_file
def test_ids_and_titles_of_panels_are_their_own(file: str) -> None:
    every = [*panels(read(file)), *rows(read(file))]
    assert len({panel["id"] for panel in every}) == len(every)
    titles = [panel["title"] for panel in panels(read(file))]
    assert len(set(titles)) == len(titles)


@every_file
def test_panels_lie_side_by_side_within_the_grid(file: str) -> None:
    board = read(file)
    for row in every(rows(board)):
        # Grafana unfolds a row by moving what is below it; the row's own panels must begin right below the row.
        assert min((panel["gridPos"]["y"] for panel in row["panels"]), default=0) == row["collapsed"] * (
            row["gridPos"]["y"] + 1
        )
    for together in (board["panels"], *(row["panels"] for row in rows(board))):
        cells: set[tuple[int, int]] = set()
        for panel in together:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            mine = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
            assert not cells & mine, panel["title"]
            cells |= mine


def test_no_cell_has_the_color_of_text_as_its_background() -> None:
    for override in every(override for panel in all_panels() for override in panel["fieldConfig"]["overrides"]):
        text = json.dumps(override["properties"])
        assert "color-background" not in text or '"color": "text"' not in text, override["matcher"]["options"]


@every_panel
def test_an_empty_panel_gives_the_reason(panel: Mapping[str, Any]) -> None:
    assert re.match(r"No data: \S.{8,}[^.]$", panel["fieldConfig"]["defaults"]["noValue"])
    assert "No data" not in panel["description"]


@every_target
def test_a_query_talks_of_series_labels_and_words_that_exist(target: Target) -> None:
    # topk and bottomk choose once for the whole picture (`@ end()`), or for a table of one moment.
    chosen = target.instant or "@ end()" in target.expr
    found = [fault for fault in faults(static(target.expr), LABELS) if not (chosen and "series come and go" in fault)]
    assert found == []
    labels_of(static(target.expr), LABELS)


@every_target
def test_a_query_selects_by_the_variables(target: Target) -> None:
    for use in every(uses(static(target.expr))):
        named = {label: (operator, value) for label, operator, value in use.matchers}
        if use.metric in OF_OTHER_TARGETS:
            continue
        if named.get("alertname") == ("=", "GpuTriageWatchdog"):
            continue  # it is of no host: it says that the rules run at all
        for label, matcher in VARIABLES.items():
            if label in LABELS(use.metric) and named.get(label) != ("=", ""):
                assert named.get(label) == matcher, f"{use.metric} is not selected by ${label}"


def test_hosts_are_joined_and_grouped_with_their_cluster() -> None:
    clauses = re.compile(r"\b(?:by|on|ignoring|without) \(([^)]*)\)")
    marks = {mark["name"]: mark["expr"] for file in FILES for mark in read(file)["annotations"].get("list", ())}
    named = [
        (name, {label.strip() for label in clause.split(",")})
        for name, expr in ({target.name: target.expr for target in all_targets()} | marks).items()
        for clause in clauses.findall(expr)
    ]
    assert [each for each in every(named) if {"job", "instance"} & each[1] and "cluster" not in each[1]] == []


@every_target
def test_rates_follow_the_time_shown(target: Target) -> None:
    assert not re.search(r"\brate\((?![^)]*\[\$__rate_interval\])", target.expr)


@every_target
def test_a_legend_says_whose_line_it_is(target: Target) -> None:
    if target.panel["type"] in {"table", "stat"} or target.file == "detail.json":
        return  # the detail is about one GPU
    carried = {"cluster", "instance", "gpu"} & labels_of(static(target.expr), LABELS)
    assert carried - set(re.findall(r"\{\{(\w+)\}\}", target.legend)) == set()


def test_the_capacity_review_reads_recorded_series_alone_and_ranges_only_of_what_is_recorded_every_5_minutes() -> None:
    seldom = {rule.name for rule in read_rules(rule_files()) if rule.interval == "5m"}
    mine = [target for target in all_targets() if target.file == "capacity.json"]
    assert mine
    for target in mine:
        for use in uses(static(target.expr)):
            assert ":" in use.metric, target.name
            assert not use.ranged or use.metric in seldom, target.name


def test_everything_the_exporter_says_of_a_gpu_is_in_its_detail_or_its_hosts() -> None:
    mine = [target for target in all_targets() if target.file in {"detail.json", "host.json"}]
    shown = {use.metric for target in mine for use in uses(static(target.expr))}
    known = {spec.name for spec in METRICS if set(GPU_LABELS) <= set(spec.labels)}
    assert known - shown == ELSEWHERE


ELSEWHERE = {
    "gpu_finding_lasted_seconds",
    "gpu_baseline_mismatch",
    "gpu_p2p_status",
    "gpu_process_owner_info",
    "gpu_process_waits_for",
    "gpu_exporter_call_inflight_seconds",
    "gpu_flight_recording_timestamp_seconds",
    "gpu_cgroup_written_bytes_total",
    "gpu_main_thread_cpu_seconds_total",
    "gpu_processes_read_bytes_total",
    "gpu_processes_written_bytes_total",
    "gpu_nvlink_bandwidth_bytes_per_second",
    "gpu_nvlink_link_receive_bytes_total",
    "gpu_nvlink_link_transmit_bytes_total",
    "gpu_power_period_seconds",
    "gpu_power_period_strength_ratio",
}
"""Shown by `check` and the status page, how long a finding has
lasted; in the fleet's dashboard, where hosts are compared with what they were, each pair of GPUs has a cell, and GPUs
have owners; by `check` and the runbooks, as long as a call does not return; on the status page and in the text of the
alert, which name a recording; and what jobs read, write and may wait for, the traffic of single links, the line rate to
each far end and the period of power nowhere: most are not published unless asked for."""


@pytest.mark.parametrize("file", ["diagnosis.json", "detail.json"])
def test_runbooks_are_linked_on_an_exporter_that_can_be_chosen(file: str) -> None:
    board = read(file)
    (exporter,) = (each for each in board["templating"]["list"] if each["name"] == "exporter")
    assert exporter["query"]["query"].startswith("label_values(gpu_exporter_build_info{")
    assert f'"{RUNBOOKS_URL}/${{__value.raw}}"' in json.dumps(board)


def test_the_readme_names_every_dashboard(repository: Path) -> None:
    text = (repository / "dashboards" / "README.md").read_text(encoding="utf-8")
    assert [file for file in FILES if file not in text] == []
