"""A real Prometheus that has watched the six jobs of `situations`, and jobs seen in part, shared or ambiguous."""

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from tests.conftest import RequiresTool
from tests.dashboards.fleet import Fleet, joined
from tests.dashboards.store import Store, serving
from tests.jobs.histories import edited, families_of, history_of, relabeled
from tests.jobs.situations import BY_NAME, SITUATIONS, STEP_SECONDS, STEPS, Scheduler

from gpu_triage.cli.fleet.job_pace import LOST, PACE, WAITED_FOR
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_OWNER_INFO
from gpu_triage_simulator.history import History, SeriesKey

ASKED_FOR = frozenset(
    (
        *("up", "gpu_info", "gpu_allocated", "gpu_process_owner_info", "gpu_bottleneck", "gpu_clock_hertz"),
        *("gpu_busy_seconds_total", "gpu_observed_seconds_total", "gpu_power_watts", "gpu_sm_utilization_ratio"),
        *("gpu_finding", "gpu_host_finding", "gpu_finding_value", "gpu_host_finding_value"),
        *("gpu_exporter_build_info", "gpu_exporter_simulated", STEPS),
    )
)
"""What the command asks for; the rest of a recording only costs time here."""
OWNED = (GPU_ALLOCATED.name, GPU_PROCESS_OWNER_INFO.name)


def job(name: str, number: str, cluster: str, user: str = "ada") -> History:
    """A Slurm job of one host as another job: `number` of `user` on the host `name`."""

    def renamed(metric: str, labels: dict[str, str]) -> dict[str, str]:
        labels |= {"instance": f"{name}:9836", "cluster": cluster}
        if "uuid" in labels:
            labels["uuid"] = f"{labels['uuid']}-{name}-{cluster}"
        if metric in OWNED and "slurm_job_id" in labels:
            labels |= {"slurm_job_id": number, "user": user}
        return labels

    return relabeled(history_of(BY_NAME["slow-pair"], steps=False, metrics=ASKED_FOR), renamed)


def owned_between(history: History, first: float, last: float, gpu: str = "") -> History:
    """The job has the GPU, or all of them, between two minutes only."""

    def changed(key: SeriesKey, minute: float, value: float) -> float:
        concerned = key[0] in OWNED and gpu in ("", dict(key[1])["gpu"])
        return value if not concerned or first <= minute <= last else math.nan

    return edited(history, changed)


def owners_of(history: History) -> History:
    """Its owners alone, to stand beside those of another job on the same host."""
    return edited(history, lambda key, _minute, value: value if key[0] in OWNED else math.nan)


def with_gap(history: History, first: float, last: float) -> History:
    """Nothing was scraped between two minutes."""
    return edited(history, lambda _key, minute, value: value if not first < minute < last else math.nan)


def recorded(histories: Sequence[History]) -> History:
    """What the rules make of the job with a slow GPU: its pace, and for which GPU it waits, from minute 12 on."""
    slow = BY_NAME["slow-gpu"]
    job = {"job": "gpu-triage", "cluster": Scheduler.SLURM.value, "owner": f"{slow.number}/"}
    gpus = (dict(labels) for history in histories for name, labels in history.series if name == "gpu_info")
    gpu = next(each for each in gpus if each["instance"] == slow.culprit and each["gpu"] == "1")
    place = {**job, "instance": slow.culprit, "uuid": gpu["uuid"], "why": "computing"}
    first = histories[0]
    minutes = [step * STEP_SECONDS / 60 for step in range(first.steps)]
    made = {
        (name, tuple(sorted(labels.items()))): array("d", (value if each >= 12 else math.nan for each in minutes))
        for name, labels, value in ((PACE, job, 0.7), (LOST, job, 2.4), (WAITED_FOR, place, 0.3))
    }
    return replace(first, series=made, families=families_of(made))


def partial() -> Iterator[History]:
    yield owned_between(job("late", "4802", "east"), 15, 40, gpu="1")
    yield with_gap(job("gap", "4803", "east"), 10, 25)
    yield with_gap(job("silent", "4810", "east"), 30, 99)
    yield owned_between(job("finished", "4804", "east"), 0, 20)
    yield job("shared", "4805", "east")
    yield owned_between(owners_of(job("shared", "4806", "east", user="bob")), 10, 30)
    counted = replace(BY_NAME["hang"], name="counted", number="4790")
    yield history_of(counted, Scheduler.KUBERNETES, metrics=ASKED_FOR, target={"cluster": "east"})
    # The same number in two clusters.
    yield job("twice", "4807", "east")
    yield job("twice", "4807", "west", user="carol")


@pytest.fixture(scope="session")
def store(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Slurm's jobs count their steps, those of Kubernetes do not; each scheduler has a cluster of its own."""
    prometheus, promtool = requires_tool("prometheus"), requires_tool("promtool")
    directory = tmp_path_factory.mktemp("jobs")
    histories = [
        history_of(
            situation,
            scheduler,
            steps=scheduler is Scheduler.SLURM,
            metrics=ASKED_FOR,
            target={"cluster": scheduler.value},
        )
        for situation in SITUATIONS
        for scheduler in Scheduler
    ]
    with serving(
        Fleet(joined([*histories, recorded(histories), *partial()]), {}), prometheus, promtool, directory
    ) as running:
        yield running
