"""The dashboards against a Prometheus that holds the scenarios' history: queries, and the first screen's verdicts.

One file, for that history takes a worker two minutes to record.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from dashboards.diagnosis import VERDICTS, WHO
from dashboards.measured import MEASURED
from dashboards.selectors import MOST_ROWS
from dashboards.steps import COUNTED, PATH, SEEN, SICK, STARVED, STEPS, TUNE, Step, alerts_of
from dashboards.value_mappings import FIRES
from tests.dashboards.fleet import expected_moments
from tests.dashboards.grafana import (
    FILES,
    Target,
    all_targets,
    column,
    find,
    properties_of,
    read,
    substitute,
    title_of,
    word_of,
    words_of,
)
from tests.dashboards.job_board import FILE as JOB_FILE
from tests.dashboards.job_board import QUESTIONS_OF, unanswered
from tests.dashboards.store import Series, Store
from tests.documents.test_first_event import is_played
from tests.documents.test_promql import fenced, of_each
from tests.gathered import every, for_each
from tests.rules.rulefile import alerts, read_rules, rule_files
from tests.rules.verdict import wanted

from dashboards.fleet import WORDS
from gpu_triage.judge.findings.table import CHECKS
from gpu_triage_simulator.scenario import Expectation

pytestmark = pytest.mark.timeout(1800)  # the first test waits for the fleet to be recorded, beside whatever else runs

LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
MOMENTS = (9, 12, 30, 45, 55, 61, 75, 79, 89, 95, 107, 125)
"""Minutes at which tables are looked at: each fault of the scenarios is there at one of them."""

ABSENT = {"cluster", "owner_job"}
"""Labels that the hosts of these scenarios do not have: no alert about a job of Slurm fires."""

TARGETS = [target for target in all_targets() if target.file != JOB_FILE]
"""test_job_dashboard.py is about jobs."""


def answer(store: Store, target: Target) -> list[Series]:
    # Of all scenarios: more rows than a table shows.
    expr = substitute(target.expr, store.end - store.start).replace(f"k({MOST_ROWS}, ", "k(400, ")
    if not target.instant:
        return store.over_time(expr)
    return [series for minute in MOMENTS for series in store.at(expr, minute * 60)]


JOBS = "Jobs that lose GPUs"
SHOWN_NOWHERE = {
    *("detail: Video encoder sessions A", f"fleet: {JOBS} C"),
    *(f"capacity: Forecast of allocated GPUs {ref}" for ref in "ABCD"),
    *(f"capacity: Idle while serving {ref}" for ref in "ABC"),
}
"""Nothing encodes or serves in these scenarios, and sessions are published from the first one on; no job is on several
hosts; a forecast takes four weeks."""
of_each_table = for_each(
    "panel",
    {
        each.panel["id"]: each.panel
        for each in TARGETS
        if each.panel["type"] == "table" and title_of(each.panel) != JOBS
    }.values(),
    ids=lambda panel: panel["title"],
)


@for_each("target", [each for each in TARGETS if each.name not in SHOWN_NOWHERE], ids=lambda target: target.name)
def test_a_query_finds_data_in_some_scenario_with_the_labels_that_its_panel_shows(store: Store, target: Target) -> None:
    found = answer(store, target)
    assert found, "no scenario shows anything here"
    labels = {label for series in found for label in series.labels}
    assert set(LABEL.findall(target.legend)) - labels <= ABSENT


@for_each(("page", "query"), [(page, query) for page, query in of_each(fenced) if is_played(query)])
def test_a_documented_query_finds_its_event_in_some_scenario(store: Store, page: str, query: str) -> None:
    assert any(store.at(query, minute * 60) for minute in MOMENTS), page


@of_each_table
def test_a_table_has_the_columns_that_it_names(store: Store, panel: Mapping[str, Any]) -> None:
    mine = [target for target in TARGETS if target.panel is panel]
    fields = {"Value"} if len(mine) == 1 else {f"Value #{target.ref}" for target in mine}
    fields |= {label for target in mine for series in answer(store, target) for label in series.labels}
    transformations = {each["id"]: each["options"] for each in panel["transformations"]}
    if "labelsToFields" in transformations:
        assert {transformations["labelsToFields"]["valueLabel"], "instance", "gpu"} <= fields
        return
    assert set(transformations["filterFieldsByName"]["include"]["names"]) - fields <= ABSENT
    for number in (each["targetField"] for each in transformations.get("convertFieldType", {}).get("conversions", ())):
        for target in mine:
            assert len({number in series.labels for series in answer(store, target)}) < 2, "rows without it get 0"
    shown = set(transformations["organize"]["renameByName"].values())
    assert {each["displayName"] for each in panel["options"].get("sortBy") or ()} - shown == set()


@of_each_table
def test_the_queries_of_a_table_share_the_labels_that_join_their_rows(store: Store, panel: Mapping[str, Any]) -> None:
    mine = [target for target in TARGETS if target.panel is panel]
    labels = [_labels(answer(store, target)) for target in mine]
    one_row = not any(labels)  # all hosts: they are of no cluster
    shared = frozenset.intersection(*labels)
    rows_of = {"instance", "owner", "user", "name", "setting", "version", "code"}
    assert shared & rows_of or one_row, "nothing tells which rows belong together"


def _labels(found: Iterable[Series]) -> frozenset[str]:
    return frozenset(label for series in found for label in series.labels)


@for_each(
    ("file", "annotation"),
    [(file, annotation) for file in FILES for annotation in read(file)["annotations"].get("list", ())],
    ids=lambda case: f"{case[0]}: {case[1]['name']}",
)
def test_a_mark_appears_with_the_labels_of_its_title(store: Store, file: str, annotation: Mapping[str, Any]) -> None:
    found = store.over_time(substitute(annotation["expr"], store.end - store.start))
    assert found, f"{file}: no scenario shows it"
    # A mark lasts while the value is above 0.
    assert all(value > 0 for series in found for value in series.values.values())
    named = {*LABEL.findall(annotation["titleFormat"]), *filter(None, annotation["tagKeys"].split(","))}
    assert named - _labels(found) <= ABSENT


DIAGNOSIS = "diagnosis.json"
FINDINGS = "Findings and alerts"
NIGHT = "h100-8-bad-night"
SEVERITIES = {
    name: {rule.labels["severity"] for rule in alerts(read_rules(rule_files())) if rule.name == name}
    for name in {rule.name for rule in alerts(read_rules(rule_files()))}
}

every_moment = for_each(
    ("instance", "expectation"), expected_moments, ids=lambda moment: f"{moment[0]} at {moment[1].at // 60}m"
)


OK, NOT_JUDGED = "0|OK", "-|N/A"
SUSPECT = ("1|", "2|", "3|")
"""How verdicts on suspects begin: a warning, critical, and work that is bound by the GPU."""


def query(step: Step) -> str:
    """The query of a step's verdict."""
    (expr,) = (
        each.expr
        for each in TARGETS
        if each.panel["title"] in VERDICTS and properties_of(each.panel)[each.ref]["displayName"] == step.title
    )
    return expr


def verdict(store: Store, step: Step, instance: str, seconds: float, gpu: str = ".*") -> list[str]:
    """The words of the step in the strip, after their rank; none where it says that there is no data."""
    expr = substitute(query(step), store.end - store.start, instance=instance, gpu=gpu)
    return sorted(series.labels[WHO] for series in store.at(expr, seconds))


def counted_alerts(expectation: Expectation) -> Iterator[str]:
    for text in expectation.alerts:
        labels = wanted(text)
        if {labels["severity"]} & COUNTED if "severity" in labels else SEVERITIES[labels["alertname"]] & COUNTED:
            yield labels["alertname"]


@every_moment
def test_a_step_is_suspect_where_the_scenario_expects_it(store: Store, instance: str, expectation: Expectation) -> None:
    alerted = set(counted_alerts(expectation))
    classes = set(expectation.bottleneck.values())
    for step in STEPS:
        if classes & set(step.classes) or alerted & set(alerts_of(step)):
            said = verdict(store, step, instance, expectation.at)
            assert said, step.title
            assert all(each.startswith(SUSPECT) for each in said), step.title


@every_moment
def test_a_step_is_not_suspect_unless_expected(store: Store, instance: str, expectation: Expectation) -> None:
    if not expectation.quiet:
        return
    for step in STEPS:
        # Compute is no fault, and not every expectation names it.
        if step is not TUNE and not set(expectation.bottleneck.values()) & set(step.classes):
            (said,) = verdict(store, step, instance, expectation.at)
            assert not said.startswith(SUSPECT), step.title


@every_moment
def test_the_timeline_names_the_bottleneck_of_each_gpu(store: Store, instance: str, expectation: Expectation) -> None:
    timeline = find(DIAGNOSIS, "Bottleneck of each GPU")
    expr = substitute(timeline.expr.partition("\n* on")[0].removeprefix("label_replace("), 0, instance=instance)
    shown = {
        series.labels["gpu"]: word_of(timeline, value)
        for series in store.at(expr, expectation.at)
        for value in series.values.values()
    }
    assert {gpu: shown.get(gpu) for gpu in expectation.bottleneck} == expectation.bottleneck


@every_moment
def test_the_table_lists_expected_alerts_and_the_watchdog(
    store: Store, instance: str, expectation: Expectation
) -> None:
    table = find(DIAGNOSIS, FINDINGS)
    found = store.at(substitute(table.expr, expectation.at, instance=instance), expectation.at)
    listed = [series.labels for series in found]
    assert any(labels["code"] == "GpuTriageWatchdog" for labels in listed)
    for text in expectation.alerts:
        labels = wanted(text)
        codes = {labels["alertname"], *(check.code for check in CHECKS if check.alert == labels["alertname"])}
        of_gpu = labels.items() & {("gpu", labels.get("gpu"))}
        assert any(each["code"] in codes and of_gpu <= each.items() for each in listed), text


JUDGED = [step for step in STEPS if step.classes]


@for_each(
    ("seen", "steps", "said"),
    [
        ((9, NIGHT, ".*"), [step for step in STEPS if step is not TUNE], OK),  # healthy
        ((33, NIGHT, ".*"), [PATH], f"2|{NIGHT} GPU 5"),
        ((79, NIGHT, ".*"), [STARVED], "1|7 GPUs"),
        ((55, NIGHT, "6"), [SICK], f"2|{NIGHT} GPU 6"),
        ((55, NIGHT, "0"), [SICK], OK),
        ((60, "no-driver", ".*"), [SICK], "2|no-driver"),
        ((60, "no-driver", ".*"), [step for step in JUDGED if step is not SICK], NOT_JUDGED),
        ((40, "exporter", ".*"), JUDGED, "-|2 not read"),  # released
        ((109, "exporter", ".*"), JUDGED, "-|2 not read"),
    ],
)
def test_a_verdict_names_or_counts_suspects_and_is_ok_only_if_all_is_judged(
    store: Store, seen: tuple[int, str, str], steps: list[Step], said: str
) -> None:
    minute, instance, gpu = seen
    shown = {step.title: verdict(store, step, instance, minute * 60, gpu) for step in steps}
    assert [each for each in every(shown.items()) if each[1] != [said]] == []


def test_an_exporter_that_is_silent_is_told_by_the_step_before_all_others(store: Store) -> None:
    (said,) = verdict(store, SEEN, "exporter", 105 * 60)
    assert said.endswith("|exporter")


ONE_OF_FOUR_IS_DOWN = (109, "exporter|path-network|starved|allocated")
ONE_OF_TWO_IS_GONE = (100, "h100-mig|starved")


@for_each(
    ("seen_at", "hosts_up", "gpus_read"),
    [
        (ONE_OF_FOUR_IS_DOWN, "2|3 of 4", "2|7 of 9"),
        (ONE_OF_TWO_IS_GONE, "1|1 of 2", "2|2 of 4"),
        ((40, "exporter"), "0|1 of 1", "1|0 of 2"),  # released
        ((60, "no-driver"), "0|1 of 1", "2|0 of 2"),
        ((55, NIGHT), "0|1 of 1", "2|7 of 8"),
        ((70, "drift"), "0|1 of 1", "2|2 of 3"),  # calls on one GPU hang
        ((9, NIGHT), "0|1 of 1", "0|8 of 8"),
        ((60, "h100-mig"), "0|1 of 1", "0|2 of 2"),
    ],
)
def test_the_fleet_says_how_many_of_its_hosts_and_gpus_are_read(
    store: Store, seen_at: tuple[int, str], hosts_up: str, gpus_read: str
) -> None:
    cells = [each for each in TARGETS if each.file == "fleet.json" and each.panel["title"] == "What is read"]
    seconds = seen_at[0] * 60
    found = [store.at(substitute(each.expr, seconds, instance=seen_at[1]), seconds) for each in cells]
    assert [[series.labels[WORDS] for series in one] for one in found] == [[hosts_up], [gpus_read]]


@for_each(
    ("seen_at", "panel", "expected"),
    [
        (ONE_OF_FOUR_IS_DOWN, "Worst hosts", ["down", "watch", "watch", "keep"]),
        (ONE_OF_TWO_IS_GONE, "Worst hosts", ["gone", "watch"]),
        ((40, "exporter"), "Worst GPUs", ["watch", "released"]),
        ((55, "no-driver|idle-downshift"), "Worst hosts", ["drain", "keep"]),
    ],
)
def test_what_is_not_read_is_among_the_worst(
    store: Store, seen_at: tuple[int, str], panel: str, expected: list[str]
) -> None:
    verdicts, seconds = column("fleet.json", panel, "Verdict"), seen_at[0] * 60
    found = store.at(substitute(verdicts.expr, seconds, instance=seen_at[1]), seconds)
    values = sorted((value for series in found for value in series.values.values()), reverse=True)
    assert [word_of(verdicts, value) for value in values] == expected


def test_a_host_that_is_down_is_named_with_when_it_was_last_scraped(store: Store) -> None:
    since, seconds = column("fleet.json", "Worst hosts", "Since"), ONE_OF_FOUR_IS_DOWN[0] * 60
    of_all = store.at(substitute(since.expr, seconds, instance=ONE_OF_FOUR_IS_DOWN[1]), seconds)
    (found,) = (each for each in of_all if each.labels["instance"] == "exporter")
    assert list(found.values.values()) == [1000 * (store.start + EXPORTER_GOES_DOWN)]
    without_rules = substitute(since.expr, seconds, instance="exporter").replace("down_since", "no_such_series")
    (found,) = store.at(without_rules, seconds)
    assert list(found.values.values()) == [1000 * (store.start + EXPORTER_GOES_DOWN - 60)]


EXPORTER_GOES_DOWN = 95 * 60


def test_without_an_exporter_no_step_gives_a_verdict(store: Store) -> None:
    assert all(verdict(store, step, "no-such-host", 60 * 60) == [] for step in STEPS)


def test_without_rules_no_step_gives_a_verdict(store: Store) -> None:
    for step in STEPS:
        expr = substitute(query(step), 3600).replace("GpuTriageWatchdog", "NoSuchAlert")
        assert store.at(expr, 60 * 60) == []


def test_without_the_judge_no_step_is_ok(store: Store) -> None:
    for step in STEPS:
        if step.classes:
            expr = query(step).replace("gpu_bottleneck{", "no_such_metric{")
            (series,) = store.at(substitute(expr, 9 * 60, instance=NIGHT), 9 * 60)
            assert series.labels[WHO] == NOT_JUDGED, step.title


def test_the_hosts_of_one_job_make_the_same_steps(store: Store) -> None:
    cells = [each for each in TARGETS if each.panel["title"] in VERDICTS]
    (steps,) = (each for each in cells if properties_of(each.panel)[each.ref]["displayName"] == "Job steps, 5 min")
    (found,) = store.at(substitute(steps.expr, 9 * 60), 9 * 60)
    assert list(found.values.values()) == pytest.approx([2], rel=0.1)


def test_a_panel_shows_at_most_forty_gpus_and_the_worst_ones(store: Store) -> None:
    timeline = find(DIAGNOSIS, "Bottleneck of each GPU")
    expr = substitute(timeline.expr.replace("bottomk(40", "bottomk(3"), store.end - store.start)
    shown = {(series.labels["instance"], series.labels["gpu"]) for series in store.over_time(expr)}
    worst_rank = max(min(series.values.values()) for series in store.over_time(expr))
    assert len(shown) == 3
    assert worst_rank == 1


def test_a_timeline_begins_with_the_worst_gpu_and_goes_on_by_number(store: Store) -> None:
    expr = substitute(find(DIAGNOSIS, "Bottleneck of each GPU").expr, store.end - store.start, instance=NIGHT)
    found = [(min(series.values.values()), int(series.labels["gpu"])) for series in store.over_time(expr)]
    assert found == sorted(every(found))
    assert found[0] == (1, 6)
    assert re.search('"0[$]1", "gpu", "[(][.][)]"', expr), "GPU 10 would come before GPU 2"


def test_a_timeline_of_hosts_begins_with_the_one_that_was_down(store: Store) -> None:
    expr = substitute(find(DIAGNOSIS, SEEN.key_panel).expr, store.end - store.start)
    assert store.over_time(expr)[0].labels["instance"] == "exporter"


@for_each("name", [name for name in QUESTIONS_OF if f"{name}.json" != JOB_FILE])
def test_the_first_screen_answers_what_who_since_when_at_what_cost_and_what_next(store: Store, name: str) -> None:
    seen = QUESTIONS_OF[name]["seen"]

    def ask(target: Target) -> list[Series]:
        seconds = seen["minute"] * 60
        return store.at(substitute(target.expr, seconds, **seen["chosen"]), seconds)

    assert unanswered(QUESTIONS_OF[name], f"{name}.json", ask) == []


GPU_6_IS_LOST = 50 * 60
LINK_5_LOSES_LANES = 20 * 60
GPU_3_IS_HOT = (10 * 60, 40 * 60)


def cells(store: Store, target: Target, seconds: float, instance: str = NIGHT) -> dict[tuple[str, ...], float]:
    """Values of a table's column for a host, by whatever of GPU, code and class the rows have."""
    found = store.at(substitute(target.expr, seconds, instance=instance), seconds)
    return {
        tuple(series.labels.get(label, "") for label in ("gpu", "code", "class")): value
        for series in found
        for value in series.values.values()
    }


def test_the_findings_say_what_was_measured_in_its_unit(store: Store) -> None:
    (expr,) = (
        each.expr
        for each in TARGETS
        if title_of(each.panel) == FINDINGS and each.file == DIAGNOSIS and MEASURED in each.expr
    )
    found = {
        (series.labels.get("gpu"), series.labels["code"]): series.labels.get(MEASURED)
        for series in store.at(substitute(expr, 0, instance=NIGHT), 30 * 60)
    }
    assert found["5", "pcie.width"] == "x4 of x16"
    every = {
        series.labels["code"]: series.labels[MEASURED]
        for minute in MOMENTS
        for series in store.at(substitute(expr, 0), minute * 60)
        if MEASURED in series.labels
    }
    assert re.fullmatch(r"\d+ %", every["thermal.hw"])
    assert re.fullmatch(r"\d+", every["xid.79"])


def test_the_findings_say_how_bad_they_are_and_since_when(store: Store) -> None:
    severity, since = column(DIAGNOSIS, FINDINGS, "Severity"), column(DIAGNOSIS, FINDINGS, "Since")
    named, began = cells(store, severity, 55 * 60), cells(store, since, 55 * 60)
    assert set(named) <= set(began) | {("", "GpuTriageWatchdog", "")}
    assert word_of(severity, named["6", "gpu.lost", ""]) == "critical"
    assert began["6", "gpu.lost", ""] / 1000 - store.start == pytest.approx(GPU_6_IS_LOST, abs=60)
    assert began["5", "pcie.width", ""] / 1000 - store.start == pytest.approx(LINK_5_LOSES_LANES, abs=90)


@for_each(
    ("seen_at", "row", "state"),
    [
        ((55, NIGHT), ("6", "gpu.lost", ""), "alert fires"),
        ((55, NIGHT), ("6", "xid.79", ""), "alert fires"),
        ((55, NIGHT), ("3", "thermal.margin", ""), "pending"),
        ((109, "exporter"), ("", "GpuExporterDown", ""), "alert fires"),
    ],
)
def test_a_finding_and_its_alert_are_one_row(
    store: Store, seen_at: tuple[int, str], row: tuple[str, str, str], state: str
) -> None:
    columns = [column(DIAGNOSIS, FINDINGS, title) for title in ("Severity", "State", "Since")]
    severities, states, since = (cells(store, each, seen_at[0] * 60, seen_at[1]) for each in columns)
    assert states, "else the table has no such column"
    assert set(states) <= set(severities) <= set(since) | {("", "GpuTriageWatchdog", "")}
    # How bad it is, is its severity: not every finding that is confirmed is.
    words = {**words_of(columns[1]), "none": (FIRES, "transparent")}
    assert words[f"{states[row]:g}" if row in states else "none"] == (state, "transparent")
    assert not any(code.startswith("GpuXid") for _, code, _ in every(severities))


def test_the_detail_lists_the_findings_of_its_gpu_and_of_its_host_alone(store: Store) -> None:
    expr = column("detail.json", FINDINGS, "Severity").expr
    found = store.at(substitute(expr, 0, instance=NIGHT, gpu="5"), 79 * 60)
    assert {series.labels.get("gpu", "") for series in found} == {"5", ""}


def test_time_lost_is_what_the_seconds_of_each_class_add_up_to(store: Store) -> None:
    end = 79 * 60
    lost = cells(store, column(DIAGNOSIS, "Time lost, by GPU and class", "Time"), end)
    assert lost["3", "", "thermal"] == pytest.approx(GPU_3_IS_HOT[1] - GPU_3_IS_HOT[0], rel=0.05)
    assert lost["6", "", "sick"] == pytest.approx(end - GPU_6_IS_LOST, rel=0.05)
    # A narrow link that carries little is a finding, and loses no time.
    assert not {name for _, _, name in lost} & {"pcie_link", "compute", "idle"}
    spent = cells(store, column("detail.json", "Time in each class", "Time"), end)
    assert sum(value for (gpu, *_), value in spent.items() if gpu == "5") == pytest.approx(end, rel=0.03)
