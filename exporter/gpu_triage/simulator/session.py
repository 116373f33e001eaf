"""A simulated machine from start to end: its clock, its files, and their removal."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gpu_triage.machine import Clock, Machine, RealClock
from gpu_triage.simulator.clocks import VirtualClock
from gpu_triage.simulator.host import SimulatedHost
from gpu_triage.simulator.pods import SimulatedPods
from gpu_triage.simulator.scenario import Scenario
from gpu_triage.simulator.simulated_nvml import SimulatedNvml
from gpu_triage.simulator.tree import HostTree

_REFRESH_SECONDS: Final = 1.0


class SimulatedMachine:
    """A running simulation.

    Attributes:
        machine: the seams, for the program above; it cannot tell them from a real host's.
        host: what is behind them, for whoever stages the simulation.
        root: directory of its files.
    """

    def __init__(self, scenario: Scenario, clock: Clock, starting_at: float) -> None:
        self.host = SimulatedHost(scenario, clock, starting_at)
        self.root = Path(tempfile.mkdtemp(prefix="gpu-triage-simulated-"))
        try:
            tree = HostTree(self.host, self.root)
            self._stop = _follow(clock, tree.refresh)
        except BaseException:
            shutil.rmtree(self.root, ignore_errors=True)
            raise
        self.machine = Machine(
            nvml=SimulatedNvml(self.host),
            sysfs=tree.sysfs,
            procfs=tree.procfs,
            kmsg=tree.kmsg,
            clock=clock,
            simulated=True,
            pods=SimulatedPods(scenario),
        )

    def close(self) -> None:
        """End it: blocked calls return, the files are removed. Closing again does nothing."""
        self.host.release()
        self._stop()
        shutil.rmtree(self.root, ignore_errors=True)


@contextmanager
def simulated_machine(
    scenario: Scenario, *, clock: Clock | None = None, starting_at: float = 0.0
) -> Iterator[SimulatedMachine]:
    """A simulated machine for the length of a ``with`` block.

    Args:
        scenario: what it is and what happens to it.
        clock: a VirtualClock, whose advances move the machine; the real clock if None.
        starting_at: scenario time in seconds at which it begins.
    """
    simulated = SimulatedMachine(scenario, clock or RealClock(), starting_at)
    try:
        yield simulated
    finally:
        simulated.close()


def _follow(clock: Clock, refresh: Callable[[], None]) -> Callable[[], None]:
    """Refresh with every advance of a virtual clock, or once a second beside a real one; returns the stop."""
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


def _once(function: Callable[[], None]) -> Callable[[], None]:
    pending = [function]

    def run() -> None:
        while pending:
            pending.pop()()

    return run
