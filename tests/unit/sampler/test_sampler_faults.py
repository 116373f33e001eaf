"""Faults of the driver under a sampler, calls that do not return, and GPUs that are gone.

They are named, and cost nobody else anything.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pynvml
import pytest
from tests.faults.library import Call, Fault, FaultyLibrary
from tests.one_shot import finding, look_at
from tests.parts import some
from tests.rig import Rig, only, pair_with, rig, scenario_with, three_with

from gpu_triage.judge.findings.table import Area, Severity
from gpu_triage.judge.findings.verdicts import EXIT_FINDINGS, Verdict
from gpu_triage.machine import Clock, Machine
from gpu_triage.options.config import Config, JudgeOption
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK, JUDGE
from gpu_triage.read.incidents.incident_metrics import INCIDENTS
from gpu_triage.sampler.lanes import InlineLane, Job
from gpu_triage_simulator import SimulatedMachine, VirtualClock, load_scenario, simulated_machine

pytestmark = pytest.mark.slow

LEAN = only(
    "power", "thermal", "activity", "throttle", "pcie", "pcie_limits", "pcie_aer", "topology", "processes", "identity"
)


def readings_of(running: Rig, gpu: str) -> set[str]:
    """Names of the series a GPU has, less those it keeps when it is gone."""
    kept = {"gpu_exporter_call_inflight_seconds", "gpu_up", "gpu_error_info", "gpu_info"}
    kept |= {"gpu_xid_errors_total", "gpu_xid_last_timestamp_seconds"}
    kept |= {spec.name for own in (JUDGE, INCIDENTS) for spec in own.metrics}
    lines = (line for line in running.page().splitlines() if not line.startswith("#"))
    return {line.split("{")[0] for line in lines if f'{{gpu="{gpu}"' in line or f',gpu="{gpu}"' in line} - kept


HANGS = 'at = "20s"\nuntil = "300s"\ngpu = 1\neffect = { kind = "hang" }'


def test_a_hanging_gpu_is_stalled_within_two_fast_intervals_and_the_deadline_and_costs_the_others_nothing(
    tmp_path: Path,
) -> None:
    config = replace(LEAN, sample_deadline_seconds=2.0)
    with rig(pair_with(tmp_path, "h100-8", HANGS), config) as running:
        running.run_to(20)
        assert running.value("gpu_up", gpu="1") == 1
        running.run_to(20 + 2 * config.sample_fast_seconds + config.sample_deadline_seconds)
        assert running.value("gpu_up", gpu="1") == 0
        assert running.error_of("1") == "stalled"
        key = running.series("gpu_info", gpu="0")[0][0]["uuid"]
        for second in range(25, 50):
            running.run_to(second)
            outcome = running.sampler.store.get("power", key)
            assert outcome is not None
            age = running.clock.now().monotonic - outcome.finished_at.monotonic
            assert age < running.config.sample_fast_seconds
        assert running.value("gpu_driver_up") == 1


def test_a_stalled_gpus_values_are_withdrawn_after_three_intervals_and_its_identity_stays(tmp_path: Path) -> None:
    with rig(pair_with(tmp_path, "h100-8", HANGS), Config(sample_slow_seconds=15.0)) as running:
        running.run_to(22)
        assert running.value("gpu_power_watts", gpu="1") is not None
        running.run_to(25)
        assert running.value("gpu_power_watts", gpu="1") is None
        assert running.value("gpu_temperature_celsius", gpu="1", sensor="gpu") is not None
        running.run_to(40)
        assert running.value("gpu_temperature_celsius", gpu="1", sensor="gpu") is None
        running.run_to(75)
        assert readings_of(running, "1") == set()
        assert running.value("gpu_info", gpu="1") == 1
        assert running.value("gpu_up", gpu="1") == 0


def test_a_collector_that_is_switched_off_does_not_run() -> None:
    config = Config(collectors={"power": False, "host": False, "pcie_throughput": True}, metrics_profile="full")
    with rig(load_scenario("dual-a10"), config) as running:
        running.run(10)
        listed = {labels["collector"] for labels, _ in running.series("gpu_exporter_collector_interval_seconds")}
        assert "power" not in listed
        assert not any(name.startswith("host_") for name in listed)
        assert "pcie_throughput" in listed
        assert running.series("gpu_power_watts") == []
        assert len(running.series("gpu_pcie_throughput_bytes_per_second")) == 4


def test_the_path_works_without_the_identity_of_gpus() -> None:
    with rig(load_scenario("dual-a10"), Config(collectors={"identity": False})) as running:
        running.run(5)
        assert [value for _, value in running.series("gpu_up")] == [1.0, 1.0]
        assert running.series("gpu_info") == []


HOST_TOO = only("power", "activity", "identity", "host_cpu")


def nvml_is_up() -> bool:
    try:
        pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return False
    return True


@pytest.mark.parametrize(
    "event",
    some(
        [
            'effect = { kind = "driver_not_loaded" }',
            'gpu = 0\neffect = { kind = "reset_required" }',
            'gpu = 0\neffect = { kind = "error", function = "nvmlDeviceGetHandleByIndex_v2", code = "TIMEOUT" }',
        ],
        usual=['effect = { kind = "driver_not_loaded" }'],
    ),
)
def test_peers_are_asked_about_again_as_soon_as_they_are_back(tmp_path: Path, event: str) -> None:
    # The sample of the slow tier at second 60 must fall into the fault, where it says nothing of absent peers.
    with rig(three_with(tmp_path, "h100-8", f'at = "55s"\nuntil = "65s"\n{event}'), LEAN) as running:
        running.run_to(50)
        peers = sorted(running.series("gpu_p2p_peers"), key=str)
        running.run_to(85)
        assert {value for _, value in running.series("gpu_up")} == {1.0}
        assert sorted(running.series("gpu_p2p_peers"), key=str) == peers


def test_release_shuts_nvml_down_after_a_session_that_failed(tmp_path: Path) -> None:
    effect = '{ kind = "error", function = "nvmlDeviceGetUtilizationRates", code = "DRIVER_NOT_LOADED" }'
    event = f'at = "20s"\nuntil = "21s"\ngpu = 0\neffect = {effect}'
    with rig(scenario_with(tmp_path, "dual-a10", event), LEAN) as running:
        running.run_to(60)
        assert running.value("gpu_driver_up") == 1
        running.sampler.driver.release()
        running.run(3)
        assert running.value("gpu_exporter_gpus_released") == 1
        assert not nvml_is_up()


@pytest.mark.parametrize("function", some(["nvmlShutdown", "nvmlInitWithFlags"], usual=["nvmlInitWithFlags"]))
def test_a_session_that_does_not_come_back_is_a_stalled_driver(tmp_path: Path, function: str) -> None:
    # Another process has seen the GPU that was lost, so NVML is initialized again: nobody is asked meanwhile.
    lost = 'at = "20s"\nuntil = "30s"\ngpu = 1\neffect = { kind = "lost" }'
    hang = f'at = "36s"\nuntil = "130s"\neffect = {{ kind = "hang", function = "{function}" }}'
    with rig(three_with(tmp_path, "h100-8", lost, hang), LEAN) as running:
        running.run_to(60)
        assert running.value("gpu_power_watts", gpu="0") is None
        assert running.value("gpu_driver_up") == 0
        assert running.series("gpu_driver_error_info")[0][0]["error"] == "stalled"
        assert {value for _, value in running.series("gpu_up")} == {0.0}
        assert (running.error_of("0"), running.error_of("1")) == ("stalled", "lost")
        assert running.value("gpu_exporter_call_inflight_seconds", collector="driver", function=function) == 24
        running.run_to(140)
        assert running.value("gpu_driver_up") == 1
        assert running.value("gpu_up", gpu="0") == 1
        assert running.value("gpu_power_watts", gpu="0") is not None


def test_a_call_lost_in_a_driver_that_answers_others_asks_for_a_restart(tmp_path: Path) -> None:
    lost = 'at = "20s"\nuntil = "30s"\ngpu = 1\neffect = { kind = "lost" }'
    hang = 'at = "36s"\nuntil = "2h"\neffect = { kind = "hang", function = "nvmlShutdown" }'
    with rig(three_with(tmp_path, "h100-8", lost, hang), LEAN) as running:
        running.run_to(90)
        assert running.sampler.fatal is None
        running.run_to(160)
        assert running.sampler.fatal is not None


def test_release_shuts_nvml_down_and_says_so_and_acquire_takes_the_gpus_back_and_counters_go_on() -> None:
    with rig(load_scenario("dual-a10"), HOST_TOO) as running:
        running.run(60)
        assert nvml_is_up()
        before = running.value("gpu_busy_seconds_total", gpu="0")
        running.sampler.driver.release()
        running.run(3)
        assert not nvml_is_up()
        assert running.value("gpu_exporter_gpus_released") == 1
        assert running.value("gpu_driver_up") == 0
        assert running.series("gpu_driver_error_info")[0][0]["error"] == "released"
        assert {running.error_of("0"), running.error_of("1")} == {"released"}
        assert running.series("gpu_power_watts") == []
        assert len(running.series("gpu_info")) == 2
        assert running.series("gpu_host_load1") != []
        listed = {labels["collector"] for labels, _ in running.series("gpu_exporter_collector_success")}
        assert "power" not in listed
        running.run(60)
        assert not nvml_is_up(), "the driver stays released"
        running.sampler.driver.acquire()
        running.run(10)
        assert running.value("gpu_exporter_gpus_released") == 0
        assert [value for _, value in running.series("gpu_up")] == [1.0, 1.0]
        after = running.value("gpu_busy_seconds_total", gpu="0")
        assert before is not None
        assert after is not None
        # Of the time in between, what the driver's own sample buffer still holds is counted, and no more.
        assert before <= after <= before + 40


def test_release_waits_for_a_call_that_hangs(tmp_path: Path) -> None:
    event = 'at = "20s"\nuntil = "60s"\ngpu = 1\neffect = { kind = "hang" }'
    with rig(scenario_with(tmp_path, "dual-a10", event), HOST_TOO) as running:
        running.run(25)
        running.sampler.driver.release()
        running.run(20)
        assert running.value("gpu_exporter_gpus_released") == 0
        running.run(30)
        assert running.value("gpu_exporter_gpus_released") == 1


FEW = only("power", "thermal", "topology", "identity")
BUSY = only("power", "thermal", "topology", "identity", "activity")
FAILS = '{ kind = "error", function = "nvmlSystemGetDriverVersion", code = "UNKNOWN" }'


def hang(function: str, at: int = 0, until: int = 3600, gpu: int = 1) -> str:
    return f'at = {at}\nuntil = {until}\ngpu = {gpu}\neffect = {{ kind = "hang", function = "{function}" }}'


def calls_of(running: Rig) -> list[tuple[str, str, str, float]]:
    series = running.series("gpu_exporter_call_inflight_seconds")
    return [(had["gpu"], had["collector"], had["function"], seconds) for had, seconds in series]


def silent(running: Rig) -> dict[str, tuple[str, str]]:
    """Code and text of the finding about each GPU that does not answer."""
    found = [found for found in running.report.findings if found.check.code.startswith("gpu.")]
    return {each.subject: (each.check.code, each.measured) for each in found if each.gpu is not None and each.holds}


def test_gpus_that_stop_with_another_one_are_blocked_behind_it_and_not_lost(tmp_path: Path) -> None:
    # The resource manager's API lock is one for all GPUs: who holds it blocks every other caller
    # (open-gpu-kernel-modules, rmapi.c: RMAPI_LOCK_FLAGS; issue 968 there).
    begins = {2: 20, 0: 21, 1: 21}
    hangs = [hang("nvmlDeviceGetUtilizationRates", at=at, until=90, gpu=gpu) for gpu, at in begins.items()]
    with rig(three_with(tmp_path, "h100-8", *hangs), BUSY) as running:
        running.run_to(60)
        assert [running.error_of(gpu) for gpu in "012"] == ["blocked", "blocked", "stalled"]
        found = silent(running)
        told = {subject: code for subject, (code, _) in found.items()}
        assert told == {"GPU 0": "gpu.blocked", "GPU 1": "gpu.blocked", "GPU 2": "gpu.lost"}
        assert "GPU 2" in found["GPU 0"][1]
        verdicts = {gpu.gpu: gpu.verdict for gpu in running.report.gpus}
        assert verdicts == {"0": Verdict.WATCH, "1": Verdict.WATCH, "2": Verdict.DRAIN}
        running.run_to(100)
        assert [value for _, value in running.series("gpu_up")] == [1.0] * 3


def test_a_gpu_that_stops_long_after_another_one_hangs_itself(tmp_path: Path) -> None:
    later = hang("nvmlDeviceGetUtilizationRates", at=60, gpu=0)
    with rig(three_with(tmp_path, "h100-8", hang("nvmlDeviceGetTemperatureV", at=20), later), BUSY) as running:
        running.run_to(90)
        assert [running.error_of(gpu) for gpu in "01"] == ["stalled", "stalled"]


def test_a_gpu_that_corrects_a_flood_of_errors_is_slow_before_it_is_lost(tmp_path: Path) -> None:
    # 17,700 corrected errors a second and calls of more than 45 s: github.com/NVIDIA/DCGM, issue 313, on a GB200.
    storm = 'at = 0\ngpu = 1\neffect = { kind = "ecc", corrected_per_hour = 63720000.0 }'
    scenario = pair_with(tmp_path, "h100-8", storm, hang("nvmlDeviceGetTemperatureV", at=60, until=400))
    with rig(scenario, only("power", "thermal", "ecc", "activity", "identity", sample_fast_seconds=5.0)) as running:
        running.run_to(110)
        code, measured = silent(running)["GPU 1"]
        assert code == "gpu.slow"
        assert measured.startswith("177")
        assert "nvmlDeviceGetTemperatureV" in measured
        running.run_to(250)
        assert silent(running)["GPU 1"][0] == "gpu.lost"


def test_a_gpu_without_errors_that_does_not_answer_is_lost_at_once(tmp_path: Path) -> None:
    few = 'at = 0\ngpu = 1\neffect = { kind = "ecc", corrected_per_hour = 7200.0 }'
    with rig(pair_with(tmp_path, "h100-8", few, hang("nvmlDeviceGetTemperatureV", at=30))) as running:
        running.run_to(40)
        assert silent(running)["GPU 1"][0] == "gpu.lost"


def test_a_call_that_does_not_return_is_named_while_it_lasts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with rig(three_with(tmp_path, "h100-8", hang("nvmlDeviceGetTemperatureV", at=20, until=60)), FEW) as running:
        running.run_to(19)
        assert calls_of(running) == []
        running.run_to(50)
        ((gpu, collector, function, seconds),) = calls_of(running)
        assert (gpu, collector, function) == ("1", "thermal", "nvmlDeviceGetTemperatureV")
        assert 25 <= seconds <= 30
        assert running.value("gpu_exporter_collector_success", collector="thermal") == 0
        assert running.value("gpu_exporter_collector_success", collector="power") == 1
        running.run_to(62)
        assert calls_of(running) == []
    fields = [(record.message, getattr(record, "fields", {})) for record in caplog.records]
    told = [message for message, named in fields if named.get("function") == "nvmlDeviceGetTemperatureV"]
    assert told == ["a call does not return", "a call that did not return is over"]


def test_gpus_that_answer_past_a_driver_that_hangs_keep_their_values_and_their_verdict(tmp_path: Path) -> None:
    stuck = three_with(tmp_path, "h100-8", hang("nvmlDeviceGetCount_v2", at=20, gpu=0))
    config = replace(FEW, judge=(JudgeOption("driver.unavailable", "wait", "30s"),))
    with rig(stuck, config) as running:
        running.run_to(40)
        assert running.report.verdict is Verdict.WATCH
        running.run_to(70)
        assert len(running.series("gpu_power_watts")) == 3
        assert [value for _, value in running.series("gpu_up")] == [1.0] * 3
        report = running.report
        assert report.verdict is Verdict.DRAIN
        assert report.blocked is None
        assert {gpu.verdict for gpu in report.gpus} == {Verdict.KEEP}
        (found,) = report.findings
        assert found.check.code == "driver.unavailable"
        assert "nvmlDeviceGetCount" in found.measured
        driver = next(area for area in report.areas if area.area is Area.DRIVER)
        assert "3 of 3" in (driver.summary or "")


def test_a_gpu_that_is_lost_beside_a_driver_that_hangs_is_found_too(tmp_path: Path) -> None:
    stuck = hang("nvmlDeviceGetTemperatureV", at=30)
    with rig(three_with(tmp_path, "h100-8", hang("nvmlDeviceGetCount_v2", at=20, gpu=0), stuck), FEW) as running:
        running.run_to(50)
        report = running.report
        assert {found.check.code for found in report.findings} == {"driver.unavailable", "gpu.lost"}
        assert report.blocked is None


def test_check_measures_gpus_that_answer_past_a_driver_that_hangs(tmp_path: Path) -> None:
    report = look_at(three_with(tmp_path, "h100-8", hang("nvmlDeviceGetCount_v2", at=50, gpu=0)), 65, seconds=20.0)
    assert report.measured_seconds >= 20.0
    assert report.blocked is None
    assert "nvmlDeviceGetCount has not returned" in finding(report, "driver.unavailable").measured
    assert report.verdict is Verdict.WATCH
    assert report.exit_code(Severity.WARNING) == EXIT_FINDINGS


@pytest.mark.parametrize(
    "event", [hang("nvmlSystemGetDriverVersion", until=40, gpu=0), f"at = 0\nuntil = 40\ngpu = 0\neffect = {FAILS}"]
)
def test_a_driver_that_does_not_tell_its_version_costs_no_gpu_anything_and_is_asked_again(
    tmp_path: Path, event: str
) -> None:
    with rig(scenario_with(tmp_path, "dual-a10", event), FEW) as running:
        running.run_to(20)
        assert len(running.series("gpu_power_watts")) == 2
        assert [labels for labels, _ in running.series("gpu_driver_info") if labels["driver_version"]] == []
        running.run_to(60)
        ((labels, _),) = running.series("gpu_driver_info")
        assert labels["driver_version"] != ""


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


WITH_CLOCKS = only("power", "thermal", "clocks", "topology", "identity")
MOST_REMEMBERED = 2 * 14
"""Two GPUs by each look of a little more than a minute."""
LOST = 'at = 20\ngpu = 0\neffect = { kind = "lost" }'
NO_CLOCK = 'at = 30\ngpu = 1\neffect = { kind = "error", function = "nvmlDeviceGetClockInfo", code = "UNKNOWN" }'


def test_what_a_lost_gpu_last_answered_does_not_hide_that_no_other_answers(tmp_path: Path) -> None:
    with rig(scenario_with(tmp_path, "dual-a10", LOST, NO_CLOCK), WITH_CLOCKS) as running:
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
        running = Rig(simulated, clock, WITH_CLOCKS, machine_with(simulated, fault))
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
        running = Rig(simulated, clock, WITH_CLOCKS, make_lane=partial(CountedLane, used, clock))
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
        running = Rig(simulated, clock, WITH_CLOCKS, make_lane=make)
        running.run(55)
        assert {labels["gpu"] for labels, _ in running.series("gpu_p2p_peers")} == {"0", "1", "2"}
        late.append(True)
        running.run(13)
        assert running.value("gpu_up", gpu="1") == 0
        late.clear()
        running.run(1)
        assert {labels["gpu"] for labels, _ in running.series("gpu_p2p_peers")} == {"0", "2"}
