"""What the driver's answers alone cost: ``-m tests.bench.floor SCENARIO`` prints CPU seconds a second.

The questions that the exporter asks in a minute are noted and asked again through pynvml's own wrappers, and nothing
else is done. The stand-in driver's own time is taken off, as it is from the exporter's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pynvml
from tests.rig import Rig

from gpu_triage.driver.nvml import inquiry
from gpu_triage.options.config import Config
from gpu_triage_simulator import VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.nvml_calls import NvmlFunction

NOTED_SECONDS = 60
SETTLE_SECONDS = 65
REPEATS = 5

Question = Callable[[], Any]


def run(scenario: Path) -> float:
    """CPU seconds of one second's questions, the stand-in's own time taken off; the least of some repeats."""
    clock = VirtualClock()
    with simulated_machine(load_scenario(scenario), clock=clock) as simulated:
        rig = Rig(simulated, clock, Config())
        rig.run(SETTLE_SECONDS)
        noted = _noted(lambda: rig.run(NOTED_SECONDS))
        standin = metered_standin()
        return min(_asked(noted, standin) for _ in range(REPEATS)) / NOTED_SECONDS


def _noted(play: Callable[[], None]) -> list[Question]:
    noted: list[Question] = []
    module: Any = inquiry
    ask, read_list, read_fields = inquiry.Inquiry._ask, module.read_list, module.read_fields

    def noting_ask(self: inquiry.Inquiry, function: str, args: Any, question: Any, wrapper: Any = None) -> Any:
        if wrapper is None and question not in self.device.unsupported:
            noted.append(partial(getattr(pynvml, function), *args))
        return ask(self, function, args, question, wrapper)

    def noting_list(function: str, handle: Any, *args: Any) -> list[Any]:
        own = args[:2] if function == "nvmlDeviceGetSamples" else args
        noted.append(partial(getattr(pynvml, function.partition("_v")[0]), handle, *own))
        return list(read_list(function, handle, *args))

    def noting_fields(handle: Any, wanted: Any) -> Any:
        noted.append(partial(pynvml.nvmlDeviceGetFieldValues, handle, tuple(wanted)))
        return read_fields(handle, wanted)

    inquiry.Inquiry._ask = noting_ask  # type: ignore[method-assign] # that is the point
    module.read_list, module.read_fields = noting_list, noting_fields
    try:
        play()
    finally:
        inquiry.Inquiry._ask = ask  # type: ignore[method-assign] # as above
        module.read_list, module.read_fields = read_list, read_fields
    return noted


def metered_standin() -> list[float]:
    """CPU seconds in the stand-in from now on, as the one number of a list."""
    spent = [0.0]
    call = NvmlFunction.__call__

    def metered(*arguments: Any) -> Any:
        began = time.thread_time()
        try:
            return call(*arguments)
        finally:
            spent[0] += time.thread_time() - began

    NvmlFunction.__call__ = metered  # type: ignore[assignment, method-assign] # that is the point
    return spent


def _asked(questions: list[Question], standin: list[float]) -> float:
    standin[0], began = 0.0, time.thread_time()
    for question in questions:
        try:
            question()
        except pynvml.NVMLError:
            # Not supported, or nothing there: an answer like any other.
            continue
    return time.thread_time() - began - standin[0]


if __name__ == "__main__":
    sys.stdout.write(f"{run(Path(sys.argv[1]))}\n")
