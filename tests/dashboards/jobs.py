"""What a Prometheus has of the six jobs of `tests.jobs.situations`, of jobs seen in part, and of a host without one."""

import re
from collections.abc import Iterator

from tests.dashboards.fleet import Fleet, joined
from tests.dashboards.grafana import FOLDER
from tests.jobs.conftest import job, owned_between, owners_of
from tests.jobs.histories import edited, history_of
from tests.jobs.situations import SITUATIONS, Scheduler

from gpu_triage_simulator.history import History

FILE = "job.json"
ENDED = "4804"
"""It ran for the first 20 of 40 minutes."""
ENDED_AFTER_MINUTES = 20
SHARED = "4805"
"""It has GPU 0 of a host, and `NEIGHBOR` has GPU 1."""
NEIGHBOR = "4806"
FREE = "free:9836"
"""A host that tells no owners."""


def record_jobs() -> Fleet:
    """Jobs of Slurm count their steps, those of Kubernetes do not; there are no recorded series and no alerts."""
    metrics = frozenset(re.findall(r"\bgpu_\w+", (FOLDER / FILE).read_text(encoding="utf-8"))) | {"up"}
    histories = [
        history_of(
            situation, scheduler, steps=scheduler is Scheduler.SLURM, metrics=metrics, target=target_of(scheduler)
        )
        for situation in SITUATIONS
        for scheduler in Scheduler
    ]
    return Fleet(joined([*histories, *_others()]), {})


def target_of(scheduler: Scheduler) -> dict[str, str]:
    """Labels that the scrape adds; jobs of Slurm are in no cluster."""
    return {"cluster": "kubernetes"} if scheduler is Scheduler.KUBERNETES else {}


def _others() -> Iterator[History]:
    yield owned_between(job("ended", ENDED, ""), 0, ENDED_AFTER_MINUTES)
    yield _only_gpu(job("shared", SHARED, ""), "0")
    yield _only_gpu(job("shared", NEIGHBOR, "", user="bob"), "1")
    owners = owners_of(free := job("free", "0", ""))
    yield edited(free, lambda key, _minute, value: float("nan") if key in owners.series else value)


def _only_gpu(history: History, gpu: str) -> History:
    return edited(history, lambda key, _minute, value: value if dict(key[1]).get("gpu", gpu) == gpu else float("nan"))
