"""Simulated hosts, recorded and played again on virtual clocks."""

import math
from collections.abc import Iterator
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


def record(scenario: Scenario, masker: Masker | None = None) -> tuple[Recording, str, set[str]]:
    """The recording of a simulated host, the page that was published at its end, and the serials to look for."""
    clock = VirtualClock()
    with simulated_machine(scenario, clock=clock) as simulated:
        # Whose pods they are is the kubelet's word, which is not recorded.
        with captured(replace(simulated.machine, pods=None)) as capture:
            host = Rig(simulated, clock, Config(), machine=capture.machine)
            host.run(SECONDS)
            recording = masked(capture.captured(), masker or Masker(KEY))
        return recording, host.page(), {gpu.serial for gpu in scenario.gpus}


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
