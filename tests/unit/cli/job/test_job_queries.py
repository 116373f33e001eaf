"""The queries about a job are bounded, in number and in size, and a name stays inside its string."""

import re
from collections.abc import Sequence

import promql_parser
import pytest
from tests.unit.cli.job.conftest import run, series

from gpu_triage.cli.fleet.fleet_view import Selection, any_of
from gpu_triage.cli.fleet.prometheus import Series
from gpu_triage.cli.job.job_facts import Window, facts_of, late_queries, queries, window_of
from gpu_triage.cli.job.job_runs import Found, find, parse_wanted
from gpu_triage.errors import PrometheusUnavailable

POINTS_OF_PROMETHEUS = 11_000
DAY = 86_400.0
HOSTILE = 'x"}) or vector(1) or y{z="\\'


class Server:
    """Remembers what it was asked, and answers nothing but the first query."""

    url = "http://prometheus:9090"

    def __init__(self, held: Sequence[Series] = ()) -> None:
        self._held = list(held)
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
        return []


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
    assert len(server.asked) == 6


def test_the_number_of_queries_does_not_depend_on_the_job() -> None:
    server = Server(held=[series(1, instance=f"gpu-{number}:9836") for number in range(1000)])
    found = Found(run(start=0, end=30 * DAY, gpus=8000), (), 0, 30 * DAY, ongoing=True)
    facts_of(server, Selection(), found, window_of(found.run, None))  # type: ignore[arg-type]  # likewise
    assert len(server.asked) == 21
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
    window = Window(0, 3600, 15)
    hosts = Selection().only("east", ["gpu-07:9836", HOSTILE])
    asked = [*server.asked, *queries(hosts, job, window).values(), *late_queries(hosts, job, window, 60).values()]
    for query in asked:
        promql_parser.parse(query)
        assert "vector(1)" not in re.sub(r'"(?:\\.|[^"\\])*"', '""', query)
