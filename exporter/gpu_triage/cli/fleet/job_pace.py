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

JOB: Final = "cluster, job, owner"
RECORDED_SECONDS: Final = 60  # interval of the rules
_ALERTED: Final = 'alertname=~"GpuJobSlow|GpuJobHung",alertstate="firing"'  # with the threshold of the rules' settings


class JobName(NamedTuple):
    """A job as the rules name it: a Slurm job has no namespace."""

    cluster: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Display name: ``Slurm job 4711``, ``east/ml/train``."""
        return f"{'' if self.namespace else 'Slurm job '}{'/'.join(filter(None, self))}"


def job_name(series: Series) -> JobName:
    """The job of a recorded series; its owner is ``4711/`` or ``ml/train``."""
    first, _, second = series.labels["owner"].partition("/")
    return JobName(series.labels["cluster"], first if second else "", second or first)


class Awaited(NamedTuple):
    """A GPU, or a host without `gpu` and `uuid`, that the others of a job wait for."""

    host: HostKey
    gpu: str
    uuid: str
    why: str  # computing, starving, clock or network

    @property
    def subject(self) -> str:
        return f"GPU {self.gpu} of {self.host}" if self.uuid else str(self.host)

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


def lost_by_job(selection: Selection) -> str:
    """PromQL for what each job with a GPU on a selected host loses: all of it, of servers that share its hosts."""
    return f"sum by ({JOB}) ({_of_jobs(LOST, selection)})"


def slow_queries(selection: Selection) -> Mapping[str, str]:
    """The queries about jobs that lose GPUs now, by name: those with an alert that have not recovered since."""
    alerts = f"ALERTS{replace(selection, instance=None).with_matcher(_ALERTED)}"
    return {
        "paces": f"min by ({JOB}) ({_of_jobs(PACE, selection)}) < 1 and on ({JOB}) {alerts}",
        "lost": lost_by_job(selection),
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
        waits[job_name(each)].append(awaited(each))
    paces, lost = ({job_name(each): each.value for each in answers[name]} for name in ("paces", "lost"))
    jobs = (SlowJob(name, paces[name], lost[name], tuple(sorted(waits[name]))) for name in paces.keys() & lost.keys())
    return tuple(sorted(jobs, key=lambda job: (-job.lost, job.name)))
