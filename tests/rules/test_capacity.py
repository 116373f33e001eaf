"""Day windows of the capacity rules against what a day held, on counters written by hand.

GPU old works half of the time until hour 20, when it is taken out; nobody scrapes from hour 12 to 13. GPU new works a
quarter of the time in its place. GPU young comes at hour 22.5, and its driver is renewed at hour 24. The exporter is
restarted at hours 4, 9.2, 18 and 24.5, and was down for seven minutes before hour 9.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.promtool import Answers, Run, ask, selector
from tests.rules.rulefile import read_rules, rule_files
from tests.rules.vocabulary import CLASSES

HOUR = 3600.0
STEP_SECONDS = 60
"""Rules that count minutes are evaluated once a minute."""
NOW = 25 * HOUR + 2400
RESTARTS = (4 * HOUR, 9.2 * HOUR, 18 * HOUR, 24.5 * HOUR)
DOWN_SECONDS = 420.0
"""How long the exporter was down at the second restart."""

SHARES = "instance_gpu_name:gpu_busy:last5m[1d]"
BUSY = f"sum without (name) (sum_over_time({SHARES})) / sum without (name) (count_over_time({SHARES}))"
ENERGY = "increase(instance_gpu:gpu_energy_joules:last5m[1d])"
THROTTLED = "instance_gpu_reason:gpu_throttle_seconds:increase1d"
LOST = "instance_gpu_class:gpu_bottleneck_seconds:increase1d"
HOST_LOST = "instance_class:gpu_hours_lost:sum1d"
HELD_IDLE = "300 * sum_over_time(instance_gpu:gpu_allocated_idle:active[1d])"
MEMORY = "max_over_time(instance_gpu:gpu_memory_used:max5m[1d])"
MODEL_BUSY = "name:gpu_busy:avg1d"
MODEL_LOST = "name:gpu_hours_lost:sum1d"
WORKLOAD_BUSY = "workload:gpu_busy:avg1d"
WORKLOAD_ENERGY = "workload:gpu_energy_joules:sum1d"
FIVE_MINUTES = 300.0
"""The interval of the groups that copy counters and read the copies; promtool has one interval for all groups."""
ALL = (
    *(BUSY, ENERGY, THROTTLED, LOST, HOST_LOST, HELD_IDLE, MEMORY),
    *(MODEL_BUSY, MODEL_LOST, WORKLOAD_BUSY, WORKLOAD_ENERGY),
)

STALL = (10 * HOUR, 14 * HOUR + 1800)
"""From when to when GPU old waits for storage; it is idle in the hour after that."""
SHORT_STALL = (17.75 * HOUR, 18.25 * HOUR)
"""GPU old is hot for a quarter of an hour before and after a restart of the exporter."""


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory, requires_tool: RequiresTool) -> Answers:
    """Every capacity series after 25 hours and 40 minutes, by rules that are evaluated as seldom as in a server."""
    return a_day(requires_tool("promtool"), tmp_path_factory.mktemp("capacity"), FIVE_MINUTES, ALL)


def a_day(promtool: Path, directory: Path, evaluation_seconds: float, questions: tuple[str, ...]) -> Answers:
    """Series after 25 hours and 40 minutes."""
    rules = tuple(path for path in rule_files() if path.name == "recording.yml")
    groups = tuple(dict.fromkeys(rule.group for rule in read_rules(rules)))
    series = {
        **gpu("old", 0, 20 * HOUR, watts=100, busy=0.5),
        **gpu("new", 20 * HOUR, math.inf, watts=200, busy=0.25),
        **gpu("young", 22.5 * HOUR, math.inf, watts=50, busy=0.02, workload="serving", models=("Y100", "NVIDIA Y100")),
        **classes("old", 0, 20 * HOUR, {"storage": STALL, "thermal": SHORT_STALL, "idle": (STALL[1], STALL[1] + HOUR)}),
        **classes("new", 20 * HOUR, math.inf, {"sick": (25 * HOUR, math.inf)}),
        **classes("young", 22.5 * HOUR, math.inf, {"unattributed": (22.5 * HOUR, math.inf)}, workload="serving"),
    }
    asked = tuple((name, NOW) for name in questions)
    run = Run(rules, groups, STEP_SECONDS, series, asked, evaluation_seconds=evaluation_seconds)
    return ask(promtool, run, directory)


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
    columns: dict[tuple[str, str, str], Callable[[float], float]] = {
        ("gpu_up", "", ""): lambda _at: 1.0,
        ("gpu_info", "name", models[0]): lambda at: 1.0 if at < 24 * HOUR or models[0] == models[1] else math.nan,
        ("gpu_info", "name", models[1]): lambda at: 1.0 if at >= 24 * HOUR or models[0] == models[1] else math.nan,
        ("gpu_processes", "type", "compute"): lambda _at: 1.0,
        ("gpu_memory_used_bytes", "", ""): lambda at: 7e10 if 15 * HOUR <= at < 15.1 * HOUR else 1e10,
        # The driver was loaded anew at hour 6.
        ("gpu_energy_joules_total", "", ""): lambda at: watts * (at - (6 * HOUR if at >= 6 * HOUR else -1e5)),
        ("gpu_busy_seconds_total", "", ""): lambda at: busy * _since_restart(at),
        ("gpu_throttle_seconds_total", "reason", "sw_power_cap"): lambda at: 0.1 * _since_restart(at),
        ("gpu_throttle_seconds_total", "reason", "hw_thermal"): lambda _at: 0.0,
    }
    return _series(uuid, workload, columns, begins, ends)


def classes(
    uuid: str, begins: float, ends: float, met: dict[str, tuple[float, float]], *, workload: str = ""
) -> dict[str, list[float]]:
    """The seconds of every class: those that are `met` from when to when, and compute for the rest."""

    def spent(name: str, at: float) -> float:
        begun = max(begins, at - _since_restart(at))
        other = sum(max(0.0, min(at, until) - max(begun, since)) for since, until in met.values())
        if name == "compute":
            return at - begun - other
        since, until = met.get(name, (0.0, 0.0))
        return max(0.0, min(at, until) - max(begun, since))

    columns: dict[tuple[str, str, str], Callable[[float], float]] = {
        ("gpu_bottleneck_seconds_total", "class", name): partial(spent, name) for name in CLASSES
    }
    return _series(uuid, workload, columns, begins, ends)


def _series(
    uuid: str,
    workload: str,
    columns: dict[tuple[str, str, str], Callable[[float], float]],
    begins: float,
    ends: float,
) -> dict[str, list[float]]:
    target = {"instance": f"host-{workload}", "job": "gpu-triage", **({"workload": workload} if workload else {})}
    labels = {**target, "gpu": "0", "uuid": uuid}
    return {
        selector(name, [*labels.items(), *([(label, value)] if label else [])]): list(_scraped(column, begins, ends))
        for (name, label, value), column in columns.items()
    }


def _since_restart(at: float) -> float:
    """For how long the exporter has run."""
    return at - max((each for each in RESTARTS if each <= at), default=0.0)


def _scraped(column: Callable[[float], float], begins: float, ends: float) -> Iterator[float]:
    for step in range(int(NOW / STEP_SECONDS) + 1):
        at = float(step * STEP_SECONDS)
        seen = begins <= at < ends and not 12 * HOUR <= at < 13 * HOUR
        yield column(at) if seen and not RESTARTS[1] - DOWN_SECONDS < at < RESTARTS[1] else math.nan


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
    assert value(day, ENERGY, uuid="young") == pytest.approx(50 * (NOW - 22.5 * HOUR), rel=0.03)


def test_throttled_time_is_counted_over_restarts_of_the_exporter(day: Answers) -> None:
    hours_of_old = 20 - (NOW / HOUR - 24)
    assert value(day, THROTTLED, uuid="old") == pytest.approx(0.1 * hours_of_old * HOUR, rel=0.01)


def test_a_reason_that_never_held_a_gpu_back_has_no_series(day: Answers) -> None:
    assert {sample.labels["reason"] for sample in day.samples[THROTTLED, NOW]} == {"sw_power_cap"}


def test_the_busy_share_of_a_day_is_that_of_the_time_seen(day: Answers) -> None:
    assert value(day, BUSY, uuid="old") == pytest.approx(0.5, rel=0.01)
    assert value(day, BUSY, uuid="new") == pytest.approx(0.25, rel=0.01)
    assert value(day, BUSY, uuid="young") == pytest.approx(0.02, rel=0.02)


def test_the_most_memory_of_a_day_is_that_of_its_worst_minute(day: Answers) -> None:
    assert value(day, MEMORY, uuid="old") == 7e10
    assert value(day, MEMORY, uuid="new") == 1e10


def test_a_gpu_that_a_job_holds_and_hardly_uses_is_idle_for_all_of_the_time_seen(day: Answers) -> None:
    assert value(day, HELD_IDLE, uuid="old") == 0
    assert value(day, HELD_IDLE, uuid="young") / HOUR == about((NOW - 22.5 * HOUR) / HOUR)


def test_time_in_a_class_counts_while_nobody_scrapes_for_the_exporter_goes_on(day: Answers) -> None:
    assert value(day, LOST, uuid="old", **{"class": "storage"}) / HOUR == pytest.approx(4.5, abs=0.03)


def test_time_in_a_class_counts_before_and_after_a_restart_of_the_exporter(day: Answers) -> None:
    assert value(day, LOST, uuid="old", **{"class": "thermal"}) / HOUR == pytest.approx(0.5, abs=0.02)


def test_a_class_that_still_lasts_is_late_by_one_copy(day: Answers) -> None:
    sick = value(day, LOST, uuid="new", **{"class": "sick"}) / HOUR
    assert (NOW - 25 * HOUR) / HOUR - 0.18 < sick <= (NOW - 25 * HOUR) / HOUR


def test_the_time_of_a_gpu_names_only_the_classes_that_it_lost_time_to(day: Answers) -> None:
    assert {(sample.labels["uuid"], sample.labels["class"]) for sample in day.samples[LOST, NOW]} == {
        ("old", "storage"),
        ("old", "thermal"),
        ("new", "sick"),
        ("young", "unattributed"),
    }


def test_a_host_loses_what_its_gpus_lose(day: Answers) -> None:
    assert value(day, HOST_LOST, instance="host-", **{"class": "storage"}) == about(4.5)
    assert {s.labels["class"] for s in day.samples[HOST_LOST, NOW] if s.labels["instance"] == "host-serving"} == {
        "unattributed"
    }


def test_a_class_that_cost_a_model_nothing_has_no_series(day: Answers) -> None:
    told = {s.labels["class"]: s.value for s in day.samples[MODEL_LOST, NOW] if s.labels["name"] == "X100"}
    assert {name for name, hours in told.items() if hours} == {"storage", "thermal", "sick"}
    assert set(told) <= set(CLASSES) - {"compute", "idle"}


def test_a_model_keeps_the_hours_of_a_gpu_that_was_taken_out(day: Answers) -> None:
    assert value(day, MODEL_LOST, name="X100", **{"class": "storage"}) == about(4.5)


def test_a_model_and_a_workload_are_as_busy_as_their_gpus_by_the_time_that_each_was_seen(day: Answers) -> None:
    of_old, of_new = 20 - (NOW / HOUR - 24) - 1, NOW / HOUR - 20
    busy = (of_old * 0.5 + of_new * 0.25) / (of_old + of_new)
    assert value(day, MODEL_BUSY, name="X100") == pytest.approx(busy, rel=0.01)
    (of_all_without_a_workload,) = [s.value for s in day.samples[WORKLOAD_BUSY, NOW] if "workload" not in s.labels]
    assert of_all_without_a_workload == pytest.approx(busy, rel=0.01)
    assert value(day, WORKLOAD_BUSY, workload="serving") == pytest.approx(0.02, rel=0.02)


def test_a_model_that_a_new_driver_calls_otherwise_is_counted_once(day: Answers) -> None:
    models = [s for s in day.samples[MODEL_LOST, NOW] if "Y100" in s.labels["name"] and s.value]
    assert len(models) == 1
    assert models[0].value == about((NOW - 22.5 * HOUR) / HOUR)


def test_a_workload_uses_what_its_gpus_use(day: Answers) -> None:
    (energy,) = [s.value for s in day.samples[WORKLOAD_ENERGY, NOW] if "workload" not in s.labels]
    assert energy == pytest.approx(value(day, ENERGY, uuid="old") + value(day, ENERGY, uuid="new"))
