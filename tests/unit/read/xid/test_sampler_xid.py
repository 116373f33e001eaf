"""Xids from both sources in a running exporter, and SXids of NVSwitches: what is printed, and what is counted."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.incident_hosts import host, restarted, xid
from tests.parts import some
from tests.rig import Rig, only, pair_with, rig

from gpu_triage.driver.nvml.session import Device
from gpu_triage.options.config import Config
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.registry import GPU_COLLECTORS
from gpu_triage.read.xid.xid_events import CardFound, SwitchError, XidReport, XidSource, parse_sxid
from gpu_triage.read.xid.xid_ledger import CODES_PER_GPU, XidCounts, XidName, count_switch_error
from gpu_triage.sampler.lanes import InlineLane, Job
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.sampler.xid import XidOwners
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
        running.sampler.driver.release()
        running.run_to(30)
        assert session(running).event_sets == {}
        assert session(running).abandoned_sets == 0
        assert sources(running) == {"kmsg": 1, "nvml": 0}
        assert counts(running) == {("0", "31"): 1}
        running.sampler.driver.acquire()
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
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Severity 1 Engine instance 62 Sub-engine instance 00",
            None,
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Data {0x10000000, 0x10000000}", None),
        ("nvidia-nvswitch0: SXid (invalid): some error", None),
        ("NVRM: Xid (PCI:0000:05:00): 20034, Fatal, Link 62", None),
    ],
)
def test_an_error_is_told_from_its_details(text: str, found: tuple[str, int, bool] | None) -> None:
    assert parse_sxid(text, 5.0) == (None if found is None else SwitchError(*found, 5.0))


def test_errors_are_counted_by_switch_code_and_severity_within_bounds() -> None:
    errors: dict[str, XidCounts] = {}
    for code, fatal, at in ((20034, True, 5.0), (20034, True, 9.0), (20034, False, 7.0)):
        count_switch_error(errors, SwitchError(SWITCH, code, fatal, at))
    assert {name: (count.count, count.last_at) for name, count in errors[SWITCH].items()} == {
        ("20034", "true"): (2, 9.0),
        ("20034", "false"): (1, 7.0),
    }
    for code in range(200):
        count_switch_error(errors, SwitchError(SWITCH, code, fatal=False, at=1.0))
        count_switch_error(errors, SwitchError(f"0001:{code:02x}:00.0", 1, fatal=True, at=1.0))
    assert len(errors) == 64
    assert len(errors[SWITCH]) == CODES_PER_GPU + 1
    assert errors[SWITCH][XidName("other", "false")].count == 200 - CODES_PER_GPU + 2


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


ADDRESS = "0000:b3:00.0"
BY_NVML = ', reported_by = "nvml"'
LOST = 'at = 20\ngpu = 1\neffect = { kind = "lost" }'
REPLACED = 'at = 40\ngpu = 1\neffect = { kind = "replace_gpu", model = "v100-sxm2-16gb" }'
FOUND = f"pci {ADDRESS}: [10de:1db1] type 00 class 0x030200"


def counts_by_uuid(running: Rig) -> dict[tuple[str, str], float]:
    series = running.series("gpu_xid_errors_total")
    return {(labels["uuid"], labels["xid"]): value for labels, value in series if value}


def unassigned(running: Rig) -> dict[tuple[str, str], float]:
    series = running.series("gpu_xid_unassigned_errors_total")
    return {(labels["pci_bus_id"], labels["xid"]): value for labels, value in series}


def of_old(running: Rig, old: str) -> dict[str, float]:
    """Counts of a card that was replaced, by Xid: under its UUID, and under its address once its slot is another's."""
    by_uuid = {xid: count for (uuid, xid), count in counts_by_uuid(running).items() if uuid == old}
    by_address = {xid: count for (address, xid), count in unassigned(running).items() if address == ADDRESS}
    assert not by_uuid.keys() & by_address.keys()
    return {**by_uuid, **by_address}


def test_a_new_card_does_not_inherit_the_xids_of_the_one_it_replaces(tmp_path: Path) -> None:
    scenario = host(tmp_path, LOST, REPLACED)
    old, new = scenario.gpus[1].uuid, scenario.card(1, 40).uuid
    with rig(scenario, LEAN) as running:
        running.run_to(30)
        assert counts_by_uuid(running) == {(old, "79"): 1}
        for second in (39, 40, 41, 45, 50, 60, 100, 120):
            running.run_to(second)
            assert of_old(running, old) == {"79": 1}
            assert counts_by_uuid(running).keys() <= {(old, "79")}
        assert running.value("gpu_up", uuid=new) == 1
        assert running.value("gpu_up", uuid=old) is None
        assert unassigned(running) == {(ADDRESS, "79"): 1}


def test_without_the_kernel_log_too_an_xid_stays_with_the_card_that_had_it(tmp_path: Path) -> None:
    scenario = host(tmp_path, xid(20, 48, 1, BY_NVML), REPLACED, xid(200, 31, 1, BY_NVML))
    old, new = scenario.gpus[1].uuid, scenario.card(1, 40).uuid
    with rig(scenario, LEAN) as running:
        running.kmsg.unlink()
        running.run_to(220)
        assert running.value("gpu_up", uuid=new) == 1
        assert counts_by_uuid(running) == {(new, "31"): 1}
        assert of_old(running, old) == {"48": 1}


def test_a_new_card_that_fails_before_the_driver_shows_it_has_its_own_xid(tmp_path: Path) -> None:
    scenario = host(tmp_path, LOST, REPLACED, xid(41, 143, 1, ', reported_by = "kmsg"'))
    old, new = scenario.gpus[1].uuid, scenario.card(1, 40).uuid
    with rig(scenario, LEAN) as running:
        running.run_to(42)
        assert running.value("gpu_up", uuid=new) is None
        assert (counts_by_uuid(running), unassigned(running)) == ({(old, "79"): 1}, {(ADDRESS, "143"): 1})
        running.run_to(130)
        assert counts_by_uuid(running) == {(new, "143"): 1}
        assert of_old(running, old)["79"] == 1


@pytest.mark.parametrize("at", some([40, 41, 60, 170], usual=[41, 170]))
def test_after_a_restart_the_kernel_log_tells_the_cards_apart(tmp_path: Path, at: int) -> None:
    scenario = host(tmp_path, LOST, REPLACED, xid(160, 31, 1))
    new = scenario.card(1, 40).uuid
    with rig(scenario, LEAN) as running:
        running.run_to(at)
        again = restarted(running)
        again.run(5)
        assert unassigned(again) == {(ADDRESS, "79"): 1}
        assert counts_by_uuid(again) == ({(new, "31"): 1} if at > 160 else {})
        again.run_to(200)
        assert unassigned(again) == {(ADDRESS, "79"): 1}
        assert counts_by_uuid(again) == {(new, "31"): 1}


def test_a_card_that_is_found_again_keeps_its_xids_while_the_exporter_lives(tmp_path: Path) -> None:
    away = 'at = 20\nuntil = 40\ngpu = 1\neffect = { kind = "removed" }'
    scenario = host(tmp_path, xid(10, 48, 1), away, xid(200, 31, 1))
    uuid = scenario.gpus[1].uuid
    with rig(scenario, LEAN) as running:
        for second in (19, 21, 39, 40, 41, 45, 50, 60, 100, 120):
            running.run_to(second)
            assert counts_by_uuid(running) == {(uuid, "48"): 1}
            assert unassigned(running) == {}
        running.run_to(210)
        assert counts_by_uuid(running) == {(uuid, "48"): 1, (uuid, "31"): 1}


def test_cards_that_are_found_at_boot_keep_xids_that_are_older_than_the_exporter(tmp_path: Path) -> None:
    scenario = host(tmp_path, xid(20, 48, 1))
    xids = {(scenario.gpus[1].uuid, code): 1 for code in ("48", "62")}
    with rig(scenario, LEAN) as running:
        running.run_to(0)
        running.kernel_logs(1, FOUND, ago=50)
        running.kernel_logs(2, f"NVRM: Xid (PCI:{ADDRESS}): 62, 2351 (d0f)", ago=40)
        running.run_to(30)
        assert counts_by_uuid(running) == xids
        again = restarted(running)
        again.run(5)
        assert (counts_by_uuid(again), unassigned(again)) == (xids, {})


def test_a_kernel_log_that_is_readable_late_still_tells_the_cards_apart(tmp_path: Path) -> None:
    scenario = host(tmp_path, REPLACED)
    old, new = scenario.gpus[1].uuid, scenario.card(1, 40).uuid
    with rig(scenario, LEAN) as running:
        running.kmsg.unlink()
        running.run_to(150)
        running.kernel_logs(1, f"NVRM: Xid (PCI:{ADDRESS}): 62, 2351 (d0f)", ago=1000)
        running.kernel_logs(2, FOUND, ago=900)
        running.kernel_logs(3, f"NVRM: Xid (PCI:{ADDRESS}): 79, GPU has fallen off the bus.", ago=130)
        running.kernel_logs(4, FOUND, ago=110)
        # Just now: the newest record tells how the log's clock stands to ours.
        running.kernel_logs(5, f"NVRM: Xid (PCI:{ADDRESS}): 31, pid=1")
        running.run_to(250)
        assert counts_by_uuid(running) == {(new, "31"): 1}
        assert of_old(running, old) == {"79": 1, "62": 1}


CARD = Device(1, "GPU-b", ADDRESS, None)
LABELS = GpuLabels("1", "GPU-b")


def reported(at: float, code: int = 13) -> XidReport:
    return XidReport(ADDRESS, code, XidSource.KMSG, at, at)


def test_a_count_at_an_address_does_not_fall_when_some_of_it_turns_out_to_be_a_new_cards() -> None:
    owners = XidOwners()
    owners.see(reported(10))
    owners.found(CardFound(ADDRESS, 20))
    owners.see(reported(30))
    _, before = owners.counts(lambda _uuid: LABELS)
    owners.claim(CARD, 40)
    gpus, after = owners.counts(lambda _uuid: LABELS)
    assert gpus[LABELS][XidName("13")].count == 1
    assert before[ADDRESS][XidName("13")].count == after[ADDRESS][XidName("13")].count == 2


def test_an_xid_from_before_an_exchange_is_an_incident_of_the_card_that_was_there() -> None:
    owners = XidOwners()
    owners.claim(CARD, 1)
    owners.see(reported(2))
    owners.found(CardFound(ADDRESS, 5))
    owners.claim(Device(1, "GPU-c", ADDRESS, None), 5)
    owners.see(reported(12, 31))
    assert {(counted.at, uuid) for counted, uuid in owners.take_counted()} == {(2, "GPU-b"), (12, "GPU-c")}


def test_a_card_whose_xids_are_disputed_is_not_said_to_have_had_none() -> None:
    owners = XidOwners()
    owners.claim(CARD, 1)
    owners.see(reported(2))
    gpus, _ = owners.counts(lambda _uuid: LABELS)
    assert owners.are_all("GPU-b", gpus[LABELS])
    # NVML told of the second one before the kernel log told of the card.
    owners.see(reported(10))
    owners.found(CardFound(ADDRESS, 5))
    gpus, unassigned = owners.counts(lambda _uuid: LABELS)
    assert (gpus, unassigned[ADDRESS][XidName("13")].count) == ({}, 2)
    assert not owners.are_all("GPU-b", {})
