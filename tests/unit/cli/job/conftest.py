"""Literal answers of a Prometheus about a job, and the job that they make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from gpu_triage.cli.fleet.prometheus import Series
from gpu_triage.cli.job.advice import Advice, advice_on, compare
from gpu_triage.cli.job.job_facts import Window
from gpu_triage.cli.job.job_runs import Found, JobKey, Kind, Run
from gpu_triage.cli.job.job_view import Job, job_of

START, END, STEP = 1000.0, 4600.0, 15  # An hour, looked at every 15 s
STEPS = 240


def series(value: float, *times: float, **labels: str) -> Series:
    """A series with this value at some times, or once."""
    return Series(defaultdict(str, labels), tuple((at, value) for at in times or (END,)))


def run(**changes: Any) -> Run:
    usual = {
        "key": JobKey(Kind.SLURM, "", "", "4711"),
        "users": frozenset({"ada"}),
        "accounts": frozenset[str](),
        "pods": frozenset[str](),
        "start": START,
        "end": END,
        "gpus": 8,
    }
    return Run(**{**usual, **changes})


def gpu_labels(host: str, gpu: int) -> dict[str, str]:
    return {"job": "gpu-triage", "instance": f"{host}:9836", "gpu": str(gpu), "uuid": f"GPU-{host}{gpu}"}


def advice(job: Job) -> Advice:
    return advice_on(job, compare(job))


class JobMaker:
    """A job of some GPUs, of which only what differs from a healthy one has to be said."""

    def __init__(self, *hosts: str, gpus: int = 2) -> None:
        self.answers: defaultdict[str, list[Series]] = defaultdict(list)
        self.places = [(host, gpu) for host in hosts for gpu in range(gpus)]
        self.readings: dict[tuple[str, int], dict[str, Any]] = {}
        self.left: dict[tuple[str, int], float] = {}

    def gpu(self, host: str, gpu: int, **readings: Any) -> JobMaker:
        """`classes` as shares of time, `clock` in MHz, `power` in watts, `busy` 0-1, `name`."""
        self.readings[host, gpu] = readings
        return self

    def leaves(self, host: str, gpu: int, at: float) -> JobMaker:
        """The job has the GPU until this time only; what was read of it until then does not change."""
        self.left[host, gpu] = at
        share = (at - START) / (END - START)
        return self.gpu(host, gpu, classes={"compute": share})

    def add(self, name: str, *found: Series) -> JobMaker:
        self.answers[name] += found
        return self

    def finding(self, code: str, severity: str, host: str, gpu: int | None = None, state: float = 2) -> JobMaker:
        labels = gpu_labels(host, gpu or 0)
        if gpu is None:
            labels = {name: value for name, value in labels.items() if name not in ("gpu", "uuid")}
        labels |= {"code": code, "severity": severity, "action": "fix_host"}
        return (
            self.add("worst", series(state, **labels))
            .add("found", series(START, **labels))
            .add("lost", series(END, **labels))
        )

    def made(self, *, watched: bool = True, found: Mapping[str, Any] | None = None, **changes: Any) -> Job:
        """The job; `changes` are of its run, and `found` of what is known of it."""
        for place in self.places:
            labels = gpu_labels(*place)
            has: dict[str, Any] = {
                "classes": {"compute": 1.0},
                "clock": 1980,
                "power": 600,
                "busy": 0.97,
                "name": "H100",
            }
            has |= self.readings.get(place, {})
            last = self.left.get(place, END) - STEP
            self.add("held", series(STEPS, **labels))
            self.add("first", series(START, **labels)).add("last", series(last, **labels))
            classes: Mapping[str, float] = has["classes"]
            self.add(
                "classes", *(series(share * STEPS, **labels, **{"class": name}) for name, share in classes.items())
            )
            for name, key, scale in (("clocks", "clock", 1e6), ("power", "power", 1), ("busy", "busy", 1)):
                if has[key] is not None:
                    self.add(name, series(has[key] * scale, **labels))
            self.add("models", series(1, **labels, name=has["name"]))
        if watched:
            self.add("before", series(1, job="gpu-triage", instance="a:9836"))
        usual = {"run": run(**changes), "others": (), "siblings": 0, "asked_at": END, "ongoing": True}
        return job_of(Found(**{**usual, **(found or {})}), Window(START, END, STEP), self.answers)
