"""Resident memory that the stand-in driver adds to a process, in bytes: ``-m tests.bench.standin_memory SCENARIO``."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import psutil

from gpu_triage import __main__ as program


def run(scenario: Path) -> int:
    """The difference between the exporter's program before and after it has a simulated machine beside it."""
    process = psutil.Process()
    # What the exporter does without, such as OpenSSL, weighs as part of the stand-in if only that loads it.
    program.load()
    gc.collect()
    before = process.memory_info().rss
    # Imported late: its code is part of what is weighed.
    from gpu_triage_simulator import load_scenario, simulated_machine  # noqa: PLC0415

    with simulated_machine(load_scenario(scenario)) as simulated:
        simulated.machine.nvml.load()
        gc.collect()
        return int(process.memory_info().rss - before)


if __name__ == "__main__":
    sys.stdout.write(f"{run(Path(sys.argv[1]))}\n")
