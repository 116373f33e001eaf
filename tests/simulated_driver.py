"""pynvml over a simulated host: its wrappers run unchanged on top of the simulated library."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

from gpu_triage.driver.nvml.session import Device, Session, identify
from gpu_triage.machine import NvmlLibrary
from gpu_triage_simulator import Scenario, VirtualClock, load_scenario
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.simulated_nvml import SimulatedNvml


def devices_of(session: Session) -> list[Device]:
    """Every GPU that an open session gives a handle for."""
    found = (identify(index, session.call) for index in range(session.count()))
    return [device for device in found if isinstance(device, Device)]


@contextmanager
def library(nvml: NvmlLibrary) -> Iterator[None]:
    """pynvml's library is this one, for the length of a ``with`` block; not yet initialized."""
    before = pynvml.nvmlLib
    pynvml.nvmlLib = nvml.load()
    pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        yield
    finally:
        pynvml.nvmlLib = before
        pynvml._nvmlGetFunctionPointer_cache.clear()


class Driver:
    """An initialized NVML on a host with a virtual clock."""

    def __init__(self, host: SimulatedHost, clock: VirtualClock) -> None:
        self.host = host  # what it runs on
        self.clock = clock  # what moves it
        pynvml.nvmlInit()
        # Of its GPUs, as of the start.
        self.handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def at(self, seconds: float) -> None:
        """Move to a scenario time."""
        self.clock.advance(seconds - self.host.seconds())

    def fields(self, gpu: int, *wanted: int | tuple[int, int]) -> list[tuple[int, Any]]:
        """Return code and value of each field; the value means nothing unless the code is 0."""
        members = {1: "uiVal", 3: "ullVal", 5: "siVal"}
        answers = pynvml.nvmlDeviceGetFieldValues(self.handles[gpu], list(wanted))
        return [
            (answer.nvmlReturn, getattr(answer.value, members.get(answer.valueType, "uiVal"))) for answer in answers
        ]


@contextmanager
def driver(scenario: str | Scenario) -> Iterator[Driver]:
    """NVML on a scenario and a virtual clock, initialized."""
    clock = VirtualClock()
    host = SimulatedHost(load_scenario(scenario) if isinstance(scenario, str) else scenario, clock)
    with library(SimulatedNvml(host)):
        yield Driver(host, clock)
