"""A real daemon over the compiled driver, to which things are done by chance: real threads, real hangs, real time."""

import random
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.asked import every_function
from tests.faults.page import Page, found
from tests.faults.random_host import ABSURD, OF_THE_LOOK
from tests.faults.random_play import Broken, Pages, check_fresh, standing
from tests.faults.stand_in import Daemon, StandIn

SAMPLED = ("--sample.medium", "2s", "--sample.slow", "3s", "--sample.deadline", "2s")
"""The fast tier as shipped: a busy machine may hold this process up for a second."""

SETTLED_SECONDS = 30.0
FAULT_SECONDS = 7.0
RECOVERS_WITHIN = 20.0
"""As on the virtual clock, and some seconds in which a busy machine does something else."""
LOOK_EVERY_SECONDS = 0.4

_CODES = (1, 2, 4, 6, 10, 18, 19, 23, 999, -1, 77)
_FIELDS = (74, 76, 91, 138, 139, 161, 162, 163, 165, 185, 186, 197, 198, 269, 270, 271)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the control file, from one second to another, and the GPU that it keeps from being read, if any."""

    text: str
    at: float
    until: float
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    gpus: int
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        lines = [f"{line.at:.1f} to {line.until:.1f} s: {line.text}" for line in self.lines]
        return "\n".join([f"seed {self.seed}, {self.gpus} GPUs", *lines])


def plan(seed: int, *, lost: bool) -> Plan:
    """The plan of a seed; with GPUs that are lost, which takes 15 s longer, or without."""
    chance = random.Random(seed)
    gpus = chance.choice((2, 3, 4, 8))
    lines: list[Line] = []
    for gpu in chance.sample(range(gpus), chance.randint(1, gpus - 1)):
        for _ in range(chance.randint(1, 2)):
            at = chance.uniform(0, FAULT_SECONDS - 1)
            until = min(FAULT_SECONDS, at + chance.uniform(0.5, FAULT_SECONDS))
            lines.append(Line(f"gpu {gpu} {_done(chance)}", at, until, gpu))
    if lost:
        lines.append(Line(f"gpu {gpu} {chance.choice(('lost', 'removed', 'reset'))}", 1.0, FAULT_SECONDS, gpu))
    for _ in range(chance.randint(0, 2)):
        at = chance.uniform(0, FAULT_SECONDS - 1)
        lines.append(Line(_done_to_library(chance), at, FAULT_SECONDS))
    return Plan(seed, gpus, tuple(lines))


def _done(chance: random.Random) -> str:
    functions = [name.partition("_v")[0] for name in (*every_function(), *OF_THE_LOOK)]
    function = chance.choice(functions)
    kind = chance.choice(("hang", "slow", "error", "value", "value", "field", "everything"))
    if kind == "everything":
        return chance.choice(("hang", "error * 999", "slow * 0.3"))
    if kind == "field":
        return f"value field:{chance.choice(_FIELDS)} {chance.randint(0, 7)} {chance.choice(ABSURD)}"
    if kind == "value" and function not in {name.partition("_v")[0] for name in OF_THE_LOOK}:
        return f"value {function} " + " ".join(str(chance.choice(ABSURD)) for _ in range(4))
    if kind == "slow":
        return f"slow {function} {chance.choice((0.3, 1.5, 3.0))}"
    return f"error {function} {chance.choice(_CODES)}" if kind == "error" else f"hang {function}"


def _done_to_library(chance: random.Random) -> str:
    return chance.choice(
        (
            "host hang nvmlDeviceGetCount",
            "host slow nvmlDeviceGetCount 1",
            "host hang nvmlEventSetWait",
            "init_seconds 3",
        )
    )


def play(what: Plan, folder: Path) -> None:
    """Play a plan on a daemon from its start to its recovery.

    Raises:
        Broken: something does not hold; says what, and when.
    """
    host = StandIn(folder, what.gpus)
    uuids = [f"GPU-{gpu:08x}-0000-0000-0000-000000000000" for gpu in range(what.gpus)]
    with host.daemon(*SAMPLED) as daemon:
        began = time.monotonic()
        try:
            _Watch(daemon, host, what, uuids).run()
        except Broken as broken:
            raise Broken(
                f"after {time.monotonic() - began:.1f} s: {broken}\n\n{what}\n{daemon.log.read_text()}"
            ) from None
    misused = [line for line in host.journal() if "misuse" in line]
    if misused:
        raise Broken(f"a real library crashes: {misused[:5]}\n\n{what}")


class _Watch:
    def __init__(self, daemon: Daemon, host: StandIn, what: Plan, uuids: list[str]) -> None:
        self._daemon = daemon
        self._host = host
        self._what = what
        self._uuids = uuids
        self._pages = Pages()
        sick = {line.gpu for line in what.lines}
        self._untouched = [uuid for gpu, uuid in enumerate(uuids) if gpu not in sick]

    def run(self) -> None:
        healthy = standing(self._settled(SETTLED_SECONDS, frozenset()))
        began = time.monotonic()
        while (now := time.monotonic() - began) < FAULT_SECONDS:
            self._host.replace(*(line.text for line in self._what.lines if line.at <= now < line.until))
            page = self._page()
            for uuid in self._untouched:
                check_fresh(page, uuid)
            time.sleep(LOOK_EVERY_SECONDS)
        self._host.replace()
        self._settled(RECOVERS_WITHIN, healthy)

    def _settled(self, within: float, healthy: frozenset[str]) -> Page:
        limit = time.monotonic() + within
        while True:
            page = self._page()
            try:
                self._check_well(page, healthy)
            except Broken:
                if time.monotonic() > limit:
                    raise
                time.sleep(LOOK_EVERY_SECONDS)
            else:
                return page

    def _check_well(self, page: Page, healthy: frozenset[str]) -> None:
        for uuid in self._uuids:
            check_fresh(page, uuid)
            if not found(page, "gpu_memory_total_bytes", uuid=uuid) or not found(page, "gpu_info", uuid=uuid):
                raise Broken(f"GPU {uuid} is not read in full")
        missing = sorted(healthy - standing(page))
        if missing:
            raise Broken(f"gone for good: {missing[:8]}")

    def _page(self) -> Page:
        if self._daemon.process.poll() is not None:
            raise Broken(f"the daemon ended with {self._daemon.process.returncode}")
        return self._pages.check(self._daemon.get())
