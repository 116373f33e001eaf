"""What jobs lose, as the rules record it (``alerts-jobs.yml``): one source for `fleet`, `report` and `job`.

Nothing is known without these rules, in a job's first half hour, and of what a user runs without a scheduler.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from gpu_triage.cli.fleet.fleet_view import HostKey, Selection, key_of
from gpu_triage.cli.fleet.prometheus import Series

PACE: Final = "owner:gpu_job:pace"
LOST: Final = "owner:gpu_job_lost:gpus"
WAITED_FOR: Final = "instance_gpu_owner_why:gpu_job_waited_for:affected"
_MEMBER: Final = "instance_gpu_owner:gpu_job:member"
_PAUSING: Final = "owner:gpu_job:pausing"
_STUCK: Final = "owner:gpu_hang:stuck"

JOB: Final = "cluster, job, owner"
PLACE: Final = f"{JOB}, instance, gpu, uuid, why"
RECORDED_SECONDS: Final = 60  # interval of the rules
_ALERTED: Final = 'alertname=~"GpuJobSlow|GpuJobHung",alertstate="firing"'  # with the threshold of the rules' settings


_PAUSE_SECONDS: Final = 600
"""A checkpoint or an evaluation, and the minutes for which the rules look back at it, take less."""
_LATEST_SECONDS: Final = 150


def steady(recorded: str, where: str, at: str = "") -> str:
    """PromQL for the latest pace or loss of jobs outside of pauses: during a checkpoint, that of before.

    `where` are matchers in braces, `at` a modifier of time that begins with a space.
    """
    latest = f"last_over_time({recorded}{where}[{_LATEST_SECONDS}s]{at})"
    going = f"{recorded}{where} unless on ({JOB}) ({pausing(where)})"
    return f"(last_over_time(({going})[{_PAUSE_SECONDS}s:{RECORDED_SECONDS}s]{at}) and {latest} or {latest})"


def pausing(where: str, at: str = "") -> str:
    """PromQL for jobs that pause: one that hangs makes no progress either, but does not pause."""
    hangs = f"{WAITED_FOR}{where}{at} or {_STUCK}{where}{at} == 1"
    return f"{_PAUSING}{where}{at} unless on ({JOB}) ({hangs})"


def lost_while_waiting(where: str, over: str) -> str:
    """PromQL for the GPU minutes that jobs lost while others waited for each GPU or host; `over` is a subquery."""
    lost = f"max by ({JOB}) ({LOST}{where})"
    return f"sum by ({PLACE}) (sum_over_time(({WAITED_FOR}{where} ^ 0 * on ({JOB}) group_left () {lost}){over}))"


def waiting_since(where: str, over: str) -> str:
    """PromQL for the Unix seconds at which the others were first seen to wait for each GPU or host."""
    return f"min by ({PLACE}) (min_over_time(({WAITED_FOR}{where} * 0 + time()){over}))"


class JobName(NamedTuple):
    """A job as the rules name it: a Slurm job has no namespace."""

    cluster: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Display name: ``Slurm job 4711``, ``east/ml/train``."""
        return f"{'' if self.namespace else 'Slurm job '}{'/'.join(filter(None, self))}"


def job_name(labels: Mapping[str, str]) -> JobName:
    """The job of a recorded series; its owner is ``4711/`` or ``ml/train``."""
    first, _, second = labels["owner"].partition("/")
    return JobName(labels["cluster"], first if second else "", second or first)


class Awaited(NamedTuple):
    """A GPU, or a host without `gpu` and `uuid`, that the others of a job wait for."""

    host: HostKey
    gpu: str
    uuid: str
    why: str  # computing, starving, clock or network

    @property
    def subject(self) -> str:
        return self.host.part(self.gpu if self.uuid else "")

    def document(self) -> dict[str, Any]:
        return self.host._asdict() | {"gpu": self.gpu or None, "uuid": self.uuid or None, "why": self.why}


def awaited(series: Series) -> Awaited:
    return Awaited(key_of(series), *(series.labels[name] for name in ("gpu", "uuid", "why")))


class SlowJob(NamedTuple):
    name: JobName
    pace: float  # as a share of its best hour
    lost: float  # GPUs
    waits_for: tuple[Awaited, ...]

    @property
    def gpus(self) -> int:
        """How many it has: the rules multiply them by the lost share."""
        return round(self.lost / (1 - self.pace))


def slow_queries(selection: Selection) -> Mapping[str, str]:
    """The queries about jobs that lose GPUs now, by name: those with an alert that have not recovered since."""
    alerts = f"ALERTS{replace(selection, instance=None).with_matcher(_ALERTED)}"
    return {
        "paces": f"min by ({JOB}) ({_of_jobs(PACE, selection)}) < 1 and on ({JOB}) {alerts}",
        "lost": f"sum by ({JOB}) ({_of_jobs(LOST, selection)})",  # in all, of servers that share the hosts of a job
        "waits": f"group by ({JOB}, instance, gpu, uuid, why) ({WAITED_FOR}{replace(selection, instance=None)})",
    }


def _of_jobs(recorded: str, selection: Selection) -> str:
    """A series recorded without host labels; of jobs with a GPU on the selected hosts."""
    found = f"{recorded}{replace(selection, instance=None)}"
    return found if selection.instance is None else f"{found} and on ({JOB}) {_MEMBER}{selection}"


def slow_jobs(answers: Mapping[str, list[Series]]) -> tuple[SlowJob, ...]:
    """From the answers to `slow_queries`, the one that loses most first."""
    waits: defaultdict[JobName, list[Awaited]] = defaultdict(list)
    for each in answers["waits"]:
        waits[job_name(each.labels)].append(awaited(each))
    paces, lost = ({job_name(each.labels): each.value for each in answers[name]} for name in ("paces", "lost"))
    jobs = (SlowJob(name, paces[name], lost[name], tuple(sorted(waits[name]))) for name in paces.keys() & lost.keys())
    return tuple(sorted(jobs, key=lambda job: (-job.lost, job.name)))
