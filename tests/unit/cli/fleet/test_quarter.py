"""A quarter of which all is known (`quarter.toml`), and six hours of a simulated host: report and board within 2 %.

Of the quarter, what the rules copy every five minutes is written from the file; of the host, what its exporter
publishes. All else are the real rules, in a VictoriaMetrics.
"""

import csv
import io
import json
import math
import re
import urllib.request
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.command_line import Run
from tests.conftest import RequiresTool
from tests.dashboards.fleet import Fleet
from tests.fleet.sharded import victoria_metrics
from tests.gathered import every
from tests.recordings import recorded
from tests.rules.cases import FOLDER
from tests.rules.rulefile import rule_files
from tests.unit.cli.fleet.test_review import END, TABLES_ON_BOARD, TOTALS_ON_BOARD, client, on_board

from gpu_triage.cli.fleet.fleet_view import Selection
from gpu_triage.cli.fleet.prometheus import Series
from gpu_triage.cli.fleet.review import DAY_SECONDS, SECTIONS, review
from gpu_triage.cli.fleet.review_page import FACTS, forecast
from gpu_triage_simulator.history import History, SeriesKey
from gpu_triage_simulator.scenario_file import read_scenario
from gpu_triage_simulator.schema import read_toml

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

DAYS, FIRST_HOUR, LAST_HOUR = 90, -288, 2160
STEP = 300  # seconds
STEPS = (LAST_HOUR - FIRST_HOUR) * 3600 // STEP + 1
JOULES = 400 * STEP
IDLE = 0.05
FILE = read_toml(Path(__file__).with_name("quarter.toml"))
EAST = Selection(cluster="east")
HOST_HOURS = 6


class Plan:
    """The series of the file; each method takes the keys of a row."""

    def __init__(self) -> None:
        self.columns: dict[SeriesKey, array[float]] = {}
        for gpu, rows in FILE["gpus"].items():
            for row in rows:
                self._gpu(gpu, **row)
        for kind, add in (("work", self._work), ("class", self._held_back), ("series", self._add)):
            for row in FILE[kind]:
                add(**row)

    def _add(
        self,
        name: str,
        labels: Mapping[str, str],
        value: float,
        *,
        begin: int = FIRST_HOUR,
        until: int = LAST_HOUR + 1,
        every: int = 0,
        lasts: int = 0,
        rises: bool = False,
    ) -> None:
        """Add a value to those of an interval, or of several; one that rises is a counter."""
        column = self.columns.setdefault((name, tuple(sorted(labels.items()))), array("d", [math.nan]) * STEPS)
        for start in range(begin, until, every or until - begin):
            first, last = ((hour - FIRST_HOUR) * 3600 // STEP for hour in (start, start + lasts if every else until))
            for step in range(first, min(last, STEPS)):
                before = 0 if math.isnan(column[step]) else column[step]
                column[step] = before + value * (step - first if rises else 1)

    def _gpu(self, gpu: str, *, dead: bool = False, **when: Any) -> None:
        _, labels, model = about(gpu)
        self._add("instance_gpu_name:gpu_available:last5m", {**labels, "name": model}, not dead, **when)
        if not dead:
            self._add("instance_gpu_name:gpu_busy:last5m", {**labels, "name": model}, 0, **when)
            self._add("instance_gpu:gpu_energy_joules:last5m", labels, JOULES, rises=True, **when)

    def _work(self, gpu: str, busy: float, owner: str, **when: Any) -> None:
        host, labels, model = about(gpu)
        self._add("instance_gpu_name:gpu_busy:last5m", {**labels, "name": model}, busy, **when)
        self._add("instance_owner:gpu_allocated:sum", {**host, **FILE["owners"][owner]}, 1, **when)
        self._add("instance_owner:gpu_allocated_idle:sum", {**host, **FILE["owners"][owner]}, busy < IDLE, **when)

    def _held_back(self, gpu: str, **row: Any) -> None:
        labels = {**about(gpu)[1], "class": row.pop("class")}
        self._add("instance_gpu_class:gpu_bottleneck_seconds:max5m", labels, STEP, rises=True, **row)


def about(gpu: str) -> tuple[Mapping[str, str], Mapping[str, str], str]:
    """The labels of a GPU's host, its own, and its model."""
    found = FILE["hosts"][gpu[0]]
    host = {"cluster": "east", "job": "gpu-triage", "instance": found["host"]}
    host |= {"workload": found["workload"]} if "workload" in found else {}
    return host, {**host, "gpu": gpu[1], "uuid": f"GPU-{gpu}"}, found["model"]


def simulated() -> History:
    base, own = (
        read_toml(FOLDER / "base" / "three-a10.toml"),
        read_toml(Path(__file__).with_name("quarter-host.toml")),
    )
    history = recorded(
        read_scenario({**base, **own, "name": "quarter-host"}, ""), seconds=HOST_HOURS * 3600, step_seconds=60
    )
    series = {(name, (*labels, ("cluster", "lab"))): column for (name, labels), column in history.series.items()}
    return replace(history, start_seconds=END - HOST_HOURS * 3600, series=series)


def put(url: str, lines: str) -> None:
    for path, data in (("api/v1/import", lines), ("internal/force_flush", "")):
        with urllib.request.urlopen(f"{url}/{path}", data.encode(), timeout=60) as answer:
            answer.read()


def line(each: Series, name: str) -> str:
    """As VictoriaMetrics imports it."""
    at, values = zip(*each.samples, strict=True)
    stamps = [round(1000 * seconds) for seconds in at]
    return json.dumps({"metric": {**each.labels, "__name__": name}, "values": values, "timestamps": stamps}) + "\n"


@pytest.fixture(scope="module")
def url(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    begin, host = END + (FIRST_HOUR - LAST_HOUR) * 3600, simulated()
    plan = History(begin, STEP, STEPS, Plan().columns, ())
    (recording,) = (path for path in rule_files() if path.name == "recording.yml")
    groups = {each["name"]: each["rules"] for each in yaml.safe_load(recording.read_text(encoding="utf-8"))["groups"]}
    program, directory = requires_tool("victoria-metrics"), tmp_path_factory.mktemp("quarter")

    def record(url: str, group: str, first: float, step: float) -> None:
        for rule in groups[group]:
            found = client(url).over(rule["expr"], first, END, step)
            put(url, "".join(line(each, rule["record"]) for each in found))

    with victoria_metrics(host, program, directory, Fleet(host, {})) as store:
        record(f"http://{store.address}", "gpu-triage-load", host.start_seconds, 60)
        record(f"http://{store.address}", "gpu-triage-capacity-copies", host.start_seconds + STEP, STEP)
    # Again: it would remember for seconds that there was no series.
    with victoria_metrics(plan, program, directory, Fleet(plan, {})) as store:
        record(f"http://{store.address}", "gpu-triage-capacity", begin + DAY_SECONDS, DAY_SECONDS)
        # VictoriaMetrics does not find a series that begins with the very moment of a query.
        record(f"http://{store.address}", "gpu-triage-capacity", END - STEP, STEP)
        yield f"http://{store.address}"


@pytest.fixture
def report(url: str, run: Run, tmp_path: Path) -> Callable[[str], str]:
    def written(suffix: str) -> str:
        path = tmp_path / f"report.{suffix}"
        which = ("--at", f"{END + 60}", "--over", f"{DAYS}d", "--cluster", "east", "--output", path)
        assert run("report", "--prometheus", url, *which).code == 0
        return path.read_text(encoding="utf-8")

    return written


def test_every_number_of_the_report_is_true(report: Callable[[str], str]) -> None:
    document = json.loads(report("json"))
    found = {
        (row["section"], row["name"], row["measure"]): float(row["value"])
        for row in csv.DictReader(io.StringIO(report("csv")))
        if row["value"] and row["section"] != "day"
    }
    truth = {
        (section, name, measure): value
        for section, names in FILE["truth"].items()
        for name, measures in names.items()
        for measure, value in measures.items()
    }
    assert found == pytest.approx(truth, rel=0.02)
    for (section, name, measure), value in found.items():
        assert (document[section][name] if name else document[section])[measure] == value


def test_the_text_says_the_same(report: Callable[[str], str]) -> None:
    text = report("md")
    for name, fact in every(FACTS.items()):
        (said,) = re.findall(rf"\n\| (?:GPU hours )?{re.escape(fact.words)} \| ([0-9.,]+)", text)
        assert float(said.replace(",", "")) == pytest.approx(FILE["truth"]["total"][""][name], rel=0.02)
    assert "| east/gpu-03 | 336 h | 6.0 h | 2 | 3.0 h |" in text
    assert "| east/gpu-02 | 1 |" in text


def test_the_board_shows_the_same(url: str) -> None:
    for panel, title, name in TOTALS_ON_BOARD:
        (shown,) = on_board(url, panel, title, days=DAYS, cluster="east").values()
        assert shown == pytest.approx(FILE["truth"]["total"][""][name], rel=0.02)
    tables = review(client(url), EAST, END, DAYS).tables
    for section, panel, titles in TABLES_ON_BOARD:
        for title, name in titles.items():
            rows = on_board(url, panel, title, *SECTIONS[section][0].split(", "), days=DAYS, cluster="east")
            assert rows == pytest.approx({key: tables[section][key][name] for key in every(rows)})


def test_a_forecast_from_a_month_of_trend_covers_what_came(url: str) -> None:
    seen = review(client(url), EAST, END - 14 * DAY_SECONDS, 28).totals["allocated"]
    found = forecast([value and value / 24 for value in seen])
    came = review(client(url), EAST, END, 7).total("allocated")
    assert found is not None
    assert found.weeks * 7 == 14
    assert found.low < found.value < found.high
    assert came is not None
    assert found.low < came / 168 < found.high
    assert found.value == pytest.approx(came / 168, rel=0.02)


def test_a_team_that_left_is_in_no_later_month(url: str) -> None:
    owners = review(client(url), EAST, END, 30).tables["owner"]
    assert {owner[1] or owner[2] for owner in owners} == {"vision", "ada", "chat"}


def test_the_report_says_of_a_simulated_host_what_its_scenario_holds(url: str) -> None:
    found = review(client(url), Selection(cluster="lab"), END, 1)
    counters = [each for (name, _), each in simulated().series.items() if name == "gpu_energy_joules_total"]
    truth = {"observed": 3 * HOST_HOURS, "allocated": 2 * HOST_HOURS, "used": 0.6 * HOST_HOURS, "idle": HOST_HOURS}
    truth |= {"unavailable": HOST_HOURS - 121 / 60, "outages": 1, "peak": 2, "free": 0}
    truth["energy"] = sum(max(filter(math.isfinite, each)) - each[0] for each in counters) / 3.6e6
    assert {name: found.total(name) for name in truth} == pytest.approx(truth, rel=0.02)
    assert {key[2] for key, row in found.tables["owner"].items() if row["allocated"]} == {"alice", "bob"}
