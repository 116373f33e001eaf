"""The job that the command is about: a Slurm job, a pod or the pods of a workload, or a user."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpu_triage.cli.fleet.query import any_of
from gpu_triage.documents import quoted
from gpu_triage.options.values import TextType


class Kind(Enum):
    """What a job is known by; the value is the prefix that selects it."""

    SLURM = "slurm"
    POD = "pod"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The argument of the command.

    Attributes:
        kinds: what it may name, in order of preference.
        namespace: of the pod; "" for any.
    """

    kinds: tuple[Kind, ...]
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        """As it can be typed again: ``4711``, ``research/train-0``."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_SLURM_STEP: Final = re.compile(r"([0-9]{1,10})\.(?:[0-9]+|batch|extern|interactive)")
_SLURM_PART: Final = re.compile(r"[0-9]{1,10}(?:_(?:[0-9]+|\[.*\])|\+[0-9]+)(?:\..*)?")
_LONGEST: Final = 253

_ROLES: Final = frozenset(
    {"chief", "evaluator", "head", "launcher", "leader", "master", "ps", "server", "task", "worker", "workers"}
)
"""Words that training operators put between the name of a job and the number of a pod."""
_ORDINAL: Final = re.compile(r"[0-9]{1,5}")
_SUFFIX: Final = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8,10}")
"""What Kubernetes generates: of a pod (five characters), of a ReplicaSet's template (eight to ten)."""


def parse_wanted(text: str) -> Wanted:
    """Parse ``4711``, ``research/train-0``, ``train-0``, ``ada``, or one of them after ``slurm:``, ``pod:``, ``user:``.

    A number is a Slurm job, if there is one. Another name is a pod or a user, whichever exists.

    Raises:
        ValueError: it is empty, or a part of a Slurm job that exporters know by another number.
    """
    prefix, colon, rest = text.partition(":")
    kinds = tuple(kind for kind in Kind if colon and kind.value == prefix)
    name = rest if kinds else text
    if not name.strip() or len(name) > _LONGEST * 2:
        raise ValueError(f"{quoted(text)} names no job; write a Slurm job's number, a pod, or a user")
    if (not kinds or kinds == (Kind.SLURM,)) and _NUMBER.match(name):
        _refuse_parts(name)
    namespace, slash, pod = name.partition("/")
    if slash and kinds in ((), (Kind.POD,)):
        if not namespace or not pod:
            raise ValueError(f"{quoted(text)} names no pod; write NAMESPACE/POD")
        return Wanted((Kind.POD,), pod, namespace)
    if kinds:
        return Wanted(kinds, name)
    return Wanted(tuple(Kind) if _NUMBER.fullmatch(name) else (Kind.POD, Kind.USER), name)


def _refuse_parts(name: str) -> None:
    step = _SLURM_STEP.fullmatch(name)
    if step:
        raise ValueError(f"{quoted(name)} is a step; write the job's number, {step[1]}")
    if _SLURM_PART.fullmatch(name):
        raise ValueError(
            f"{quoted(name)} is a part of an array or of a heterogeneous job, and each part has a number of its own; "
            f"write the JobId that scontrol show job {name} prints"
        )


WANTED: Final = TextType("JOB", parse_wanted)


def workload_of(pod: str) -> str:
    """The workload of a pod, from its name: ``train`` for ``train-worker-3``, ``train-0``, ``train-x7k2p``.

    Only names are known here. Two workloads differ in what is left of their pods' names.
    """
    parts = pod.split("-")
    while len(parts) > 1 and (_ORDINAL.fullmatch(parts[-1]) or _SUFFIX.fullmatch(parts[-1]) or parts[-1] in _ROLES):
        parts.pop()
    return "-".join(parts)


def matcher(label: str, value: str) -> str:
    """A PromQL matcher for exactly this value, whatever characters it has."""
    return f"{label}={json.dumps(value, ensure_ascii=False)}"


def matcher_of_any(label: str, values: Iterable[str]) -> str:
    """A PromQL matcher for exactly these values."""
    return f"{label}=~{json.dumps(any_of(values), ensure_ascii=False)}"


def matchers(wanted: Wanted) -> dict[Kind, str]:
    """The matchers that find everything the name may mean, by kind; pods include those of the same workload."""
    stem = workload_of(wanted.name)
    pattern = f"{re.escape(wanted.name)}|{re.escape(stem)}(?:-.+)?"
    pods = f"workload_pod=~{json.dumps(pattern, ensure_ascii=False)}"
    namespace = f",{matcher('workload_namespace', wanted.namespace)}" if wanted.namespace else ""
    every = {
        Kind.SLURM: matcher("slurm_job_id", wanted.name),
        Kind.POD: f"{pods}{namespace}",
        Kind.USER: matcher("user", wanted.name),
    }
    return {kind: every[kind] for kind in wanted.kinds}
