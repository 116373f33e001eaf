"""What can be said of the dashboards without running them: words, colors, room and cost.

Alerts about GPUs carry a UUID alone; a dashboard shows the number that the GPU has, or had before it was gone.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from dashboards.diagnosis import VERDICTS
from dashboards.fleet_links import MOST_MATRICES
from dashboards.judgment import MOST_FINDINGS
from dashboards.not_shown import TABLE as NOT_SHOWN
from dashboards.not_shown import VARIABLE
from dashboards.palette import CLASS_COLORS, GRAY
from dashboards.selectors import MOST_ROWS, bottleneck_in
from dashboards.steps import COUNTED, RUNBOOKS_URL, STEPS, Step, alerts_of
from tests.conftest import RequiresTool
from tests.dashboards.grafana import (
    FILES,
    FOLDER,
    Target,
    all_targets,
    column,
    find,
    hidden_query,
    panels,
    properties_of,
    read,
    rows,
    substitute,
    targets,
    title_of,
    words_of,
)
from tests.gathered import every, for_each
from tests.promql.expressions import labels_of, uses
from tests.promql.promtool import Run, Sample, ask, selector
from tests.promql.queries import faults
from tests.promql.vocabulary import OF_OTHER_TARGETS, series_labels
from tests.rules.handwritten import Series, gpu, host, merged, over
from tests.rules.rulefile import alerts, read_rules, rule_files

from dashboards import selectors
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.judge.findings.table import Area
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES, GPU_BOTTLENECK
from gpu_triage.read.gpu.nvlink import EFFECTIVE_BER_LIMIT
from gpu_triage.read.metrics.metric import GPU_LABELS, MetricSpec
from gpu_triage.read.registry import METRICS
from gpu_triage.serve.handbook.markdown import render_html
from gpu_triage.serve.handbook.pages import find as find_page

RULES = read_rules(rule_files())
LABELS = series_labels(RULES)
OF_JOB = ("owner", "=~", "O")
"""Selects what is recorded of a whole job: its pace is that of all of its hosts, whichever of them is selected."""
VARIABLES = {"cluster": ("=~", "C"), "job": ("=~", "J"), "instance": ("=~", "I")}


def all_panels() -> list[dict[str, Any]]:
    return [{**panel, "file": file} for file in FILES for panel in panels(read(file))]


every_file = for_each("file", FILES)
every_panel = for_each("panel", all_panels, ids=lambda panel: f"{panel['file']}: {panel['title']}")
every_target = for_each("target", all_targets, ids=lambda target: target.name)


def static(expr: str) -> str:
    return substitute(expr, 3600, cluster="C", job="J", instance="I", gpu="G", owners="O")


def test_lines_in_panels_are_limits_that_findings_and_alerts_have() -> None:
    of_findings = [limit.value for each in LIMITS.values() for limit in each.values()]
    every_alert = (alert for source in shipped_sources() for alert in source.alerts)
    of_alerts = [limit.value for alert in every_alert for limit in alert.thresholds.values()]
    named = [value for name, value in vars(thresholds).items() if name.isupper() and isinstance(value, float)]
    known = {*of_findings, *of_alerts, *named, EFFECTIVE_BER_LIMIT}
    known |= {1 - value for value in known}  # below a share as much as above the rest of it
    drawn = {
        f"{panel['file']}: {panel['title']}": panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"]
        for panel in all_panels()
        if "thresholdsStyle" in panel["fieldConfig"]["defaults"].get("custom", {})
    }
    assert len(drawn) > 10
    assert {name: value for name, value in drawn.items() if value not in known} == {}


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


@for_each("panel", lambda: [each for each in all_panels() if each["type"] == "table"], ids=lambda panel: panel["title"])
def test_a_cell_of_a_table_is_its_label(panel: Mapping[str, Any]) -> None:
    """Of a label that looks like a number, Grafana shows the number, unless the unit of its column is a string's."""
    assert "unit" not in panel["fieldConfig"]["defaults"]
    steps = {each["id"]: each["options"] for each in panel["transformations"]}
    numbers = {each["targetField"] for each in steps.get("convertFieldType", {}).get("conversions", ())}
    units = {title: each.get("unit") for title, each in properties_of(panel).items()}
    for field, title in every(steps["organize"]["renameByName"].items()):
        assert (units.get(title) == "string") == (not field.startswith("Value") and field not in numbers), title


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
        named = {(label, operator, value) for label, operator, value in use.matchers}
        if use.metric in OF_OTHER_TARGETS or OF_JOB in named:
            continue
        if ("alertname", "=", "GpuTriageWatchdog") in named:
            continue  # it is of no host: it says that the rules run at all
        for label, matcher in VARIABLES.items():
            if label in LABELS(use.metric) and (label, "=", "") not in named:
                assert (label, *matcher) in named, f"{use.metric} is not selected by ${label}"


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
    labels = labels_of(static(target.expr), LABELS)
    carried = ({"cluster", "gpu"} & labels) | ({"host"} if "instance" in labels else set())
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
    *("gpu_finding_lasted_seconds", "gpu_baseline_mismatch", "gpu_p2p_status", "gpu_process_owner_info"),
    *("gpu_exporter_call_inflight_seconds", "gpu_flight_recording_timestamp_seconds"),
    *("gpu_cgroup_written_bytes_total", "gpu_main_thread_cpu_seconds_total", "gpu_processes_read_bytes_total"),
    *("gpu_processes_written_bytes_total", "gpu_nvlink_bandwidth_bytes_per_second"),
    *("gpu_nvlink_link_receive_bytes_total", "gpu_nvlink_link_transmit_bytes_total", "gpu_power_period_seconds"),
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


LINKED = {"host", "gpu", "owner", "slurm_job_id", "workload_namespace", "workload_pod", "user"}


def test_a_table_has_at_most_twenty_rows_and_says_of_how_many() -> None:
    every_table = [panel for panel in all_panels() if panel["type"] == "table"]
    for panel in every(every_table):
        chosen = [int(number) for target in panel["targets"] for number in re.findall(r"k\((\d+), ", target["expr"])]
        if MOST_ROWS in chosen and title_of(panel) != NOT_SHOWN:
            variables = {each["name"] for each in read(panel["file"])["templating"]["list"]}
            assert panel["title"].partition("$")[2] in variables, panel["title"]
        # Of findings, more are read in detail, and those that are listed are chosen once; matrices have hosts.
        assert {*chosen} <= {1, MOST_ROWS, MOST_FINDINGS, MOST_MATRICES}, panel["title"]


@for_each("panel", lambda: [each for each in all_panels() if each["type"] == "table"], ids=lambda panel: panel["title"])
def test_hosts_gpus_and_owners_lead_to_their_dashboards(panel: Mapping[str, Any]) -> None:
    overrides = properties_of(panel)
    (renamed,) = (each["options"]["renameByName"] for each in panel["transformations"] if each["id"] == "organize")
    for title in (title for field, title in renamed.items() if field in LINKED):
        for url in (each["url"] for each in every(overrides[title]["links"])):
            assert url.startswith("/d/gpu-triage-"), title
            assert "${__url_time_range}" in url, title
            # What a link reads of its row is there, be it shown or not.
            fields = set(re.findall(r"__data[.]fields[.](\w+)", url)) - {"Cluster"}
            assert fields <= {*renamed.values(), *overrides}, title


NAN, NOW = float("nan"), 600.0
Answered = Callable[..., Sequence[Sample]]


@pytest.fixture
def answered(requires_tool: RequiresTool, tmp_path: Path) -> Answered:
    """What a query finds in some series."""

    def ask_promtool(expr: str, series: Series, **chosen: str) -> Sequence[Sample]:
        question = substitute(expr, 1800, **chosen)
        run = Run((), (), 60, series, ((question, NOW),))
        return ask(requires_tool("promtool"), run, tmp_path).samples[question, NOW]

    return ask_promtool


ALWAYS, UNTIL_DOWN, UNTIL_GONE = over((1, 11)), over((1, 6), (0, 5)), over((1, 6), (NAN, 5))
BUILD = "gpu_exporter_build_info"


@pytest.mark.parametrize(
    "names",
    [
        {"a.gpu.example:9836": "a", "b-2.gpu.example:9836": "b-2"},
        {"a.one.example:9836": "a.one.example", "a.two.example:9836": "a.two.example"},
        {"a.gpu.example:9836": "a.gpu.example", "b:9836": "b"},
        {"10.0.0.1:9836": "10.0.0.1", "10.0.0.2:9836": "10.0.0.2"},
        {"[fe80::1]:9836": "[fe80::1]", "login": "login"},
    ],
    ids=["one-domain", "two-domains", "none", "addresses", "no-port"],
)
def test_hosts_are_named_without_port_and_common_domain(names: dict[str, str], answered: Answered) -> None:
    series = merged(*(host(BUILD, ALWAYS, name) for name in names))
    domains = answered(hidden_query("host.json", "domain"), series)
    domain = "".join(each.labels.get("domain", "") for each in domains)
    found = answered(selectors.short(selectors.host(BUILD)), series, domain=domain)
    assert {each.labels["instance"]: each.labels["host"] for each in found} == names


@pytest.mark.parametrize(("gpus", "after"), [(MOST_ROWS, []), (MOST_ROWS + 1, [f": {MOST_ROWS} of {MOST_ROWS + 1}"])])
def test_a_title_tells_of_how_many_the_rows_are_the_worst(gpus: int, after: list[str], answered: Answered) -> None:
    variable = find("fleet.json", "Worst GPUs").panel["title"].removeprefix("Worst GPUs$")
    series = merged(*(gpu("gpu_up", ALWAYS, f"GPU-{number}", gpu=str(number)) for number in range(gpus)))
    found = answered(hidden_query("fleet.json", variable), series)
    assert [each.labels["title"] for each in found] == after


def firing(name: str, **labels: str) -> Series:
    of_alert = {"job": "gpu-triage", "alertname": name, "alertstate": "firing", **labels}
    return {selector("ALERTS", of_alert.items()): ALWAYS}


WAS_3 = gpu("gpu_finding", over((2, 3), (NAN, 8)), gpu="3", code="xid.119")


@pytest.mark.parametrize(
    ("series", "shown"),
    [
        (gpu("gpu_up", over((0, 11)), gpu="3"), "3"),
        # The driver is away: it lists no GPUs, and the exporter goes on with their findings.
        (gpu("gpu_finding", over((2, 11)), gpu="3", code="xid.119"), "3"),
        # The host died a few minutes ago.
        (gpu("gpu_finding", over((2, 6), (NAN, 5)), gpu="3", code="xid.119"), "3"),
        # It was renumbered at a boot.
        (merged(WAS_3, gpu("gpu_finding", over((NAN, 5), (2, 6)), gpu="2", code="xid.79")), "2"),
        (merged(WAS_3, gpu("gpu_up", over((NAN, 5), (1, 6)), gpu="2")), "2"),
        ({}, None),  # nothing tells its index: it is listed without one
    ],
)
def test_alerts_name_gpus(series: Series, shown: str | None, answered: Answered) -> None:
    series = merged(series, firing("GpuXidCritical", instance="a", uuid="GPU-1"))
    of_another = answered(selectors.alerts("alertname!=''"), series, gpu="7")
    assert [sample.labels.get("gpu") for sample in of_another] == ([] if shown else [None])
    found = answered(selectors.alerts('alertstate="firing"'), series)
    assert [(sample.labels.get("gpu"), sample.value) for sample in found] == [(shown, 1.0)]


BEFORE = host(BUILD, UNTIL_GONE)
STALE = host("gpu_exporter_collector_stale_seconds", ALWAYS, collector="pcie")
ERRORS = host("gpu_exporter_errors_total", [*map(float, range(11))], collector="pcie", error="timeout")


@pytest.mark.parametrize(
    ("series", "named"),
    [
        ({}, "nothing"),
        (merged(BEFORE, host("up", UNTIL_DOWN)), "a exporter down"),
        (merged(BEFORE, host("up", UNTIL_GONE)), "a no longer scraped"),
        (host("gpu_driver_up", UNTIL_DOWN), "a driver does not answer"),
        (host("gpu_exporter_gpus_released", ALWAYS), "a GPUs released by the exporter"),
        (host("gpu_error_info", ALWAYS, gpu="3", error="lost"), "a GPU 3 not read: lost"),
        (host("gpu_mig_mode", ALWAYS, gpu="3"), "a GPU 3 split by MIG: see its instances"),
        (merged(STALE, ERRORS), "a collector fails: pcie timeout"),
        (STALE, "a collector fails: pcie"),
        (  # the least one is counted only
            merged(*(host("gpu_driver_up", over((0, 11)), name) for name in "abcde"), host("gpu_mig_mode", ALWAYS)),
            ", ".join(sorted([*(f"{name} driver does not answer" for name in "abcde"), "and 1 more"])),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_row_names_what_is_not_shown_and_why(series: Series, named: str, answered: Answered) -> None:
    assert rows(read("host.json"))[0]["title"].endswith(f"${{{VARIABLE}:csv}}")
    found = answered(hidden_query("host.json", VARIABLE), series)
    assert ",".join(sorted(each.labels["entry"] for each in found)) == f" {named}"


def test_alerts_say_how_many_gpus_their_job_loses_or_those_that_wait_for_their_gpu(answered: Answered) -> None:
    warning, owner = {"severity": "warning"}, "4711/"
    waited_for = "instance_gpu_owner_why:gpu_job_waited_for:affected"
    series = merged(
        firing("GpuJobSlow", owner=owner, **warning),
        *(firing("Hot", instance="a", uuid=uuid, **warning) for uuid in ("A", "B")),
        firing("Slow", instance="a", **warning),
        {selector("owner:gpu_job_lost:gpus", [("job", "gpu-triage"), ("owner", owner)]): over((2.4, 11))},
        gpu("instance_gpu_owner:gpu_job:member", ALWAYS, "B", gpu="2", owner=owner),
        gpu(waited_for, over((0.3, 11)), "A", gpu="3", owner=owner, why="clock"),
        gpu("gpu_up", ALWAYS, "A", gpu="3"),
        gpu("gpu_up", ALWAYS, "B", gpu="2"),
    )
    found = answered(column("diagnosis.json", "Findings and alerts", "Lost").expr, series)
    lost = {(each.labels["code"], each.labels.get("gpu")): each.value for each in found}
    assert lost == {("GpuJobSlow", None): 2.4, ("Hot", "3"): 2.4}
    waited = next(each for each in targets("fleet.json") if each.name == "fleet: Jobs that lose GPUs C").expr
    (on_fleet,) = answered(waited, series)
    assert on_fleet.labels.items() >= {"owner": owner, "instance": "a", "gpu": "3", "why": "clock"}.items()


def test_the_sick_gpu_of_forty_hosts_is_among_the_rows_shown(answered: Answered) -> None:
    sick = ("host-33", "13")
    gpus = [(f"host-{number}", str(index)) for number in range(40) for index in range(16)]
    series = merged(
        *(
            gpu("gpu_verdict", over((2.0 * (each == sick), 11)), "-".join(each), instance=each[0], gpu=each[1])
            for each in gpus
        )
    )
    found = answered(column("fleet.json", "Worst GPUs", "Verdict").expr, series)
    assert len(found) == selectors.MOST_ROWS
    assert [(each.labels["instance"], each.labels["gpu"]) for each in found if each.value > 0] == [sick]


def test_an_alert_about_many_hosts_has_a_row_with_its_name(answered: Answered) -> None:
    alert = firing("GpuExportersDown", code="host.down", action="fix_host", severity="critical")
    found = answered(column("diagnosis.json", "Findings and alerts", "Severity").expr, alert)
    assert [(each.labels["code"], each.value) for each in found] == [("GpuExportersDown", 1.0)]


MOST_SERIES = 2000
MOST_OPEN_QUERIES = dict(zip(FILES, (20, 40, 40, 50, 60, 50), strict=True))


def width_of(properties: Mapping[str, Any]) -> int:
    """Of a column, in pixels; Grafana's own if none is set."""
    width: int = properties.get("custom.width", properties.get("custom.minWidth", 150))
    return width


@pytest.mark.parametrize("title", ["Direct access between GPUs", "Distance between GPUs"])
def test_a_matrix_shows_eight_gpus_on_a_window_of_1600_pixels(title: str) -> None:
    panel = find("fleet.json", title).panel
    columns = properties_of(panel)
    assert columns["number"]["noValue"] == "", "a GPU beside itself says that there is no data"
    widths = {title: width_of(each) for title, each in columns.items()}
    assert widths["Host"] + widths["GPU"] + 8 * widths["number"] <= panel["gridPos"]["w"] / 24 * (1600 - 40) - 26


def test_which_gpu_what_and_since_when_need_no_scrolling_on_1440_by_900() -> None:
    """Of the lines, browser and Grafana take some 250; of the columns, Grafana's bars, gaps and frames some 70."""
    panel = find("diagnosis.json", "Findings and alerts").panel
    place = panel["gridPos"]
    assert (place["y"] + place["h"]) * 38 <= 900 - 250
    columns = properties_of(panel)
    titles = list(columns)
    asked = titles[: titles.index("Since") + 1]
    assert {"Finding", "Host", "GPU", "Measured"} < set(asked)
    wide = sum(width_of(columns[title]) for title in asked)
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


STATES = [spec for spec in METRICS if spec.states]
"""Metrics whose value is a state, with the names of the states."""
CHOICES = frozenset({"max", "min", "count_values", "label_replace"})
"""Aggregations and functions whose result is still a state."""


def shown(spec: MetricSpec) -> list[Target]:
    """Queries whose answer is a state of the metric: not those that compare, count or choose by it."""
    return [
        target
        for target in all_targets()
        for use in uses(substitute(target.expr, 3600))
        if use.metric == spec.name and set(use.inside) <= CHOICES
    ]


@for_each("spec", STATES, ids=lambda spec: spec.name)
def test_every_panel_has_the_catalogs_word_for_every_state(spec: MetricSpec) -> None:
    targets = shown(spec)
    assert targets, "no panel shows it"
    for target in targets:
        words = {value: text for value, (text, _) in words_of(target).items()}
        named = {str(value): name for value, name in spec.states.items()}
        assert {value: words.get(value) for value in named} == named, target.name


@for_each("target", partial(shown, GPU_BOTTLENECK), ids=lambda target: target.name)
def test_every_panel_has_the_one_color_of_each_class(target: Target) -> None:
    colors = {text: color for text, color in words_of(target).values() if text in CLASS_COLORS}
    assert colors == CLASS_COLORS


@for_each("file", FILES)
def test_colors_are_those_of_the_palette(file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")
    used = set(re.findall(r'"(?:color|fixedColor|iconColor)": "([^"]+)"', text))
    assert GRAY in used
    assert used - set(CLASS_COLORS.values()) <= {"text", "transparent"}


def test_classes_are_compared_by_their_values_and_consecutive_ones_at_once() -> None:
    brake, cap = map(GPU_BOTTLENECK.value_of, ("power_brake", "power_cap"))
    query = bottleneck_in(("clock_cap", "thermal", "power_cap", "power_brake"))
    assert re.findall(r"[<>=]= \d+", query) == [f">= {brake - 1}", f"<= {brake}", f">= {cap}", f"<= {cap + 1}"]
    assert re.findall(r"[<>=]= \d+", bottleneck_in(["sick"])) == [f"== {GPU_BOTTLENECK.value_of('sick')}"]


def test_every_class_and_every_alert_belongs_to_one_step() -> None:
    of_steps = [name for step in STEPS for name in step.classes]
    assert sorted(of_steps) == sorted(set(BOTTLENECK_CLASSES) - {"idle", "unattributed"})
    assert sorted(area.value for step in STEPS for area in step.areas) == sorted(area.value for area in Area)
    counted = {rule.name for rule in alerts(read_rules(rule_files())) if rule.labels["severity"] in COUNTED}
    assert set().union(*map(alerts_of, STEPS)) == counted


@for_each("step", STEPS, ids=lambda step: step.title)
def test_a_verdict_links_a_panel_of_its_step_and_the_playbook(step: Step) -> None:
    cells = [properties_of(find("diagnosis.json", title).panel).values() for title in VERDICTS]
    by_title = {each["displayName"]: each for each in chain(*cells)}
    look, read_on = by_title[step.title]["links"]
    assert read_on["title"] == step.decide
    looked_at = re.search(r"viewPanel=(\d+)", look["url"])
    assert looked_at
    (row,) = (row for row in rows(read("diagnosis.json")) if row["title"] == step.row)
    assert [title_of(panel) for panel in row["panels"] if panel["id"] == int(looked_at[1])] == [step.key_panel]
    page, _, anchor = read_on["url"].removeprefix(f"{RUNBOOKS_URL}/").partition("#")
    assert f'<h3 id="{anchor}">' in render_html(find_page(page))
