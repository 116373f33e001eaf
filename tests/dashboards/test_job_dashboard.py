"""The job dashboard over six jobs with one thing wrong with each, and the choice of an owner on all dashboards."""

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner
from tests.dashboards.grafana import Target, column, find, hidden_query, panels, read, substitute, targets, word_of
from tests.dashboards.job_board import FILE, QUESTIONS_OF, WHY, answer, chosen_by, rows_of_jobs, unanswered, value_of
from tests.dashboards.jobs import (
    CHANGED,
    ENDED,
    ENDED_AFTER_MINUTES,
    FREE,
    KNOWN_FROM_MINUTE,
    NEIGHBOR,
    PACE_OF_ENDED,
    PACES,
    PAUSED_PACE,
    SHARED,
    WAITED_FOR,
    target_of,
)
from tests.dashboards.store import Series, Store
from tests.gathered import for_each
from tests.jobs.situations import BY_NAME, SITUATIONS, Scheduler, Situation

from gpu_triage.cli.job.advice import CLOCK_SHARE
from gpu_triage.cli.main import group
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK

LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
OWNED = ("diagnosis.json", "fleet.json", FILE)
"""Dashboards with variables for owners."""
NOT_SHOWN = "What is not shown, and why"
TABLE = "GPUs, the 20 slowest now"
CLASSES = "Class of each GPU, the 20 slowest"
SLOWER = "Slower now"
OVER_TIME = "Slower than in its best hour"
MOST_SERIES = 2000
"""That a panel may read for a job of 64 GPUs."""
GPUS_OF_MOST = 64

pytestmark = pytest.mark.timeout(900)  # the first test waits for the jobs to be recorded

every_situation = pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)


def choice_of(situation: Situation, scheduler: Scheduler) -> dict[str, str]:
    return {"slurm_job": situation.number} if scheduler is Scheduler.SLURM else {"namespace": situation.name}


@every_situation
@pytest.mark.parametrize("scheduler", Scheduler)
def test_the_culprit_comes_first_whoever_owns_the_job(jobs: Store, situation: Situation, scheduler: Scheduler) -> None:
    chosen = chosen_by(jobs, FILE, **choice_of(situation, scheduler))
    slowest = max(answer(jobs, column(FILE, TABLE, "Slower"), **chosen), key=lambda each: value_of([each]))
    if situation.name == "checkpoints":
        assert value_of([slowest]) == pytest.approx(0, abs=0.01)
        return
    one_gpu = situation.name in {"slow-gpu", "slow-pair", "hang"}
    assert slowest.labels["instance"] == situation.culprit
    assert slowest.labels.get("cluster") == target_of(scheduler).get("cluster")
    assert value_of([slowest]) > 0.2
    if one_gpu:
        assert slowest.labels["gpu"] == "1"
    first = answer(jobs, find(FILE, CLASSES), **chosen)[0]
    assert first.labels["instance"] == situation.culprit
    hosts = answer(jobs, column(FILE, "Hosts, the 20 slowest now", "Slower"), **chosen)
    slow = {each.labels["instance"] for each in hosts if value_of([each]) >= CLOCK_SHARE}
    assert slow == (set() if one_gpu else {situation.culprit})


@pytest.mark.parametrize(
    ("name", "word"), [("slow-gpu", "thermal"), ("slow-host", "clock_cap"), ("hang", "hung"), ("starved", "storage")]
)
def test_the_first_row_has_the_class_that_explains_it(jobs: Store, name: str, word: str) -> None:
    timeline = find(FILE, CLASSES)
    first, *others = answer(jobs, timeline, **chosen_by(jobs, FILE, slurm_job=BY_NAME[name].number))
    assert len(others) == 7
    assert word_of(timeline, value_of([first])) == word
    assert word_of(timeline, value_of([others[-1]])) != word


def test_rows_of_the_timeline_are_in_the_order_of_the_table(jobs: Store) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME["slow-gpu"].number)
    rows = answer(jobs, find(FILE, CLASSES), **chosen)
    behind = {
        (each.labels["instance"], each.labels["gpu"]): value_of([each])
        for each in answer(jobs, column(FILE, TABLE, "Slower"), **chosen)
    }
    order = [behind[each.labels["instance"], each.labels["gpu"]] for each in rows]
    assert order == sorted(order, reverse=True)
    # By the clock of now, 1250 of 1980 MHz, however long the time range is.
    assert order[0] == pytest.approx(1 - 1250 / 1980, abs=0.01)


def test_the_slower_one_of_a_pair_is_compared_with_the_other(jobs: Store) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME["slow-pair"].number)
    clocks = {each.labels["gpu"]: value_of([each]) for each in answer(jobs, column(FILE, TABLE, "Clock"), **chosen)}
    assert clocks == {"0": pytest.approx(0), "1": pytest.approx(0.3, abs=0.01)}


@pytest.mark.parametrize("name", ["hang", CHANGED])
def test_a_pace_that_is_not_known_now_is_neither_good_nor_that_of_before(jobs: Store, name: str) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME[name].number)
    for target in (find(FILE, SLOWER), find(FILE, "GPUs lost"), column(FILE, WHY, "Slower")):
        assert answer(jobs, target, **chosen) == [], target.name
    before = answer(jobs, find(FILE, OVER_TIME), **chosen)
    assert len(before) == (name == CHANGED)


def of_command(store: Store, name: str) -> dict[str, Any]:
    """What ``gpu-triage job`` answers about the end of the history."""
    command = ["job", name, "--prometheus", f"http://{store.address}", "--at", f"{store.end:.0f}", "--format", "json"]
    result = CliRunner().invoke(group, command, catch_exceptions=False, standalone_mode=False)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("scheduler", Scheduler)
@pytest.mark.parametrize("name", sorted(PACES))
def test_the_dashboard_and_the_command_say_the_same(jobs: Store, name: str, scheduler: Scheduler) -> None:
    situation = BY_NAME[name]
    told = of_command(jobs, situation.number if scheduler is Scheduler.SLURM else f"{name}/train")
    chosen = chosen_by(jobs, FILE, **choice_of(situation, scheduler))

    loss = told["loss"]
    assert loss["pace"] == (None if name == CHANGED else pytest.approx(PACES[name]))
    slower = None if loss["pace"] is None else 1 - loss["pace"]
    for target, number in (
        (find(FILE, SLOWER), slower),
        (column(FILE, WHY, "Slower"), slower),
        (find(FILE, "GPUs lost"), loss["gpus"]),
        (find(FILE, "GPU hours lost"), loss["gpu_seconds"] / 3600),
    ):
        shown = [value_of([each]) for each in answer(jobs, target, **chosen)]
        assert shown == ([] if number is None else [pytest.approx(number)]), target.name
    (row,) = answer(jobs, rows_of_jobs(), **chosen)
    waited = [(each["instance"], each["gpu"] or "", each["why"]) for each in loss["waits_for"]]
    assert waited == ([(BY_NAME[name].culprit, *WAITED_FOR[name])] if name in WAITED_FOR else [])
    assert waited in ([], [tuple(row.labels.get(label, "") for label in ("instance", "gpu", "why"))])
    assert told["do_first"]["code"] == row.labels.get("code")
    if waited:
        since = value_of(answer(jobs, column(FILE, WHY, "Since"), **chosen)) / 1000
        assert loss["waits_for"][0]["since"] == since == jobs.start + KNOWN_FROM_MINUTE * 60


def test_a_checkpoint_makes_a_job_neither_slow_nor_its_gpus(jobs: Store) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME["checkpoints"].number)
    (over_time,) = answer(jobs, find(FILE, OVER_TIME), **chosen)
    assert value_of([over_time]) == pytest.approx(1 - PAUSED_PACE), "it pauses at the end"
    assert value_of(answer(jobs, find(FILE, SLOWER), **chosen)) == 0
    assert max(value_of([each]) for each in answer(jobs, column(FILE, TABLE, "Slower"), **chosen)) < CLOCK_SHARE


def test_several_jobs_are_said_to_be_several_and_the_slowest_is_shown(jobs: Store) -> None:
    numbers = "|".join(BY_NAME[name].number for name in ("slow-gpu", "starved"))
    chosen = chosen_by(jobs, FILE, slurm_job=f"({numbers})")
    (tile,) = answer(jobs, find(FILE, SLOWER), **chosen)
    assert "2 jobs" in tile.labels["of"]
    assert value_of([tile]) == pytest.approx(1 - PACES["starved"])
    rows = answer(jobs, column(FILE, WHY, "Slower"), **chosen)
    assert {each.labels["owner"] for each in rows} == {f"{number}/" for number in numbers.split("|")}


def test_steps_are_those_of_a_rank_not_of_all_together(jobs: Store) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME["slow-gpu"].number)
    (series,) = answer(jobs, find(FILE, "Steps a second of the slowest rank, over 3 minutes"), **chosen)
    assert max(series.values.values()) == pytest.approx(2, rel=0.05)


def test_the_hours_held_back_are_those_of_the_job(jobs: Store) -> None:
    chosen = chosen_by(jobs, FILE, slurm_job=BY_NAME["starved"].number)
    found = answer(jobs, find(FILE, "GPU hours held back, by job and class"), **chosen)
    by_class = {GPU_BOTTLENECK.states[int(each.labels["bottleneck"])]: value_of([each]) for each in found}
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
    rows = answer(jobs, find(FILE, CLASSES), **chosen)
    assert len(rows) == 2
    assert max(max(each.values) for each in rows) == pytest.approx(jobs.start + ENDED_AFTER_MINUTES * 60, abs=60)
    assert len(answer(jobs, column(FILE, TABLE, "Clock"), **chosen)) == 2
    assert value_of(answer(jobs, find(FILE, SLOWER), **chosen)) == 1 - PACE_OF_ENDED
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
    assert len(answer(jobs, find(FILE, CLASSES), **chosen)) == 2


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
    before, the_worst, _ = target.expr.partition("\nand on (cluster, job, instance, gpu)\n")
    expr = before.removeprefix("label_replace(") if the_worst else before.replace("bottomk(40", "bottomk(400")
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
    query = hidden_query(FILE, "hosts")
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
        for selector in set(re.findall(r"[\w:]+\{[^}]*\}", expr)):
            found = jobs.at(f"count(last_over_time({selector}[1h]))", jobs.end - jobs.start)
            read_by[target.name] = read_by.get(target.name, 0) + (value_of(found) if found else 0)
    assert max(read_by.values()) > 8
    too_many = {name: count for name, count in read_by.items() if count * GPUS_OF_MOST / 8 > MOST_SERIES}
    assert too_many == {}


def test_the_first_screen_answers_what_who_since_when_at_what_cost_and_what_next(jobs: Store) -> None:
    asked = QUESTIONS_OF["job"]
    chosen = chosen_by(jobs, FILE, **asked["seen"]["chosen"])
    assert unanswered(asked, FILE, lambda target: answer(jobs, target, **chosen)) == []


def seen(store: Store, target: Target) -> list[Series]:
    """What it answers about any of the situations."""
    return [
        each
        for situation in SITUATIONS
        for each in answer(store, target, **chosen_by(store, FILE, slurm_job=situation.number))
    ]


@for_each(
    "target", [each for each in targets(FILE) if each.panel["title"] != NOT_SHOWN], ids=lambda target: target.name
)
def test_a_query_finds_data_with_the_labels_that_its_panel_shows(jobs: Store, target: Target) -> None:
    found = seen(jobs, target)
    assert found, "no situation shows anything here"
    labels = {label for each in found for label in each.labels}
    assert set(LABEL.findall(target.legend)) - labels <= {"cluster"}
    if target.panel["type"] == "table":
        assert {"instance", "owner", "command"} & labels, "rows are of GPUs and hosts, jobs or owners"
