"""A quarter of which all is known (`quarter.toml`), and six hours of a simulated host: the report within 2 %.

Of the quarter, what the rules copy every five minutes is written from the file; of the host, what its exporter
publishes. All else are the real rules, in a VictoriaMetrics.
"""

import csv
import io
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.command_line import Run
from tests.conftest import RequiresTool
from tests.dashboards.fleet import Fleet
from tests.fleet.sharded import put, victoria_metrics
from tests.recordings import recorded
from tests.rules.cases import FOLDER
from tests.rules.rulefile import rule_files
from tests.rules.schedulers import exposed
from tests.unit.cli.fleet.test_review import END, client

from gpu_triage.cli.fleet.fleet_view import Selection
from gpu_triage.cli.fleet.review import DAY_SECONDS, first_look, review
from gpu_triage.cli.fleet.review_page import forecast
from gpu_triage_simulator.history import History, SeriesKey
from gpu_triage_simulator.scenario_file import read_scenario
from gpu_triage_simulator.schema import read_toml

pytestmark = pytest.mark.timeout(900)

DAYS, FIRST_HOUR, LAST_HOUR = 90, -288, 2160
STEP = 300  # seconds
STEPS = (LAST_HOUR - FIRST_HOUR) * 3600 // STEP + 1
FILE = read_toml(Path(__file__).with_name("quarter.toml"))
EAST, LAB = Selection(cluster="east"), Selection(cluster="lab")
HOST_HOURS = 6

Hours = Sequence[int]
WHOLE = (FIRST_HOUR, LAST_HOUR + 1)


class Plan:
    """The series of the file, by name and labels."""

    def __init__(self) -> None:
        self.columns: dict[SeriesKey, array[float]] = {}
        for gpu, states in FILE["gpus"].items():
            for alive, state in enumerate(("dead", "up")):
                for when in states.get(state, ()):
                    self._gpu(gpu, alive, when)
        for row in FILE["work"]:
            self._work(**row)
        for row in FILE["class"]:
            labels = {**about(row["gpu"])[1], "class": row["class"]}
            self.add("instance_gpu_class:gpu_bottleneck_seconds:max5m", labels, STEP, row["when"])
        for row in FILE["series"]:
            self.add(**row)

    def add(self, name: str, labels: Mapping[str, str], value: float, when: Hours = WHOLE, every: Hours = ()) -> None:
        """Add a value to those of an interval, or of several; a counter rises by it."""
        counts = "_seconds:" in name or "_joules:" in name
        column = self.columns.setdefault((name, tuple(sorted(labels.items()))), array("d", [math.nan]) * STEPS)
        after, hours = every or (when[1] - when[0], when[1] - when[0])
        for start in range(when[0], when[1], after):
            first, last = ((hour - FIRST_HOUR) * 3600 // STEP for hour in (start, start + hours))
            for step in range(first, min(last, STEPS)):
                before = 0 if math.isnan(column[step]) else column[step]
                column[step] = before + value * (step - first if counts else 1)

    def _gpu(self, gpu: str, alive: int, when: Hours) -> None:
        _, labels, model = about(gpu)
        self.add("instance_gpu_name:gpu_available:last5m", {**labels, "name": model}, alive, when)
        if alive:
            self.add("instance_gpu_name:gpu_busy:last5m", {**labels, "name": model}, 0, when)
            self.add("instance_gpu:gpu_energy_joules:last5m", labels, 400 * STEP, when)

    def _work(self, gpu: str, busy: float, owner: str, **when: Hours) -> None:
        host, labels, model = about(gpu)
        host |= FILE["owners"][owner]
        self.add("instance_gpu_name:gpu_busy:last5m", {**labels, "name": model}, busy, **when)
        self.add("instance_owner:gpu_allocated:sum", host, 1, **when)
        self.add("instance_owner:gpu_allocated_idle:sum", host, busy < 0.05, **when)


def about(gpu: str) -> tuple[dict[str, str], dict[str, str], str]:
    """The labels of a GPU's host, its own, and its model."""
    model, host = FILE["models"][gpu[0]], {"cluster": "east", "job": "gpu-triage", **FILE["hosts"][gpu[0]]}
    return host, {**host, "gpu": min(gpu[1], "3"), "uuid": f"GPU-{gpu}"}, model


def simulated() -> History:
    base, own = FOLDER / "base" / "three-a10.toml", Path(__file__).with_name("quarter-host.toml")
    scenario = read_scenario({**read_toml(base), **read_toml(own), "name": own.stem}, own.name)
    history = recorded(scenario, seconds=HOST_HOURS * 3600, step_seconds=60)
    target = (("cluster", "lab"), ("workload", "serving"))
    series = {(name, (*labels, *target)): column for (name, labels), column in history.series.items()}
    for (name, labels), value in exposed().items():
        cluster, *others = labels
        if cluster[1] in {"official", "east"}:
            series[name, (("cluster", "lab"), *others)] = [value] * history.steps
    return replace(history, start_seconds=END - HOST_HOURS * 3600, series=series)


def record(address: str, group: str, first: float, step: float) -> None:
    """Record what the rules of a group make, until the end."""
    (path,) = (path for path in rule_files() if path.name == "recording.yml")
    groups = {each["name"]: each["rules"] for each in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]}
    times = [first + place * step for place in range(round((END - first) / step) + 1)]
    for rule in groups[group]:
        columns: dict[SeriesKey, list[float]] = {}
        for each in client(f"http://{address}").over(rule["expr"], first, END, step):
            labels = {name: value for name, value in each.labels.items() if name != "__name__"}
            columns[rule["record"], tuple(labels.items())] = [dict(each.samples).get(at, math.nan) for at in times]
        put(address, History(first, step, len(times), columns, ()))


@pytest.fixture(scope="module")
def url(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    begin, host = END - (LAST_HOUR - FIRST_HOUR) * 3600, simulated()
    plan = History(begin, STEP, STEPS, Plan().columns, ())
    program, directory = requires_tool("victoria-metrics"), tmp_path_factory.mktemp("quarter")
    with victoria_metrics(plan, program, directory, Fleet(plan, {})) as store:
        put(store.address, host)
        record(store.address, "gpu-triage-load", host.start_seconds, 60)
        record(store.address, "gpu-triage-capacity-copies", host.start_seconds + STEP, STEP)
        record(store.address, "gpu-triage-capacity", begin + DAY_SECONDS, DAY_SECONDS)
        # VictoriaMetrics does not find a series that begins with the very moment of a query.
        record(store.address, "gpu-triage-capacity", END - STEP, STEP)
        yield f"http://{store.address}"


def test_every_number_of_the_report_is_true(url: str, run: Run, tmp_path: Path) -> None:
    which = ("--at", f"{END + 60}", "--over", f"{DAYS}d", "--cluster", "east", "--output", tmp_path / "report.csv")
    assert run("report", "--prometheus", url, *which).code == 0
    found = {
        (row["section"], row["name"], row["measure"]): float(row["value"])
        for row in csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text(encoding="utf-8")))
        if row["value"] and row["section"] != "day"
    }
    truth = {
        (section, name, measure): value
        for section, names in FILE["truth"].items()
        for name, measures in names.items()
        for measure, value in measures.items()
    }
    assert found == pytest.approx(truth, rel=0.02)


def test_a_forecast_from_a_month_of_trend_covers_what_came(url: str) -> None:
    seen = review(client(url), EAST, END - 14 * DAY_SECONDS, 28).totals["allocated"]
    found = forecast([value and value / 24 for value in seen])
    came = (review(client(url), EAST, END, 7).total("allocated") or math.nan) / (7 * 24)
    assert found is not None
    assert found.weeks == 2
    assert found.value == pytest.approx(came, rel=0.02)
    assert found.low < came < found.high


def test_a_team_that_left_is_in_no_later_month(url: str) -> None:
    month, before = (review(client(url), EAST, at, 30) for at in (END, END - 30 * DAY_SECONDS))
    assert {owner[1] or owner[2] for owner in month.tables["owner"]} == {"vision", "ada", "chat"}
    assert month.before == pytest.approx({name: before.total(name) for name in month.before})


def test_the_report_says_of_a_simulated_host_what_its_scenario_holds(url: str) -> None:
    counters = [each for (name, _), each in simulated().series.items() if name == "gpu_energy_joules_total"]
    energy = sum(max(filter(math.isfinite, each)) - each[0] for each in counters) / 3.6e6
    days = {"outages": 1, "peak": 2, "free": 0, "unavailable": HOST_HOURS - 121 / 60, "energy": energy}
    for found, hours, more in (
        (review(client(url), LAB, END, 1), HOST_HOURS, days),
        (first_look(client(url), LAB, END, 3600), 1, {"unavailable": 1}),
    ):
        truth = {"observed": 3 * hours, "allocated": 2 * hours, "used": 0.6 * hours, "serving": hours, **more}
        truth |= {"pod queue": 4, "pod wait": 4 * hours, "job queue": 10, "job wait": 10 * hours}
        assert {name: found.total(name) for name in truth} == pytest.approx(truth, rel=0.02)
        assert found.total("idle") is None
        assert {key[2] for key, row in found.tables["owner"].items() if row["allocated"]} == {"alice", "bob"}
