"""What a job loses and for whom it waits, as the rules recorded it for its alert."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.fleet_view import HostKey, Selection, key_of, matcher
from gpu_triage.cli.fleet.job_pace import JOB, LOST, PACE, RECORDED_SECONDS, WAITED_FOR, Awaited, awaited
from gpu_triage.cli.fleet.prometheus import Series
from gpu_triage.cli.job.job_runs import Kind, Run, workload_of

DIFFERS: Final = "instance_gpu_owner:gpu_hang_differs:affected"

_RECENT_SECONDS: Final = 300


class OddThread(NamedTuple):
    """Of a job that hangs, the one GPU with a main thread that differs from those of all others."""

    subject: str  # ``GPU 3 of gpu-07:9836``
    runs: bool  # whether it runs while the others sleep; otherwise it sleeps while they run

    def __str__(self) -> str:
        return f"of all main threads, only that on {self.subject} {'runs' if self.runs else 'does not run'}"


@dataclass(frozen=True, slots=True)
class Loss:
    """What the job loses."""

    pace: float | None  # at the end, as a share of its best hour; None if it was not known then
    gpus: float | None  # how many GPUs it loses at the end
    gpu_seconds: float  # lost in the whole window, as far as the pace was known
    awaited: Mapping[Awaited, float]  # GPU seconds that it lost meanwhile, the most first
    at_end: frozenset[Awaited]  # what the others wait for at the end

    @property
    def main(self) -> Awaited | None:
        """What the others wait for at the end, or what they waited for the most."""
        return max(self.awaited, key=lambda each: (each in self.at_end, self.awaited[each]), default=None)

    def while_waiting(self, host: HostKey, uuid: str) -> float:
        """GPU seconds lost while the others waited for a GPU or its host; without `uuid`, for a host or its GPUs."""
        return sum(
            seconds
            for each, seconds in self.awaited.items()
            if each.host == host and (each.uuid == uuid or not (each.uuid and uuid))
        )


def loss_queries(hosts: Selection, run: Run, seconds: float, step_seconds: int) -> Mapping[str, str]:
    """The queries about a job's loss in so many seconds before an evaluation; none for what a user runs.

    paced, lost_now: pace and lost GPUs at the end. lost_seconds: GPU seconds lost. awaited, awaited_now: the same by
    what the others waited for, and that at the end. differs: the odd main thread at the end, if the job hangs.
    """
    if run.key.kind is Kind.USER:
        return {}
    name = run.key.name
    owner = f"{name}/" if run.key.kind is Kind.SLURM else f"{run.key.namespace}/{workload_of(name)}"
    of_job = Selection(hosts.cluster, hosts.job).with_matcher(matcher("owner", owner))
    step = max(RECORDED_SECONDS, step_seconds)
    over, recent = f"[{math.ceil(seconds)}s:{step}s]", f"[{_RECENT_SECONDS}s]"
    place = "cluster, job, instance, gpu, uuid, why"
    lost = f"max by ({JOB}) ({LOST}{of_job})"
    return {
        "paced": f"last_over_time({PACE}{of_job}{recent})",
        "lost_now": f"last_over_time({LOST}{of_job}{recent})",
        "lost_seconds": f"{step} * sum_over_time({LOST}{of_job}{over})",
        "awaited": f"{step} * sum by ({place}) "
        f"(sum_over_time(({WAITED_FOR}{of_job} ^ 0 * on ({JOB}) group_left () {lost}){over}))",
        "differs": f"last_over_time({DIFFERS}{of_job}{recent})",
        "awaited_now": f"group by ({place}) (last_over_time({WAITED_FOR}{of_job}{recent}))",
    }


def loss_of(facts: Mapping[str, list[Series]]) -> Loss | None:
    """The loss; None if the pace was never known."""
    if not facts.get("lost_seconds"):
        return None
    lost = {awaited(each): each.value for each in facts["awaited"]}
    return Loss(
        pace=min((each.value for each in facts["paced"]), default=None),
        gpus=max((each.value for each in facts["lost_now"]), default=None),
        gpu_seconds=sum(each.value for each in facts["lost_seconds"]),
        awaited={each: lost[each] for each in sorted(lost, key=lambda each: -lost[each])},
        at_end=frozenset(map(awaited, facts["awaited_now"])),
    )


def odd_thread_of(facts: Mapping[str, list[Series]]) -> OddThread | None:
    """The odd main thread; None if none is, or if it changed within minutes."""
    found = [
        OddThread(f"GPU {each.labels['gpu']} of {key_of(each)}", each.value > 0.5)  # noqa: PLR2004 - a half
        for each in facts.get("differs", ())
    ]
    return found[0] if len(found) == 1 else None
