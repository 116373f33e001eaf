"""What a name on the command line may mean, and the queries about a job, which are bounded in number and size.

The times at which jobs had GPUs, and the choice among them.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import promql_parser
import pytest
import yaml
from tests.unit.cli.job.conftest import run, series

from gpu_triage.alerting.macros import macros
from gpu_triage.cli.fleet.fleet_view import Selection, any_of, matcher
from gpu_triage.cli.fleet.prometheus import Series
from gpu_triage.cli.job.job_command import how_to_choose
from gpu_triage.cli.job.job_facts import Window, facts_of, late_queries, queries, window_of
from gpu_triage.cli.job.job_runs import (
    Found,
    Kind,
    Run,
    SeveralJobs,
    Wanted,
    choose,
    find,
    matchers,
    parse_wanted,
    runs_of,
    workload_of,
)
from gpu_triage.errors import PrometheusUnavailable

POINTS_OF_PROMETHEUS = 11_000
DAY = 86_400.0
HOSTILE = 'x"}) or vector(1) or y{z="\\'

NAMES = yaml.safe_load(Path(__file__).with_name("names.yml").read_bytes())


class Server:
    """Remembers what it was asked, and answers nothing but the first query, and searches for a job."""

    url = "http://prometheus:9090"

    def __init__(self, held: Sequence[Series] = (), found: Sequence[Series] = ()) -> None:
        self._held, self._found = list(held), list(found)
        self.asked: list[str] = []
        self.points: list[float] = []

    def now(self) -> float:
        return 1000 * DAY

    def at(self, query: str, _seconds: float) -> list[Series]:
        self.asked.append(query)
        return self._held if len(self.asked) == 1 else []

    def over(self, query: str, start: float, end: float, step_seconds: float) -> list[Series]:
        self.asked.append(query)
        self.points.append((end - start) / step_seconds + 1)
        return self._found if query.startswith("count by") else []


@pytest.mark.parametrize("seconds", [0.0, 60.0, 3600.0, DAY, 30 * DAY, 400 * DAY])
@pytest.mark.parametrize("gpus", [1, 32, 1000, 20_000])
def test_a_window_has_few_steps_however_long_the_job(seconds: float, gpus: int) -> None:
    window = window_of(run(start=1000 * DAY - seconds, end=1000 * DAY, gpus=gpus), None)
    assert window.seconds >= 60
    assert window.seconds / window.step_seconds <= 2000
    assert gpus * window.seconds / window.step_seconds <= max(250_000, 60 * gpus)
    assert window.step_seconds < 60 or window.step_seconds % 60
    assert window.step_seconds == 15 or seconds > 60, "a short job is looked at about as often as it is scraped"


def test_since_shortens_the_window_and_never_lengthens_it() -> None:
    assert window_of(run(start=1000, end=9000), 5000).start == 5000
    assert window_of(run(start=1000, end=9000), 10).start == 1000


def test_the_search_is_bounded_and_ends_with_what_there_is() -> None:
    server = Server()
    with pytest.raises(PrometheusUnavailable, match="no exporter of gpu-triage"):
        find(server, Selection(), parse_wanted("4711"), None)  # type: ignore[arg-type]  # as much of a client as is used
    assert max(server.points) <= 2001 < POINTS_OF_PROMETHEUS
    assert len(server.asked) == 8


@pytest.mark.parametrize(("steps", "asked"), [(3, 3), (1, 5)])
def test_only_a_job_that_may_have_begun_before_a_month_is_searched_for_in_a_year(steps: int, asked: int) -> None:
    began = 970 * DAY + steps * 30 * DAY / 2000
    server = Server(found=[series(8, began, slurm_job_id="4711", user="ada")])
    assert find(server, Selection(), parse_wanted("4711"), None).run.start == began  # type: ignore[arg-type]  # likewise
    assert len(server.asked) == asked


def test_a_pod_is_found_with_its_end_and_with_how_many_others_of_its_workload_ran_then() -> None:
    pods = {"train-0": "r", "train-1": "r", "train-worker-2": "r", "train-3": "s", "train-large-0": "r"}
    asked_at = 1000 * DAY
    at = [asked_at - STEP * place for place in range(20, 9, -1)]
    found = [series(2, *at, workload_pod=pod, workload_namespace=namespace) for pod, namespace in pods.items()]
    found.append(series(2, asked_at - 500 * STEP, workload_pod="train-9", workload_namespace="r"))
    # Slurm may run in pods.
    found.append(series(2, *at, workload_pod="train-4", workload_namespace="r", slurm_job_id="4711"))
    server = Server(found=found)
    pod = find(server, Selection(), parse_wanted("r/train-0"), None)  # type: ignore[arg-type]  # a stand-in
    assert (pod.siblings, pod.run.start, pod.run.end, pod.ongoing) == (3, at[0], at[-1], False)
    assert min(server.points) > 1


def test_the_number_of_queries_does_not_depend_on_the_job() -> None:
    server = Server(held=[series(1, instance=f"gpu-{number}:9836") for number in range(1000)])
    found = Found(run(start=0, end=30 * DAY, gpus=8000), (), 0, 30 * DAY, ongoing=True)
    facts_of(server, Selection(), found, window_of(found.run, None))  # type: ignore[arg-type]  # likewise
    assert len(server.asked) == 28
    # What was there a minute before the job, and findings of the five minutes after it.
    window = Window(1000, 4600, 15)
    assert "offset 3660s" in queries(Selection(), run(), window)["before"]
    assert "[300s]" in late_queries(Selection(), run(), window, 60)["worst"]
    # The limit of VictoriaMetrics holds to more than a hundred hosts, and that of Prometheus (10 MiB) always.
    assert max(map(len, server.asked)) < 150_000


@pytest.mark.parametrize(
    "hosts",
    [
        ["gpu-07:9836"],
        [f"gpu-{number:03}:9836" for number in range(1000)],
        ["a", "ab", "abb"],
        ["x.y", "x|y", "(", HOSTILE],
        ["aa", "a"],
    ],
)
def test_a_pattern_matches_these_hosts_and_no_others(hosts: list[str]) -> None:
    pattern = re.compile(any_of(hosts))
    others = [f"{hosts[0]}x", f"x{hosts[0]}", "gpu-1000:9836", "xzy", "", "b"]
    assert [host for host in (*hosts, *others) if pattern.fullmatch(host)] == hosts
    assert len(pattern.pattern) < 6 * len(hosts) + 60


def test_a_job_that_was_on_no_gpu_in_the_window_is_an_error() -> None:
    found = Found(run(), (), 0, 4600, ongoing=True)
    with pytest.raises(PrometheusUnavailable, match="was seen on no GPU from"):
        facts_of(Server(), Selection(), found, Window(0, 60, 15))  # type: ignore[arg-type]  # likewise


@pytest.mark.parametrize("name", ["4711", "research/train-0", "user:ada", f"user:{HOSTILE}", f"pod:{HOSTILE}"])
def test_every_query_is_promql(name: str) -> None:
    server = Server()
    wanted = parse_wanted(name)
    with pytest.raises(PrometheusUnavailable):
        find(server, Selection(cluster="ea.t"), wanted, None)  # type: ignore[arg-type]  # likewise
    key = run().key._replace(kind=wanted.kinds[0], name=wanted.name, namespace=wanted.namespace)
    job = run(key=key, pods=frozenset({wanted.name}), users=frozenset({HOSTILE}))
    hosts = Selection().only("east", ["gpu-07:9836", HOSTILE])
    asked = [*server.asked]
    for window in (Window(0, seconds, 15) for seconds in (60, 100, 239, 480, 1300, 3600, 90_000)):
        asked += [*queries(hosts, job, window).values(), *late_queries(hosts, job, window, 60).values()]
    for query in asked:
        promql_parser.parse(query)
        assert "vector(1)" not in re.sub(r'"(?:\\.|[^"\\])*"', '""', query)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("4711", Wanted((Kind.SLURM, Kind.POD, Kind.USER), "4711")),
        ("slurm:4711", Wanted((Kind.SLURM,), "4711")),
        ("research/train-0", Wanted((Kind.POD,), "train-0", "research")),
        ("pod:research/train-0", Wanted((Kind.POD,), "train-0", "research")),
        ("train-0", Wanted((Kind.POD, Kind.USER), "train-0")),
        ("user:ada", Wanted((Kind.USER,), "ada")),
        ("user:DOMAIN/ada", Wanted((Kind.USER,), "DOMAIN/ada")),
        ("user:4711", Wanted((Kind.USER,), "4711")),
        ("uid:1000", Wanted((Kind.POD, Kind.USER), "uid:1000")),
        ("4711-sweep-3", Wanted((Kind.POD, Kind.USER), "4711-sweep-3")),
    ],
)
def test_names(text: str, wanted: Wanted) -> None:
    assert parse_wanted(text) == wanted


@pytest.mark.parametrize(("text", "said"), NAMES["wrong"].items())
def test_what_names_no_job_says_what_would(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_wanted(text)


@pytest.mark.parametrize(("pod", "workload"), NAMES["workloads"].items())
def test_workloads_are_told_from_names_of_pods_by_the_rules_as_well(pod: str, workload: str) -> None:
    assert workload_of(pod) == workload
    named = re.fullmatch(macros()["pod"], pod)
    assert named is not None
    assert named[1] == workload


def test_a_value_stays_inside_its_matcher() -> None:
    assert matcher("user", 'a"} or up{b="\\') == r'user="a\"} or up{b=\"\\"'
    assert matcher("user", "a\nb") == r'user="a\nb"'


def test_a_pod_is_looked_for_with_its_workload_and_as_text_not_as_a_pattern() -> None:
    found = matchers(parse_wanted("research/tr.in-0"))[Kind.POD]
    pattern = re.fullmatch(r'workload_pod=~"(.*)",workload_namespace="research"', found)
    assert pattern is not None
    known = re.compile(pattern[1].replace("\\\\", "\\"))
    assert [name for name in ("tr.in-0", "tr.in-1", "train-0", "tr.in", "xtr.in-0") if known.fullmatch(name)] == [
        "tr.in-0",
        "tr.in-1",
        "tr.in",
    ]


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
    processes = series(6, *times(91, 100), slurm_job_id="4711", user="1000")  # two GPUs have none
    (found,) = runs_of(parse_wanted("4711"), [slurm(90, 100)], [processes])
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
