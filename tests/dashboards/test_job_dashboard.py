"""The job dashboard over six jobs with one thing wrong with each, and the choice of an owner on all dashboards."""

import re

import pytest
from tests.dashboards.grafana import Target, column, find, panels, read, substitute, targets, text_of
from tests.dashboards.jobs import (
    CHANGED,
    ENDED,
    ENDED_AFTER_MINUTES,
    FILE,
    FREE,
    KNOWN_FROM_MINUTE,
    NEIGHBOR,
    PACE_OF_ENDED,
    PACES,
    SHARED,
    WAITED_FOR,
    target_of,
)
from tests.dashboards.store import Series, Store
from tests.gathered import every, for_each
from tests.jobs.situations import BY_NAME, MINUTES, SITUATIONS, Scheduler, Situation

LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
OWNED = ("diagnosis.json", "fleet.json", FILE)
"""Dashboards with variables for owners."""
NOT_SHOWN = "What is not shown, and why"
TABLE = "GPUs, the slowest first, relative to the median"
MOST_SERIES = 2000
"""That a panel may read for a job of 64 GPUs."""
GPUS_OF_MOST = 64

pytestmark = pytest.mark.timeout(900)  # the first test waits for the jobs to be recorded

every_situation = pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)


def hidden(store: Store, file: str, name: str, **chosen: str) -> str:
    """The value of a hidden variable as Grafana makes it: all options, as one pattern."""
    (variable,) = (each for each in read(file)["templating"]["list"] if each["name"] == name)
    query = variable["query"]["query"].removeprefix("query_result(").removesuffix(")")
    found = store.at(substitute(query, store.end - store.start, **chosen), store.end - store.start)
    option = re.compile(variable["regex"].strip("/"))
    lines = ["{" + ",".join(f'{label}="{value}"' for label, value in each.labels.items()) + "} 1 0" for each in found]
    return "|".join(sorted(match[1] for line in lines if (match := option.search(line))))


def chosen_by(store: Store, file: str, **chosen: str) -> dict[str, str]:
    """All variables, once an owner is chosen."""
    hosts = hidden(store, file, "hosts", **chosen)
    gpus = hidden(store, file, "gpus", hosts=hosts, **chosen)
    return {**chosen, "hosts": hosts, "gpus": gpus}


def choice_of(situation: Situation, scheduler: Scheduler) -> dict[str, str]:
    return {"slurm_job": situation.number} if scheduler is Scheduler.SLURM else {"namespace": situation.name}


def answer(store: Store, target: Target, **chosen: str) -> list[Series]:
    expr = substitute(target.expr, store.end - store.start, **chosen)
    return store.at(expr, store.end - store.start) if target.instant else store.over_time(expr)


def value_of(found: list[Series]) -> float:
    (series,) = found
    return list(series.values.values())[-1]


@every_situation
@pytest.mark.parametrize("scheduler", Scheduler)
def test_the_culprit_comes_first_whoever_owns_the_job(jobs: Store, situation: Situation, scheduler: Scheduler) -> None:
    chosen = chosen_by(jobs, FILE, **choice_of(situation, scheduler))
    slowest = max(answer(jobs, column(FILE, TABLE, "Behind"), **chosen), key=lambda each: value_of([each]))
    if situation.name == "checkpoints":
        assert value_of([slowest]) == pytest.approx(0, abs=0.01)
        return
    one_gpu = situation.name in {"slow-gpu", "slow-pair", "hang"}
    assert slowest.labels["instance"] == situation.culprit
    assert slowest.labels.get("cluster") == target_of(scheduler).get("cluster")
    assert value_of([slowest]) > 0.2
    if one_gpu:
        assert slowest.labels["gpu"] == "1"
    first = answer(jobs, find(FILE, "Class of each GPU, the worst first"), **chosen)[0]
    assert first.labels["instance"] == situation.culprit
    hosts = answer(jobs, column(FILE, "Hosts, the slowest first", "Behind"), **chosen)
    slow = {each.labels["instance"] for each in hosts if value_of([each]) >= 0.07}
    assert slow == (set() if one_gpu else {situation.culprit})


@pytest.mark.parametrize(
    ("name", "word"), [("slow-gpu", "thermal"), ("slow-host", "clock_cap"), ("hang", "hung"), ("starved", "storage")]
)
def test_the_first_row_has_the_class_that_explains_it(jobs: Store, name: str, word: str) -> None:
    timeline = find(FILE, "Class of each GPU, the worst first")
    first, *others = answer(jobs, timeline, **chosen_by(jobs, FILE, slurm_job=BY_NAME[name].number))
    assert len(others) == 7
    assert text_of(timeline.panel, value_of([first])) == word
    assert text_of(timeline.panel, value_of([others[-1]])) != word


def test_rows_of_the_timeline_are_in_the_order_of_the_table(jobs: Store) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME["slow-gpu"].number)
    rows = answer(jobs, find(FILE, "Class of each GPU, the worst first"), **chosen)
    behind = {
        (each.labels["instance"], each.labels["gpu"]): value_of([each])
        for each in answer(jobs, column(FILE, TABLE, "Behind"), **chosen)
    }
    order = [behind[each.labels["instance"], each.labels["gpu"]] for each in rows]
    assert order == sorted(order, reverse=True)
    assert order[0] == pytest.approx(0.7, abs=0.02)


def test_the_slower_one_of_a_pair_is_compared_with_the_other(jobs: Store) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME["slow-pair"].number)
    clocks = {each.labels["gpu"]: value_of([each]) for each in answer(jobs, column(FILE, TABLE, "Clock"), **chosen)}
    assert clocks == {"0": pytest.approx(1), "1": pytest.approx(0.7, abs=0.01)}


@pytest.mark.parametrize("scheduler", Scheduler)
def test_the_first_tiles_are_what_the_rules_recorded_of_the_job(jobs: Store, scheduler: Scheduler) -> None:
    for name in every(PACES.keys() - {CHANGED}):
        chosen = chosen_by(jobs, FILE, **choice_of(BY_NAME[name], scheduler))
        assert value_of(answer(jobs, find(FILE, "Pace"), **chosen)) == pytest.approx(PACES[name])
        (lost,) = answer(jobs, find(FILE, "GPUs lost"), **chosen)
        assert lost.labels["held"] == "8"
        assert value_of([lost]) == pytest.approx(8 * (1 - PACES[name]))
        minutes = MINUTES - KNOWN_FROM_MINUTE + 1
        hours = value_of(answer(jobs, find(FILE, "GPU hours lost"), **chosen))
        assert hours == pytest.approx(8 * (1 - PACES[name]) * minutes / 60, abs=1 / 60)


@pytest.mark.parametrize("name", ["hang", CHANGED])
def test_a_pace_that_is_not_known_now_is_neither_good_nor_that_of_before(jobs: Store, name: str) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME[name].number)
    for title in ("Pace", "GPUs lost"):
        assert answer(jobs, find(FILE, title), **chosen) == [], title
    before = answer(jobs, find(FILE, "Pace relative to its best hour"), **chosen)
    assert len(before) == (name == CHANGED)


@pytest.mark.parametrize("scheduler", Scheduler)
def test_the_table_names_what_the_others_wait_for_and_what_that_cost(jobs: Store, scheduler: Scheduler) -> None:
    waits = "What the others wait for"
    for name, (gpu, why) in WAITED_FOR.items():
        chosen = chosen_by(jobs, FILE, **choice_of(BY_NAME[name], scheduler))
        (hours,) = answer(jobs, column(FILE, waits, "GPU hours"), **chosen)
        labels = [hours.labels.get(label, "") for label in ("instance", "gpu", "why")]
        assert labels == [BY_NAME[name].culprit, gpu, why]
        assert value_of([hours]) == value_of(answer(jobs, find(FILE, "GPU hours lost"), **chosen))
        (until,) = answer(jobs, column(FILE, waits, "Until"), **chosen)
        assert value_of([until]) / 1000 == pytest.approx(jobs.end, abs=60)
    healthy = chosen_by(jobs, FILE, **choice_of(BY_NAME["checkpoints"], scheduler))
    assert answer(jobs, column(FILE, waits, "GPU hours"), **healthy) == []


def test_the_hours_held_back_are_those_of_the_job(jobs: Store) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME["starved"].number)
    found = answer(jobs, find(FILE, "GPU hours held back, by host and class"), **chosen)
    by_class: dict[str, float] = {}
    for each in found:
        by_class[each.labels["class"]] = by_class.get(each.labels["class"], 0) + value_of([each])
    # Two GPUs wait for storage from the sixth minute on, and the six others for them.
    assert by_class["storage"] == pytest.approx(2 * 34 / 60, rel=0.1)
    assert by_class["communication"] == pytest.approx(6 * 34 / 60, rel=0.1)


def test_findings_are_those_of_its_gpus(jobs: Store) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME["slow-gpu"].number)
    found = answer(jobs, column(FILE, "Findings while it ran", "Severity"), **chosen)
    thermal = [each.labels for each in found if each.labels["code"] == "thermal.hw"]
    assert [(each["instance"], each["gpu"]) for each in thermal] == [("slow-gpu-c:9836", "1")]
    lasted = answer(jobs, column(FILE, "Findings while it ran", "For"), **chosen)
    (seconds,) = (value_of([each]) for each in lasted if each.labels["code"] == "thermal.hw")
    assert seconds == pytest.approx(28 * 60, abs=90)


def test_a_job_that_has_ended_shows_its_own_time_alone(jobs: Store) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=ENDED)
    assert chosen["hosts"] == "ended:9836"
    rows = answer(jobs, find(FILE, "Class of each GPU, the worst first"), **chosen)
    assert len(rows) == 2
    assert max(max(each.values) for each in rows) == pytest.approx(jobs.start + ENDED_AFTER_MINUTES * 60, abs=60)
    assert len(answer(jobs, column(FILE, TABLE, "Clock"), **chosen)) == 2
    assert value_of(answer(jobs, find(FILE, "Pace"), **chosen)) == PACE_OF_ENDED
    (lost,) = answer(jobs, find(FILE, "GPUs lost"), **chosen)
    assert (lost.labels["held"], value_of([lost])) == ("2", 1)
    (owner,) = answer(jobs, column(FILE, "Whose GPUs, and the same as text", "Until"), **chosen)
    assert owner.labels["command"] == f"gpu-triage job {ENDED}"
    assert value_of([owner]) / 1000 == pytest.approx(jobs.start + ENDED_AFTER_MINUTES * 60, abs=60)


def test_the_command_about_a_pod_has_its_namespace(jobs: Store) -> None:
    found = answer(
        jobs, column(FILE, "Whose GPUs, and the same as text", "GPUs"), **chosen_by(jobs, FILE, namespace="hang")
    )
    assert {each.labels["command"] for each in found} == {f"gpu-triage job hang/train-{number}" for number in range(4)}


def test_the_other_gpu_of_a_shared_host_is_not_its_own(jobs: Store) -> None:
    for number, gpu in ((SHARED, "0"), (NEIGHBOR, "1")):
        for file in OWNED:
            chosen = chosen_by(jobs, file, slurm_job=number)
            assert (chosen["hosts"], chosen["gpus"]) == ("shared:9836", gpu)
    # Both are chosen: each GPU is shown once.
    chosen = chosen_by(jobs, FILE, slurm_job=f"({SHARED}|{NEIGHBOR})")
    assert len(answer(jobs, find(FILE, "Class of each GPU, the worst first"), **chosen)) == 2


@pytest.mark.parametrize("file", ["diagnosis.json", "fleet.json"])
def test_all_owners_narrow_nothing_and_one_narrows_to_its_hosts(jobs: Store, file: str) -> None:
    everything = chosen_by(jobs, file)
    assert (everything["hosts"], everything["gpus"]) == (".+", ".*")
    (target,) = (
        [find(file, "Bottleneck of each GPU")]
        if file == "diagnosis.json"
        else [column(file, "Worst GPUs", "Bottleneck")]
    )
    # All of them, where the table of the fleet shows the worst.
    expr = target.expr.removeprefix("label_replace(").replace("bottomk(40", "bottomk(400")
    expr = expr.partition("\nand on (cluster, job, instance, gpu)\n")[0]
    shown = {each.labels["instance"] for each in jobs.at(substitute(expr, 600, **everything), 1200)}
    assert FREE in shown
    assert len(shown) > 2 * len(SITUATIONS)
    for chosen in ({"slurm_job": "4701"}, {"namespace": "slow-gpu"}, {"pod": "train-2", "namespace": "slow-gpu"}):
        narrow = chosen_by(jobs, file, **chosen)
        shown = {each.labels["instance"] for each in jobs.at(substitute(expr, 600, **narrow), 1200)}
        assert shown == set(narrow["hosts"].split("|"))
        assert all(name.startswith("slow-gpu-") for name in shown)
    assert chosen_by(jobs, file, user="bob")["hosts"] == "shared:9836"
    # An owner that had nothing is not taken for all of them.
    assert chosen_by(jobs, file, user="nobody")["hosts"] == ""


def test_the_job_dashboard_reads_nothing_until_an_owner_is_chosen(jobs: Store) -> None:
    chosen = chosen_by(jobs, FILE)
    assert (chosen["hosts"], chosen["gpus"]) == ("", "")
    for target in targets(FILE):
        found = answer(jobs, target, **chosen)
        assert {each.labels["why"] for each in found if target.panel["title"] == NOT_SHOWN} <= {"no owner is chosen"}
        assert found == [] or target.panel["title"] == NOT_SHOWN, target.name


def test_an_address_in_brackets_is_no_pattern(jobs: Store) -> None:
    (variable,) = (each for each in read(FILE)["templating"]["list"] if each["name"] == "hosts")
    query = variable["query"]["query"].removeprefix("query_result(").removesuffix(")")
    start, end = query.index("group by (instance)"), query.rindex(', "instance", ".$1.$2"')
    named = 'label_replace(vector(1), "instance", "[fd00::1]:9836", "", "")'
    (found,) = jobs.at(query[:start] + named + query[end:], 0)
    assert re.fullmatch(found.labels["instance"], "[fd00::1]:9836")


def test_no_panel_of_a_job_reads_more_than_the_hosts_of_the_job(jobs: Store) -> None:
    """Counted for eight GPUs among others, for the series of all selectors grow with the job alone."""
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME["slow-gpu"].number)
    assert len(list(panels(read(FILE)))) <= 40
    read_by: dict[str, float] = {}
    for target in targets(FILE):
        expr = substitute(target.expr, jobs.end - jobs.start, **chosen)
        for selector in set(re.findall(r"\w+\{[^}]*\}", expr)):
            found = jobs.at(f"count(last_over_time({selector}[1h]))", jobs.end - jobs.start)
            read_by[target.name] = read_by.get(target.name, 0) + (value_of(found) if found else 0)
    assert max(read_by.values()) > 8
    too_many = {name: count for name, count in read_by.items() if count * GPUS_OF_MOST / 8 > MOST_SERIES}
    assert too_many == {}


def seen(store: Store, target: Target) -> list[Series]:
    """What it answers about any of the situations."""
    return [each for situation in SITUATIONS for each in answer(store, target, slurm_job=situation.number)]


@for_each(
    "target", [each for each in targets(FILE) if each.panel["title"] != NOT_SHOWN], ids=lambda target: target.name
)
def test_a_query_finds_data_with_the_labels_that_its_panel_shows(jobs: Store, target: Target) -> None:
    found = seen(jobs, target)
    assert found, "no situation shows anything here"
    labels = {label for each in found for label in each.labels}
    assert set(LABEL.findall(target.legend)) - labels <= {"cluster"}
    if target.panel["type"] == "table":
        assert {"instance", "command"} & labels, "rows are of GPUs and hosts, or of owners"
