"""What a name on the command line may mean, and the queries about a job, which are bounded in number and size."""

import re
from collections.abc import Sequence

import promql_parser
import pytest
from tests.unit.cli.job.conftest import run, series

from gpu_triage.cli.fleet.fleet_view import Selection, any_of, matcher
from gpu_triage.cli.fleet.prometheus import Series
from gpu_triage.cli.job.job_facts import Window, facts_of, late_queries, queries, window_of
from gpu_triage.cli.job.job_runs import Found, Kind, Wanted, find, matchers, parse_wanted, workload_of
from gpu_triage.errors import PrometheusUnavailable

POINTS_OF_PROMETHEUS = 11_000
DAY = 86_400.0
HOSTILE = 'x"}) or vector(1) or y{z="\\'


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


def test_the_number_of_queries_does_not_depend_on_the_job() -> None:
    server = Server(held=[series(1, instance=f"gpu-{number}:9836") for number in range(1000)])
    found = Found(run(start=0, end=30 * DAY, gpus=8000), (), 0, 30 * DAY, ongoing=True)
    facts_of(server, Selection(), found, window_of(found.run, None))  # type: ignore[arg-type]  # likewise
    assert len(server.asked) == 27
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no job"),
        ("slurm:", "names no job"),
        ("/train-0", "NAMESPACE/POD"),
        ("research/", "NAMESPACE/POD"),
        ("4711_3", "scontrol show job 4711_3"),
        ("4711_[1-4]", "scontrol show job"),
        ("4711+1", "scontrol show job 4711+1"),
        ("slurm:4711_3", "scontrol show job 4711_3"),
        ("4711_3.0", "scontrol show job"),
        ("4711.0", "the job's number, 4711"),
        ("4711.extern", "the job's number, 4711"),
    ],
)
def test_what_names_no_job_says_what_would(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_wanted(text)


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        # StatefulSet, training operator, JobSet, indexed job, Deployment, bare pod
        ("train-0", "train"),
        ("pytorch-simple-worker-0", "pytorch-simple"),
        ("pytorch-simple-master-0", "pytorch-simple"),
        ("jobset-sample-workers-0-1-x7k2p", "jobset-sample"),
        ("pi-with-timeout-5wnpb", "pi-with-timeout"),
        ("vllm-7d9c5b8f6d-x7k2p", "vllm"),
        ("notebook", "notebook"),
        ("0", "0"),
        ("workers", "workers"),
        ("my-train", "my-train"),
    ],
)
def test_workloads_are_told_from_names_of_pods(pod: str, workload: str) -> None:
    assert workload_of(pod) == workload


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
