"""GPUs, hosts and ranks that a job waits for, in fleets written by hand: at the thresholds, and just below."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest
from tests.conftest import RequiresTool
from tests.rules.handwritten import Played, Series, merged, play
from tests.rules.job_fleets import Gpu, Owner, between, fleet, healthy, pod, slower, slurm, steps
from tests.rules.rulefile import alert_files

ALERT: Final = "GpuStragglerAcrossHosts"
SHOWN_AT: Final = 50


class Case(NamedTuple):
    """A fleet, and what the one alert names: a host, a GPU such as a1, or a rank."""

    series: Series
    named: str = ""
    action: str = "inspect_hardware"


def job(
    by: float,
    hosts: int = 4,
    count: int = 2,
    slow: str = "a",
    owner: Callable[[int], Owner] = lambda _: slurm(),
    **changes: Any,
) -> Series:
    """Hosts of GPUs that differ as healthy ones do; one such as a1, those of a host, or "all" are slower, changed."""

    def one(each: Gpu, *names: str) -> Gpu:
        return replace(slower(each, by), **changes) if slow in names else each

    groups = ((n, name, healthy(count, owner(n), n)) for n, name in enumerate("abcdefghijklmnop"[:hosts]))
    return fleet(*([one(each, name, f"{name}{i}", "all") for i, each in enumerate(gpus)] for n, name, gpus in groups))


def of_jobs(*names: str) -> Callable[[int], Owner]:
    """Pods of these names on the hosts in turn."""
    return lambda n: pod(names[n % len(names)].format(n))


def unlike(*shares: float) -> Series:
    return fleet([replace(each, mhz=1755 * share) for each, share in zip(healthy(8, slurm()), shares, strict=True)])


def ranks(*paces: float, owner: str = "4711", hosts: str = "aabb", rank: str = "{}") -> Series:
    """Files of ranks, with so many steps a minute."""
    return merged(*(steps(hosts[n], pace, owner.format(n), rank.format(n)) for n, pace in enumerate(paces)))


LOCK: Final[Mapping[str, Any]] = {"throttled": {"applications_clocks": 0.98}}
CAPPED: Final[Mapping[str, Any]] = {"throttled": {"sw_power_cap": 0.9}}
HOT: Final[Mapping[str, Any]] = {"findings": {"thermal.sw": 1, "clock.straggler": 1}}
NARROW: Final[Mapping[str, Any]] = {"findings": {"power.cap": 1, "pcie.width": 1}}


def nobodys(_: int) -> Owner:
    return {}


CASES: Final[Mapping[str, Case]] = {
    "one of 8 at -8 %": Case(job(0.08, 1, 8, "a1"), "a1"),
    "one of 8 at -4 %": Case(job(0.04, 1, 8, "a1")),
    "one of 32 at -8 %": Case(job(0.08, 4, 8, "a1"), "a1"),
    "one of 8 at -8 %, and the others differ as much": Case(unlike(*(0.92 + 0.02 * n for n in range(8)))),
    "one of 8 at -11 %, and the others differ": Case(unlike(0.87, *[0.97, 1.0, 1.03] * 2, 1), "a0"),
    "healthy": Case(job(0.0, 4, 8)),
    "healthy pods": Case(job(0.0, owner=of_jobs("train-{}"))),
    "a host of four at -25 %": Case(job(0.25, 4, 8), "a"),
    "a host of four at -7 %": Case(job(0.07), "a"),
    "a host of two at -12 %": Case(job(0.12, 2, 4), "a"),
    "a host of two at -7 %": Case(job(0.07, 2, 4)),
    "a pair of one host at -30 %": Case(job(0.3, 1, 2, "a1"), "a1"),
    "a pair of one host at -30 %, narrow": Case(job(0.3, 1, 2, "a1", **NARROW), "a1"),
    "a pair of one host at -30 %, hot: its host says so": Case(job(0.3, 1, 2, "a1", **HOT)),
    "a pair of one host at -12 %": Case(job(0.12, 1, 2, "a1"), "a1"),
    "a pair of one host at -9 %": Case(job(0.09, 1, 2, "a1")),
    "a pair of two hosts at -12 %": Case(job(0.12, 2, 1), "a0"),
    "a pair of nobody's at -30 %": Case(job(0.3, 1, 2, "a0", nobodys), "a0"),
    "a pair of nobody's at -15 %": Case(job(0.15, 1, 2, "a0", nobodys)),
    "1 of 16 one-GPU hosts at -30 %": Case(job(0.3, 16, 1, owner=slurm), "a0"),
    "1 of 16 one-GPU hosts of nobody's at -30 %": Case(job(0.3, 16, 1, owner=nobodys), "a0"),
    "1 of 16 one-GPU hosts at -18 %": Case(job(0.18, 16, 1, owner=slurm)),
    "another model": Case(job(0.3, 16, 1, owner=slurm, model="NVIDIA A100")),
    "a host of one job each at -25 %": Case(job(0.25, 4, 4, owner=slurm), "a"),
    "clocks of a host locked": Case(job(0.25, **LOCK), "a", "fix_host"),
    "clocks of a host set: it says so": Case(job(0.25, findings={"clock.policy": 1})),
    "clocks of all hosts locked": Case(job(0.25, slow="all", **LOCK)),
    "slow pod": Case(job(0.3, slow="c", owner=of_jobs("train-worker-{}")), "c"),
    "slow pod of an indexed job": Case(job(0.12, 4, 1, "c", of_jobs("train-{}-x7k2b")), "c0"),
    "pods of other names at -15 %": Case(job(0.15, 4, 1, "c", of_jobs("qa-0", "bert-0", "gpt-0", "llama-0"))),
    "harder work": Case(job(0.2, **CAPPED)),
    "at the power limit like all others": Case(
        fleet(
            *([replace(slower(each, 0.2 * (n == 0)), **CAPPED) for each in healthy(2, slurm(), n)] for n in range(4))
        ),
        "a",
    ),
    "lighter work": Case(job(0.2, watts=250.0)),
    "little power, as it is hot": Case(job(0.4, watts=250.0, throttled={"hw_thermal": 0.6}), "a"),
    "idle": Case(job(0.5, busy=0.3)),
    "slow for nine minutes": Case(job(0.0, mhz=between(40, 47, 1300.0, 1755.0))),
    "a rank makes fewer steps": Case(ranks(60, 60, 50, 60), "b rank 2", "fix_job"),
    "a rank makes nearly as many steps": Case(ranks(60, 60, 55, 60)),
    "ranks of a user": Case(ranks(60, 60, 50, 60, owner="alice"), "b rank 2", "fix_job"),
    "jobs of one name of a user": Case(ranks(60, 40, 60, owner="alice", hosts="abc", rank="")),
    "jobs of one name of a user, rank 0 each": Case(ranks(60, 40, 60, owner="alice", hosts="abc", rank="0")),
    "a rank of two": Case(ranks(60, 40, owner="ml_train-{}", hosts="ab", rank=""), "b rank ", "fix_job"),
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
            f"{labels['instance']} rank {labels.get('rank', '')}"
            if "job_name" in labels
            else labels["instance"] + labels.get("uuid", "").removeprefix(f"GPU-{labels['instance']}"),
            labels["action"],
        )
        for labels in map(dict, played[name].firing.get(ALERT, {}))
    }
    case = CASES[name]
    assert found == ({(case.named, case.action)} if case.named else set())


def text_of(case: str, played: Mapping[str, Played]) -> str:
    (alert,) = played[case].shown[ALERT]
    return "\n".join((alert.annotations["summary"], alert.annotations["description"]))


def test_a_pair_is_named_with_its_owner_and_its_cause(played: Mapping[str, Played]) -> None:
    text = text_of("a pair of one host at -30 %, narrow", played)
    assert text.startswith(
        "a GPU 1: SM clock at 70% of that of its job or cluster, since 00:04 UTC\n"
        "GPU 1 of a (PCI 0000:15:00.0, serial 1650)"
    )
    assert "used by Slurm job 4711 of alice" in text
    assert "Known: pcie.width, power.cap." in text


def test_a_lock_of_clocks_is_named_as_that(played: Mapping[str, Played]) -> None:
    assert text_of("clocks of a host locked", played).startswith("a: clocks set by an administrator, at 75% of")
