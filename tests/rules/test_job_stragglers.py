"""GPUs, hosts and ranks that a job waits for, in fleets written by hand: at the thresholds, and just below."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import Run, ask
from tests.rules.handwritten import Played, Series, merged, play
from tests.rules.job_fleets import Gpu, fleet, healthy, lasting, pod, slower, slurm, steps
from tests.rules.rulefile import alert_files, groups_of, rule_files

pytestmark = pytest.mark.slow

ALERT: Final = "GpuStragglerAcrossHosts"
SHOWN_AT: Final = 50
MOST_RECORDED: Final = 5 * 32 + 20
"""Five of each GPU, and a few of the job."""


class Case(NamedTuple):
    """A fleet, and whom the alert names: host, GPU (or "" for the whole host) and action."""

    series: Series
    named: frozenset[tuple[str, str, str]] = frozenset()


def named(*who: tuple[str, str], action: str = "inspect_hardware") -> frozenset[tuple[str, str, str]]:
    return frozenset((*each, action) for each in who)


def one_slower(by: float, count: int = 8, hosts: int = 1) -> Series:
    """A job's GPUs, of which the second one of the first host is slower."""
    first, *others = (healthy(count, slurm(), offset) for offset in range(hosts))
    return fleet([first[0], slower(first[1], by), *first[2:]], *others)


def host_slower(by: float, hosts: int = 4, count: int = 2, **changes: object) -> list[list[Gpu]]:
    first, *others = (healthy(count, slurm(), offset) for offset in range(hosts))
    return [[replace(slower(each, by), **changes) for each in first], *others]  # type: ignore[arg-type]  # fields of Gpu


def single(count: int, by: float, *, of_jobs: bool = True) -> list[list[Gpu]]:
    """Hosts with one GPU, each with a job of its own or nobody's; the first one is slower."""
    gpus = [healthy(1, slurm(number) if of_jobs else {}, number) for number in range(count)]
    return [[slower(gpus[0][0], by)], *gpus[1:]]


LOCK: Final[Mapping[str, Any]] = {"throttled": {"applications_clocks": 0.98}}
PACES: Final = {str(rank): steps("ab"[rank // 2], 60, "4711", str(rank)) for rank in range(4)}

CASES: Final[Mapping[str, Case]] = {
    "one of 8 at -8 %": Case(one_slower(0.08), named(("a", "GPU-a1"))),
    "one of 8 at -4 %": Case(one_slower(0.04)),
    "one of 32 at -8 %": Case(one_slower(0.08, 8, 4), named(("a", "GPU-a1"))),
    "one of 8 at -8 %, and the others differ as much": Case(
        fleet([replace(each, mhz=1755 * (0.92 + 0.02 * n)) for n, each in enumerate(healthy(8, slurm()))])
    ),
    "one of 8 at -11 %, and the others differ": Case(
        fleet(
            [
                replace(each, mhz=1755 * mhz)
                for each, mhz in zip(healthy(8, slurm()), (0.87, *[0.97, 1.0, 1.03] * 2, 1), strict=True)
            ]
        ),
        named(("a", "GPU-a0")),
    ),
    "healthy": Case(one_slower(0.0, 8, 4)),
    "healthy pods": Case(fleet(*(healthy(2, pod(f"train-{number}"), number) for number in range(4)))),
    "a host of four at -25 %": Case(fleet(*host_slower(0.25, count=8)), named(("a", ""))),
    "a host of four at -7 %": Case(fleet(*host_slower(0.07)), named(("a", ""))),
    "a host of two at -12 %": Case(fleet(*host_slower(0.12, hosts=2, count=4)), named(("a", ""))),
    "a host of two at -7 %": Case(fleet(*host_slower(0.07, hosts=2, count=4))),
    "a pair of one host at -30 %": Case(one_slower(0.3, 2), named(("a", "GPU-a1"))),
    "a pair of one host at -30 %, hot": Case(
        fleet(
            [
                healthy(1, slurm())[0],
                replace(slower(healthy(1, slurm())[0], 0.3), findings={"thermal.sw": 1, "clock.straggler": 1}),
            ]
        ),
        named(("a", "GPU-a1")),
    ),
    "a pair of one host at -12 %": Case(one_slower(0.12, 2), named(("a", "GPU-a1"))),
    "a pair of one host at -9 %": Case(one_slower(0.09, 2)),
    "a pair of two hosts at -12 %": Case(fleet(*host_slower(0.12, 2, 1)), named(("a", "GPU-a0"))),
    "a pair of nobody's at -30 %": Case(
        fleet([slower(healthy(1, {})[0], 0.3), *healthy(1, {}, 1)]), named(("a", "GPU-a0"))
    ),
    "a pair of nobody's at -15 %": Case(fleet([slower(healthy(1, {})[0], 0.15), *healthy(1, {}, 1)])),
    "1 of 16 one-GPU hosts at -30 %": Case(fleet(*single(16, 0.3)), named(("a", "GPU-a0"))),
    "1 of 16 one-GPU hosts of nobody's at -30 %": Case(fleet(*single(16, 0.3, of_jobs=False)), named(("a", "GPU-a0"))),
    "1 of 16 one-GPU hosts at -18 %": Case(fleet(*single(16, 0.18))),
    "another model": Case(
        fleet(
            *(
                [replace(each, model="NVIDIA A100") for each in gpus] if n == 0 else gpus
                for n, gpus in enumerate(single(16, 0.3))
            )
        )
    ),
    "a host of one job each at -25 %": Case(
        fleet(*([slower(each, 0.25 * (n == 0)) for each in healthy(4, slurm(n), n)] for n in range(4))),
        named(("a", "")),
    ),
    "clocks of a host locked": Case(fleet(*host_slower(0.25, **LOCK)), named(("a", ""), action="fix_host")),
    "clocks of a host set": Case(
        fleet(*host_slower(0.25, findings={"clock.policy": 1})), named(("a", ""), action="fix_host")
    ),
    "clocks of all hosts locked": Case(
        fleet(*([replace(slower(each, 0.25), **LOCK) for each in healthy(2, slurm(), n)] for n in range(4)))
    ),
    "slow pod": Case(
        fleet(*([slower(each, 0.3 * (n == 2)) for each in healthy(2, pod(f"train-worker-{n}"), n)] for n in range(4))),
        named(("c", "")),
    ),
    "slow pod of an indexed job": Case(
        fleet(*([slower(each, 0.12 * (n == 2)) for each in healthy(1, pod(f"train-{n}-x7k2b"), n)] for n in range(4))),
        named(("c", "GPU-c0")),
    ),
    "pods of other names at -15 %": Case(
        fleet(
            *(
                [slower(each, 0.15 * (n == 2)) for each in healthy(1, pod(f"{name}-0"), n)]
                for n, name in enumerate(("qa", "bert", "gpt", "llama"))
            )
        )
    ),
    "harder work": Case(fleet(*host_slower(0.2, throttled={"sw_power_cap": 0.9}))),
    "at the power limit like all others": Case(
        fleet(
            *(
                [
                    replace(slower(each, 0.2 * (n == 0)), throttled={"sw_power_cap": 0.9})
                    for each in healthy(2, slurm(), n)
                ]
                for n in range(4)
            )
        ),
        named(("a", "")),
    ),
    "lighter work": Case(fleet(*host_slower(0.2, watts=250.0))),
    "little power, as it is hot": Case(
        fleet(*host_slower(0.4, watts=250.0, throttled={"hw_thermal": 0.6})), named(("a", ""))
    ),
    "idle": Case(fleet(*host_slower(0.5, busy=0.3))),
    "slow for nine minutes": Case(
        fleet(
            *(
                [
                    replace(
                        each,
                        mhz=[1300.0 if n == 0 and 40 <= at < 47 else mhz for at, mhz in enumerate(lasting(each.mhz))],
                    )
                    for each in healthy(2, slurm(), n)
                ]
                for n in range(4)
            )
        )
    ),
    "a rank makes fewer steps": Case(
        fleet(*(healthy(2, slurm(), n) for n in range(2)), more={**PACES, "2": steps("b", 50, "4711", "2")}),
        frozenset({("b", "rank 2", "fix_job")}),
    ),
    "a rank makes nearly as many steps": Case(
        fleet(*(healthy(2, slurm(), n) for n in range(2)), more={**PACES, "2": steps("b", 55, "4711", "2")})
    ),
    "ranks of a user": Case(
        merged(*(steps("ab"[rank // 2], 50 if rank == 2 else 60, "alice", str(rank)) for rank in range(4))),
        frozenset({("b", "rank 2", "fix_job")}),
    ),
    "jobs of one name of a user": Case(
        merged(steps("a", 60, "alice"), steps("b", 40, "alice"), steps("c", 60, "alice"))
    ),
    "jobs of one name of a user, rank 0 each": Case(
        merged(*(steps(name, pace, "alice", "0") for name, pace in (("a", 60), ("b", 40), ("c", 60))))
    ),
    "a rank of two": Case(
        merged(steps("a", 60, "ml_train-0"), steps("b", 40, "ml_train-1")), frozenset({("b", "rank ", "fix_job")})
    ),
}


@pytest.fixture(scope="module")
def played(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    series = {name: case.series for name, case in CASES.items()}
    directory = tmp_path_factory.mktemp("stragglers")
    return play(requires_tool("promtool"), directory, alert_files(), series, minutes=55, shown={ALERT: SHOWN_AT})


@pytest.mark.parametrize("name", CASES)
def test_who_is_slower_than_the_others_is_named_once(name: str, played: Mapping[str, Played]) -> None:
    found = {
        (
            labels["instance"],
            labels.get("uuid", f"rank {labels.get('rank', '')}" if "job_name" in labels else ""),
            labels["action"],
        )
        for labels in map(dict, played[name].firing.get(ALERT, {}))
    }
    assert found == CASES[name].named


def text_of(case: str, played: Mapping[str, Played]) -> str:
    (alert,) = played[case].shown[ALERT]
    return "\n".join((alert.annotations["summary"], alert.annotations["description"]))


def test_a_pair_is_named_with_its_owner_and_its_cause(played: Mapping[str, Played]) -> None:
    text = text_of("a pair of one host at -30 %, hot", played)
    assert text.startswith(
        "a GPU 1: SM clock at 70% of that of its job or cluster\nGPU 1 of a (PCI 0000:15:00.0, serial 1650)"
    )
    assert "used by Slurm job 4711 of alice" in text
    assert "Known: clock.straggler, thermal.sw." in text


def test_a_lock_of_clocks_is_named_as_that(played: Mapping[str, Played]) -> None:
    assert text_of("clocks of a host locked", played).startswith("a: clocks set by an administrator, at 75.28% of")


def test_a_job_has_few_recorded_series(requires_tool: RequiresTool, tmp_path: Path) -> None:
    series = fleet(*(healthy(8, slurm(), number) for number in range(4)), more=PACES)
    rules = tuple(path for path in rule_files() if path.name == "alerts-jobs.yml")
    question = ('count({__name__=~".+:gpu_.+:.+",owner=~".+/.*"})', 70 * 60.0)
    run = Run(rules, groups_of(rules), 60, series, (question,))
    ((recorded,),) = ask(requires_tool("promtool"), run, tmp_path).samples.values()
    assert recorded.value <= MOST_RECORDED
