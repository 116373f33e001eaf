"""Programs that share a process with the simulated driver: ``-m tests.bench.launch METER|- PROGRAM ARGUMENTS…``.

`gpu-triage` is this exporter. `nvitop` is nvitop-exporter in an environment with nothing but what
tests/bench/requirements.txt pins and this repository's packages: it asks pynvml for everything about a GPU, so the
library below pynvml is all that is replaced, and it reads the real /proc. `weigh` prints the bytes of resident memory
that the simulated driver adds to this exporter.

METER is a file for the CPU time that the simulated driver takes, which a real one does not take from the exporter.
"""

import gc
import mmap
import struct
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

_TOTALS = struct.Struct("=dQ")


class Meter:
    """CPU seconds and calls; in a file that is mapped into memory, if there is one, for another process to read."""

    def __init__(self, path: Path | None) -> None:
        self._map: mmap.mmap | None = None
        if path is not None:
            path.write_bytes(_TOTALS.pack(0.0, 0))
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), _TOTALS.size)
        self._lock = threading.Lock()
        self.seconds = 0.0
        self.calls = 0

    def metered(self, function: Callable[..., Any], counts: int) -> Callable[..., Any]:
        """The function, with its CPU time in the calling thread added to the totals, and `counts` to the calls."""

        def run(*arguments: Any) -> Any:
            before = time.thread_time()
            try:
                return function(*arguments)
            finally:
                with self._lock:
                    self.seconds += time.thread_time() - before
                    self.calls += counts
                    if self._map is not None:
                        _TOTALS.pack_into(self._map, 0, self.seconds, self.calls)

        return run


def totals(path: Path) -> tuple[float, int]:
    """CPU seconds and NVML calls of the simulated driver so far."""
    seconds, calls = _TOTALS.unpack(path.read_bytes())
    return float(seconds), int(calls)


def metered_driver(path: Path | None = None) -> Meter:
    """Meter every NVML call and every rewriting of the simulated /sys and /proc from now on."""
    from gpu_triage_simulator.nvml_calls import NvmlFunction  # noqa: PLC0415 - an exporter alone is weighed without it
    from gpu_triage_simulator.tree import HostTree  # noqa: PLC0415 - as above

    meter = Meter(path)
    NvmlFunction.__call__ = meter.metered(NvmlFunction.__call__, 1)  # type: ignore[method-assign] # that is the point
    HostTree.refresh = meter.metered(HostTree.refresh, 0)  # type: ignore[method-assign] # as above
    return meter


def nvitop(scenario: Path) -> int:
    """Run nvitop-exporter's own command line; returns its exit code."""
    import pynvml  # noqa: PLC0415 - each program loads its own

    from gpu_triage.machine import RealClock  # noqa: PLC0415 - as above
    from gpu_triage_simulator import load_scenario  # noqa: PLC0415 - as above
    from gpu_triage_simulator.host import SimulatedHost  # noqa: PLC0415 - as above
    from gpu_triage_simulator.simulated_nvml import SimulatedNvml  # noqa: PLC0415 - as above

    pynvml.nvmlLib = SimulatedNvml(SimulatedHost(load_scenario(scenario), RealClock())).load()
    # By name, for the type checker: it is installed in the peer's environment only.
    return int(import_module("nvitop_exporter.cli").main())


def weigh(scenario: Path) -> int:
    """Resident bytes of the exporter's program with a simulated machine beside it, less those without."""
    import psutil  # noqa: PLC0415 - nvitop's environment has another

    from gpu_triage import __main__ as program  # noqa: PLC0415 - as above

    process = psutil.Process()
    # What the exporter does without, such as OpenSSL, weighs as part of the driver if only that loads it.
    program.load()
    gc.collect()
    before = process.memory_info().rss
    from gpu_triage_simulator import load_scenario, simulated_machine  # noqa: PLC0415 - its code is weighed, too

    with simulated_machine(load_scenario(scenario)) as simulated:
        simulated.machine.nvml.load()
        gc.collect()
        return int(process.memory_info().rss - before)


def main() -> None:
    meter, program = sys.argv.pop(1), sys.argv.pop(1)
    if meter != "-":
        metered_driver(Path(meter))
    if program == "nvitop":
        sys.exit(nvitop(Path(sys.argv.pop(1))))
    elif program == "weigh":
        sys.stdout.write(f"{weigh(Path(sys.argv[1]))}\n")
    else:
        import_module("gpu_triage.__main__").main()


if __name__ == "__main__":
    main()
