"""nvitop-exporter over the simulated library: ``-m tests.bench.launch_nvitop SCENARIO METER_FILE|- FLAGS…``.

It runs in the environment of tests/bench/requirements.txt, with this repository's packages on PYTHONPATH. nvitop asks
pynvml for everything about a GPU, so the library below pynvml is all that is replaced; it reads the real /proc.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pynvml
from tests.bench import metering

from gpu_triage.machine import RealClock
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.simulated_nvml import SimulatedNvml


def run() -> int:
    """Run nvitop-exporter's own command line; returns its exit code."""
    scenario, meter = Path(sys.argv.pop(1)), sys.argv.pop(1)
    if meter != "-":
        metering.install(Path(meter))
    host = SimulatedHost(load_scenario(scenario), RealClock())
    pynvml.nvmlLib = SimulatedNvml(host).load()
    # By name, for the type checker: it is installed in the peer's environment only.
    return int(import_module("nvitop_exporter.cli").main())


if __name__ == "__main__":
    sys.exit(run())
