"""The times at which jobs had GPUs, and the choice among them."""

import pytest
from tests.unit.cli.job.conftest import run, series

from gpu_triage.cli.fleet.prometheus import Series
from gpu_triage.cli.job.job_command import how_to_choose
from gpu_triage.cli.job.job_runs import Kind, Run, SeveralJobs, choose, parse_wanted, runs_of

STEP = 1296.0
NOW = 100 * STEP


def times(first: int, last: int) -> list[float]:
    return [STEP * place for place in range(first, last + 1)]


def slurm(first: int, last: int, user: str = "ada", **labels: str) -> Series:
    return series(8, *times(first, last), slurm_job_id="4711", user=user, **labels)


def chosen(name: str, runs: tuple[Run, ...], at: float | None = None) -> Run:
    return choose(parse_wanted(name), runs, at, NOW if at is None else at, STEP)[0]


def several(name: str, runs: tuple[Run, ...]) -> list[str]:
    with pytest.raises(SeveralJobs) as found:
        chosen(name, runs)
    return [how_to_choose(each, found.value.runs) for each in found.value.runs]


def test_allocation_and_processes_are_one_job_whose_user_is_that_of_the_allocation() -> None:
    (found,) = runs_of(parse_wanted("4711"), [slurm(90, 100)], [slurm(91, 100, user="1000")])
    assert (sorted(found.users), found.gpus, found.start, found.end) == (["ada"], 8, 90 * STEP, NOW)
    assert str(found) == "Slurm job 4711 of ada"
    assert found.selector == 'slurm_job_id="4711"'


def test_without_a_prolog_the_user_is_that_of_the_processes() -> None:
    (found,) = runs_of(parse_wanted("4711"), [], [slurm(91, 100, user="1000")])
    assert found.users == {"1000"}


def test_a_number_that_another_user_has_later_is_another_job() -> None:
    runs = runs_of(parse_wanted("4711"), [slurm(10, 20, user="bob"), slurm(21, 30, user="carol")], [])
    assert [([*each.users], each.start) for each in runs] == [(["bob"], 10 * STEP), (["carol"], 21 * STEP)]
    assert several("4711", runs) == [f"4711 --at {30 * STEP:.0f}", f"4711 --at {20 * STEP:.0f}"]
    assert chosen("4711", runs, at=15 * STEP).users == {"bob"}
    assert chosen("4711", runs, at=25 * STEP).users == {"carol"}


def test_the_latest_of_a_users_own_runs_is_looked_at_and_the_others_are_known() -> None:
    runs = runs_of(parse_wanted("4711"), [slurm(10, 20), slurm(40, 50)], [])
    run, others = choose(parse_wanted("4711"), runs, None, NOW, STEP)
    assert (run.start, [each.start for each in others]) == (40 * STEP, [10 * STEP])
    assert chosen("4711", runs, at=30 * STEP).start == 10 * STEP


def test_a_server_that_was_down_for_less_than_an_hour_splits_no_job() -> None:
    assert len(runs_of(parse_wanted("4711"), [slurm(10, 20), slurm(22, 30)], [])) == 1
    assert len(runs_of(parse_wanted("4711"), [slurm(10, 20), slurm(23, 30)], [])) == 2


def test_one_number_in_two_clusters_is_chosen_by_cluster() -> None:
    runs = runs_of(parse_wanted("4711"), [slurm(90, 100, cluster="east"), slurm(90, 100)], [])
    assert sorted(several("4711", runs)) == ["4711 --cluster ''", "4711 --cluster east"]


def test_a_job_is_found_before_a_user_of_that_number() -> None:
    runs = runs_of(parse_wanted("1000"), [series(1, *times(90, 100), slurm_job_id="1000", user="ada")], [])
    runs += runs_of(parse_wanted("user:1000"), [], [series(1, *times(90, 100), user="1000")])
    run, others = choose(parse_wanted("1000"), runs, None, NOW, STEP)
    assert (run.key.kind, others) == (Kind.SLURM, ())


def pods(*names: str, namespace: str = "research", first: int = 90, last: int = 100) -> list[Series]:
    return [series(2, *times(first, last), workload_pod=name, workload_namespace=namespace) for name in names]


def test_the_pods_of_a_workload_are_one_job_and_one_of_them_is_itself() -> None:
    all_of_it = pods("train-worker-0", "train-worker-1", "train-master-0")
    (whole,) = runs_of(parse_wanted("research/train"), all_of_it, [])
    assert (len(whole.pods), whole.gpus, str(whole)) == (3, 6, "pods research/train")
    (one,) = runs_of(parse_wanted("train-worker-1"), all_of_it, [])
    assert ([*one.pods], one.gpus, str(one)) == (["train-worker-1"], 2, "pod research/train-worker-1")
    assert one.selector == 'workload_namespace="research",workload_pod=~"train\\\\-worker\\\\-1"'
    assert runs_of(parse_wanted("train-worker-7"), all_of_it, []) == ()


def test_workloads_with_one_beginning_are_told_apart() -> None:
    found = pods("train-0", "train-1", "train-large-0")
    runs = runs_of(parse_wanted("train"), found, [])
    assert chosen("train", runs).pods == {"train-0", "train-1"}
    runs = runs_of(parse_wanted("tr"), pods("tr-a-0", "tr-b-0"), [])
    assert sorted(several("tr", runs)) == ["research/tr-a", "research/tr-b"]


def test_one_name_in_two_namespaces_is_chosen_by_namespace() -> None:
    found = [*pods("train-0"), *pods("train-0", namespace="vision")]
    assert sorted(several("train-0", runs_of(parse_wanted("train-0"), found, []))) == [
        "research/train-0",
        "vision/train-0",
    ]
    (one,) = runs_of(parse_wanted("vision/train-0"), found, [])
    assert one.key.namespace == "vision"


def test_of_a_users_jobs_the_one_that_runs_is_looked_at() -> None:
    ended = series(8, *times(10, 20), slurm_job_id="4700", user="ada")
    runs = runs_of(parse_wanted("ada"), [ended, slurm(90, 100)], [])
    assert chosen("ada", runs).key.name == "4711"
    both = runs_of(parse_wanted("ada"), [ended, slurm(90, 100), *[series(1, NOW, slurm_job_id="4712", user="ada")]], [])
    assert sorted(several("ada", both)) == ["4711", "4712"]


def test_without_a_scheduler_a_user_is_a_job() -> None:
    (found,) = runs_of(parse_wanted("ada"), [], [series(2, *times(90, 100), user="ada")])
    assert (str(found), found.selector) == ("user ada", 'user="ada",slurm_job_id="",workload_pod=""')


def test_kinds_that_differ_are_chosen_by_prefix() -> None:
    runs = (run(end=NOW), run(key=run().key._replace(kind=Kind.USER, name="ada"), end=NOW))
    assert [how_to_choose(each, runs) for each in runs] == ["slurm:4711", "user:ada"]
