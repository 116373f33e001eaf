"""A job's own clock: slower than its best hour, and not an evaluation, a checkpoint, its first minutes or its last."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from tests.conftest import RequiresTool
from tests.rules.handwritten import Played, Series, host, merged, play
from tests.rules.job_fleets import MINUTES, Gpu, Values, between, fleet, healthy, lasting, pod, since, slurm, steps
from tests.rules.rulefile import group_alone

from gpu_triage.cli.fleet.job_pace import WAITED_FOR

ALERT: Final = "GpuJobSlow"
FELL_AT: Final = 90
SHOWN_AT: Final = 115
END: Final = 140
BEST: Final = "owner_of:gpu_job_work:best1h"
NEVER: Final = range(0)


class Case(NamedTuple):
    """What a job does, and the minutes at which the alert may begin."""

    series: Series
    begins: range = NEVER


def job(a_minute: Sequence[float] | float, bottleneck: str | Sequence[str] = "compute") -> Series:
    """Four hosts of two GPUs; every rank counts the same steps."""
    gpus = ([replace(each, bottleneck=bottleneck) for each in healthy(2, slurm(), n)] for n in range(4))
    return merged(fleet(*gpus), *(steps("abcd"[n // 2], a_minute, "4711", str(n)) for n in range(8)))


def maintained(instance: str) -> Series:
    return host("instance:gpu_maintenance:until", [1e6] * MINUTES, instance)


def working(
    *computing: Values,
    spinning: Values = 0.05,
    pod_name: str = "train-{}",
    moving: Values | None = None,
    bottleneck: str = "compute",
) -> Series:
    """Two hosts of two GPUs that write no steps: shares of the time in which each computes, and all spin at most.

    What each moves is in proportion to the first share, if `moving` does not say otherwise.
    """

    def doing(share: Values, host: int) -> Gpu:
        both = [
            (computes, min(spins, 1 - computes))
            for computes, spins in zip(lasting(share), lasting(spinning), strict=True)
        ]
        return Gpu(
            busy=[sum(each) for each in both],
            sm_active=[0.8 * computes + 0.18 * spins for computes, spins in both],
            dram_active=[0.5 * each for each in lasting(share if moving is None else moving)],
            owner=pod(pod_name.format(host)),
            bottleneck=bottleneck,
        )

    return fleet([doing(each, 2) for each in computing[:2]], [doing(each, 3) for each in computing[2:]])


SOON: Final = range(FELL_AT + 5, FELL_AT + 9)
WAITS: Final = "all wait for one GPU"
FALLS: Final = since(FELL_AT, 0.7, 0.95)
RESTED: Final = [0.2 if 60 <= at < 64 else each for at, each in enumerate(lasting(FALLS))]
LATER: Final = range(FELL_AT + 5, FELL_AT + 25)
"""A job that goes on from a checkpoint has a quarter of an hour to itself."""
CASES: Final[Mapping[str, Case]] = {
    "at 0.73 of its best hour": Case(
        job(since(FELL_AT, 88, 120), ["compute"] * FELL_AT + ["storage"] * (MINUTES - FELL_AT)), SOON
    ),
    "at 0.85": Case(job(since(FELL_AT, 102, 120)), SOON),
    "on hosts in maintenance alone": Case(merged(job(since(FELL_AT, 102, 120)), *map(maintained, "abcd"))),
    "on some hosts in maintenance": Case(merged(job(since(FELL_AT, 102, 120)), *map(maintained, "abc")), SOON),
    "at 0.92": Case(job(since(FELL_AT, 110.4, 120))),
    "at 0.73 for two minutes": Case(job(between(FELL_AT, FELL_AT + 2, 88, 120))),
    "a pod's, at a half": Case(
        merged(fleet([Gpu(owner=pod("train-0"))]), steps("a", since(FELL_AT, 60, 120), "ml_train-0")), SOON
    ),
    "a user's, at a half": Case(merged(steps("a", since(FELL_AT, 60, 120), "bob")), SOON),
    "an evaluation of 20 minutes": Case(job(between(FELL_AT, FELL_AT + 20, 0, 120))),
    "an evaluation of six minutes": Case(job(between(FELL_AT, FELL_AT + 6, 0, 120))),
    "a checkpoint of two minutes every quarter of an hour": Case(
        job([120.0 * (at < FELL_AT or (at - FELL_AT) % 15 > 1) for at in range(MINUTES)])
    ),
    "ends": Case(job([*lasting(120)[:FELL_AT], *[float("nan")] * (MINUTES - FELL_AT)])),
    "steps in its first hour, then fewer": Case(job([*[0.0] * 70, *[120.0] * 25, *[60.0] * (MINUTES - 95)])),
    "slower since it began": Case(job(60)),
    WAITS: Case(working(FALLS, 0.95, FALLS, FALLS, spinning=0.3, moving=FALLS), SOON),
    "all wait alike for what they share": Case(working(*[FALLS] * 4, bottleneck="storage"), SOON),
    "all wait alike for each other": Case(working(*[FALLS] * 4, spinning=0.3), SOON),
    "replicas with less load": Case(working(*[FALLS] * 4)),
    "a host waits, and the others go on": Case(working(0.95, 0.95, FALLS, FALLS)),
    "replicas of unlike load": Case(working(0.95, FALLS, FALLS, FALLS)),
    "pods of a StatefulSet, one of which rested while the others worked": Case(
        working(RESTED, *[FALLS] * 3, bottleneck="storage")
    ),
    "one that saved": Case(working(*[RESTED] * 4, bottleneck="storage"), SOON),
    "pods of a Deployment": Case(working(*[FALLS] * 4, pod_name="llm-7d9f8b6c5d-bcdf{}")),
    "stages of which scrapes of a host are lost": Case(
        {
            key: [
                float("nan") if 'instance="b"' in key and at in (100, 105, 110) else each
                for at, each in enumerate(values)
            ]
            for key, values in merged(working(0.95, 0.7, 0.7, 0.7, spinning=0.3)).items()
        }
    ),
    # Goes on from a checkpoint, which is 200 steps back, at a half of its pace.
    "goes on slower": Case(job([*[120.0] * FELL_AT, -200.0, *[60.0] * (MINUTES - FELL_AT - 1)]), LATER),
    "goes on at its pace": Case(job([*[120.0] * FELL_AT, -200.0, *[120.0] * (MINUTES - FELL_AT - 1)])),
    # Begins at 0 with twice as much in a step.
    "another run": Case(job([*[120.0] * FELL_AT, -120.0 * FELL_AT, *[60.0] * (MINUTES - FELL_AT - 1)])),
}


@pytest.fixture(scope="module")
def played(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    series = {name: case.series for name, case in CASES.items()}
    directory = tmp_path_factory.mktemp("pace")
    rules = group_alone(ALERT, directory)
    return play(
        requires_tool("promtool"),
        directory,
        rules,
        series,
        minutes=END,
        shown={ALERT: SHOWN_AT},
        recorded=f"{WAITED_FOR}|{BEST}",
    )


@pytest.mark.parametrize("name", CASES)
def test_a_job_slower_than_its_best_hour(name: str, played: Mapping[str, Played]) -> None:
    minutes = played[name].minutes(ALERT)
    begins = CASES[name].begins
    assert minutes[:1] == [first for first in minutes[:1] if first in begins], minutes
    assert bool(minutes) is bool(begins)
    assert (WAITED_FOR in played[name].firing) is (name == WAITS)


def test_without_steps_it_is_known_by_what_its_gpus_do(played: Mapping[str, Played]) -> None:
    (alert,) = played["all wait alike for what they share"].shown[ALERT]
    assert re.match(
        r"ml/train runs at 7[2-5]% of its best hour, losing 1\.\d GPUs, since", alert.annotations["summary"]
    )


def test_what_is_known_of_a_job_ends_half_an_hour_after_it(played: Mapping[str, Played]) -> None:
    assert FELL_AT + 30 <= played["ends"].minutes(BEST)[-1] <= FELL_AT + 36
    assert played["at 0.92"].minutes(BEST)[-1] == END - 1


def test_its_text_has_the_class_that_took_the_time(played: Mapping[str, Played]) -> None:
    (alert,) = played["at 0.73 of its best hour"].shown[ALERT]
    assert (
        alert.annotations["summary"] == "Slurm job 4711 runs at 73% of its best hour, losing 2.1 GPUs, since 01:35 UTC"
    )
    assert "Its GPUs spent 100% in class storage." in alert.annotations["description"]
