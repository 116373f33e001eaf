"""Six jobs of four hosts with one thing wrong with each, and what an answer about them must say.

`histories` makes series of them: with steps or without, Slurm's or a pod's. The command, the rules and the dashboards
can be shown over the same six.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

MINUTES: Final = 40
STEP_SECONDS: Final = 60.0  # between two scrapes: the slowest that the exporter supports
LETTERS: Final = "abcd"
CULPRIT: Final = "c"  # the host on which something is wrong, its GPU 1 if it is one GPU
STEPS: Final = "gpu_job_steps_total"
USER, ACCOUNT = "ada", "physics"
JOB_NAME: Final = "pretraining"

_FORWARD: Final = 2.0  # steps per second of a healthy job


class Scheduler(Enum):
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


Event = Mapping[str, Any]


def _load(at: str, **effect: float | bool) -> Event:
    return {"at": at, "effect": {"kind": "load", **effect}}


_SPIN: Final = {
    "utilization": 1.0,
    "memory_utilization": 0.02,
    "intensity": 0.05,
    "spinning": True,
    "jitter": 0.0,
    "pcie_receive_bytes_per_second": 0.0,
    "pcie_transmit_bytes_per_second": 0.0,
}
"""A rank that waits in a collective."""
_PAUSES: Final = tuple(
    {**_load(f"{minute}m", utilization=0.0), "until": f"{minute * 60 + 90}s"} for minute in (8, 18, 28, 38)
)

HOSTS: Final[Mapping[str, tuple[Event, ...]]] = {
    # It waits at the end of each step for a slower one: less power, and the same clock.
    "waiting": (_load("0m", utilization=1.0, intensity=0.6),),
    "slow GPU": (
        _load("0m", utilization=1.0, intensity=0.6),
        {
            "at": "12m",
            "gpu": 1,
            "effect": {"kind": "thermal_throttle", "source": "hw", "sm_clock_mhz": 1250, "ambient_celsius": 44},
        },
    ),
    "locked clocks": (
        _load("0m", utilization=1.0, intensity=0.9),
        {"at": "0m", "effect": {"kind": "application_clock", "sm_mhz": 1410}},
    ),
    "spins": (_load("20m", **_SPIN),),
    # Its GPU 0 waits for its GPU 1, like all others.
    "hung rank": (
        {**_load("20m", **_SPIN), "gpu": 0},
        {**_load("20m", utilization=0.0, memory_utilization=0.0), "gpu": 1},
    ),
    "starved": (
        _load("5m", utilization=0.3, memory_utilization=0.15, intensity=0.8),
        {
            "at": "5m",
            "effect": {
                "kind": "nfs",
                "mount": "/mnt/datasets",
                "reads_per_second": 90,
                "read_bytes_per_second": 4.0e7,
                "read_seconds": 0.11,
            },
        },
    ),
    "waits for the starved": (_load("5m", **{**_SPIN, "intensity": 0.3}),),
    "checkpoints": _PAUSES,
}
"""What happens to a host of two GPUs, by its kind."""
SLOW_CHIP: Final = "slow chip"
"""A kind of host whose GPU 1 has a lower clock than GPU 0 of the same model, and no reason for it that is known."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A job and what is wrong with it."""

    name: str  # also the prefix of its hosts
    number: str  # of its Slurm job
    hosts: Mapping[str, str]  # the kind of each host, by letter
    pace: Callable[[float], float]  # steps per second of every rank at a time in seconds
    # what an answer about it must have, with ``{host}`` for the culprit; by what it is about: ``slow``, ``first``
    must_say: Mapping[str, str]

    def instance(self, letter: str) -> str:
        return f"{self.name}-{letter}:9836"

    @property
    def culprit(self) -> str:
        """The host that is to be named; of a healthy job the third as well."""
        return self.instance(CULPRIT if CULPRIT in self.hosts else LETTERS[0])


def _hosts(kind: str, others: str) -> dict[str, str]:
    return {letter: kind if letter == CULPRIT else others for letter in LETTERS}


def _after(minute: float, before: float, after: float) -> Callable[[float], float]:
    return lambda seconds: before if seconds < minute * 60 else after


SITUATIONS: Final = (
    Situation(
        "slow-gpu",
        "4701",
        _hosts("slow GPU", "waiting"),
        _after(12, _FORWARD, 1.4),
        {
            "slow": "GPU 1 of {host} is throttled by heat",
            "first": "GPU 1 of {host}: Take it out of use; check fans, airflow, dust, inlet air and the cooler's",
        },
    ),
    Situation(
        "slow-host",
        "4702",
        _hosts("locked clocks", "waiting"),
        lambda _seconds: 1.5,
        {
            "slow": "{host} is held back by a clock limit",
            "first": "Unless that is intended, reset them (nvidia-smi -rac, and -rgc for locked ones).",
        },
    ),
    Situation(
        "slow-pair",
        "4703",
        {LETTERS[0]: SLOW_CHIP},
        lambda _seconds: 1.4,
        {
            "slow": "GPU 1 of {host} runs 30% below the SM clock of the other, and a synchronous job runs at its pace",
            "first": "GPU 1 of {host}: Look at its heat, power and clocks first; move the job off it.",
        },
    ),
    Situation(
        "hang",
        "4704",
        _hosts("hung rank", "spins"),
        _after(20, _FORWARD, 0.0),
        {
            "slow": "GPU 1 of {host} is hung",
            "first": "GPU 1 of {host}: Save the stacks of its ranks (py-spy dump), then have its owner restart it.",
        },
    ),
    Situation(
        "starved",
        "4705",
        _hosts("starved", "waits for the starved"),
        _after(5, _FORWARD, 0.6),
        {
            "slow": "{host} is waiting for storage",
            "first": "{host}: Keep the data local, cache, prefetch or shard it, before adding GPUs.",
        },
    ),
    Situation(
        "checkpoints",
        "4706",
        dict.fromkeys(LETTERS, "checkpoints"),
        lambda seconds: 0.0 if seconds // 60 % 10 == 8 else _FORWARD,
        {
            "slow": "its GPUs lost no time to a bottleneck, and none of them is slower than the others",
            "first": "Profile the job: its GPUs lost no time to a bottleneck.",
        },
    ),
)
BY_NAME: Final = {situation.name: situation for situation in SITUATIONS}
