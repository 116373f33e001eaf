"""For whom a job waits without its help: a slow GPU or host, and not pauses, replicas, or work of its own."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import Run, ask
from tests.rules.handwritten import Series, counter, gpu, merged
from tests.rules.rulefile import group_alone, groups_of

from gpu_triage.cli.fleet.job_pace import PACE, WAITED_FOR

pytestmark = pytest.mark.slow

ALERT: Final = "GpuJobSlow"
FELL_AT: Final = 60
END: Final = 90
MODEL: Final = "NVIDIA H100 80GB HBM3"
COMPUTES, SPINS = 0.8, 0.18
GPUS: Final = ("a0", "a1", "b0", "b1")
Values = Sequence[float]


class Gpu(NamedTuple):
    """What one GPU does in each minute: shares of the time."""

    computing: Values
    spinning: Values


def since(value: float, before: float, minute: int = FELL_AT) -> list[float]:
    return [before if at < minute else value for at in range(END)]


def pauses(lasts: int, every: int, value: float) -> list[float]:
    return [value if at >= 20 and at % every < lasts else 1.0 for at in range(END)]


ALWAYS: Final = Gpu([0.95] * END, [0.05] * END)
WAITS: Final = Gpu(since(0.7, 0.95), since(0.3, 0.05))
IDLES: Final = Gpu(since(0.7, 0.95), since(0.0, 0.05))
PAUSED: Final = pauses(2, 10, 0.0)
BESIDE: Final = Gpu([0.95 * each for each in PAUSED], [1 - 0.95 * each for each in PAUSED])


class Case(NamedTuple):
    gpus: Sequence[Gpu]
    named: frozenset[tuple[str, str]] = frozenset()  # host, UUID or "" for the host
    pace: float | None = None  # if a job is slow
    pod: str = "train-{}"
    lost: Sequence[int] = ()  # minutes without a scrape of the second host


CASES: Final[Mapping[str, Case]] = {
    "a GPU that never waits": Case([WAITS, ALWAYS, WAITS, WAITS], frozenset({("a", "GPU-a1")}), 0.74),
    "a host that does not feed its GPUs": Case([WAITS, WAITS, IDLES, IDLES], frozenset({("b", "")}), 0.74),
    "all alike": Case([IDLES, IDLES, IDLES, IDLES], pace=0.74),
    "a host without data, and the others go on": Case([ALWAYS, ALWAYS, IDLES, IDLES]),
    "replicas of unlike load": Case([ALWAYS, IDLES, IDLES, IDLES]),
    "pods of a Deployment": Case([IDLES, IDLES, IDLES, IDLES], pod="llm-7d9f8b6c5d-bcdf{}"),
    "two minutes of evaluation on rank 0 every ten": Case([ALWAYS, BESIDE, BESIDE, BESIDE]),
    "stages": Case([ALWAYS, *[Gpu([0.7] * END, [0.3] * END)] * 3]),
    "a scrape is lost": Case([ALWAYS, *[Gpu([0.7] * END, [0.3] * END)] * 3], lost=(70, 75, 80)),
}


def series_of(name: str, case: Case) -> Series:
    return merged(*(_gpu(name, case, place, each) for place, each in zip(GPUS, case.gpus, strict=True)))


def _gpu(name: str, case: Case, place: str, each: Gpu) -> Series:
    own = {"uuid": f"GPU-{place}", "instance": place[0], "gpu": place[1], "cluster": name}
    pod = case.pod.format("ab".index(place[0]) + 2)
    one = [1.0] * END
    active = [
        COMPUTES * computing + SPINS * spins for computing, spins in zip(each.computing, each.spinning, strict=True)
    ]
    kernels = [computing + spins for computing, spins in zip(each.computing, each.spinning, strict=True)]
    # The slow GPU moves the same bytes in a step as the others, which wait for it.
    steps = [0.95 if case.pace is None else min(at) for at in zip(*(it.computing for it in case.gpus), strict=True)]
    found = merged(
        gpu("gpu_info", one, name=MODEL, **own),
        gpu("gpu_allocated", one, workload_namespace="ml", workload_pod=pod, **own),
        gpu("gpu_busy_seconds_total", counter(60 * share for share in kernels), **own),
        gpu("gpu_observed_seconds_total", counter(60.0 for _ in one), **own),
        gpu("gpu_sm_active_ratio", active, **own),
        gpu("gpu_dram_active_ratio", [0.5 * it for it in (steps if case.pace else each.computing)], **own),
    )
    lost = case.lost if place[0] == "b" else ()
    return {key: [float("nan") if at in lost else value for at, value in enumerate(it)] for key, it in found.items()}


@pytest.fixture(scope="module")
def said(
    requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Mapping[str, list[Any]]]:
    """What was said of each case in any minute: `named`, `pace` at the end, and `firing`."""
    directory = tmp_path_factory.mktemp("waits")
    rules = group_alone(ALERT, directory)
    series = merged(*(series_of(name, case) for name, case in CASES.items()))
    firing = f'ALERTS{{alertname="{ALERT}",alertstate="firing"}}'
    asked = tuple((question, minute * 60.0) for question in (WAITED_FOR, firing) for minute in range(END))
    run = Run(rules, groups_of(rules), 60, series, (*asked, (PACE, (END - 1) * 60.0)))
    found: dict[str, dict[str, list[Any]]] = {name: {WAITED_FOR: [], firing: [], PACE: []} for name in CASES}
    for (question, at), samples in ask(requires_tool("promtool"), run, directory).samples.items():
        for each in samples:
            what = (each.labels["instance"], each.labels.get("uuid", "")) if question == WAITED_FOR else each.value
            found[each.labels["cluster"]][question].append(what if question != firing else at / 60)
    return {
        name: {"named": each[WAITED_FOR], "firing": each[firing], "pace": each[PACE]} for name, each in found.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_what_a_job_waits_for(name: str, said: Mapping[str, Mapping[str, list[Any]]]) -> None:
    case, told = CASES[name], said[name]
    assert set(told["named"]) == case.named
    assert bool(told["firing"]) is (case.pace is not None)
    if case.pace is not None:
        assert told["pace"] == [pytest.approx(case.pace, abs=0.03)]
        assert FELL_AT < min(told["firing"]) <= FELL_AT + 10
