"""Six jobs of four hosts with one thing wrong with each, and what an answer about them must say.

`histories` makes series of them: with steps or without, Slurm's or a pod's. The command, the rules and the dashboards
can be shown over the same six.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

MINUTES: Final = 40
STEP_SECONDS: Final = 60.0  # between two scrapes: the slowest that the exporter supports
LETTERS: Final = "abcd"
CULPRIT: Final = "c"  # the host on which something is wrong, its GPU 1 if it is one GPU
STEPS: Final = "gpu_job_steps_total"
USER, ACCOUNT = "ada", "physics"
JOB_NAME: Final = "pretraining"

COMPUTE_SECONDS, EXCHANGE_SECONDS = 0.4, 0.1
"""Of a step: two steps a second while nothing is wrong."""


class Scheduler(Enum):
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


Table = Mapping[str, Any]
"""An event or episode, as in a scenario file."""


@dataclass(frozen=True, slots=True)
class Host:
    """What happens to a host of two GPUs beside what its job does to it."""

    events: Sequence[Table] = ()
    second_gpu: Table = field(default_factory=dict)  # what its GPU 1 is like


@dataclass(frozen=True, slots=True)
class Situation:
    """A job and what is wrong with it; what the others do about that is the simulation's to say."""

    name: str  # also the prefix of its hosts
    number: str  # of its Slurm job
    happens: str  # the one of the six whose recordings it has
    hosts: Mapping[str, Host]  # by letter
    episodes: Sequence[Table]  # of the job, whose ranks are numbered in the order of hosts and GPUs
    # what an answer about it must have, with ``{host}`` for the culprit; by what it is about: ``slow``, ``first``
    must_say: Mapping[str, str]

    def instance(self, letter: str) -> str:
        return f"{self.name}-{letter}:9836"

    @property
    def culprit(self) -> str:
        """The host that is to be named; of a healthy job the third as well."""
        return self.instance(CULPRIT if CULPRIT in self.hosts else LETTERS[0])


def _situation(
    name: str, number: str, slow: str, first: str, *events: Table, episodes: Sequence[Table] = ()
) -> Situation:
    """Four hosts, with all of these events on one of them."""
    hosts = {letter: Host(events if letter == CULPRIT else ()) for letter in LETTERS}
    return Situation(name, number, name, hosts, episodes, {"slow": slow, "first": first})


_HEAT: Final[Table] = {"kind": "thermal_throttle", "source": "hw", "sm_clock_mhz": 1250, "ambient_celsius": 44}
_SLOW_SERVER: Final[Table] = {
    "kind": "nfs",
    "mount": "/mnt/datasets",
    "reads_per_second": 90,
    "read_bytes_per_second": 4.0e7,
    "read_seconds": 0.11,
}
_RANKS: Final = [2 * LETTERS.index(CULPRIT), 2 * LETTERS.index(CULPRIT) + 1]
"""Of the culprit."""
SITUATIONS: Final = (
    _situation(
        *("slow-gpu", "4701", "GPU 1 of {host} is throttled by heat"),
        "GPU 1 of {host}: Take it out of use; check fans, airflow, dust, inlet air and the cooler's",
        {"at": "12m", "gpu": 1, "effect": _HEAT},
    ),
    _situation(
        *("slow-host", "4702", "{host} is held back by a clock limit"),
        "Unless that is intended, reset them (nvidia-smi -rac, and -rgc for locked ones).",
        {"at": "0m", "effect": {"kind": "application_clock", "sm_mhz": 1410}},
    ),
    Situation(
        *("slow-pair", "4703", "slow-pair"),
        # A lower clock than GPU 0 of the same model has, and no reason for it that is known.
        {LETTERS[0]: Host(second_gpu={"boost_mhz": 1386})},
        (),
        {
            "slow": "GPU 1 of {host} runs 30% below the SM clock of the other, and a synchronous job runs at its pace",
            "first": "GPU 1 of {host}: Look at its heat, power and clocks first; move the job off it.",
        },
    ),
    _situation(
        *("hang", "4704", "GPU 1 of {host} is hung"),
        "GPU 1 of {host}: Save the stacks of its ranks (py-spy dump), then have its owner restart it.",
        episodes=({"trouble": "hung", "at": "20m", "ranks": _RANKS[1:]},),
    ),
    _situation(
        *("starved", "4705", "{host} is waiting for storage"),
        "{host}: Keep the data local, cache, prefetch or shard it, before adding GPUs.",
        {"at": "5m", "effect": _SLOW_SERVER},
        episodes=({"trouble": "starved", "at": "5m", "ranks": _RANKS, "factor": 0.3},),
    ),
    _situation(
        *("checkpoints", "4706"),
        "its GPUs lost no time to a bottleneck, and none of them is slower than the others",
        "Profile the job: its GPUs lost no time to a bottleneck.",
        episodes=({"trouble": "paused", "at": "8m", "until": "40m", "every": "15m", "lasts": "90s"},),
    ),
)
BY_NAME: Final = {situation.name: situation for situation in SITUATIONS}
