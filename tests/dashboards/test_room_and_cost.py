"""What fits on a screen, and what a dashboard costs."""

import re

import pytest
from tests.dashboards.grafana import FILES, Target, all_targets, find, read, substitute
from tests.gathered import for_each
from tests.promql.expressions import labels_of
from tests.promql.vocabulary import series_labels
from tests.rules.rulefile import read_rules, rule_files

LABELS = series_labels(read_rules(rule_files()))
MOST_SERIES = 2000
MOST_OPEN_QUERIES = {
    "diagnosis.json": 20,
    "job.json": 40,
    "detail.json": 40,
    "host.json": 50,
    "fleet.json": 60,
    "capacity.json": 40,
}

every_file = for_each("file", FILES)
every_target = for_each("target", all_targets, ids=lambda target: target.name)


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
