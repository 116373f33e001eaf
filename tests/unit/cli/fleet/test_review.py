"""`gpu-triage report` beside a real Prometheus that holds five recorded days, of which the second is missing."""

import csv
import io
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import promql_parser
import pytest
from tests.command_line import Run
from tests.conftest import RequiresTool
from tests.dashboards.grafana import column_title, substitute, targets, title_of
from tests.e2e.processes import prometheus
from tests.html_elements import Elements

from gpu_triage.alerting.macros import GPU_HOURS
from gpu_triage.cli.fleet.fleet_view import Selection
from gpu_triage.cli.fleet.prometheus import HttpConfig, PrometheusClient, Series
from gpu_triage.cli.fleet.review import DAY_SECONDS, SECTIONS, Prices, Review, Sums, review, table_queries
from gpu_triage.cli.fleet.review_page import (
    FACTS,
    forecast,
    named,
    render_csv,
    render_html,
    render_json,
    render_markdown,
)
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
    lost: Mapping[str, float]  # hours by the class that held it back


HOT = Recorded(
    {"cluster": "east", "instance": "gpu-07", "gpu": "0", "uuid": "GPU-a"}, (0.0, 1.0), {"thermal": 6.0, "storage": 1.0}
)
COOL = Recorded({"cluster": "west", "instance": "gpu-07", "gpu": "0", "uuid": "GPU-b"}, (0.25,), {})
JOULES_A_DAY = 3.6e6 * 10


def _series(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in {"job": "gpu-triage", **labels}.items()) + "}"


MODEL = {"name": "NVIDIA H100"}
REPLACED_AT = END - 2 * DAY_SECONDS
"""When GPU-c takes the place of GPU COOL."""
DEAD_HOURS = 6.0
"""Of GPU HOT in each day."""


def _of_a_day() -> Iterator[tuple[str, Mapping[str, str], float]]:
    for gpu in (HOT, COOL):
        host = {key: gpu.labels[key] for key in ("cluster", "instance")}
        for name, hours in gpu.lost.items():
            yield "instance_name_class:gpu_held_back_hours:sum1d", {**host, **MODEL, "class": name}, hours
        dead = DEAD_HOURS if gpu is HOT else 0.0
        yield "instance_name:gpu_observed_hours:sum1d", {**host, **MODEL}, 24.0
        yield "instance_name:gpu_activity_known_hours:sum1d", {**host, **MODEL}, 24.0
        yield "instance_name:gpu_unavailable_hours:sum1d", {**host, **MODEL}, dead
        yield "instance_name:gpu_outages:sum1d", {**host, **MODEL}, 2.0 if dead else 0.0
        yield "instance:gpu_planned_hours:sum1d", host, dead / 2
        yield "instance_name:gpu_used_hours:sum1d", {**host, **MODEL}, 24 * sum(gpu.busy) / len(gpu.busy)
        yield "instance:gpu_energy_joules:sum1d", host, JOULES_A_DAY
        job = {"owner": "ml/train" if gpu is HOT else "4711/"}
        yield "instance_owner:gpu_lost_hours:sum1d", {**host, **job}, 48.0 if gpu is HOT else 12.0
    for cluster, namespace, had, idle in (
        ("east", "vision", 20.0, 8.0),
        ("west", "vision", 4.0, 3.0),
        ("west", "<b>|speech", 24.0, 18.0),
        ("west", "", 0.0, 0.0),
    ):
        owner = {"cluster": cluster, "instance": "gpu-07", "workload_namespace": namespace}
        owner |= {"workload": "serving"} if (cluster, namespace) == ("west", "vision") else {}
        yield "instance_owner:gpu_allocated_hours:sum1d", owner, had
        yield "instance_owner:gpu_allocated_idle_hours:sum1d", owner, idle
    yield "cluster:gpu_pending_pod_hours:sum1d", {"cluster": "east"}, 36.0
    for days, kind, count in (
        ("30", "79", 4),
        ("30", "lost", 2),
        ("7", "lost", 2),
        ("30", "48", 2),
        ("30", "reset", 9),
    ):
        yield "gpu_incidents_recent", {**HOT.labels, "by": "board", "days": days, "kind": kind}, count
    decided = {**HOT.labels, "by": "jd"}
    accepted = {"code": "pcie.width", "reason": "<i>riser|"}
    yield "gpu_finding_accepted_until_timestamp_seconds", {**decided, **accepted}, END + DAY_SECONDS
    yield "gpu_repaired_timestamp_seconds", {**decided, "note": "fan"}, END - DAY_SECONDS
    yield "gpu_info", {**HOT.labels, "serial": "1650123", "name": "NVIDIA H100"}, 1


def _of_five_minutes(at: float) -> Iterator[tuple[str, Mapping[str, str], float]]:
    place = int(at // 300)
    for gpu in (HOT, COOL):
        labels = {**gpu.labels, **MODEL, **({"uuid": "GPU-c"} if gpu is COOL and at > REPLACED_AT else {})}
        yield "instance_gpu_name:gpu_busy:last5m", labels, gpu.busy[place % len(gpu.busy)]
        yield "instance_gpu_name:gpu_available:last5m", labels, 1.0
    night = at % DAY_SECONDS < DAY_SECONDS / 2
    yield "cluster:gpu_pending_pods:gpus", {"cluster": "east"}, 3.0 if night else 0.0
    yield "instance_owner:gpu_allocated:sum", {"cluster": "west", "instance": "gpu-07"}, 1.0 if night else 0.5


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


@contextmanager
def _serving(openmetrics: str, requires_tool: RequiresTool, directory: Path) -> Iterator[str]:
    (directory / "history.om").write_text(openmetrics)
    create: list[str | Path] = [requires_tool("promtool"), "tsdb", "create-blocks-from", "openmetrics", "-q"]
    subprocess.run([*create, directory / "history.om", directory / "tsdb"], check=True, capture_output=True)
    forever = "--storage.tsdb.retention.time=100y"
    with prometheus(requires_tool("prometheus"), directory, "{}\n", forever) as running:
        yield f"http://{running.address}"


@pytest.fixture(scope="module")
def url(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _serving(_openmetrics(), requires_tool, tmp_path_factory.mktemp("review")) as url:
        yield url


def client(url: str) -> PrometheusClient:
    return PrometheusClient(url, HttpConfig(), 10)


@pytest.fixture(scope="module")
def found(url: str) -> Review:
    return review(client(url), Selection(), END, DAYS)


def test_each_day_counts_once_and_a_day_without_data_is_missing(found: Review) -> None:
    by_day = {**dict.fromkeys(("observed", "active", "allocated"), 48), "used": 18, "idle": 26, "serving": 3}
    by_day |= {"lost": 60, "unavailable": 6, "planned": 3, "outages": 2, "energy": 20, "peak": 1, "free": 1}
    by_day |= {"pod wait": 36, "pod queue": 3}
    assert {name: found.totals[name] for name in by_day} == {
        name: (value, None, value, value, value) for name, value in by_day.items()
    }
    assert {name for name in found.totals if found.total(name) is None} == {"job wait", "job queue"}
    assert found.before == {}  # one day of it was recorded
    assert found.held_back["thermal"] == (6, None, 6, 6, 6)
    assert found.missing == (END - 4 * DAY_SECONDS,)
    assert found.tables["owner"] == {
        ("west", "<b>|speech", "", ""): {"allocated": 96, "idle": 72},
        ("east", "vision", "", ""): {"allocated": 80, "idle": 32},
        ("west", "vision", "", ""): {"allocated": 16},  # serving
        ("west", "", "", ""): {"allocated": 0, "idle": 0},
    }
    hours = {"observed": 192, "active": 192, "used": 72, "unavailable": 24, "held back": 28, "p95": 0.625}
    assert found.tables["model"] == {("NVIDIA H100",): hours}
    assert found.tables["host class"] == {
        ("east", "gpu-triage", "gpu-07", "thermal"): {"held back": 24},
        ("east", "gpu-triage", "gpu-07", "storage"): {"held back": 4},
    }
    east, west = (found.tables["host"][cluster, "gpu-triage", "gpu-07"] for cluster in ("east", "west"))
    away = {"observed": 96, "unobserved": 0}
    assert east == away | {"unavailable": 24, "outages": 8, "planned": 12, "replaced": 0}
    assert west == away | {"unavailable": 0, "outages": 0, "planned": 0, "replaced": 1}
    assert found.tables["job"] == {("east", "ml/train"): {"lost": 192}, ("west", "4711/"): {"lost": 48}}
    assert [(each.serial, each.kind, each.times) for each in found.offenders] == [
        ("1650123", "79", 4),
        ("1650123", "lost", 2),
    ]


def test_only_whole_periods_are_compared(url: str) -> None:
    last, two = (review(client(url), Selection(), END, days) for days in (1, 2))
    assert last.before == {name: each[0] for name, each in last.totals.items() if each[0] is not None} | {"replaced": 0}
    assert "| GPU hours that pending pods waited for | 72 h | of whole clusters | - |" in render_markdown(two)
    for panel, title, name in TOTALS_ON_BOARD:
        before = f"{title}, before".replace("hours", "share")
        assert (on_board(url, panel, before), on_board(url, panel, before, days=2)) == ({}, {})
        assert title == "hours" or on_board(url, panel, before, days=1) == {(): last.before[name]}


def test_a_host_has_hours_and_gpus_from_its_first_day_on(requires_tool: RequiresTool, tmp_path: Path) -> None:
    """Host a loses one of its two GPUs on the first of three days; b is new on the second; c was there before."""
    hours, gpus = "instance_name:gpu_observed_hours:sum1d", "instance_gpu_name:gpu_available:last5m"
    lines = [f"# TYPE {hours} gauge"]
    for host, days in {"a": (5, 4, 3, 2, 1, 0), "b": (1, 0), "c": (5, 0)}.items():
        lines += [f"{_series(hours, {'instance': host})} 24 {END - ago * DAY_SECONDS}" for ago in days]
    for uuid, days_ago in (("stays", 0.0), ("leaves", 2.5)):
        times = range(END - 4 * DAY_SECONDS, END - int(days_ago * DAY_SECONDS), 300)
        lines += [f"{_series(gpus, {'instance': 'a', 'uuid': uuid})} 1 {at}" for at in times]
    with _serving("\n".join((*lines, "# EOF\n")), requires_tool, tmp_path) as url:
        for column, expected in (("unobserved", {"a": 0, "b": 0, "c": 48}), ("replaced", {"a": 0})):
            query = table_queries("", "71h")["host"][column]
            assert {each.labels["instance"]: each.value for each in client(url).at(query, END)} == expected


def test_what_operators_accepted_and_repaired_is_listed_and_escaped(found: Review) -> None:
    words = [(each.gpu, each.what, each.at - END, each.by, each.note) for each in found.decisions]
    accepted = ("east/gpu-07 GPU 0", "pcie.width", DAY_SECONDS, "jd", "<i>riser|")
    assert words == [accepted, ("east/gpu-07 GPU 0", "repaired", -DAY_SECONDS, "jd", "fan")]
    assert "&lt;i&gt;riser|" in render_html(found).decode()
    assert r"| pcie.width | 2026-01-16 | jd | \<i\>riser\| |" in render_markdown(found)
    assert json.loads(render_json(found))["decisions"][0]["note"] == "<i>riser|"


def test_a_selection_leaves_out_the_others(url: str) -> None:
    west = review(client(url), Selection(cluster="west"), END, DAYS)
    assert west.observed == (24, None, 24, 24, 24)
    assert west.totals["unavailable"] == (0, None, 0, 0, 0)
    assert (west.tables["host class"], west.offenders, west.held_back) == ({}, (), {})
    assert (west.total("pod wait"), west.total("replaced")) == (None, 1)
    assert [*west.tables["job"]] == [("west", "4711/")]
    host = review(client(url), Selection(cluster="east", instance="gpu-07"), END, DAYS)
    assert [*host.tables["job"]] == [("east", "ml/train")]


def test_before_the_first_midnight_it_says_how_to_look_now(url: str, run: Run) -> None:
    # The history begins the day before, so its own midnight is the first.
    first = END - DAYS * DAY_SECONDS
    noon = first - DAY_SECONDS // 2
    with pytest.raises(PrometheusUnavailable, match=r"complete at midnight UTC.*--since 6h") as early:
        review(client(url), Selection(), noon, 1)
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


def on_board(
    url: str, panel: str, title: str, *labels: str, days: int = DAYS, **chosen: str
) -> dict[tuple[str, ...], float]:
    """A number of the capacity board an hour after the period, by labels; `chosen` as for `substitute`."""
    (asked,) = (
        each
        for each in targets("capacity.json")
        if title_of(each.panel) == panel and title in (each.legend, column_title(each))
    )
    query = substitute(asked.expr, 30 * DAY_SECONDS, over=f"{days}d", __to=f"{END + 3600}000", **chosen)
    return {tuple(each.labels[name] for name in labels): each.value for each in client(url).at(query, END + 3600)}


TOTALS_ON_BOARD = (
    *((fact.words.capitalize(), "hours", name) for name, fact in FACTS.items() if fact.whole),
    ("Energy and outages", "energy", "energy"),
    ("Energy and outages", "outages", "outages"),
    ("GPUs at once", "most allocated", "peak"),
    ("GPUs at once", "fewest free", "free"),
    ("Queue", "pods", "pod wait"),
    ("Queue", "GPUs for pods at once", "pod queue"),
    ("GPUs replaced", "replaced", "replaced"),
)
"""Panel, title and number of the report."""

TABLES_ON_BOARD: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("owner", "Owners", {"Allocated": "allocated", "Idle while allocated": "idle"}),
    ("model", "Models", {"Observed": "observed", "Unavailable": "unavailable", "Held back": "held back"}),
    ("host", "Hosts that were away", {"Unavailable": "unavailable", "Of both in maintenance": "planned"}),
    ("host", "Hosts that were away", {"Not observed": "unobserved", "GPUs replaced": "replaced"}),
    ("host class", "Hours held back, by host", {"Hours": "held back"}),
)
"""Table of the report, panel, and numbers of the table by columns of the panel."""


@pytest.mark.parametrize(("panel", "cell", "name"), TOTALS_ON_BOARD)
def test_the_board_and_the_report_show_the_same_totals(
    url: str, found: Review, panel: str, cell: str, name: str
) -> None:
    assert on_board(url, panel, cell) == {(): found.total(name)}


@pytest.mark.parametrize(("section", "panel", "titles"), TABLES_ON_BOARD)
def test_the_board_and_the_report_show_the_same_tables(
    url: str, found: Review, section: str, panel: str, titles: Mapping[str, str]
) -> None:
    labels = SECTIONS[section][0].split(", ")
    for title, name in titles.items():
        shown = on_board(url, panel, title, *labels)
        assert shown
        known = {key: row.get(name, 0.0) for key, row in found.tables[section].items()}
        assert shown.items() <= known.items()
        if section != "host":  # of which the board shows those that were away
            assert sum(shown.values()) == sum(known.values())


def test_the_board_and_the_report_show_the_same_shares_and_costs(url: str, found: Review) -> None:
    used, active, lost = (found.total(name) or 0.0 for name in ("used", "active", "lost"))
    assert on_board(url, "Used", "share") == {(): used / active}
    assert on_board(url, "Cost of waste and trouble", "lost") == {(): lost * 2.5}
    assert on_board(url, "Cost", "energy") == {(): (found.total("energy") or 0.0) * 0.5 * 1.5}
    assert sum(on_board(url, "Clusters", "Allocated", "cluster").values()) == found.total("allocated")
    assert [on_board(url, "Cost", each, price="", kwh_price="", pue="") for each in ("allocated", "energy")] == [{}, {}]
    assert on_board(url, "Owners", "Cost of idle", "cluster", price="").keys() == {("east",), ("west",)}


UNKNOWN_DAY = 86
"""How many days ago the allocation was not known."""


def _allocated(days_ago: int) -> float:
    """GPUs: a trend, weekends, and what no line explains."""
    return 20 - days_ago / 9 - 5 * (days_ago % 7 < 2) + (days_ago * days_ago) % 11


def test_the_board_and_the_report_have_the_same_forecast(requires_tool: RequiresTool, tmp_path: Path) -> None:
    name = "instance_owner:gpu_allocated_hours:sum1d"
    lines = [
        f"{_series(name, {'instance': host})} {12 * _allocated(ago)} {END - ago * DAY_SECONDS}"
        for host in ("a", "b")
        for ago in reversed(range(95))
        if ago != UNKNOWN_DAY
    ]
    cells = {"last week": "now", "forecast": "value", "at least": "low", "at most": "high"}
    with _serving("\n".join((f"# TYPE {name} gauge", *lines, "# EOF\n")), requires_tool, tmp_path) as url:
        for days, known in {7: False, 30: True, 35: True, 90: True, 91: False}.items():
            expected = forecast([None if ago == UNKNOWN_DAY else _allocated(ago) for ago in reversed(range(days))])
            assert (expected is not None) == known
            for cell, each in cells.items():
                shown = on_board(url, "Forecast of allocated GPUs", cell, days=days)
                assert shown == ({(): pytest.approx(max(0.0, getattr(expected, each)))} if expected else {}), (
                    days,
                    cell,
                )


def test_the_page_is_complete_has_no_script_and_loads_nothing(found: Review) -> None:
    text = render_html(found).decode()
    page = Elements(text)
    assert {"script", "iframe", "b"} & {*page.names} == set()
    assert [link for link in page.links if not link.startswith("data:")] == []
    assert page.handlers == []
    assert "GPU capacity review, 2026-01-10 to 2026-01-14" in text
    assert "Data for 4 of 5 days" in text
    assert "2026-01-11: no data" in text
    assert "<title>2026-01-12: not used 30</title>" in text
    assert text.count("no data</title>") == 4  # one day in each plot
    assert text.count('class="plot"') == 4
    assert "&lt;b&gt;|speech" in text
    assert "1650123" in text


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (("east", "vision", "", ""), "namespace east/vision"),
        (("east", "", "ada", "physics"), "east/ada (physics)"),
        (("", "", "ada", ""), "ada"),
        (("", "", "", "physics"), "unknown user (physics)"),
        (("", "", "", ""), "unknown"),
    ],
)
def test_an_owner_is_named_by_what_is_known(owner: tuple[str, ...], name: str) -> None:
    assert named("owner", owner) == name


def test_markdown_has_a_row_for_each_day_and_escapes_names(found: Review) -> None:
    text = render_markdown(found)
    assert "| 2026-01-11 | - | - | - | - | - | - | - | - |" in text
    assert "| 2026-01-12 | 2 | 48 | 48 | 18 | 26 | 60 | 6 | 20 |" in text
    assert r"namespace west/\<b\>\|speech" in text
    assert "| GPU hours unavailable | 24 h | 12% of the observed | - |" in text
    assert "| east/gpu-07 | 0 h | 24 h | 12 h | 8 | 3 h | 0 |" in text
    assert "| west/gpu-07 | 0 h | 0 h | 0 h | 0 | - | 1 |" in text
    assert "| GPU hours that pending pods waited for | 144 h | of whole clusters | - |" in text
    assert "| Pending Slurm jobs | not scraped | of whole clusters | - |" in text
    assert "No queue: scrape" not in text
    assert all(meaning in text for meaning in GPU_HOURS.values())


def test_hours_and_energy_have_a_price_if_one_is_given(found: Review) -> None:
    priced = render_markdown(replace(found, prices=Prices(2.5, 0.5, 1.5)))
    assert "Cost" not in render_markdown(found)
    assert f"| east/ml/train | 192 h | {2.5 * 192:,.2f} |" in priced
    assert f"| namespace east/vision | 80 h | 40% | 32 h | {2.5 * 32:,.2f} |" in priced
    assert f"| Energy of the GPUs | 80 kWh |  | - | {80 * 0.5 * 1.5:,.2f} |" in priced


def test_programs_get_the_same_numbers_as_json_and_csv_and_no_formula(found: Review) -> None:
    hostile: dict[str, Sums] = {**found.tables, "owner": {("", "", "=1+1", ""): {"allocated": 1.0}}}
    document = json.loads(render_json(found))
    assert document["total"] == {name: found.total(name) for name in (*found.totals, "replaced")}
    assert document["day"]["2026-01-11"] == dict.fromkeys(found.totals)
    assert document["model"]["NVIDIA H100"]["held back"] == 28
    rows = list(csv.DictReader(io.StringIO(render_csv(replace(found, tables=hostile)))))
    totals = {row["measure"]: row["value"] for row in rows if row["section"] == "total"}
    assert totals == {name: "" if value is None else str(value) for name, value in document["total"].items()}
    assert {row["name"] for row in rows if row["section"] == "owner"} == {"'=1+1"}


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ([4.0] * 27, None),
        ([None] + [4.0] * 28, (4.0, 2, 4.0, 4.0, 4.0)),
        ([*([4.0] * 10), None, *([4.0] * 24)], None),
        # A straight line by weeks, of which weekends are no part.
        ([each + week for week in range(4) for each in (5, 5, 5, 5, 5, 1, 2)], (7.0, 2, 9.0, 9.0, 9.0)),
        # 1, 2, 1, 2 by weeks: a slope of 0.2 which is far below its uncertainty.
        ([float(week % 2 + 1) for week in range(4) for _ in range(7)], (2.0, 2, 2.2, -3.03, 7.43)),
    ],
)
def test_a_forecast_has_its_uncertainty_or_is_none(
    days: list[float | None], expected: tuple[float, ...] | None
) -> None:
    found = forecast(days)
    assert found == (None if expected is None else pytest.approx(expected, abs=0.01))


def test_the_command_writes_by_suffix(url: str, tmp_path: Path, run: Run) -> None:
    server = ["report", "--prometheus", url, "--at", f"{END + 3600}", "--over", "5d", "--gpu-hour-price", "3"]
    formats = ("html", "md", "csv", "json")
    assert [run(*server, "--output", tmp_path / f"report.{suffix}").code for suffix in formats] == [0] * len(formats)
    assert json.loads((tmp_path / "report.json").read_text())["prices"] == {"gpu_hour": 3, "kwh": None, "pue": 1}
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
