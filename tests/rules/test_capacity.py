"""Day windows of the capacity rules against what a day held, on counters written by hand.

GPU old works half of the time until hour 20, when it is taken out; nobody scrapes from hour 12 to 13. GPU new works a
quarter of the time in its place. GPU young comes at hour 22.5, and its driver is renewed at hour 24. The exporter is
restarted at hours 4, 9.2, 18 and 24.5, and was down for seven minutes before hour 9.2. GPU dead dies at hour 0.5,
and all that was said of it but that it does not answer ends then.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import Answers, Run, ask, selector
from tests.promql.vocabulary import CLASSES
from tests.rules.rulefile import groups_of, rule_files
from tests.rules.schedulers import exposed

HOUR = 3600.0
STEP_SECONDS = 60
"""Rules that count minutes are evaluated once a minute."""
NOW = 25 * HOUR + 2400
RESTARTS = (4 * HOUR, 9.2 * HOUR, 18 * HOUR, 24.5 * HOUR)
DOWN_SECONDS = 420.0
"""How long the exporter was down at the second restart."""
OBSERVED = 0.8
"""Share of the time in which what a GPU does is observed."""

AVAILABLE = "instance_gpu_name:gpu_available:last5m"
SHARES = "instance_gpu_name:gpu_busy:last5m[1d]"
BUSY = f"sum without (name) (sum_over_time({SHARES})) / sum without (name) (count_over_time({SHARES}))"
ENERGY = "increase(instance_gpu:gpu_energy_joules:last5m[1d])"
THROTTLED = "instance_gpu_reason:gpu_throttle_seconds:increase1d"
LOST = "instance_gpu_class:gpu_bottleneck_seconds:increase1d"
HOST_LOST = "sum by (instance, class) (instance_name_class:gpu_held_back_hours:sum1d)"
HELD_IDLE = "300 * sum_over_time(instance_gpu:gpu_allocated_idle:active[1d])"
MEMORY = "max_over_time(instance_gpu:gpu_memory_used:max5m[1d])"
MODEL_LOST = "sum by (name, class) (instance_name_class:gpu_held_back_hours:sum1d)"
USED = "instance_name:gpu_used_hours:sum1d"
OBSERVED_HOURS, UNAVAILABLE = "instance_name:gpu_observed_hours:sum1d", "instance_name:gpu_unavailable_hours:sum1d"
OUTAGES = "instance_name:gpu_outages:sum1d"
KNOWN = "instance_name:gpu_activity_known_hours:sum1d"
PLANNED = "instance:gpu_planned_hours:sum1d"
IDLE = "sum by (workload) (instance_owner:gpu_allocated_idle_hours:sum1d)"
WORKLOAD_ENERGY = "sum by (workload) (instance:gpu_energy_joules:sum1d)"
FIVE_MINUTES = 300.0
"""The interval of the groups that copy counters and read the copies; promtool has one interval for all groups."""
ALL = (
    *(BUSY, ENERGY, THROTTLED, LOST, HOST_LOST, HELD_IDLE, MEMORY),
    *(MODEL_LOST, USED, KNOWN, OBSERVED_HOURS, UNAVAILABLE, OUTAGES, PLANNED, IDLE, WORKLOAD_ENERGY),
    *("instance_owner:gpu_allocated_hours:sum1d", "instance_owner:gpu_used_hours:sum1d", AVAILABLE),
    *("cluster:gpu_pending_pods:gpus", "cluster:gpu_pending_pod_hours:sum1d"),
    *("cluster:gpu_pending_jobs:count", "cluster:gpu_pending_job_hours:sum1d"),
)

DEATH = 0.5 * HOUR
"""When GPU dead dies: longer ago than every window, so that only what is recorded remembers its model."""
STALL = (10 * HOUR, 14 * HOUR + 1800)
"""From when to when GPU old waits for storage; it is idle in the hour after that."""
SHORT_STALL = (17.75 * HOUR, 18.25 * HOUR)
"""GPU old is hot for a quarter of an hour before and after a restart of the exporter."""


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory, requires_tool: RequiresTool) -> Answers:
    """Every capacity series after 25 hours and 40 minutes, by rules that are evaluated as seldom as in a server."""
    rules = tuple(path for path in rule_files() if path.name == "recording.yml")
    series = {
        **gpu("old", 0, 20 * HOUR, watts=100, busy=0.5),
        **gpu("new", 20 * HOUR, math.inf, watts=200, busy=0.25),
        **gpu("young", 22.5 * HOUR, math.inf, watts=50, busy=0.02, workload="serving", models=("Y100", "NVIDIA Y100")),
        **gpu("split", 0, math.inf, watts=0, busy=math.nan),  # as in MIG mode without GPM
        **gpu("dead", 0, math.inf, watts=10, busy=0.5, workload="lab", models=("D100", "D100"), dies=DEATH),
        **classes("dead", 0, math.inf, {"sick": (DEATH, math.inf)}, workload="lab"),
        **classes("old", 0, 20 * HOUR, {"storage": STALL, "thermal": SHORT_STALL, "idle": (STALL[1], STALL[1] + HOUR)}),
        **classes("new", 20 * HOUR, math.inf, {"sick": (25 * HOUR, math.inf)}),
        **classes("young", 22.5 * HOUR, math.inf, {"unattributed": (22.5 * HOUR, math.inf)}, workload="serving"),
        **maintenance("host-lab", 10 * HOUR, 15 * HOUR),
        **maintenance("host-", 14 * HOUR, 16 * HOUR),
        **{selector(*key): [value] * (int(NOW / STEP_SECONDS) + 1) for key, value in exposed().items()},
    }
    asked = tuple((name, NOW) for name in ALL)
    run = Run(rules, groups_of(rules), STEP_SECONDS, series, asked, evaluation_seconds=FIVE_MINUTES)
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
    dies: float = math.inf,
) -> dict[str, list[float]]:
    """What is scraped of a GPU that a process holds, from `begins` until `ends`; its models until hour 24, and then."""
    columns: dict[tuple[str, str, str], Callable[[float], float]] = {
        ("gpu_info", "name", models[0]): lambda at: 1.0 if at < 24 * HOUR or models[0] == models[1] else math.nan,
        ("gpu_info", "name", models[1]): lambda at: 1.0 if at >= 24 * HOUR or models[0] == models[1] else math.nan,
        ("gpu_processes", "type", "compute"): lambda _at: 1.0,
        ("gpu_memory_used_bytes", "", ""): lambda at: 7e10 if 15 * HOUR <= at < 15.1 * HOUR else 1e10,
        # The driver was loaded anew at hour 6.
        ("gpu_energy_joules_total", "", ""): lambda at: watts * (at - (6 * HOUR if at >= 6 * HOUR else -1e5)),
        ("gpu_busy_seconds_total", "", ""): lambda at: busy * OBSERVED * _since_restart(at),
        ("gpu_observed_seconds_total", "", ""): lambda at: OBSERVED * _since_restart(at),
        ("gpu_throttle_seconds_total", "reason", "sw_power_cap"): lambda at: 0.1 * _since_restart(at),
        ("gpu_throttle_seconds_total", "reason", "hw_thermal"): lambda _at: 0.0,
    }
    up = {("gpu_up", "", ""): lambda at: float(at < dies)}
    return _series(uuid, workload, columns, begins, min(ends, dies)) | _series(uuid, workload, up, begins, ends)


def maintenance(instance: str, begins: float, ends: float) -> dict[str, list[float]]:
    """What the rules about it record."""
    times = (float(step * STEP_SECONDS) for step in range(int(NOW / STEP_SECONDS) + 1))
    key = selector("instance:gpu_maintenance:until", [("instance", instance), ("job", "gpu-triage")])
    return {key: [ends if begins <= at < ends else math.nan for at in times]}


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
    uuid: str, workload: str, columns: dict[tuple[str, str, str], Callable[[float], float]], begins: float, ends: float
) -> dict[str, list[float]]:
    target = {"instance": f"host-{workload}", "job": "gpu-triage", **({"workload": workload} if workload else {})}
    labels = {**target, "gpu": "0", "uuid": uuid}
    return {
        selector(name, [*labels.items(), *([(label, value)] if label else [])]): list(_scraped(column, begins, ends))
        for (name, label, value), column in columns.items()
    }


def _since_restart(at: float) -> float:
    return at - max((each for each in RESTARTS if each <= at), default=0.0)


def _scraped(column: Callable[[float], float], begins: float, ends: float) -> Iterator[float]:
    for step in range(int(NOW / STEP_SECONDS) + 1):
        at = float(step * STEP_SECONDS)
        seen = begins <= at < ends and not 12 * HOUR <= at < 13 * HOUR
        yield column(at) if seen and not RESTARTS[1] - DOWN_SECONDS < at < RESTARTS[1] else math.nan


def values(day: Answers, series: str, **labels: str) -> list[float]:
    """Of these series with these labels; "" for a label that must not be there."""
    found = day.samples[series, NOW]
    return [s.value for s in found if all(s.labels.get(name, "") == each for name, each in labels.items())]


OLD_HOURS = 20 - (NOW / HOUR - 24)
"""Hours of GPU old within the day; in one of them nobody scraped."""
NEW_HOURS, YOUNG_HOURS = (NOW / HOUR - begin for begin in (20, 22.5))
X100_HOURS = OLD_HOURS - 1 + NEW_HOURS
BUSY_SHARE = ((OLD_HOURS - 1) * 0.5 + NEW_HOURS * 0.25) / X100_HOURS
TOTAL_JOULES = (100 * OLD_HOURS + 200 * NEW_HOURS) * HOUR

EXPECTED: dict[str, tuple[str, dict[str, str], float, float]] = {
    "energy over a gap and a reset of the counter": (ENERGY, {"uuid": "old"}, 100 * OLD_HOURS * HOUR, 0.01),
    "energy of a GPU that was put in": (ENERGY, {"uuid": "new"}, 200 * NEW_HOURS * HOUR, 0.01),
    "energy of hours": (ENERGY, {"uuid": "young"}, 50 * YOUNG_HOURS * HOUR, 0.03),
    "throttled time over restarts": (THROTTLED, {"uuid": "old"}, 0.1 * OLD_HOURS * HOUR, 0.01),
    "share of the time seen": (BUSY, {"uuid": "old"}, 0.5, 0.01),
    "share of hours": (BUSY, {"uuid": "new"}, 0.25, 0.01),
    "share of hardly anything": (BUSY, {"uuid": "young"}, 0.02, 0.02),
    "most memory of a minute": (MEMORY, {"uuid": "old"}, 7e10, 0.0),
    "most memory": (MEMORY, {"uuid": "new"}, 1e10, 0.0),
    "not idle": (HELD_IDLE, {"uuid": "old"}, 0, 0.0),
    "held and hardly used": (HELD_IDLE, {"uuid": "young"}, YOUNG_HOURS * HOUR, 0.03),
    "in a class while nobody scraped": (LOST, {"uuid": "old", "class": "storage"}, 4.5 * HOUR, 0.01),
    "in a class around a restart": (LOST, {"uuid": "old", "class": "thermal"}, 0.5 * HOUR, 0.04),
    # A class that still lasts is late by one copy.
    "in a class that lasts": (LOST, {"uuid": "new", "class": "sick"}, NOW - 25 * HOUR - 300, 0.15),
    "of a host": (HOST_LOST, {"instance": "host-", "class": "storage"}, 4.5, 0.03),
    # Of a GPU that was taken out, too.
    "of a model": (MODEL_LOST, {"name": "X100", "class": "storage"}, 4.5, 0.03),
    "used by a model": (USED, {"name": "X100"}, BUSY_SHARE * X100_HOURS, 0.01),
    "used by a model that is dead": (USED, {"name": "D100"}, 0.0, 0.0),
    "observed of a model": (OBSERVED_HOURS, {"name": "X100"}, X100_HOURS + 23, 0.02),
    "observed of a dead GPU": (OBSERVED_HOURS, {"name": "D100"}, 23.0, 0.01),
    "known of a model, of which one GPU is split": (KNOWN, {"name": "X100"}, X100_HOURS, 0.02),
    "known of a dead GPU": (KNOWN, {"name": "D100"}, 23.0, 0.01),
    "unavailable": (UNAVAILABLE, {"name": "D100"}, 23.0, 0.01),
    "available": (UNAVAILABLE, {"name": "X100"}, 0.0, 0.0),
    # In one of the five, nobody scraped it.
    "unavailable or not observed in maintenance": (PLANNED, {"instance": "host-lab"}, 5.0, 0.02),
    "available in maintenance": (PLANNED, {"instance": "host-"}, 0.0, 0.0),
    "held back by its death": (MODEL_LOST, {"name": "D100", "class": "sick"}, 24.0, 0.01),
    "idle while allocated": (IDLE, {"workload": "serving"}, YOUNG_HOURS, 0.03),
    "energy without a workload": (WORKLOAD_ENERGY, {"workload": ""}, TOTAL_JOULES, 0.01),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_window_of_a_day_says_what_the_day_held(name: str, day: Answers) -> None:
    series, labels, expected, rel = EXPECTED[name]
    assert values(day, series, **labels) == [pytest.approx(expected, rel=rel)]


@pytest.mark.parametrize(
    ("now", "hours", "expected"),
    [
        ("pods:gpus", "pod_hours:sum1d", {"east": 4, "calm": 0}),
        ("jobs:count", "job_hours:sum1d", {"official": 10, "vpenso": 4, "apart": 0, "rivosinc": 5, "empty": 0}),
    ],
)
def test_a_queue_is_what_waits_for_the_scheduler(
    now: str, hours: str, expected: dict[str, float], day: Answers
) -> None:
    for name, factor in ((now, 1), (hours, 24)):
        found = {sample.labels["cluster"]: sample.value for sample in day.samples[f"cluster:gpu_pending_{name}", NOW]}
        assert found == pytest.approx({cluster: factor * value for cluster, value in expected.items()}, rel=0.01)


def test_a_maintenance_counts_to_its_end_after_days(requires_tool: RequiresTool, tmp_path: Path) -> None:
    rules = tuple(path for path in rule_files() if path.name == "recording.yml")
    host, begins, ends = [("instance", "host"), ("job", "gpu-triage")], 12 * HOUR, 84 * HOUR
    away = [begins <= FIVE_MINUTES * step < ends for step in range(4 * 288 + 1)]
    series = {
        selector(AVAILABLE, [*host, ("gpu", "0"), ("uuid", "a")]): [math.nan if each else 1 for each in away],
        selector("instance:gpu_maintenance:until", host): [ends if each else math.nan for each in away],
    }
    asked = tuple((PLANNED, day * 24 * HOUR) for day in range(1, 5))
    run = Run(rules, groups_of(rules), 300, series, asked, evaluation_seconds=FIVE_MINUTES)
    found = ask(requires_tool("promtool"), run, tmp_path).samples
    assert [each.value for key in asked for each in found[key]] == pytest.approx([12, 24, 24, 12], abs=0.1)


def test_what_cost_nothing_has_no_series(day: Answers) -> None:
    assert {sample.labels["reason"] for sample in day.samples[THROTTLED, NOW]} == {"sw_power_cap"}
    assert {(sample.labels["uuid"], sample.labels["class"]) for sample in day.samples[LOST, NOW]} == {
        *(("old", "storage"), ("old", "thermal"), ("new", "sick"), ("young", "unattributed"), ("dead", "sick"))
    }
    of_host = [s.labels["class"] for s in day.samples[HOST_LOST, NOW] if s.labels["instance"] == "host-serving"]
    assert of_host == ["unattributed"]
    of_model = {s.labels["class"]: s.value for s in day.samples[MODEL_LOST, NOW] if s.labels["name"] == "X100"}
    assert {name for name, hours in of_model.items() if hours} == {"storage", "thermal", "sick"}
    assert set(of_model) <= set(CLASSES) - {"compute", "idle"}


def test_the_last_minutes_of_an_exporter_count_for_the_models_of_its_gpus(day: Answers) -> None:
    assert {sample.labels.get("name") for sample in day.samples[USED, NOW]} == {"X100", "Y100", "NVIDIA Y100", "D100"}


def test_the_hours_are_the_same_by_class_model_host_and_owner(day: Answers) -> None:
    def total(name: str) -> float:
        return sum(sample.value for sample in day.samples[name, NOW])

    assert total(LOST) / 3600 == pytest.approx(total(MODEL_LOST)) == pytest.approx(total(HOST_LOST))
    assert total(MODEL_LOST) == pytest.approx(24 + 4.5 + 0.5 + YOUNG_HOURS + NOW / HOUR - 25, abs=0.4)
    assert total(USED) == pytest.approx(total("instance_owner:gpu_used_hours:sum1d"))
    assert total(USED) == pytest.approx(BUSY_SHARE * X100_HOURS + 0.02 * YOUNG_HOURS, rel=0.01)
    assert total("instance_owner:gpu_allocated_hours:sum1d") == pytest.approx(X100_HOURS + YOUNG_HOURS + 23, rel=0.02)


def test_a_model_that_a_new_driver_calls_otherwise_is_counted_once(day: Answers) -> None:
    models = [s.value for s in day.samples[MODEL_LOST, NOW] if "Y100" in s.labels["name"] and s.value]
    assert models == [pytest.approx(YOUNG_HOURS, abs=0.15)]
