"""Simulated hosts, recorded and played again on virtual clocks."""

import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.rig import Rig

from gpu_triage.machine import Machine
from gpu_triage.options.config import Config
from gpu_triage.record.capture import Capture
from gpu_triage.record.masking import Masker, masked
from gpu_triage.record.recording import Recording
from gpu_triage.record.replay import replayed_machine
from gpu_triage_simulator import Scenario, VirtualClock, load_scenario, simulated_machine

KEY = b"k" * 32
SECONDS = 12


@contextmanager
def recorder(
    scenario: Scenario, config: Config | None = None, at: float = 0.0
) -> Iterator[tuple[Rig, Callable[[Masker], Recording]]]:
    """An exporter on a scenario, from a second of it on, and what makes the recording of all that it has read."""
    clock = VirtualClock()
    with (
        simulated_machine(scenario, clock=clock, starting_at=at) as simulated,
        # Neither what a scheduler says nor what is on disk is recorded.
        captured(replace(simulated.machine, pods=None, slurm=None)) as capture,
    ):
        host = Rig(simulated, clock, config or Config(), machine=capture.machine)
        yield host, lambda masker: masked(capture.captured(), masker)


def record(scenario: Scenario, masker: Masker | None = None) -> tuple[Recording, str, set[str]]:
    """The recording of a simulated host, the page that was published at its end, and the serials to look for."""
    with recorder(scenario) as (host, made):
        host.run(SECONDS)
        return made(masker or Masker(KEY)), host.page(), {gpu.serial for gpu in scenario.gpus}


@contextmanager
def captured(machine: Machine) -> Iterator[Capture]:
    """A capture of all that a machine answers, closed at the end."""
    with closing(Capture(machine, math.inf, 16 << 20)) as capture:
        yield capture


@contextmanager
def replayed(path: Path) -> Iterator[Rig]:
    clock = VirtualClock()
    with replayed_machine(path, clock=clock) as machine, simulated_machine(load_scenario("no-driver")) as other:
        yield Rig(other, clock, Config(), machine=machine)
