"""What is remembered of GPUs that are gone: nothing that hides how the others fare, and no more than fits."""

from __future__ import annotations

import dataclasses
from functools import partial
from itertools import count
from pathlib import Path

import pynvml
import pytest
from tests.faults.library import Call, Fault, FaultyLibrary
from tests.rig import Rig, only, rig, scenario_with, three_with

from gpu_triage.machine import Clock, Machine
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK
from gpu_triage.sampler.lanes import InlineLane, Job
from gpu_triage_simulator import SimulatedMachine, VirtualClock, load_scenario, simulated_machine

pytestmark = pytest.mark.slow


class CountedLane(InlineLane):
    """Is in `used` from its first job until it is closed: for so long it has a thread."""

    def __init__(self, used: set[CountedLane], clock: Clock, name: str) -> None:
        super().__init__(clock, name)
        self.is_of_gpu, self._used = name.startswith("gpu-"), used

    def submit(self, job: Job, *, queued: bool = False) -> None:
        self._used.add(self)
        super().submit(job, queued=queued)

    def close(self) -> None:
        self._used.discard(self)


LEAN = only("power", "thermal", "clocks", "topology", "identity")
MOST_REMEMBERED = 2 * 14
"""Two GPUs by each look of a little more than a minute."""
LOST = 'at = 20\ngpu = 0\neffect = { kind = "lost" }'
NO_CLOCK = 'at = 30\ngpu = 1\neffect = { kind = "error", function = "nvmlDeviceGetClockInfo", code = "UNKNOWN" }'


def test_what_a_lost_gpu_last_answered_does_not_hide_that_no_other_answers(tmp_path: Path) -> None:
    with rig(scenario_with(tmp_path, "dual-a10", LOST, NO_CLOCK), LEAN) as running:
        running.run_to(25)
        assert running.value("gpu_exporter_collector_success", collector="clocks") == 1
        running.run_to(35)
        assert running.value("gpu_exporter_collector_success", collector="clocks") == 0


def machine_with(simulated: SimulatedMachine, fault: Fault) -> Machine:
    library = FaultyLibrary(simulated.machine.nvml)
    library.fault = fault
    return dataclasses.replace(simulated.machine, nvml=library)


def test_a_driver_that_invents_gpus_does_not_grow_the_exporter() -> None:
    invented = count()

    def inventing(call: Call) -> int:
        code = call.proceed()
        if call.function == "nvmlDeviceGetUUID":
            call.arguments[1].value = f"GPU-{next(invented):08x}".encode()
        return code

    clock, used = VirtualClock(), set[CountedLane]()
    with simulated_machine(load_scenario("dual-a10"), clock=clock) as simulated:
        machine, config = machine_with(simulated, inventing), only("power", "identity", sample_fast_seconds=5.0)
        running = Rig(simulated, clock, config, machine, partial(CountedLane, used, clock))
        while next(invented) < 120:
            running.run(5)
        status, store = running.sampler.status, running.sampler.store
        assert len(running.series("gpu_up")) <= MOST_REMEMBERED
        assert max(len(store.of(collector)) for collector in store.collectors) <= MOST_REMEMBERED
        assert sum(status.noted(f"GPU-{number:08x}") for number in range(next(invented))) <= MOST_REMEMBERED
        assert sum(lane.is_of_gpu for lane in used) <= 2 * 2


def test_a_gpu_of_which_nothing_can_be_asked_is_there_and_nothing_is_made_up() -> None:
    def refusing(call: Call) -> int:
        known = call.gpu is None or call.function in ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID")
        return call.proceed() if known else int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    clock = VirtualClock()
    with simulated_machine(load_scenario("dual-a10"), clock=clock) as simulated:
        running = Rig(simulated, clock, Config(), machine_with(simulated, refusing))
        running.run(70)
        of_gpus = {line.partition("{")[0] for line in running.page().splitlines() if 'uuid="GPU-' in line}
        judged = {"gpu_bottleneck", "gpu_bottleneck_seconds_total"}
        # The kernel log has Xids, and the host has booted.
        assert of_gpus == {"gpu_up", "gpu_info", "gpu_xid_errors_total", "gpu_reset_timestamp_seconds"} | judged
        assert running.value("gpu_bottleneck", gpu="0") == GPU_BOTTLENECK.value_of("unattributed")
        assert {labels["name"] for labels, _ in running.series("gpu_info")} == {""}
        assert running.series("gpu_exporter_errors_total") == []


def test_a_gpu_that_one_look_misnamed_is_forgotten_within_a_minute_and_a_half(tmp_path: Path) -> None:
    misnaming = False

    def fault(call: Call) -> int:
        code = call.proceed()
        if misnaming and call.function == "nvmlDeviceGetUUID" and call.gpu == 1:
            call.arguments[1].value = b"GPU-phantom"
        return code

    clock = VirtualClock()
    with simulated_machine(scenario_with(tmp_path, "dual-a10"), clock=clock) as simulated:
        running = Rig(simulated, clock, LEAN, machine_with(simulated, fault))
        running.run(20)
        misnaming = True
        running.run(5)
        misnaming = False
        assert running.value("gpu_up", uuid="GPU-phantom") is not None
        running.run(90)
        assert running.series("gpu_up", uuid="GPU-phantom") == []
        assert [value for _, value in running.series("gpu_up")] == [1, 1]


def test_a_gpu_lost_soon_after_the_start_is_not_forgotten_and_has_no_lane(tmp_path: Path) -> None:
    gone = 'at = 8\ngpu = 0\neffect = { kind = "removed" }'
    clock, used = VirtualClock(), set[CountedLane]()
    with simulated_machine(scenario_with(tmp_path, "dual-a10", gone), clock=clock) as simulated:
        running = Rig(simulated, clock, LEAN, make_lane=partial(CountedLane, used, clock))
        running.run_to(7)
        assert sum(lane.is_of_gpu for lane in used) == 2
        running.run_to(300)
        assert sorted(value for _, value in running.series("gpu_up")) == [0, 1]
        assert sum(lane.is_of_gpu for lane in used) == 1


class LateLane(InlineLane):
    """A lane whose job ends only when `late` says so."""

    def __init__(self, clock: Clock, name: str, late: list[bool]) -> None:
        super().__init__(clock, name)
        self._late = late
        self._job: Job | None = None

    def ready(self) -> bool:
        if self._job is not None and not self._late:
            job, self._job = self._job, None
            super().submit(job)
        return self._job is None and super().ready()

    def submit(self, job: Job, *, queued: bool = False) -> None:
        if self._late:
            self._job = job
        else:
            super().submit(job, queued=queued)


def test_an_answer_about_peers_that_comes_after_the_gpu_was_lost_is_not_published(tmp_path: Path) -> None:
    clock, late = VirtualClock(), list[bool]()
    no_clock = NO_CLOCK.replace("30", "65").replace("UNKNOWN", "GPU_IS_LOST")
    with simulated_machine(three_with(tmp_path, "h100-8", no_clock), clock=clock) as simulated:
        make = lambda name: LateLane(clock, name, late) if name == "peers" else InlineLane(clock, name)  # noqa: E731
        running = Rig(simulated, clock, LEAN, make_lane=make)
        running.run(55)
        assert {labels["gpu"] for labels, _ in running.series("gpu_p2p_peers")} == {"0", "1", "2"}
        late.append(True)
        running.run(13)
        assert running.value("gpu_up", gpu="1") == 0
        late.clear()
        running.run(1)
        assert {labels["gpu"] for labels, _ in running.series("gpu_p2p_peers")} == {"0", "2"}
