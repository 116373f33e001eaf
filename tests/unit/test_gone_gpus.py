"""What is remembered of GPUs that are gone: nothing that hides how the others fare, and no more than fits."""

from __future__ import annotations

import dataclasses
from itertools import count
from typing import TYPE_CHECKING

from tests.faults.library import Call, FaultyLibrary
from tests.rig import Rig, rig, scenario_with

from gpu_triage.config import Config
from gpu_triage.hardware.nvml import MAX_GPUS
from gpu_triage.simulator import VirtualClock, load_scenario, simulated_machine

if TYPE_CHECKING:
    from pathlib import Path

LOST = 'at = 20\ngpu = 0\neffect = { kind = "lost" }'
NO_CLOCK = 'at = 30\ngpu = 1\neffect = { kind = "error", function = "nvmlDeviceGetClockInfo", code = "UNKNOWN" }'


def test_what_a_lost_gpu_last_answered_does_not_hide_that_no_other_answers(tmp_path: Path) -> None:
    with rig(scenario_with(tmp_path, "dual-a10", LOST, NO_CLOCK)) as running:
        running.run_to(25)
        assert running.value("gpu_exporter_collector_success", collector="clocks") == 1
        running.run_to(35)
        assert running.value("gpu_exporter_collector_success", collector="clocks") == 0


def test_a_driver_that_invents_gpus_does_not_grow_the_exporter() -> None:
    invented = count()

    def inventing(call: Call) -> int:
        code = call.proceed()
        if call.function == "nvmlDeviceGetUUID":
            call.arguments[1].value = f"GPU-{next(invented):08x}".encode()
        return code

    clock = VirtualClock()
    with simulated_machine(load_scenario("h100-8"), clock=clock) as simulated:
        library = FaultyLibrary(simulated.machine.nvml)
        library.fault = inventing
        machine = dataclasses.replace(simulated.machine, nvml=library)
        running = Rig(simulated, clock, Config(sample_fast_seconds=5.0), machine)
        while next(invented) < 2 * MAX_GPUS:
            running.run(5)
        running.run(5)
        status, store = running.sampler.status, running.sampler.store
        assert len(running.series("gpu_up")) == MAX_GPUS
        assert max(len(store.of(collector)) for collector in store.collectors) <= MAX_GPUS
        assert sum(status.noted(f"GPU-{number:08x}") for number in range(next(invented))) <= MAX_GPUS
