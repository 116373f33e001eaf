"""Readers over a simulated driver, a round at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulated_driver import devices_of, library

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Session
from gpu_triage.read.metrics.rounds import GpuRound
from gpu_triage_simulator import Scenario, SimulatedMachine, VirtualClock, load_scenario, simulated_machine


class Rounds:
    """The GPUs of a simulated host, ready to be read.

    Attributes:
        simulated: the host.
    """

    def __init__(self, simulated: SimulatedMachine, clock: VirtualClock) -> None:
        self.simulated = simulated
        self._clock = clock
        self._session = Session(simulated.machine.nvml)
        self._session.open()
        self._session.read_versions()
        self._devices = devices_of(self._session)

    def at(self, seconds: float, gpu: int = 0) -> GpuRound:
        self._clock.advance(seconds - self.simulated.host.seconds())
        inquiry = Inquiry(self._devices[gpu])
        return GpuRound(inquiry, self._session.versions, (), self.simulated.machine, self._clock.now())


@contextmanager
def rounds_of(scenario: str | Scenario) -> Iterator[Rounds]:
    """Rounds over a scenario and a virtual clock, for the length of a ``with`` block."""
    clock = VirtualClock()
    described = load_scenario(scenario) if isinstance(scenario, str) else scenario
    with simulated_machine(described, clock=clock) as simulated, library(simulated.machine.nvml):
        yield Rounds(simulated, clock)
