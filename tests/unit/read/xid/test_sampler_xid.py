"""Xids from both sources in a running exporter, and SXids of NVSwitches: what is printed, and what is counted."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.captured_cards import captured
from tests.incident_hosts import host, restarted, xid
from tests.logged import Log
from tests.rig import Rig, only, pair_with, rig

from gpu_triage.log import MOST_LINES
from gpu_triage.options.config import Config
from gpu_triage.read.registry import GPU_COLLECTORS
from gpu_triage.read.xid.xid_events import SwitchError, parse_sxid
from gpu_triage.read.xid.xid_ledger import CODES_PER_GPU, SwitchErrors, XidName
from gpu_triage.sampler.lanes import InlineLane, Job
from gpu_triage.sampler.sampler import Sampler
from gpu_triage_simulator import SimulatedMachine, VirtualClock, simulated_machine
from gpu_triage_simulator.nvml_session import NvmlSession
from gpu_triage_simulator.simulated_nvml import SimulatedNvml

pytestmark = pytest.mark.slow

LEAN = only("power", "thermal", "identity")

START_SECONDS = VirtualClock().now().monotonic


def counts(running: Rig) -> dict[tuple[str, str], float]:
    series = running.series("gpu_xid_errors_total")
    return {(labels["gpu"], labels["xid"]): value for labels, value in series if value}


def sources(running: Rig) -> dict[str, float]:
    return {labels["source"]: value for labels, value in running.series("gpu_exporter_xid_source_up")}


def errors(running: Rig) -> dict[str, float]:
    series = running.series("gpu_exporter_errors_total", collector="xid")
    return {labels["error"]: value for labels, value in series}


def session(running: Rig) -> NvmlSession:
    return session_of(running.simulated)


def session_of(simulated: SimulatedMachine) -> NvmlSession:
    nvml = simulated.machine.nvml
    assert isinstance(nvml, SimulatedNvml)
    return nvml.session


@pytest.mark.parametrize("source", ["both", "kmsg", "nvml"])
def test_one_source_is_enough_and_what_both_report_is_one_error(tmp_path: Path, source: str) -> None:
    events = [
        xid(at, code, gpu, f', reported_by = "{source}"') for at, gpu, code in ((20, 0, 31), (40, 0, 31), (40, 1, 79))
    ]
    with rig(host(tmp_path, *events), LEAN) as running:
        began = running.clock.now().wall
        running.run_to(30)
        assert counts(running) == {("0", "31"): 1}
        assert running.value("gpu_xid_last_timestamp_seconds", gpu="0") == began + 20
        running.run_to(60)
        assert counts(running) == {("0", "31"): 2, ("1", "79"): 1}
        assert running.value("gpu_xid_last_timestamp_seconds", gpu="0") == began + 40
        assert errors(running) == {}
        # The event set is freed before NVML is shut down.
        assert len(session(running).event_sets) == 1
        running.sampler.close(lambda condition: condition())
        assert (session(running).event_sets, session(running).abandoned_sets) == ({}, 0)


def test_a_storm_of_all_kinds_is_a_few_lines_in_the_log(tmp_path: Path) -> None:
    log = Log()
    with rig(host(tmp_path), LEAN) as running:
        for number in range(3000):
            running.kernel_logs(1000 + number, f"NVRM: Xid (PCI:{number:04x}:65:00): {number % 150}, pid=1, a storm")
        running.run(5)
    said = log.lines()
    assert len(said) < MOST_LINES + 10
    assert len([line for line in said if line["msg"] == "Xid"]) == MOST_LINES
    assert [line["of"] for line in said if "left out" in line["msg"]] == ["Xid"]


def test_a_restart_keeps_count_and_times_that_the_kernel_still_holds(tmp_path: Path) -> None:
    with rig(host(tmp_path, xid(20, 31, 0), xid(25, 31, 0), xid(30, 94, 1)), LEAN) as running:
        running.run_to(100)
        before = (counts(running), running.series("gpu_xid_last_timestamp_seconds"))
        again = restarted(running)
        again.run(10)
        assert before == (counts(again), again.series("gpu_xid_last_timestamp_seconds"))
        assert before[0] == {("0", "31"): 2, ("1", "94"): 1}


def test_without_the_kernel_log_nvml_is_heard_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with rig(host(tmp_path, xid(20, 31, 0, ', reported_by = "nvml"')), LEAN) as running:
        running.kmsg.unlink()
        running.run_to(150)
        assert sources(running) == {"kmsg": 0, "nvml": 1}
        assert counts(running) == {("0", "31"): 1}
        assert running.value("gpu_exporter_collector_success", collector="xid") == 1
        assert errors(running) == {}
        assert sum("no Xids from the kernel log" in record.message for record in caplog.records) == 1


def test_where_nobody_ever_listens_nothing_alarms(tmp_path: Path) -> None:
    missing = 'at = 0\neffect = { kind = "missing_function", function = "nvmlEventSetCreate" }'
    with rig(host(tmp_path, missing), LEAN) as running:
        running.kmsg.unlink()
        running.run_to(10)
        assert sources(running) == {"kmsg": 0, "nvml": 0}
        assert running.series("gpu_xid_errors_total") == [], "nothing is counted as 0"
        assert running.value("gpu_exporter_collector_success", collector="xid") is None
        assert errors(running) == {}


def test_counts_and_hearing_survive_that_nvml_is_opened_again(tmp_path: Path) -> None:
    lost = 'at = "20s"\nuntil = "30s"\ngpu = 1\neffect = { kind = "lost" }'
    events = (xid(10, 31, 0), lost, xid(100, 31, 0, ', reported_by = "nvml"'), xid(101, 94, 1))
    with rig(host(tmp_path, *events), LEAN) as running:
        running.run_to(90)
        assert running.value("gpu_up", gpu="1") == 1
        assert counts(running) == {("0", "31"): 1, ("1", "79"): 1}
        running.run_to(120)
        assert counts(running) == {("0", "31"): 2, ("1", "79"): 1, ("1", "94"): 1}
        assert session(running).abandoned_sets == 0


def test_letting_go_of_the_gpus_frees_the_event_set_and_the_kernel_log_is_read_on(tmp_path: Path) -> None:
    kernel_alone = ', reported_by = "kmsg"'
    with rig(host(tmp_path, xid(20, 31, 0, kernel_alone), xid(60, 31, 0, ', reported_by = "nvml"')), LEAN) as running:
        running.run_to(10)
        running.sampler.release()
        running.run_to(30)
        assert session(running).event_sets == {}
        assert session(running).abandoned_sets == 0
        assert sources(running) == {"kmsg": 1, "nvml": 0}
        assert counts(running) == {("0", "31"): 1}
        running.sampler.acquire()
        running.run_to(70)
        assert sources(running) == {"kmsg": 1, "nvml": 1}
        assert counts(running) == {("0", "31"): 2}


def test_a_gpu_that_was_gone_before_is_known_by_its_address_until_it_is_seen(tmp_path: Path) -> None:
    with rig(host(tmp_path, 'at = 0\nuntil = "60s"\ngpu = 1\neffect = { kind = "lost" }'), LEAN) as running:
        running.run_to(10)
        assert counts(running) == {}
        assert {labels["gpu"] for labels, _ in running.series("gpu_xid_errors_total")} == {"0"}, "not even with 0"
        assert running.value("gpu_xid_unassigned_errors_total", pci_bus_id="0000:b3:00.0", xid="79") == 1
        running.run_to(200)
        assert counts(running) == {("1", "79"): 1}
        assert running.series("gpu_xid_unassigned_errors_total") == []


def test_an_xid_stays_with_the_board_when_indices_move(tmp_path: Path) -> None:
    removed = 'at = "20s"\ngpu = 0\neffect = { kind = "removed" }'
    with rig(host(tmp_path, xid(10, 31, 0), xid(10, 48, 1), removed), LEAN) as running:
        running.run_to(15)
        uuids = {labels["gpu"]: labels["uuid"] for labels, _ in running.series("gpu_up")}
        running.run_to(90)
        assert running.value("gpu_xid_errors_total", uuid=uuids["0"], xid="31") == 1
        assert running.value("gpu_xid_errors_total", uuid=uuids["1"], gpu="0", xid="48") == 1


class HeldLane(InlineLane):
    """A lane whose job is over only when it is let go, as with a thread that takes its time."""

    def __init__(self, clock: VirtualClock, held: Callable[[], bool]) -> None:
        super().__init__(clock)
        self._held = held
        self._waiting: Job | None = None
        self.given = 0

    @property
    def busy_since(self) -> float | None:
        return 0.0 if self._waiting is not None else super().busy_since

    def submit(self, job: Job, *, queued: bool = False) -> None:
        self.given += 1
        if self._held():
            self._waiting = job
        else:
            super().submit(job, queued=queued)

    def let_go(self) -> None:
        job, self._waiting = self._waiting, None
        if job is not None:
            super().submit(job)


def test_nobody_asks_a_gpu_or_waits_for_events_while_nvml_is_opened_again(tmp_path: Path) -> None:
    lost = 'at = "5s"\nuntil = "10s"\ngpu = 1\neffect = { kind = "lost" }'
    clock = VirtualClock()
    lanes: dict[str, HeldLane] = {}

    def given() -> dict[str, int]:
        return {name: lane.given for name, lane in lanes.items() if name.startswith("gpu-") or name == "xid-nvml"}

    with simulated_machine(host(tmp_path, lost), clock=clock) as simulated:

        def reopening() -> bool:
            # What opens NVML again is the first look after the event set was let go.
            return clock.now().monotonic > START_SECONDS + 10 and not session_of(simulated).event_sets

        def make(name: str) -> HeldLane:
            lanes[name] = HeldLane(clock, lambda: name == "driver" and reopening())
            return lanes[name]

        sampler = Sampler(simulated.machine, Config(), make, GPU_COLLECTORS, ())
        while not reopening():
            sampler.step()
            sampler.publish()
            clock.advance(1)
        before = given()
        for _ in range(5):
            sampler.step()
            sampler.publish()
            clock.advance(1)
        assert given() == before
        lanes["driver"].let_go()
        sampler.step()
        # A GPU is asked who it is, and then for its readings.
        asked = {name: count - before[name] for name, count in given().items()}
        assert asked == {"gpu-0": 2, "gpu-1": 2, "xid-nvml": 1}


SWITCH = "0000:05:00.0"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 62 LTSSM Fault Up", (SWITCH, 20034, True)),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress (First)", (SWITCH, 12028, False)),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal", (SWITCH, 12028, False)),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Severity 1 Engine instance 62 Sub-engine instance 00",
            None,
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Data {0x10000000, 0x10000000}", None),
        ("nvidia-nvswitch0: SXid (invalid): some error", None),
        ("nvidia-nvswitch0: open (major=510)", None),
        ("NVRM: Xid (PCI:0000:05:00): 20034, Fatal, Link 62", None),
        ("", None),
    ],
)
def test_an_error_is_told_from_its_details(text: str, found: tuple[str, int, bool] | None) -> None:
    assert parse_sxid(text, 5.0) == (None if found is None else SwitchError(*found, 5.0))


def test_of_real_lines_those_that_say_how_bad_it_is_are_errors() -> None:
    for path in captured("sxid-lines.txt"):
        lines = path.read_text().splitlines()
        said = [line for line in lines if "Fatal, " in line or "Non-fatal" in line]
        assert [line for line in lines if parse_sxid(line) is not None] == said


def test_errors_are_counted_by_switch_code_and_severity_within_bounds() -> None:
    errors = SwitchErrors()
    for code, fatal, at in ((20034, True, 5.0), (20034, True, 9.0), (20034, False, 7.0)):
        errors.see(SwitchError(SWITCH, code, fatal, at))
    counts = errors.counts()[SWITCH]
    assert {name: (count.count, count.last_at) for name, count in counts.items()} == {
        ("20034", "true"): (2, 9.0),
        ("20034", "false"): (1, 7.0),
    }
    for code in range(200):
        errors.see(SwitchError(SWITCH, code, fatal=False, at=1.0))
        errors.see(SwitchError(f"0001:{code:02x}:00.0", 1, fatal=True, at=1.0))
    assert len(errors.counts()) == 64
    assert len(errors.counts()[SWITCH]) == CODES_PER_GPU + 1
    assert errors.counts()[SWITCH][XidName("other", "false")].count == 200 - CODES_PER_GPU + 2


def test_an_sxid_is_published_once_and_the_details_are_not(tmp_path: Path) -> None:
    events = (
        'at = 20\neffect = { kind = "sxid", code = 20034, switch = 1 }',
        'at = 30\neffect = { kind = "sxid", code = 12028, fatal = false }',
    )
    with rig(pair_with(tmp_path, "h100-8", *events), only("power", "identity")) as running:
        running.run_to(15)
        assert running.series("gpu_nvswitch_sxid_errors_total") == []
        running.run_to(40)
        told = {
            (labels["pci_bus_id"], labels["sxid"], labels["fatal"]): value
            for labels, value in running.series("gpu_nvswitch_sxid_errors_total")
        }
        assert told == {("0000:08:00.0", "20034", "true"): 1, ("0000:07:00.0", "12028", "false"): 1}
        running.kernel_logs(9001, "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 32 (First)", ago=1)
        running.run_to(42)
        assert running.value("gpu_nvswitch_sxid_errors_total", sxid="12028", fatal="false") == 2
        first, last = (
            running.value("gpu_nvswitch_sxid_last_timestamp_seconds", sxid=code) or 0 for code in ("20034", "12028")
        )
        assert 0 < first < last
