"""Jobs that hang, over several hosts, and jobs that only look like it, written by hand."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, product
from typing import Final, NamedTuple

import pytest
from tests.conftest import RequiresTool
from tests.rules.handwritten import Played, Series, counter, gpu, host, merged, play
from tests.rules.job_fleets import MINUTES, Gpu, Owner, between, fleet, lasting, pod, since, slurm, steps
from tests.rules.rulefile import group_alone

ALERT: Final = "GpuJobHung"
STOPPED_AT: Final = 30
"""Minute in which the job stops; the exporter judges 3 minutes later."""
SEEN_AT: Final = STOPPED_AT + 3
END: Final = 60
SHOWN_AT: Final = STOPPED_AT + 12
NEVER: Final = range(0)
EARLY, LATER = range(SEEN_AT, STOPPED_AT + 5), range(SEEN_AT + 1, STOPPED_AT + 8)
SOON = range(STOPPED_AT + 1, STOPPED_AT + 4)
STEPLESS = range(STOPPED_AT + 2, STOPPED_AT + 5)
"""A window of 3 minutes holds 2 of them between scrapes a minute apart."""
NAN: Final = float("nan")
WORKS: Final = (0.97, 610.0, "compute")
DOES: Final = {
    "w": WORKS,
    "o": WORKS,  # for another job
    "s": (1.0, 210.0, "communication"),  # it spins
    "x": (0.0, 120.0, "unattributed"),  # it stops, and the exporter sees that
    "-": (0.0, 120.0, "unattributed"),  # it rests
    "n": (0.0, 120.0, "unattributed"),  # it is nobody's any more
    "h": (0.4, 300.0, "unattributed"),  # its data keep it waiting for half of the time
    "d": (0.02, 130.0, "storage"),
}
"""Busy share, power and class of a GPU from the minute on at which the job stops."""


class Case(NamedTuple):
    """What a job does, and the minutes at which its alert may begin."""

    gpus: str  # what each does, by host: see `DOES`
    begins: range = NEVER
    owners: Sequence[Owner] = (slurm(),)  # of hosts in turn
    steps: Sequence[float] | None = None  # of each rank, in each minute
    collective: str = ""  # hosts that find a collective that hangs
    seen: Sequence[float] = since(SEEN_AT, 1.0, NAN)
    threads: Sequence[float | None] = ()  # shares of a CPU that the main thread on each GPU takes
    second: Mapping[str, Sequence[float]] | None = None  # how the process on a1 differs
    loads: bool = False  # whether the GPUs never worked


STOPS: Final = since(STOPPED_AT, 0.0, 120.0)


def series_of(case: Case) -> Series:
    threads, owners = iter(case.threads or [None] * len(case.gpus)), cycle(case.owners)
    pairs = zip(case.gpus.split(), owners, strict=False)
    groups = [[_gpu(case, does, owner, next(threads)) for does in group] for group, owner in pairs]
    ranks = [name for name, group in zip("abcdefghijklmnop", groups, strict=False) for _ in group]
    finding = {"code": "work.collective_hang", "severity": "warning", "action": "fix_job"}
    return merged(
        fleet(*groups),
        *(host("gpu_host_finding", since(SEEN_AT, 1.0, NAN), each, **finding) for each in case.collective),
        *(steps(name, case.steps, "4711", str(n)) for n, name in enumerate(ranks) if case.steps is not None),
        *(_processes(case.second) if case.second is not None else ()),
    )


def _gpu(case: Case, does: str, owner: Owner, thread: float | None) -> Gpu:
    busy, watts, name = DOES[does]
    before = DOES["-"] if case.loads else WORKS
    return Gpu(
        busy=since(STOPPED_AT, busy, before[0]),
        watts=since(STOPPED_AT, watts, before[1]),
        bottleneck=[before[2] if at <= STOPPED_AT else name for at in range(MINUTES)],
        findings={"work.hung": case.seen} if does == "x" else {},
        main_thread=thread,
        owner={"o": slurm(9), "n": {}}.get(does, owner),
    )


def _processes(second: Mapping[str, Sequence[float]]) -> Iterator[Series]:
    """A process on each GPU of four hosts with two, all alike but for the second GPU of the first host."""
    for name, number in product("abcd", "01"):
        own = {"uuid": f"GPU-{name}{number}", "instance": name, "gpu": number}
        values = {"gpu_processes": lasting(1.0), "gpu_main_thread_cpu_seconds_total": lasting(60.0)}
        for metric, each in (values | dict(second if name + number == "a1" else {})).items():
            counted = metric.endswith("_total")
            yield gpu(metric, counter(each) if counted else each, **own, **({} if counted else {"type": "compute"}))


ENDED: Final = {"gpu_processes": since(STOPPED_AT, 0.0, 1.0)}
STILL: Final = {"gpu_main_thread_cpu_seconds_total": since(STOPPED_AT, 1.0, 60.0)}

CASES: Final[Mapping[str, Case]] = {
    "one rank, with steps": Case("sx ss ss ss", EARLY, collective="a", steps=STOPS),
    "one rank of pods": Case("sx ss ss ss", EARLY, [pod(f"train-{number}") for number in range(4)]),
    "one rank of one-GPU hosts": Case(f"s s x{' s' * 13}", EARLY),
    "all ranks stop, with steps": Case("xx xx xx xx", EARLY, steps=STOPS),
    "all ranks stop, without steps": Case("xx xx xx xx", LATER),
    "all ranks spin, without steps": Case("ss ss ss ss", LATER, collective="abcd"),
    "all ranks spin, with steps": Case("ss ss ss ss", STEPLESS, collective="abcd", steps=STOPS),
    "no steps, and the exporter saw nothing before": Case(
        "-- -- -- --", range(STOPPED_AT + 5, STOPPED_AT + 8), steps=STOPS
    ),
    "another job works on the first host": Case("ssoo xx", EARLY),
    "a rank exits": Case("s- ss ss ss", SOON, second=ENDED),
    "a rank does nothing": Case("s- ss ss ss", SOON, second=STILL),
    "a rank works on the CPU": Case("s- ss ss ss", second={}),
    "a rank waits for its disk": Case(
        "s- ss ss ss", second={**STILL, "gpu_blocked_thread_seconds_total": since(STOPPED_AT, 50.0)}
    ),
    "a rank is done, and the others go on": Case("w- ww ww ww", second=ENDED),
    "all ranks are done": Case("-- -- -- --", second=ENDED),
    "a single GPU, without steps": Case("x"),
    "pause of four minutes": Case("xx xx xx xx", seen=between(SEEN_AT, STOPPED_AT + 4, 1.0, NAN)),
    "an evaluation that its data keep waiting": Case("hh hh hh hh", steps=STOPS),
    "storage keeps all waiting": Case("dd dd dd dd", steps=STOPS),
    "loads": Case("-- -- -- --", steps=lasting(0.0), loads=True),
    "ended": Case("nn nn nn nn", steps=STOPS),
    "works": Case("ww ww ww ww", steps=lasting(120.0)),
}


def differing(*shares: float | None, gpus: str = "ss ss ss ss", owner: Owner = slurm()) -> Series:  # noqa: B008
    """A job that hangs, with the share of a CPU that the main thread on each GPU takes."""
    return series_of(Case(gpus, owners=(owner,), collective="abcd"[: len(gpus.split())], threads=shares))


DIFFERING: Final[Mapping[str, tuple[Series, str]]] = {
    "one sleeps": (differing(1.0, 0.98, 1.0, 0.02, 1.0, 1.0, 0.9, 1.0), "GPU 1 of b does not run"),
    "one runs": (differing(0.0, 0.0, 0.01, 0.0, 0.1, 0.0, 0.99, 0.0), "GPU 0 of d runs"),
    "one of three": (differing(0.81, 0.19, 0.81, gpus="s s s"), "GPU 0 of b does not run"),
    "one sleeps a little too seldom": (differing(0.81, 0.21, 0.81, gpus="s s s"), ""),
    "the others run a little too seldom": (differing(0.79, 0.0, 0.81, gpus="s s s"), ""),
    "two sleep": (differing(1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0), ""),
    "one of two": (differing(1.0, 0.0, gpus="s s"), ""),
    "all run": (differing(*[1.0] * 8), ""),
    "one is not known": (differing(0.0, *[1.0] * 6, None), ""),
    "several jobs of a user, perhaps": (differing(0.0, *[1.0] * 7, owner={"user": "alice"}), ""),
    "another job's threads are on one": (
        merged(
            differing(0.0, *[1.0] * 7),
            gpu("gpu_allocated", lasting(1.0), "GPU-a1", instance="a", gpu="1", **slurm(4712)),
        ),
        "",
    ),
    "a GPU stopped, which says more": (differing(1.0, 0.0, *[1.0] * 6, gpus="sx ss ss ss"), "all wait for GPU 1 of a"),
}


@pytest.fixture(scope="module")
def played(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    series = {name: series_of(case) for name, case in CASES.items()} | {
        name: each for name, (each, _) in DIFFERING.items()
    }
    directory = tmp_path_factory.mktemp("hangs")
    promtool = requires_tool("promtool")
    rules = group_alone(ALERT, directory, "instance_gpu_owner:gpu_job:member")
    return play(promtool, directory, rules, series, minutes=END, shown={ALERT: SHOWN_AT}, evaluation_seconds=30)


@pytest.mark.parametrize("name", CASES)
def test_a_job_that_hangs(name: str, played: Mapping[str, Played]) -> None:
    minutes = played[name].minutes(ALERT)
    begins = CASES[name].begins
    assert bool(minutes) is bool(begins), minutes
    if begins:
        assert minutes[0] in begins
        assert minutes == list(range(minutes[0], END)), "one alert while it lasts"


def test_a_rank_that_left_is_named(played: Mapping[str, Played]) -> None:
    for name in ("a rank exits", "a rank does nothing"):
        (alert,) = played[name].shown[ALERT]
        assert alert.annotations["summary"] == "Slurm job 4711 hangs, since 00:32 UTC: all wait for GPU 1 of a"


@pytest.mark.parametrize("name", DIFFERING)
def test_the_main_thread_that_differs_is_named_where_nothing_else_is_known(
    name: str, played: Mapping[str, Played]
) -> None:
    (alert,) = [each for each in played[name].shown[ALERT] if each.labels["owner"] != "4712/"]
    _, _, said = alert.annotations["summary"].partition(" UTC: ")
    assert said.endswith(DIFFERING[name][1])
    assert bool(said) is bool(DIFFERING[name][1])
