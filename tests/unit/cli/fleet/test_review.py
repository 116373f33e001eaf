"""`gpu-triage report` beside a real Prometheus that holds five recorded days, of which the second is missing."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from tests.command_line import Run
from tests.conftest import RequiresTool
from tests.e2e.processes import prometheus
from tests.html_elements import Elements

from gpu_triage.cli.fleet.fleet_view import Selection
from gpu_triage.cli.fleet.job_pace import slow_queries
from gpu_triage.cli.fleet.prometheus import HttpConfig, PrometheusClient, Series
from gpu_triage.cli.fleet.review import DAY_SECONDS, Review, daily_queries, host_query, review
from gpu_triage.cli.fleet.review_page import render_html, render_markdown
from gpu_triage.errors import PrometheusUnavailable

pytestmark = pytest.mark.slow

END = 1_768_435_200  # 2026-01-15, midnight of UTC
DAYS = 5
MISSING = 1


@dataclass(frozen=True)
class Recorded:
    """A GPU of the test: what the rules recorded of each of its days."""

    labels: Mapping[str, str]
    busy: Sequence[float]  # shares in the 5 minutes of the day, in turns
    lost: Mapping[str, float]
    idle: Sequence[bool]  # whether a job held it and did not use it, likewise


HOT = Recorded(
    {"cluster": "east", "instance": "gpu-07", "gpu": "0", "uuid": "GPU-a"},
    (0.0, 1.0),
    {"thermal": 6.0, "storage": 1.0},
    (False,),
)
COOL = Recorded({"cluster": "west", "instance": "gpu-07", "gpu": "0", "uuid": "GPU-b"}, (0.25,), {}, (True, False))
JOULES_A_DAY = 3.6e6 * 10


def _series(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in {"job": "gpu-triage", **labels}.items()) + "}"


def _of_a_day() -> Iterator[tuple[str, Mapping[str, str], float]]:
    for gpu in (HOT, COOL):
        host = {key: gpu.labels[key] for key in ("cluster", "instance")}
        for name, hours in gpu.lost.items():
            yield "instance_gpu_class:gpu_bottleneck_seconds:increase1d", {**gpu.labels, "class": name}, hours * 3600
            yield "instance_class:gpu_hours_lost:sum1d", {**host, "class": name}, hours
    for cluster, namespace, had, used in (
        ("east", "vision", 20.0, 12.0),
        ("west", "vision", 4.0, 1.0),
        ("", "<b>|speech", 24.0, 6.0),
    ):
        owner = {"workload_namespace": namespace, **({"cluster": cluster} if cluster else {})}
        yield "owner:gpu_allocated_hours:sum1d", owner, had
        yield "owner:gpu_busy_hours:sum1d", owner, used
    for days, kind, count in (
        ("30", "79", 4),
        ("30", "lost", 2),
        ("7", "lost", 2),
        ("30", "48", 2),
        ("30", "reset", 9),
    ):
        yield "gpu_incidents_recent", {**HOT.labels, "by": "board", "days": days, "kind": kind}, count
    yield "gpu_info", {**HOT.labels, "serial": "1650123", "name": "NVIDIA H100"}, 1


def _of_five_minutes(at: float) -> Iterator[tuple[str, Mapping[str, str], float]]:
    place = int(at // 300)
    for gpu in (HOT, COOL):
        busy = gpu.busy[place % len(gpu.busy)]
        yield "instance_gpu_name:gpu_busy:last5m", {**gpu.labels, "name": "NVIDIA H100"}, busy
        yield "instance_gpu:gpu_allocated_idle:active", gpu.labels, gpu.idle[place % len(gpu.idle)]
        owner = {"cluster": gpu.labels["cluster"], "owner": "ml/train" if gpu is HOT else "4711/"}
        yield "owner:gpu_job_lost:gpus", owner, 2.0 if gpu is HOT else 0.5
        yield "instance_gpu_owner:gpu_job:member", {**gpu.labels, **owner}, 1
        yield "instance_gpu:gpu_energy_joules:last5m", gpu.labels, JOULES_A_DAY * at / DAY_SECONDS


def _openmetrics() -> str:
    midnights = [END - place * DAY_SECONDS for place in reversed(range(DAYS)) if place != DAYS - 1 - MISSING]
    # The day before the first: a period that includes it would count too much.
    midnights.insert(0, END - DAYS * DAY_SECONDS)
    by_name: dict[str, list[str]] = {}

    def add(samples: Iterable[tuple[str, Mapping[str, str], float]], at: float) -> None:
        for name, labels, value in samples:
            by_name.setdefault(name, []).append(f"{_series(name, labels)} {float(value)} {at:.0f}")

    for midnight in midnights:
        add(_of_a_day(), midnight)
        for evaluation in range(DAY_SECONDS // 300):
            at = midnight - DAY_SECONDS + 300 * evaluation + 150
            add(_of_five_minutes(at), at)
    return "".join(f"# TYPE {name} gauge\n" + "\n".join(lines) + "\n" for name, lines in by_name.items()) + "# EOF\n"


@pytest.fixture(scope="module")
def url(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("review")
    (directory / "history.om").write_text(_openmetrics())
    create: list[str | Path] = [requires_tool("promtool"), "tsdb", "create-blocks-from", "openmetrics", "-q"]
    subprocess.run([*create, directory / "history.om", directory / "tsdb"], check=True, capture_output=True)
    forever = "--storage.tsdb.retention.time=100y"
    with prometheus(requires_tool("prometheus"), directory, "{}\n", forever) as running:
        yield f"http://{running.address}"


def _client(url: str) -> PrometheusClient:
    return PrometheusClient(url, HttpConfig(), 10)


@pytest.fixture(scope="module")
def found(url: str) -> Review:
    return review(_client(url), Selection(), END, DAYS)


def test_each_day_counts_once_and_a_day_without_data_is_missing(found: Review) -> None:
    assert found.observed == (48, None, 48, 48, 48)
    assert found.busy == (18, None, 18, 18, 18)
    assert found.idle == (12, None, 12, 12, 12)
    assert found.energy == (pytest.approx(20), None, *[pytest.approx(20)] * 3)
    assert found.lost["thermal"] == (6, None, 6, 6, 6)
    assert found.lost_by_day == (7, None, 7, 7, 7)
    assert found.missing == (END - 4 * DAY_SECONDS,)
    assert [(str(each.owner), each.allocated, each.unused) for each in found.owners] == [
        ("namespace <b>|speech", 96, 72),
        ("namespace east/vision", 80, 32),
        ("namespace west/vision", 16, 12),
    ]
    assert [(each.name, each.observed, each.busy, each.lost, each.p95) for each in found.models] == [
        ("NVIDIA H100", 192, 72, 28, 0.625)
    ]
    assert [(str(each.key), each.name, each.hours) for each in found.hosts] == [
        ("east/gpu-07", "thermal", 24),
        ("east/gpu-07", "storage", 4),
    ]
    # A loss counts for as long as it was recorded, and for 5 minutes into the day without data.
    assert {str(job): hours for job, hours in found.jobs.items()} == {
        "east/ml/train": pytest.approx(2 * 4 * 24, rel=0.005),
        "Slurm job west/4711": pytest.approx(0.5 * 4 * 24, rel=0.005),
    }
    assert [job.name for job in found.jobs] == ["train", "4711"]
    assert [(each.serial, each.kind, each.times) for each in found.offenders] == [
        ("1650123", "79", 4),
        ("1650123", "lost", 2),
    ]


def test_a_selection_leaves_out_the_others(url: str) -> None:
    west = review(_client(url), Selection(cluster="west"), END, DAYS)
    assert west.observed == (24, None, 24, 24, 24)
    assert west.lost_by_day == (0, None, 0, 0, 0)
    assert (west.hosts, west.offenders) == ((), ())
    assert [job.name for job in west.jobs] == ["4711"]
    host = review(_client(url), Selection(cluster="east", instance="gpu-07"), END, DAYS)
    assert [job.name for job in host.jobs] == ["train"]


def test_before_the_first_midnight_it_says_how_to_look_now(url: str, run: Run) -> None:
    # The history begins the day before, so its own midnight is the first.
    first = END - DAYS * DAY_SECONDS
    noon = first - DAY_SECONDS // 2
    with pytest.raises(PrometheusUnavailable, match=r"complete at midnight UTC.*--since 6h") as early:
        review(_client(url), Selection(), noon, 1)
    assert "rules/recording.yml" not in str(early.value)
    code, _, err = run("report", "--prometheus", url, "--at", noon, "--since", "6h")
    assert (code, "has no GPU activity in this time" in err) == (2, True)


class Hostile:
    """A server whose every series has labels that try to leave their PromQL string."""

    url = "http://prometheus:9090"
    warnings = ()

    def __init__(self) -> None:
        self.asked: list[str] = []

    def at(self, query: str, *_times: float) -> list[Series]:
        self.asked.append(query)
        hostile: defaultdict[str, str] = defaultdict(lambda: 'x"}) or vector(1) or y{z="\\')
        return [Series(hostile, ((float(END), 3.0),))]

    over = at


def test_a_uuid_stays_inside_its_string() -> None:
    server = Hostile()
    found = review(server, Selection(), END, 1)  # type: ignore[arg-type]  # as much of a client as is used
    assert found.offenders
    for query in server.asked:
        promql_parser.parse(query)
        assert "vector(1)" not in re.sub(r'"(?:\\.|[^"\\])*"', '""', query)


def test_every_recorded_series_that_is_asked_for_is_recorded_by_the_rules(repository: Path) -> None:
    rules: list[dict[str, Any]] = [
        yaml.safe_load((repository / "rules" / name).read_text()) for name in ("recording.yml", "alerts-jobs.yml")
    ]
    recorded = {rule.get("record") for file in rules for each in file["groups"] for rule in each["rules"]}
    asked = [
        query
        for selection in (Selection(), Selection(cluster="east"), Selection(instance="a"))
        for query in (*slow_queries(selection).values(), *daily_queries(selection).values(), host_query(selection, 30))
    ]
    names = set(re.findall(r"[a-z_]+:[a-z_]+:[a-z0-9_]+", " ".join(asked)))
    assert len(names) > 8
    assert names <= recorded


def test_the_page_is_complete_has_no_script_and_loads_nothing(found: Review) -> None:
    text = render_html(found).decode()
    page = Elements(text)
    assert {"script", "iframe", "b"} & {*page.names} == set()
    assert [link for link in page.links if not link.startswith("data:")] == []
    assert page.handlers == []
    assert "GPU capacity review, 2026-01-10 to 2026-01-14" in text
    assert "Data for 4 of 5 days" in text
    assert "2026-01-11: no data" in text
    assert text.count("no data</title>") == 4  # one day in each plot
    assert text.count('class="plot"') == 4
    assert "&lt;b&gt;|speech" in text
    assert "1650123" in text


def test_markdown_has_a_row_for_each_day_and_escapes_names(found: Review) -> None:
    text = render_markdown(found)
    assert "| 2026-01-11 | - | - | - | - | - | - |" in text
    assert "| 2026-01-12 | 2 | 48 | 18 | 7 | 12 | 20 |" in text
    assert r"namespace \<b\>\|speech" in text
    assert "| GPU hours lost to a bottleneck | 28 h | 15% of the observed |" in text


def test_what_jobs_lost_has_a_price_if_one_is_given(found: Review) -> None:
    text = render_markdown(found)
    assert "| east/ml/train | 192 h |" in text
    priced = render_markdown(replace(found, gpu_hour_price=2.5))
    hours = found.jobs[next(iter(found.jobs))]
    assert f"| east/ml/train | 192 h | {2.5 * hours:,.2f} |" in priced
    assert text.count("| Cost |") == 0
    assert priced.count("| Cost |") == 1


def test_the_command_writes_by_suffix(url: str, tmp_path: Path, run: Run) -> None:
    server = ["report", "--prometheus", url, "--at", f"{END + 3600}", "--over", "5d", "--gpu-hour-price", "3"]
    assert [run(*server, "--output", tmp_path / f"report.{suffix}").code for suffix in ("html", "md")] == [0, 0]
    assert run(*server) == (0, (tmp_path / "report.md").read_text(), "")
    assert "| Cost |" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "report.html").read_bytes().startswith(b"<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--output", "/nowhere/report.md"), "cannot be written"),
        (("--cluster", "north"), "rules/recording.yml"),
        *((("--gpu-hour-price", wrong), "is no price") for wrong in ("0", "-1", "2,50", "nan", "1e3", "free")),
    ],
)
def test_refusals_explain(url: str, run: Run, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = run("report", "--prometheus", url, "--at", END, *arguments)
    assert (code, said in err) == (2, True)
