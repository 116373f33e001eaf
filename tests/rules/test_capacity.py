"""Day windows of the capacity rules against what a day held, on counters written by hand.

GPU old works half of the time until hour 20, when it is taken out; nobody scrapes from hour 12 to 13. GPU new works a
quarter of the time in its place. GPU young comes at hour 22.5, and its driver is renewed at hour 24.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
from tests.conftest import RequiresTool
from tests.rules.promtool import Answers, Run, ask, selector
from tests.rules.rulefile import read_rules, rule_files

HOUR = 3600.0
STEP_SECONDS = 70
"""Evaluations fall between full minutes and hours, as a server's do: a window of an hour holds sixty minutes."""
NOW = 25 * HOUR + 2400

BUSY = "instance_gpu:gpu_busy:avg1d"
ENERGY = "instance_gpu:gpu_energy_joules:increase1d"
THROTTLED = "instance_gpu_reason:gpu_throttle_seconds:increase1d"
LOST = "instance_gpu_class:gpu_bottleneck_seconds:increase1d"
MODEL_BUSY = "name:gpu_busy:avg1d"
HOURS_LOST = "instance_gpu_class:gpu_hours_lost:sum1d"
MODEL_LOST = "name:gpu_hours_lost:sum1d"
WORKLOAD_BUSY = "workload:gpu_busy:avg1d"
WORKLOAD_ENERGY = "workload:gpu_energy_joules:sum1d"
ALL = (BUSY, ENERGY, THROTTLED, LOST, HOURS_LOST, MODEL_BUSY, MODEL_LOST, WORKLOAD_BUSY, WORKLOAD_ENERGY)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory, requires_tool: RequiresTool) -> Answers:
    """Every capacity series after 25 hours and 40 minutes."""
    rules = tuple(path for path in rule_files() if path.name == "recording.yml")
    groups = tuple(dict.fromkeys(rule.group for rule in read_rules(rules)))
    series = {
        **gpu("old", 0, 20 * HOUR, watts=100, busy=0.5),
        **gpu("new", 20 * HOUR, math.inf, watts=200, busy=0.25),
        **gpu("young", 22.5 * HOUR, math.inf, watts=50, busy=0.1, workload="serving", models=("Y100", "NVIDIA Y100")),
    }
    run = Run(rules, groups, STEP_SECONDS, series, tuple((name, NOW) for name in ALL))
    return ask(requires_tool("promtool"), run, tmp_path_factory.mktemp("capacity"))


def gpu(
    uuid: str,
    begins: float,
    ends: float,
    *,
    watts: float,
    busy: float,
    workload: str = "",
    models: tuple[str, str] = ("X100", "X100"),
) -> dict[str, list[float]]:
    """What is scraped of a GPU that a process holds, from `begins` until `ends`; its models until hour 24, and then."""
    target = {"instance": f"host-{workload}", "job": "gpu-triage", **({"workload": workload} if workload else {})}
    labels = {**target, "gpu": "0", "uuid": uuid}
    columns: dict[tuple[str, str, str], Callable[[float], float]] = {
        ("gpu_up", "", ""): lambda _at: 1.0,
        ("gpu_info", "name", models[0]): lambda at: 1.0 if at < 24 * HOUR or models[0] == models[1] else math.nan,
        ("gpu_info", "name", models[1]): lambda at: 1.0 if at >= 24 * HOUR or models[0] == models[1] else math.nan,
        ("gpu_processes", "type", "compute"): lambda _at: 1.0,
        # The driver was loaded anew at hour 6, the exporter started anew at hour 4.
        ("gpu_energy_joules_total", "", ""): lambda at: watts * (at - (6 * HOUR if at >= 6 * HOUR else -1e5)),
        ("gpu_busy_seconds_total", "", ""): lambda at: busy * (at - (4 * HOUR if at >= 4 * HOUR else 0)),
        ("gpu_throttle_seconds_total", "reason", "sw_power_cap"): lambda at: 0.1 * (at % (4 * HOUR)),
    }
    return {
        selector(name, [*labels.items(), *([(label, value)] if label else [])]): list(_scraped(column, begins, ends))
        for (name, label, value), column in columns.items()
    }


def _scraped(column: Callable[[float], float], begins: float, ends: float) -> Iterator[float]:
    for step in range(int(NOW / STEP_SECONDS) + 1):
        at = float(step * STEP_SECONDS)
        yield column(at) if begins <= at < ends and not 12 * HOUR <= at < 13 * HOUR else math.nan


def value(day: Answers, series: str, **labels: str) -> float:
    """The one value of these series with these labels."""
    (found,) = [sample.value for sample in day.samples[series, NOW] if labels.items() <= sample.labels.items()]
    return found


def about(hours: float) -> object:
    """So many hours, in hours, within what the edges of a gap and of a GPU's life may add or take."""
    return pytest.approx(hours, abs=0.15)


def test_energy_is_counted_over_a_gap_and_a_reset_of_the_counter(day: Answers) -> None:
    hours_of_old = 20 - (NOW / HOUR - 24)
    assert value(day, ENERGY, uuid="old") == pytest.approx(100 * hours_of_old * HOUR, rel=0.01)
    assert value(day, ENERGY, uuid="new") == pytest.approx(200 * (NOW - 20 * HOUR), rel=0.01)
    assert value(day, ENERGY, uuid="young") == pytest.approx(50 * (NOW - 22.5 * HOUR), rel=0.02)


def test_throttled_time_is_counted_over_restarts_of_the_exporter(day: Answers) -> None:
    hours_of_old = 20 - (NOW / HOUR - 24)
    assert value(day, THROTTLED, uuid="old") == pytest.approx(0.1 * hours_of_old * HOUR, rel=0.01)


def test_the_busy_share_of_a_day_is_that_of_the_time_seen(day: Answers) -> None:
    assert value(day, BUSY, uuid="old") == pytest.approx(0.5, rel=0.01)
    assert value(day, BUSY, uuid="new") == pytest.approx(0.25, rel=0.01)
    assert value(day, BUSY, uuid="young") == pytest.approx(0.1, rel=0.01)


def test_time_that_nobody_saw_has_no_class(day: Answers) -> None:
    assert value(day, LOST, uuid="old", **{"class": "unattributed"}) / HOUR == about(18)


@pytest.mark.parametrize(("series", "unit_hours"), [(LOST, HOUR), (HOURS_LOST, 1.0)])
def test_the_time_of_a_gpu_names_only_the_classes_that_it_was_in(day: Answers, series: str, unit_hours: float) -> None:
    of_old = [sample for sample in day.samples[series, NOW] if sample.labels["uuid"] == "old"]
    assert [(sample.labels["class"], sample.value / unit_hours) for sample in of_old] == [("unattributed", about(18))]


def test_a_class_that_cost_a_model_nothing_is_told_as_nothing(day: Answers) -> None:
    assert value(day, MODEL_LOST, name="X100", **{"class": "thermal"}) == 0


def test_a_model_keeps_the_hours_of_a_gpu_that_was_taken_out(day: Answers) -> None:
    assert value(day, MODEL_LOST, name="X100", **{"class": "unattributed"}) == about(23)


def test_a_model_and_a_workload_are_as_busy_as_their_gpus_by_the_time_that_each_was_seen(day: Answers) -> None:
    busy = (18 * 0.5 + 5 * 0.25) / 23
    assert value(day, MODEL_BUSY, name="X100") == pytest.approx(busy, rel=0.01)
    (of_all_without_a_workload,) = [s.value for s in day.samples[WORKLOAD_BUSY, NOW] if "workload" not in s.labels]
    assert of_all_without_a_workload == pytest.approx(busy, rel=0.01)
    assert value(day, WORKLOAD_BUSY, workload="serving") == pytest.approx(0.1, rel=0.01)


def test_a_model_that_a_new_driver_calls_otherwise_is_counted_once(day: Answers) -> None:
    models = [s for s in day.samples[MODEL_LOST, NOW] if "Y100" in s.labels["name"] and s.value]
    assert len(models) == 1
    assert models[0].value == about(2.5)


def test_a_workload_uses_what_its_gpus_use(day: Answers) -> None:
    (energy,) = [s.value for s in day.samples[WORKLOAD_ENERGY, NOW] if "workload" not in s.labels]
    assert energy == pytest.approx(value(day, ENERGY, uuid="old") + value(day, ENERGY, uuid="new"))
