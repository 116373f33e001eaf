"""What can be said of the dashboards without running them: what fits on a screen and what they cost, too."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dashboards.steps import RUNBOOKS_URL
from tests.conftest import RequiresTool
from tests.dashboards.grafana import FILES, Target, all_targets, find, panels, read, rows, substitute
from tests.gathered import every, for_each
from tests.promql.expressions import labels_of, uses
from tests.promql.promtool import Run, ask, selector
from tests.promql.queries import faults
from tests.promql.vocabulary import OF_OTHER_TARGETS, series_labels
from tests.rules.rulefile import alerts, read_rules, rule_files

from dashboards import selectors
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
            if label in LABELS(use.metric):
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
    "gpu_exporter_call_inflight_seconds",
    "gpu_flight_recording_timestamp_seconds",
    "gpu_cgroup_written_bytes_total",
    "gpu_main_thread_cpu_seconds_total",
    "gpu_processes_written_bytes_total",
    "gpu_nvlink_bandwidth_bytes_per_second",
    "gpu_nvlink_link_receive_bytes_total",
    "gpu_nvlink_link_transmit_bytes_total",
}
"""Shown by `check` and the status page, how long a finding has
lasted; in the fleet's dashboard, where hosts are compared with what they were, each pair of GPUs has a cell, and GPUs
have owners; by `check` and the runbooks, as long as a call does not return; on the status page and in the text of the
alert, which name a recording; and what jobs write, the
traffic of single links and the line rate to each far end nowhere: they are not published unless asked for."""


@pytest.mark.parametrize("file", ["diagnosis.json", "detail.json"])
def test_runbooks_are_linked_on_an_exporter_that_can_be_chosen(file: str) -> None:
    board = read(file)
    (exporter,) = (each for each in board["templating"]["list"] if each["name"] == "exporter")
    assert exporter["query"]["query"].startswith("label_values(gpu_exporter_build_info{")
    assert f'"{RUNBOOKS_URL}/${{__value.raw}}"' in json.dumps(board)


def test_the_readme_names_every_dashboard(repository: Path) -> None:
    text = (repository / "dashboards" / "README.md").read_text(encoding="utf-8")
    assert [file for file in FILES if file not in text] == []


MOST_SERIES = 2000
MOST_OPEN_QUERIES = {
    "diagnosis.json": 20,
    "job.json": 40,
    "detail.json": 40,
    "host.json": 50,
    "fleet.json": 60,
    "capacity.json": 40,
}


def test_the_first_screen_of_the_diagnosis_needs_no_scrolling_on_1080_lines() -> None:
    """Grafana gives a row of the grid 38 pixels; browser and Grafana's own bars take some 250 of the lines."""
    first_row = next(panel for panel in read("diagnosis.json")["panels"] if panel["type"] == "row")
    assert first_row["gridPos"]["y"] * 38 <= 1080 - 250


@pytest.mark.parametrize("title", ["Direct access between GPUs", "Distance between GPUs"])
def test_a_matrix_shows_eight_gpus_on_a_window_of_1600_pixels(title: str) -> None:
    panel = find("fleet.json", title).panel
    widths = {
        each["matcher"]["options"]: next(one["value"] for one in each["properties"] if one["id"] in _WIDTHS)
        for each in panel["fieldConfig"]["overrides"]
    }
    assert widths["Host"] + widths["GPU"] + 8 * widths["number"] <= panel["gridPos"]["w"] / 24 * (1600 - 40) - 26


_WIDTHS = {"custom.width", "custom.minWidth"}


def test_which_gpu_what_and_since_when_need_no_scrolling_on_1440_by_900() -> None:
    """Of the lines, browser and Grafana take some 250; of the columns, Grafana's bars, gaps and frames some 70."""
    panel = find("diagnosis.json", "Findings").panel
    place = panel["gridPos"]
    assert (place["y"] + place["h"]) * 38 <= 900 - 250
    columns = {
        each["matcher"]["options"]: {one["id"]: one["value"] for one in each["properties"]}
        for each in panel["fieldConfig"]["overrides"]
    }
    titles = list(columns)
    asked = titles[: titles.index("Since") + 1]
    assert {"Finding", "Host", "GPU", "Measured"} < set(asked)
    wide = sum(columns[title].get("custom.width", columns[title].get("custom.minWidth", 150)) for title in asked)
    assert wide <= place["w"] / 24 * (1440 - 40) - 26


@every_target
def test_no_query_pulls_the_whole_fleet(target: Target) -> None:
    """A query whose series are of hosts is cut to a number of them, unless it is about one host or one job."""
    if target.file in {"detail.json", "job.json"}:
        return
    if "instance" in labels_of(substitute(target.expr, 3600), LABELS):
        most = [int(number) for number in re.findall(r"\b(?:top|bottom)k\((\d+)", target.expr)]
        assert most, "whole fleet"
        assert max(most) * len(target.panel["targets"]) <= MOST_SERIES


@every_file
def test_a_dashboard_opens_with_few_queries(file: str) -> None:
    board = read(file)
    mine = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert sum(len(panel["targets"]) for panel in mine) <= MOST_OPEN_QUERIES[file]


TARGET = (("instance", "host"), ("job", "gpu-triage"))
NAN = float("nan")
NOW = 600.0


def gpu(number: str, uuid: str) -> list[tuple[str, str]]:
    return [*TARGET, ("gpu", number), ("uuid", uuid)]


@pytest.mark.parametrize(
    ("series", "shown"),
    [
        ({selector("gpu_up", gpu("3", "A")): [0.0] * 11}, "3"),
        # The driver is away: it lists no GPUs, and the exporter goes on with their findings.
        ({selector("gpu_finding", [*gpu("3", "A"), ("code", "xid.119")]): [2.0] * 11}, "3"),
        # The host died a few minutes ago.
        ({selector("gpu_finding", [*gpu("3", "A"), ("code", "xid.119")]): [2.0] * 6 + [NAN] * 5}, "3"),
        # It was renumbered at a boot.
        (
            {
                selector("gpu_finding", [*gpu("3", "A"), ("code", "xid.119")]): [2.0] * 3 + [NAN] * 8,
                selector("gpu_finding", [*gpu("2", "A"), ("code", "xid.79")]): [NAN] * 5 + [2.0] * 6,
            },
            "2",
        ),
        (
            {
                selector("gpu_finding", [*gpu("3", "A"), ("code", "xid.119")]): [2.0] * 3 + [NAN] * 8,
                selector("gpu_up", gpu("2", "A")): [NAN] * 5 + [1.0] * 6,
            },
            "2",
        ),
    ],
)
def test_alerts_name_gpus(
    series: dict[str, list[float]], shown: str, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    """They carry a UUID alone; a dashboard shows the number that the GPU has, or had before it was gone."""
    firing = [*TARGET, ("uuid", "A"), ("alertname", "GpuXidCritical"), ("alertstate", "firing")]
    question = substitute(selectors.alerts('alertstate="firing"'), 1800)
    run = Run((), (), 60, {**series, selector("ALERTS", firing): [1.0] * 11}, ((question, NOW),))
    found = ask(requires_tool("promtool"), run, tmp_path).samples[question, NOW]
    assert [(sample.labels["gpu"], sample.value) for sample in found] == [(shown, 1.0)]
