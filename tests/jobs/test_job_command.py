"""`gpu-triage job` beside a real Prometheus: its answer about each of the six jobs, and about parts of jobs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.conftest import RequiresTool
from tests.dashboards.store import Store
from tests.fleet.sharded import victoria_metrics
from tests.html_elements import Elements
from tests.jobs.situations import SITUATIONS, Scheduler, Situation

from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli

pytestmark = pytest.mark.timeout(900)


def ask(store: Store, name: str, *arguments: str) -> Result:
    at = () if "--at" in arguments else ("--at", f"{store.end:.0f}")
    command = ["job", name, "--prometheus", f"http://{store.address}/", *at, *arguments]
    return CliRunner().invoke(group, command, catch_exceptions=False, standalone_mode=False)


def document(store: Store, name: str, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(store, name, "--format", "json", *arguments).stdout)
    return found


def fails(store: Store, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    at = () if "--at" in arguments else ("--at", f"{store.end:.0f}")
    assert run_cli(group, ["job", "--prometheus", f"http://{store.address}", *at, *arguments]) == 2
    return capsys.readouterr().err


def name_of(situation: Situation, scheduler: Scheduler) -> str:
    return situation.number if scheduler is Scheduler.SLURM else f"{situation.name}/train"


@pytest.mark.parametrize("scheduler", Scheduler)
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_a_job_is_answered_with_cause_and_action(store: Store, situation: Situation, scheduler: Scheduler) -> None:
    """Whatever owns it, and whether or not it counts its steps."""
    host = f"{scheduler.value}/{situation.culprit}"
    output = ask(store, name_of(situation, scheduler)).output
    answer, first = output.splitlines()[0], next(line for line in output.splitlines() if line.startswith("do first"))
    assert situation.must_say["slow"].format(host=host) in answer
    assert situation.must_say["first"].format(host=host) in first


@pytest.mark.parametrize("scheduler", Scheduler)
def test_the_steps_are_told_where_they_are_counted(store: Store, scheduler: Scheduler) -> None:
    (hang,) = (each for each in SITUATIONS if each.name == "hang")
    pace = document(store, name_of(hang, scheduler))["steps"]
    if scheduler is Scheduler.KUBERNETES:
        assert pace is None
        assert "not known: the job does not count them" in ask(store, name_of(hang, scheduler)).output
        return
    assert pace["best_per_second"] == pytest.approx(2.0, rel=0.05)
    assert 17 * 60 <= pace["stopped_seconds"] <= 20 * 60
    assert [(each["instance"], each["rank"]) for each in pace["ranks"]][:2] == [
        ("hang-a:9836", "0"),
        ("hang-a:9836", "1"),
    ]
    assert "; no step for 19 min" in ask(store, hang.number).output.splitlines()[0]


def test_the_steps_of_pods_are_those_of_their_folders(store: Store) -> None:
    pace = document(store, "counted/train")["steps"]
    assert [each["rank"] for each in pace["ranks"]] == [str(rank) for rank in range(8)]
    assert pace["stopped_seconds"] > 17 * 60
    one = document(store, "counted/train-2")["steps"]
    assert [each["rank"] for each in one["ranks"]] == ["4", "5"]


def test_the_classes_add_up_to_the_time_that_the_job_had_its_gpus(store: Store) -> None:
    found = document(store, "4705")
    seconds = found["gpu_seconds"]
    assert seconds["total"] == pytest.approx(8 * 40 * 60, rel=0.02)
    assert sum(seconds["by_class"].values()) + seconds["unknown"] == pytest.approx(seconds["total"])
    # Two GPUs wait for storage from the sixth minute on, and the others for them.
    assert seconds["by_class"]["storage"] == pytest.approx(2 * 34 * 60, rel=0.1)
    assert seconds["by_class"]["communication"] == pytest.approx(6 * 34 * 60, rel=0.1)
    assert (seconds["lost"], found["loss"]) == (None, None), "its pace was never recorded"


def test_what_the_rules_recorded_of_a_job_is_what_it_loses(store: Store) -> None:
    found = document(store, "4701", "--gpu-hour-price", "3")
    assert (found["loss"]["pace"], found["loss"]["gpus"]) == (0.7, 2.4)
    assert found["loss"]["gpu_seconds"] == pytest.approx(2.4 * 28 * 60, rel=0.05)
    assert found["loss"]["cost"] == pytest.approx(3 * found["gpu_seconds"]["lost"] / 3600)
    (awaited,) = found["loss"]["waits_for"]
    assert (awaited["instance"], awaited["why"], awaited["at_end"]) == ("slow-gpu-c:9836", "computing", True)
    assert found["slowest_gpu"]["by"][0] == "waiting"


def test_the_slowest_gpu_stands_beside_the_median_of_the_others(store: Store) -> None:
    slowest = document(store, "4701")["slowest_gpu"]
    assert (slowest["instance"], slowest["gpu"], slowest["others"]) == ("slow-gpu-c:9836", "1", 7)
    assert slowest["stands_out"]
    assert slowest["own"]["clock_hertz"] == pytest.approx((12 * 1.98e9 + 28 * 1.25e9) / 40, rel=0.02)
    assert slowest["median_of_others"]["clock_hertz"] == pytest.approx(1.98e9, rel=0.02)
    assert slowest["own"]["power_watts"] < slowest["median_of_others"]["power_watts"]


def test_findings_are_those_of_its_gpus_while_it_ran(store: Store) -> None:
    (thermal,) = (each for each in document(store, "4701")["findings"] if each["code"] == "thermal.hw")
    assert (thermal["severity"], thermal["state"], thermal["gpu"]) == ("critical", "confirmed", "1")
    assert thermal["first"] == pytest.approx(store.start + 12 * 60, abs=90)
    assert thermal["at_end"]
    assert ask(store, "4701").return_value == 1
    assert ask(store, "4705").return_value == 0
    assert ask(store, "4705", "--fail-on", "warning").return_value == 1
    assert ask(store, "4706", "--fail-on", "info").return_value == 0


def test_a_gpu_that_joined_late_counts_from_then_on(store: Store) -> None:
    found = document(store, "4802")
    early, late = found["gpus"]
    assert early["first"] == pytest.approx(store.start, abs=60)
    assert late["first"] == pytest.approx(store.start + 15 * 60, abs=60)
    assert found["gpu_seconds"]["total"] == pytest.approx((40 + 25) * 60, rel=0.05)
    assert found["gpu_seconds"]["unknown"] == pytest.approx(0, abs=120)
    assert any("GPU 1 of east/late:9836 joined later, the first 15 min after" in note for note in found["notes"])


def test_a_gap_of_the_scrapes_is_time_of_which_nothing_is_known(store: Store) -> None:
    seconds = document(store, "4803")["gpu_seconds"]
    assert seconds["unknown"] == pytest.approx(2 * 14 * 60, rel=0.1)
    assert sum(seconds["by_class"].values()) == pytest.approx(2 * 26 * 60, rel=0.1)
    output = ask(store, "4803").output
    assert re.search(r"no data +\d+ GPU min +3\d%", output)
    assert "nothing is known about GPUs of east/gap:9836 for 14 min" in output


def test_a_job_that_has_ended_is_remembered(store: Store) -> None:
    found = document(store, "4804")
    assert not found["running"]
    assert found["to"] == pytest.approx(store.start + 20 * 60, abs=60)
    assert found["gpu_seconds"]["total"] == pytest.approx(2 * 20 * 60, rel=0.1)
    months_later = document(store, "4804", "--at", f"{store.end + 100 * 86_400:.0f}")
    assert months_later["to"] == pytest.approx(found["to"], abs=60)


def test_a_host_that_fell_silent_has_not_ended_the_job(store: Store) -> None:
    silent, finished = document(store, "4810"), document(store, "4804")
    assert not silent["running"]
    assert (silent["end_known"], finished["end_known"]) == (False, True)
    assert "the job may have run on" in ask(store, "4810").output


def test_a_shared_gpu_is_told_as_shared(store: Store) -> None:
    found = document(store, "4805")
    (neighbor,) = found["gpus"][0]["shared_with"]
    assert neighbor["slurm_job_id"] == "4806"
    assert neighbor["seconds"] == pytest.approx(20 * 60, rel=0.1)
    note = r"GPU 0-1 of east/shared:9836 was shared with Slurm job 4806 for 2[01] min: readings are of both"
    assert any(re.fullmatch(note, each) for each in found["notes"])


def test_a_part_of_its_time_can_be_looked_at(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    early = document(store, "4704", "--at", f"{store.start + 15 * 60:.0f}")
    assert early["summary"].endswith(
        "its GPUs lost no time to a bottleneck, and none of them is slower than the others"
    )
    late = document(store, "4704", "--since", "10m")
    assert late["from"] == pytest.approx(store.end - 600)
    assert set(late["gpu_seconds"]["by_class"]) == {"communication", "hung"}
    moment = document(store, "4704", "--since", f"{store.end - 600:.0f}")
    assert moment["gpu_seconds"] == late["gpu_seconds"]
    assert "--since is after that" in fails(store, capsys, "4804", "--since", f"{store.end:.0f}")


def test_a_number_of_two_clusters_is_chosen_by_cluster(store: Store) -> None:
    several = ask(store, "4807", "--format", "json")
    assert several.return_value == 2
    assert {each["cluster"] for each in json.loads(several.stdout)["matches"]} == {"east", "west"}
    assert "gpu-triage job 4807 --cluster west" in several.stderr
    for cluster, user in (("east", "ada"), ("west", "carol")):
        found = document(store, "4807", "--cluster", cluster)
        assert (found["job"]["cluster"], found["job"]["users"]) == (cluster, [user])
        assert {each["cluster"] for each in found["gpus"]} == {cluster}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("99999",),
            "no Slurm job, pod or user 99999 had a GPU in the 400 days before 2026-01-15 00:40:00 UTC; there are 4701",
        ),
        (("starved/trian",), "did you mean starved/train?"),
        (("4701", "--cluster", "north"), 'no exporter of gpu-triage matches {cluster=~"north"}'),
    ],
)
def test_what_is_not_there_is_an_error(
    store: Store, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert said in fails(store, capsys, *arguments)


def test_the_page_for_a_ticket_is_whole_and_loads_nothing(store: Store) -> None:
    page = Elements(ask(store, "4701", "--format", "html").stdout)
    assert all(link.startswith("data:") for link in page.links)
    for said in ("GPU 1 of slurm/slow-gpu-c:9836", "thermal.hw", "throttled 100% of the time", "Simulated data."):
        assert said in page.text


def test_the_screen_in_the_documentation_is_the_output(store: Store, repository: Path) -> None:
    """But for numbers, and for names that are those of the simulation."""
    shown = (repository / "docs" / "jobs.md").read_text(encoding="utf-8").split("```text\n")[1].split("\n```")[0]
    output = ask(store, "4701").output.replace("slurm/slow-gpu-", "gpu-")
    numbers = re.compile(r"http://\S+|[0-9][0-9.,:]*")
    lines = [[" ".join(numbers.sub("N", line).split()) for line in text.splitlines()] for text in (shown, output)]
    assert lines[0].pop() == "…"
    assert lines[0] == lines[1][: len(lines[0])]


@pytest.fixture(scope="module")
def victoria(store: Store, requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    directory = tmp_path_factory.mktemp("victoria")
    with victoria_metrics(store.fleet.history, requires_tool("victoria-metrics"), directory, store.fleet) as running:
        yield running


@pytest.mark.parametrize(
    "name", [name_of(each, Scheduler.SLURM) for each in SITUATIONS] + ["hang/train", "4805", "4803"]
)
def test_the_answer_is_the_same(store: Store, victoria: Store, name: str) -> None:
    one, other = document(store, name), document(victoria, name)
    for key in ("do_first", "remarkable", "job", "running", "notes"):
        assert _without_times(one[key]) == _without_times(other[key])
    assert {each["code"] for each in one["findings"]} == {each["code"] for each in other["findings"]}
    assert [each["uuid"] for each in one["gpus"]] == [each["uuid"] for each in other["gpus"]]
    for which in one["gpu_seconds"]["by_class"]:
        expected = pytest.approx(one["gpu_seconds"]["by_class"][which], rel=0.05, abs=120)
        assert other["gpu_seconds"]["by_class"].get(which, 0) == expected
    for reading, value in one["slowest_gpu"]["own"].items():
        assert other["slowest_gpu"]["own"][reading] == pytest.approx(value, rel=0.05, abs=0.02)
    if one["steps"] is not None:
        assert other["steps"]["best_per_second"] == pytest.approx(one["steps"]["best_per_second"], rel=0.1)


def _without_times(value: object) -> object:
    """Servers round the beginning of a range differently."""
    return (
        {key: each for key, each in value.items() if key not in ("start", "end")} if isinstance(value, dict) else value
    )
