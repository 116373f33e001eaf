"""How much CPU time the stand-in for the driver takes inside a process that uses it.

A real host does not have this cost: there the driver answers, and the kernel keeps /sys and /proc.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_triage_simulator.nvml_calls import NvmlFunction
from gpu_triage_simulator.tree import HostTree

_TOTALS = struct.Struct("=dQ")


class Meter:
    """Totals that another process can read while they grow: they live in a file mapped into memory."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(_TOTALS.pack(0.0, 0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _TOTALS.size)
        self._lock = threading.Lock()
        self._seconds = 0.0
        self._calls = 0

    def metered(self, function: Callable[..., Any], counts: int) -> Callable[..., Any]:
        """The function, with its CPU time in the calling thread added to the totals, and `counts` to the calls."""

        def run(*arguments: Any) -> Any:
            before = time.thread_time()
            try:
                return function(*arguments)
            finally:
                self._add(time.thread_time() - before, counts)

        return run

    def _add(self, seconds: float, calls: int) -> None:
        with self._lock:
            self._seconds += seconds
            self._calls += calls
            _TOTALS.pack_into(self._map, 0, self._seconds, self._calls)


def install(path: Path) -> None:
    """Meter every NVML call and every rewriting of the simulated /sys and /proc from now on, into a file."""
    meter = Meter(path)
    nvml_call, refresh = NvmlFunction.__call__, HostTree.refresh
    NvmlFunction.__call__ = meter.metered(nvml_call, 1)  # type: ignore[method-assign] # that is the point
    HostTree.refresh = meter.metered(refresh, 0)  # type: ignore[method-assign] # as above


def totals(path: Path) -> tuple[float, int]:
    """CPU seconds and NVML calls so far."""
    seconds, calls = _TOTALS.unpack(path.read_bytes())
    return float(seconds), int(calls)
