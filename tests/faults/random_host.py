"""Hosts and faults by chance: the same seed makes the same host, and the same faults at the same seconds."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.injections import CODES, OF_THE_LOOK
from tests.faults.library import every_function
from tests.faults.rows_files import DAMAGES, SUBJECTS

from gpu_triage_simulator import Scenario
from gpu_triage_simulator.scenario_file import read_scenario
from gpu_triage_simulator.schema import read_toml

FIRST_SECOND = 12
"""Until then the host is healthy, so that there is something to compare with."""
FAULT_SECONDS = 24
"""All faults begin and end within this time."""

MODELS = ("h100-sxm5-80gb", "a100-sxm4-40gb", "a10", "l40s", "rtx-4070-ti-super", "v100-sxm2-16gb")
WITH_MIG = MODELS[:2]

FIELDS = "nvmlDeviceGetFieldValues"

_EFFECTS: Mapping[str, Mapping[str, Any]] = read_toml(Path(__file__).with_name("random_effects.toml"))

ABSURD = (0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 2, (1 << 32) - 1, 1 << 40, 1 << 63, (1 << 64) - 2, (1 << 64) - 1)

_OF_THE_DRIVER = frozenset({"NVML_ERROR_UNINITIALIZED", "NVML_ERROR_DRIVER_NOT_LOADED"})
_OF_A_GONE_GPU = frozenset({"NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED"})


@dataclass(frozen=True, slots=True)
class CallFault:
    """What becomes of some calls."""

    gpu: int | None  # place of the GPU they are about, by bus; None for those that are about none
    function: str | None  # exported name; None for every function that a reader calls
    # at, until: seconds, the second one excluded
    at: int
    until: int
    kind: str  # ``hang``, ``slow``, ``error``, ``number``, ``bits``, ``fewer``, ``share``
    # seconds for ``slow``, the code for ``error``, the number for ``number``, the seed for ``bits``, and what the
    # number of links (``fewer``) or other fields (``share``) are multiplied by
    amount: float = 0

    def meets(self, function: str, gpu: int | None, seconds: float) -> bool:
        meant = function not in OF_THE_LOOK if self.function is None else function == self.function
        return meant and gpu == self.gpu and self.at <= seconds < self.until


@dataclass(frozen=True, slots=True)
class FileFault:
    """Kernel files are damaged: an index of SUBJECTS, and a key of DAMAGES."""

    subject: int
    damage: str
    at: int
    until: int


@dataclass(frozen=True, slots=True)
class Hostile:
    """A host and what is done to it."""

    seed: int  # makes all of it
    scenario: Scenario  # the host, and what the simulator itself can do to it
    calls: tuple[CallFault, ...]  # what is done to calls
    files: tuple[FileFault, ...]  # what is done to kernel files
    sick: frozenset[int]  # GPUs that any of it keeps from being read, by place
    driver: tuple[int, int] | None  # seconds between which the driver as a whole may not answer; None where it does
    first_second: int = FIRST_SECOND  # until then the host is healthy

    @property
    def recovers_within(self) -> int:
        """Seconds until all is well again: a GPU is looked for 15 s after it was lost, or after the driver was gone."""
        return 15 if self.driver is None else 30

    @property
    def over(self) -> int:
        """The second from which on nothing is wrong any more."""
        ends = [fault.until for fault in self.calls] + [fault.until for fault in self.files]
        return max([*ends, *(event.until or 0 for event in self.scenario.events)], default=self.first_second)

    def __str__(self) -> str:
        """What is done to it, and how to play it again."""
        done = (*self.scenario.events, *self.calls, *self.files)
        return "\n".join([*map(str, done), f"replay: pytest tests/faults/test_random.py --seed {self.seed}"])


def hostile(seed: int, first_second: int = FIRST_SECOND) -> Hostile:
    """The host of a seed, with faults from this second on."""
    return _Maker(seed, first_second).make()


class _Maker:
    """Makes one host; every choice is made in the same order for the same seed."""

    def __init__(self, seed: int, first_second: int) -> None:
        self._seed = seed
        self._first_second = first_second
        self._chance = random.Random(seed)
        few = self._chance.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 4))  # each as often as it is here
        # Every 12th host has 8, every 25th 16: they take long to play.
        self._gpus = next((many for every, many in {12: 8, 25: 16}.items() if seed % every == every - 1), few)
        self._models = [self._chance.choice(MODELS) for _ in range(self._gpus)]
        self._events: list[Mapping[str, Any]] = []
        self._calls: list[CallFault] = []
        self._files: list[FileFault] = []
        self._sick: set[int] = set()
        self._driver: tuple[int, int] | None = None
        self._gone = self._span(12)  # it is back by then: the first try to find it comes after 15 s
        # At this one the process ends so that it is started anew.
        self._codes = [name for name in CODES if name != "NVML_ERROR_LIB_RM_VERSION_MISMATCH"]

    def make(self) -> Hostile:
        host = self._host()
        # Somebody must stay untouched, or nobody could tell whether faults stay where they are.
        targets = self._chance.sample(range(self._gpus), self._chance.randint(0, self._gpus - self._gpus // 3))
        for gpu in targets:
            for _ in range(self._chance.randint(1, 3)):
                self._chance.choice((self._gone_gpu, self._effect, self._effect, self._call, self._call, self._call))(
                    gpu
                )
        for _ in range(self._chance.randint(0, 3)):
            self._chance.choice((self._file, self._on_host, self._of_library))()
        if self._chance.random() < 1 / 8:
            self._without_driver()
        self._miscount(targets)
        scenario = read_scenario({**host, "event": self._events}, f"seed {self._seed}")
        calls, files, sick = tuple(self._calls), tuple(self._files), frozenset(self._sick)
        return Hostile(self._seed, scenario, calls, files, sick, self._driver, self._first_second)

    def _miscount(self, targets: list[int]) -> None:
        """Let drivers answer fewer links, and counters that fall and come back."""
        chance = random.Random(~self._seed)  # its own: the other faults of a seed stay what they are
        for gpu in targets:
            at = self._first_second + chance.randint(0, FAULT_SECONDS // 2)
            until = at + chance.randint(1, FAULT_SECONDS // 2)
            kind, share = chance.choice(
                (("fewer", 0.3), ("fewer", 0.6), ("share", 0.0), ("share", 0.6), ("share", 0.99))
            )
            self._calls.append(CallFault(gpu, FIELDS, at, until, kind, share))
            self._sick.add(gpu)

    def _span(self, most: int = FAULT_SECONDS) -> tuple[int, int]:
        first, last = self._first_second, self._first_second + FAULT_SECONDS
        # What is there from the start is met by every first look and reading, so that half of it is.
        at = first if not first and self._chance.random() < 1 / 2 else self._chance.randint(first, last - 2)
        return at, min(at + self._chance.randint(1, most), last)

    def _host(self) -> Mapping[str, Any]:
        """The tables of a scenario file."""
        version = self._chance.choice(("580.95.05", "550.54.14", "535.129.03", "470.57.02"))
        disk = {"name": "nvme0n1", "slot": {"bus_id": "0000:02:00.0", "node": 0, "width": 4}}
        nic = {"name": "eth0", "slot": {"bus_id": "0000:03:00.0", "node": 0}, "speed_mbps": 100_000}
        machine = {"memory_gib": 512, "memory_available_gib": 300, "node": [{"cpus": "0-31"}]}
        gpus, processes = [], []
        for gpu in range(self._gpus):
            busy = round(self._chance.random(), 2)
            load = {"utilization": busy, "memory_utilization": busy / 2, "intensity": busy}
            slot = {"bus_id": f"0000:{0x10 + gpu:02x}:00.0", "node": 0}
            gpus.append({"model": self._models[gpu], "slot": slot, "load": load})
            for pid in range(1000 + 10 * gpu, 1000 + 10 * gpu + self._chance.randint(0, 3)):
                processes.append({"gpu": gpu, "pid": pid, "name": "python", "memory_mib": 500, "sm": 0.1})
                if self._chance.random() < 1 / 3:
                    self._event(*self._span(), None, kind="kill", pids=[pid])
        return {
            "name": f"random-{self._seed}",
            "description": "A host by chance.",
            "seed": self._seed,
            "driver": {"version": version, "cuda": "12.4"},
            "machine": {**machine, "disk": [disk], "nic": [nic]},
            "gpu": gpus,
            "process": processes,
        }

    def _event(self, at: int, until: int, gpu: int | None, **effect: Any) -> None:
        self._events.append({"at": at, "until": until, "effect": effect, **({} if gpu is None else {"gpu": gpu})})

    def _gone_gpu(self, gpu: int) -> None:
        self._sick.add(gpu)
        kind = self._chance.choice(("lost", "lost", "removed", "reset_required", "denied"))
        self._event(*self._gone, gpu, kind=kind)

    def _effect(self, gpu: int) -> None:
        chance = self._chance
        at, until = self._span()
        kind = chance.choice([kind for kind in _EFFECTS["gpu"] if kind != "mig" or self._models[gpu] in WITH_MIG])
        keys = {key: chance.choice(values) for key, values in _EFFECTS["gpu"][kind].items()}
        if kind == "mig":
            self._sick.add(gpu)
        self._event(at, until, gpu, kind=kind, **keys)

    def _call(self, gpu: int) -> None:
        chance = self._chance
        self._sick.add(gpu)
        kind = chance.choice(("hang", "slow", "error", "error", "number", "number", "bits"))
        functions = [*every_function(), *((*OF_THE_LOOK,) if kind in {"hang", "slow", "error"} else ())]
        function = None if chance.random() < 1 / 6 else chance.choice(functions)
        self._calls.append(self._fault(gpu, function, kind))

    def _fault(self, gpu: int | None, function: str | None, kind: str) -> CallFault:
        chance = self._chance
        at, until = self._span()
        amount: float = 0
        if kind == "slow":
            amount = chance.choice((0.2, 0.8, 2.5, 7.0))
        elif kind == "error":
            name = chance.choice(self._codes)
            amount = CODES[name]
            if name in _OF_THE_DRIVER:
                at, until = self._gone
                self._driver_fails(at, until)
            elif name in _OF_A_GONE_GPU or function in OF_THE_LOOK:
                at, until = self._gone
        elif kind == "number":
            amount = chance.choice((*ABSURD, chance.getrandbits(64)))
        elif kind == "bits":
            amount = chance.getrandbits(32)
        return CallFault(gpu, function, at, until, kind, amount)

    def _file(self) -> None:
        at, until = self._span()
        subject, damage = self._chance.randrange(len(SUBJECTS)), self._chance.choice(tuple(DAMAGES))
        if all(fault.subject != subject for fault in self._files):
            self._files.append(FileFault(subject, damage, at, until))

    def _on_host(self) -> None:
        at, until = self._span()
        kind = self._chance.choice(tuple(_EFFECTS["host"]))
        self._event(
            at, until, None, kind=kind, **{k: self._chance.choice(v) for k, v in _EFFECTS["host"][kind].items()}
        )

    def _of_library(self) -> None:
        kind = self._chance.choice(("hang", "slow", "error"))
        function = self._chance.choice(("nvmlDeviceGetCount_v2", "nvmlEventSetWait_v2", "nvmlSystemGetDriverVersion"))
        fault = self._fault(None, function, kind)
        first_look = self._first_second == 0 and function != "nvmlEventSetWait_v2"
        if first_look or (kind == "error" and function == "nvmlDeviceGetCount_v2"):
            self._driver_fails(fault.at, fault.until)
        self._calls.append(fault)

    def _without_driver(self) -> None:
        at, until = self._gone
        self._driver_fails(at, until)
        self._event(at, until, None, kind=self._chance.choice(("driver_not_loaded", "library_missing")))

    def _driver_fails(self, at: int, until: int) -> None:
        since, to = self._driver or (at, until)
        self._driver = min(since, at), max(to, until)
