"""What the exporter asks the driver: recorded from its own readers, so that a new call has its rows by itself."""

from collections.abc import Mapping
from functools import cache

from tests.faults.hosts import HOSTS, USUAL
from tests.faults.library import FaultyLibrary
from tests.simulated_driver import devices_of

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Session
from gpu_triage.read.metrics.contract import runs
from gpu_triage.read.metrics.rounds import GpuRound
from gpu_triage.read.registry import GPU_COLLECTORS
from gpu_triage_simulator import VirtualClock, simulated_machine


@cache
def asked_by_collector() -> Mapping[str, tuple[str, ...]]:
    """Functions by the collector that calls them, each in the order of the calls."""
    clock = VirtualClock()
    with simulated_machine(HOSTS["two"](), clock=clock, when_looked_at=True) as simulated:
        library = FaultyLibrary(simulated.machine.nvml)
        session = Session(library)
        session.open()
        session.read_versions()
        first, *others = devices_of(session)
        asked = {}
        for collector in GPU_COLLECTORS:
            if not runs(collector, USUAL):
                continue
            reader = collector.reader(USUAL)
            for _ in range(2):
                # What is asked once a session, or of no GPU, a fault of GPU 0 does not meet: the second reading counts.
                library.asked.clear()
                first.unsupported.clear()
                reader(GpuRound(Inquiry(first), session.versions, tuple(others), simulated.machine, clock.now()))
                clock.advance(1.0)
            if library.asked:  # some ask the kernel alone
                asked[collector.name] = tuple(library.asked)
        session.close()
    return asked


def every_collector() -> frozenset[str]:
    """Collectors that read GPUs, those that ask the kernel alone included: without a driver none of them runs."""
    return frozenset(collector.name for collector in GPU_COLLECTORS if runs(collector, USUAL))


def callers_of(function: str) -> tuple[str, ...]:
    return tuple(name for name, functions in asked_by_collector().items() if function in functions)


def every_function() -> tuple[str, ...]:
    return tuple(sorted({function for functions in asked_by_collector().values() for function in functions}))
