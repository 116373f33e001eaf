"""Jobs that hang, over several hosts, and jobs that only look like it, written by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from tests.conftest import RequiresTool
from tests.rules.handwritten import Played, Series, counter, gpu, host, merged, play
from tests.rules.job_fleets import MINUTES, Gpu, Owner, between, fleet, healthy, lasting, pod, since, slurm, steps
from tests.rules.rulefile import group_alone

pytestmark = pytest.mark.slow

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
COLLECTIVE = "work.collective_hang"
Group = list[Gpu]


class Case(NamedTuple):
    """What a job does, and the minutes at which its alert may begin."""

    series: Series
    begins: range = NEVER


def then(gpus: Group, busy: float, watts: float, bottleneck: str, **findings: Sequence[float]) -> Group:
    """What GPUs do from the minute on at which the job stops."""
    classes = ["compute" if at < STOPPED_AT + 1 else bottleneck for at in range(MINUTES)]
    return [
        replace(
            each,
            busy=since(STOPPED_AT, busy, 0.97),
            watts=since(STOPPED_AT, watts, 610.0),
            bottleneck=classes,
            findings={code.replace("_", ".", 1): state for code, state in findings.items()},
        )
        for each in gpus
    ]


def stops(gpus: Group, seen: Sequence[float] | None = None) -> Group:
    return then(gpus, 0.0, 120.0, "unattributed", work_hung=seen or since(SEEN_AT, 1.0, float("nan")))


def spins(gpus: Group) -> Group:
    return then(gpus, 1.0, 210.0, "communication")


def saves(gpus: Group) -> Group:
    """At rest while its host writes, which is no hang to the exporter."""
    return then(gpus, 0.0, 120.0, "unattributed")


def collective(*hosts: str) -> Series:
    return merged(
        *(
            host(
                "gpu_host_finding",
                since(SEEN_AT, 1.0, float("nan")),
                each,
                code=COLLECTIVE,
                severity="warning",
                action="fix_job",
            )
            for each in hosts
        )
    )


def writes(instance: str) -> Series:
    rate = since(STOPPED_AT, 60 * 4e8, 60 * 1e6)
    return host("gpu_host_disk_written_bytes_total", counter(rate), instance, device="nvme0n1")


def job(owner: Owner | None = None, count: int = 2, hosts: int = 4) -> list[Group]:
    return [healthy(count, slurm() if owner is None else owner, number) for number in range(hosts)]


def one_rank(groups: list[Group], rank: Group | None = None) -> list[Group]:
    """The second GPU of the first host stops, and the others spin."""
    (first, second, *more), *others = groups
    return [[*spins([first]), *(stops([second]) if rank is None else rank), *spins(more)], *map(spins, others)]


def with_main_threads(groups: list[Group], *shares: float | None) -> Series:
    """A fleet in whose jobs all spin, with the share of a CPU that the main thread on each GPU takes."""
    found = iter(shares)
    hosts = [[replace(each, main_thread=next(found)) for each in spins(group)] for group in groups]
    return fleet(*hosts, more={"": collective(*"abcd"[: len(hosts)])})


def stepped(a_minute: Sequence[float] | None = None, *, owner: str = "4711") -> dict[str, Series]:
    values = since(STOPPED_AT, 0.0, 120.0) if a_minute is None else a_minute
    return {str(n): steps("abcd"[n // 2], values, owner, str(n)) for n in range(8)}


def ranks(odd: Sequence[float] | None = None, cpu_seconds: float = 60.0, **more: float) -> Mapping[str, Series]:
    """A process on each GPU; how many there are on the second GPU of the first host, and seconds a minute then."""
    found: dict[str, Series] = {}
    for uuid in (f"GPU-{name}{number}" for name in "abcd" for number in range(2)):
        differs = uuid == "GPU-a1"
        own = {"uuid": uuid, "instance": uuid[4], "gpu": uuid[5]}
        count = odd if odd and differs else lasting(1.0)
        seconds = counter(since(STOPPED_AT, cpu_seconds if differs else 60.0, 60.0))
        found[uuid] = merged(
            gpu("gpu_processes", count, **own, type="compute"),
            gpu("gpu_main_thread_cpu_seconds_total", seconds, **own),
            *(gpu(name, counter(since(STOPPED_AT, value)), **own) for name, value in more.items() if differs),
        )
    return found


PODS: Final = [healthy(2, pod(f"train-{number}"), number) for number in range(4)]
OTHERS: Final = healthy(2, slurm(9))

CASES: Final[Mapping[str, Case]] = {
    "one rank": Case(fleet(*one_rank(job()), more={"": collective("a", "b", "c", "d")}), EARLY),
    "one rank, with steps": Case(fleet(*one_rank(job()), more={"": collective("a"), **stepped()}), EARLY),
    "one rank of pods": Case(fleet(*one_rank(PODS)), EARLY),
    "one rank of one-GPU hosts": Case(
        fleet(*(stops(each) if n == 2 else spins(each) for n, each in enumerate(job(count=1, hosts=16)))), EARLY
    ),
    "all ranks stop, with steps": Case(fleet(*map(stops, job()), more=stepped()), EARLY),
    "all ranks stop, without steps": Case(fleet(*map(stops, job())), LATER),
    "all ranks spin, without steps": Case(fleet(*map(spins, job()), more={"": collective(*"abcd")}), LATER),
    "all ranks spin, with steps": Case(
        fleet(*map(spins, job()), more={"": collective(*"abcd"), **stepped()}), STEPLESS
    ),
    "no steps, and the exporter saw nothing before": Case(
        fleet(*map(saves, job()), more=stepped()), range(STOPPED_AT + 5, STOPPED_AT + 8)
    ),
    "another job works on the first host": Case(fleet([*spins(job()[0]), *OTHERS], stops(job()[1]), more={}), EARLY),
    "a rank exits": Case(fleet(*one_rank(job(), saves(job()[0][1:])), more=ranks(since(STOPPED_AT, 0.0, 1.0))), SOON),
    "a rank does nothing": Case(fleet(*one_rank(job(), saves(job()[0][1:])), more=ranks(cpu_seconds=1.0)), SOON),
    "a rank works on the CPU": Case(fleet(*one_rank(job(), saves(job()[0][1:])), more=ranks())),
    "a rank waits for its disk": Case(
        fleet(*one_rank(job(), saves(job()[0][1:])), more=ranks(cpu_seconds=1.0, gpu_blocked_thread_seconds_total=50.0))
    ),
    "a rank is done, and the others go on": Case(
        fleet([job()[0][0], *saves(job()[0][1:])], *job()[1:], more=ranks(since(STOPPED_AT, 0.0, 1.0)))
    ),
    "all ranks are done": Case(fleet(*map(saves, job()), more=ranks(since(STOPPED_AT, 0.0, 1.0)))),
    "a single GPU, without steps": Case(fleet(stops(healthy(1, slurm())))),
    "pause of four minutes": Case(
        fleet(*(stops(each, between(SEEN_AT, STOPPED_AT + 4, 1.0, float("nan"))) for each in job()))
    ),
    "rank 0 saves a checkpoint": Case(
        fleet(
            *one_rank(job(), saves(job()[0][1:])), more={"": collective("b", "c", "d"), "w": writes("a"), **stepped()}
        )
    ),
    "all ranks save a checkpoint": Case(
        fleet(*map(saves, job()), more={**{each: writes(each) for each in "abcd"}, **stepped()})
    ),
    "rank 0 evaluates": Case(fleet(*one_rank(job(), job()[0][1:]), more={"": collective("b", "c", "d"), **stepped()})),
    "all ranks evaluate": Case(fleet(*job(), more=stepped())),
    "an evaluation that its data keep waiting": Case(
        fleet(*(then(each, 0.4, 300.0, "unattributed") for each in job()), more=stepped())
    ),
    "storage keeps all waiting": Case(fleet(*(then(each, 0.02, 130.0, "storage") for each in job()), more=stepped())),
    "loads": Case(
        fleet(
            *([replace(each, busy=0.0, watts=120.0, bottleneck="unattributed") for each in group] for group in job()),
            more=stepped(lasting(0.0)),
        )
    ),
    "ended": Case(fleet(*([replace(each, owner={}) for each in group] for group in map(saves, job())), more=stepped())),
    "works": Case(fleet(*job(), more=stepped(lasting(120.0)))),
}


DIFFERING: Final[Mapping[str, tuple[Series, str]]] = {
    "one sleeps": (with_main_threads(job(), 1.0, 0.98, 1.0, 0.02, 1.0, 1.0, 0.9, 1.0), "GPU 1 of b does not run"),
    "one runs": (with_main_threads(job(), 0.0, 0.0, 0.01, 0.0, 0.1, 0.0, 0.99, 0.0), "GPU 0 of d runs"),
    "one of three": (with_main_threads(job(count=1, hosts=3), 0.81, 0.19, 0.81), "GPU 0 of b does not run"),
    "one sleeps a little too seldom": (with_main_threads(job(count=1, hosts=3), 0.81, 0.21, 0.81), ""),
    "the others run a little too seldom": (with_main_threads(job(count=1, hosts=3), 0.79, 0.0, 0.81), ""),
    "two sleep": (with_main_threads(job(), 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0), ""),
    "one of two": (with_main_threads(job(count=1, hosts=2), 1.0, 0.0), ""),
    "all run": (with_main_threads(job(), *[1.0] * 8), ""),
    "one is not known": (with_main_threads(job(), 0.0, *[1.0] * 6, None), ""),
    "several jobs of a user, perhaps": (with_main_threads(job({"user": "alice"}), 0.0, *[1.0] * 7), ""),
    "another job's threads are on one": (
        merged(
            with_main_threads(job(), 0.0, *[1.0] * 7),
            gpu("gpu_allocated", lasting(1.0), "GPU-a1", instance="a", gpu="1", **slurm(4712)),
        ),
        "",
    ),
    "a GPU stopped, which says more": (
        fleet(
            *one_rank(
                [[replace(each, main_thread=float(each is not group[1])) for each in group] for group in job()],
                [replace(stops(job()[0])[1], main_thread=1.0)],
            )
        ),
        "all wait for GPU 1 of a",
    ),
}


@pytest.fixture(scope="module")
def played(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    series = {name: case.series for name, case in CASES.items()} | {name: each for name, (each, _) in DIFFERING.items()}
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


def test_the_gpu_that_differs_is_named(played: Mapping[str, Played]) -> None:
    for name in ("one rank", "a rank exits", "a rank does nothing"):
        (alert,) = played[name].shown[ALERT]
        assert alert.annotations["summary"] == "Slurm job 4711 hangs: all wait for GPU 1 of a"
    (alert,) = played["all ranks spin, without steps"].shown[ALERT]
    assert alert.annotations["summary"] == "Slurm job 4711 hangs"


@pytest.mark.parametrize("name", DIFFERING)
def test_the_main_thread_that_differs_is_named_where_nothing_else_is_known(
    name: str, played: Mapping[str, Played]
) -> None:
    (alert,) = [each for each in played[name].shown[ALERT] if each.labels["owner"] != "4712/"]
    _, _, said = alert.annotations["summary"].partition(" hangs: ")
    assert said.endswith(DIFFERING[name][1])
    assert bool(said) is bool(DIFFERING[name][1])
