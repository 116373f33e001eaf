"""Lifecycle of a simulated machine: its clock, its files, and their removal."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from gpu_triage.machine import Clock, Machine, RealClock
from gpu_triage.options.config import Config
from gpu_triage.read.incidents.ledger import DAY_SECONDS, INCIDENT_HISTORY, Incident, Memory
from gpu_triage.sampler.state_directory import BASELINE, INCIDENTS, StateDirectory
from gpu_triage_simulator import scenario
from gpu_triage_simulator.clocks import VirtualClock
from gpu_triage_simulator.describe import progress_of
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.replacement import identity
from gpu_triage_simulator.scenario import Scenario
from gpu_triage_simulator.schedulers import pods_of, slurm_jobs_of
from gpu_triage_simulator.simulated_nvml import SimulatedNvml, SimulatedProbe
from gpu_triage_simulator.tree import HostTree

_REFRESH_SECONDS: Final = 1.0
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a directory of its own in it
"""Opening files takes a fifth of a history's run time, and is cheapest here; a host needs a few MiB."""


@dataclass(frozen=True, slots=True)
class _LookedAtMachine(Machine):
    """A machine that refreshes its files when their root is accessed: most rounds of a sampler read none."""

    refresh: Callable[[], None] = field(kw_only=True)

    def __getattribute__(self, name: str) -> Any:
        """The attribute of this name; for a root of files, refresh these first."""
        if name in {"sysfs", "procfs"}:
            object.__getattribute__(self, "refresh")()
        return object.__getattribute__(self, name)


class SimulatedMachine:
    """A running simulation.

    Attributes:
        machine: for the exporter, which cannot distinguish it from a real host.
        host: the simulated host behind it, for code that controls the simulation.
        root: directory of its files.
        state_directory: an empty one, for an exporter that shall have one.
    """

    def __init__(self, scenario: Scenario, clock: Clock, starting_at: float, *, when_looked_at: bool) -> None:
        self.host = SimulatedHost(scenario, clock, starting_at)
        memory = str(_MEMORY) if when_looked_at and os.access(_MEMORY, os.W_OK) else None
        self.root = Path(tempfile.mkdtemp(prefix="gpu-triage-simulated-", dir=memory))
        try:
            self.state_directory = self.root / "state"
            self.state_directory.mkdir()
            tree = HostTree(self.host, self.root)
            self._stop = _follow(clock, tree.refresh_log if when_looked_at else tree.refresh)
        except BaseException:
            shutil.rmtree(self.root, ignore_errors=True)
            raise
        make = partial(_LookedAtMachine, refresh=_once_a_moment(clock, tree.refresh)) if when_looked_at else Machine
        self.machine = make(
            nvml=SimulatedNvml(self.host),
            sysfs=tree.sysfs,
            procfs=tree.procfs,
            kmsg=tree.kmsg,
            clock=self.host.clock,
            pods=pods_of(self.host),
            slurm=slurm_jobs_of(self.host),
            probe=SimulatedProbe(self.host),
        )

    def remembering(self, config: Config) -> Config:
        """The configuration, with a state directory from the weeks before if the scenario has incidents in them.

        Without a directory of its own, it gets a temporary one, also for a baseline that it learns. A ledger of
        incidents that is there already stays.

        Raises:
            StateError: the ledger cannot be written there.
        """
        folder = config.state_directory or self.state_directory
        if config.baseline_from_host and config.state_directory is None:
            config = replace(config, baseline_file=StateDirectory(folder).path(BASELINE))
        if not self.host.scenario.incidents:
            return config
        path = StateDirectory(folder).path(INCIDENTS)
        if not path.exists():
            INCIDENT_HISTORY.write(path, ledger(self.host))
        return replace(config, state_directory=folder)

    def progress(self) -> str:
        """Where the scenario is, and what happens next in it, as a sentence."""
        return progress_of(self.host.scenario, self.host.seconds(), self.host.pace)

    def for_another_process(self) -> Machine:
        """The same machine for a newly started process, which loads the library again."""
        return replace(self.machine, nvml=SimulatedNvml(self.host))

    def close(self) -> None:
        self.host.release()
        self._stop()
        shutil.rmtree(self.root, ignore_errors=True)


@contextmanager
def simulated_machine(
    scenario: Scenario, *, clock: Clock | None = None, starting_at: float = 0.0, when_looked_at: bool = False
) -> Iterator[SimulatedMachine]:
    """A simulated machine for the duration of a ``with`` block.

    Args:
        clock: a VirtualClock, which drives the machine when advanced, or a FastClock; the real clock if None.
        starting_at: scenario time in seconds at which it starts.
        when_looked_at: whether sysfs and procfs are only refreshed when their roots are accessed through the machine,
            which saves much work on a virtual clock. Paths kept from earlier then lead to stale files.
    """
    simulated = SimulatedMachine(scenario, clock or RealClock(), starting_at, when_looked_at=when_looked_at)
    try:
        yield simulated
    finally:
        simulated.close()


def _follow(clock: Clock, refresh: Callable[[], None]) -> Callable[[], None]:
    """Refresh at every advance of a virtual clock, or once per second on a real one; returns a stop function."""
    if isinstance(clock, VirtualClock):
        return _once(clock.on_advance(lambda _moment: refresh()))
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_REFRESH_SECONDS):
            refresh()

    thread = threading.Thread(target=run, name="simulated-kernel", daemon=True)
    thread.start()

    def stop() -> None:
        ended.set()
        thread.join()

    return stop


def _once_a_moment(clock: Clock, refresh: Callable[[], None]) -> Callable[[], None]:
    last = clock.now()

    def run() -> None:
        nonlocal last
        now = clock.now()
        if now != last:
            last = now
            refresh()

    return run


def _once(function: Callable[[], None]) -> Callable[[], None]:
    pending = [function]

    def run() -> None:
        while pending:
            pending.pop()()

    return run


_EARLIER_BOOT = ""
"""The boot ID does not matter, because uptimes of earlier boots are not used."""


def ledger(host: SimulatedHost) -> Memory:
    """The incident ledger when the scenario starts."""
    begins_at = host.wall(0.0)
    past = sorted(host.scenario.incidents, key=lambda incident: -incident.days_ago)
    return Memory(incidents=tuple(_incident(host, each, begins_at) for each in past))


def _incident(host: SimulatedHost, past: scenario.Incident, begins_at: float) -> Incident:
    gpu = host.scenario.gpus[past.gpu]
    at = begins_at - past.days_ago * DAY_SECONDS
    serial = gpu.serial if past.card is None else identity(host.scenario.name, past.card).serial
    return Incident(past.kind, past.card or gpu.uuid, serial, gpu.slot.bus_id, at, at, _EARLIER_BOOT, 0.0)
