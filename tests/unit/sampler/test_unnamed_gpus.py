"""GPUs that were lost before the exporter started do not tell who they are: they are recognized, and findings end."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.incident_hosts import restarted
from tests.rig import Rig, only, pair_with, rig, scenario_with, three_with

from gpu_triage.driver.nvml.session import MAX_GPUS
from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.findings.states import EndReason
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.options.config import Config
from gpu_triage.read.incidents.ledger import Board
from gpu_triage.sampler.host_gpus import HostGpus, Places
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage_simulator import VirtualClock

BUS = ("0000:17:00.0", "0000:65:00.0", "0000:b3:00.0")
LOST_AT, REPAIRED_AT = 60, 300
HOLD = BY_CODE["gpu.lost"].hold_seconds
STEP, WINDOW = 5.0, 60.0
LOOK_AGAIN = 200.0
"""A GPU that has been gone for so long is looked for at least so often."""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    folder = tmp_path / "state"
    folder.mkdir()
    return only("power", "activity", "identity", state_directory=folder, sample_fast_seconds=STEP)


def gone(kind: str, gpu: int = 0, at: int = LOST_AT, until: int = REPAIRED_AT) -> str:
    return f'at = {at}\nuntil = {until}\ngpu = {gpu}\neffect = {{ kind = "{kind}" }}'


def names(running: Rig, code: str = "gpu.lost", state: State = State.CONFIRMED) -> list[tuple[str, str, str]]:
    """Index, UUID and address of each GPU or slot with such a finding."""
    found = [labels for labels, value in running.series("gpu_finding", code=code) if value == state]
    return sorted((labels["gpu"], labels["uuid"], labels["pci_bus_id"]) for labels in found)


def silent(running: Rig) -> list[tuple[str, str, str]]:
    """Index, UUID and error of each GPU that does not answer."""
    return sorted((labels["gpu"], labels["uuid"], labels["error"]) for labels, _ in running.series("gpu_error_info"))


def restarted_later(running: Rig, seconds: float) -> Rig:
    """The next exporter on the host, 20 s after it was started so much later."""
    again = restarted(running, down_seconds=seconds)
    again.run(20)
    return again


def reaches_the_end(running: Rig, code: str = "gpu.lost") -> None:
    """It ends in its hold after the repair, and nobody is lost then."""
    running.run_to(REPAIRED_AT + LOOK_AGAIN + HOLD)
    assert names(running, code) == []
    assert {value for _, value in running.series("gpu_up")} == {1.0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lost", "removed", "denied"])
def test_over_a_restart_a_gpu_that_is_gone_stays_who_it_is(tmp_path: Path, config: Config, kind: str) -> None:
    scenario = pair_with(tmp_path, "h100-8", gone(kind))
    gpu = scenario.gpus[0]
    whole = ("0", gpu.uuid, gpu.slot.bus_id)
    with rig(scenario, config) as running:
        running.run_to(200)
        before, facts = silent(running), running.series("gpu_info", uuid=gpu.uuid)
        assert names(running) == [whole]
        again = running
        for _ in range(2):
            again = restarted_later(again, 0)
            assert (names(again), silent(again)) == ([whole], before)
            assert again.series("gpu_info", uuid=gpu.uuid) == facts
            assert again.series("gpu_xid_unassigned_errors_total") == []
        reaches_the_end(again)


@pytest.mark.slow
@pytest.mark.parametrize("remembers", [True, False])
def test_gpus_that_were_lost_while_no_exporter_ran_are_the_boards_that_were_there(
    tmp_path: Path, config: Config, *, remembers: bool
) -> None:
    """Without a state directory they are known by their addresses."""
    scenario = three_with(tmp_path, "h100-8", gone("lost", 0), gone("lost", 2))
    with rig(scenario, config if remembers else replace(config, state_directory=None)) as running:
        running.run_to(LOST_AT - 20)
        again = restarted_later(running, 100)
        gpus = [(scenario.gpus[number].uuid * remembers, scenario.gpus[number].slot.bus_id) for number in (0, 2)]
        each = [("0", *gpus[0]), ("2", *gpus[1])]
        assert (names(again), names(again, "xid.79")) == (each, each)
        assert again.series("gpu_host_finding", code="xid.79") == []
        assert [again.value("gpu_info", pci_bus_id=address, uuid=uuid) for uuid, address in gpus] == [1, 1]
        reaches_the_end(again)


@pytest.mark.slow
def test_a_gpu_that_was_lost_before_the_first_start_ends_its_finding_when_it_is_back(
    tmp_path: Path, config: Config
) -> None:
    scenario = pair_with(tmp_path, "h100-8", gone("lost", at=0))
    uuid, address = scenario.gpus[0].uuid, scenario.gpus[0].slot.bus_id
    with rig(scenario, config) as running:
        running.run_to(200)
        assert names(running) == names(running, "xid.79") == [("0", "", address)]
        running.run_to(REPAIRED_AT + LOOK_AGAIN)
        assert names(running) == [("0", uuid, address)], "it is held"
        assert names(running, state=State.ENDED) == [("0", "", address)]
        held, moved = (running.report.findings[0], running.report.ended[0])
        assert (held.check.code, held.holds) == ("gpu.lost", False)
        assert (moved.pci_bus_id, moved.end) == (address, EndReason.MOVED.value)
        reaches_the_end(running)


@pytest.mark.slow
def test_when_the_driver_numbers_its_gpus_anew_nobody_is_taken_for_another(tmp_path: Path, config: Config) -> None:
    """The first of three leaves the driver's list, and the second, which is the first now, is lost in a restart."""
    scenario = three_with(tmp_path, "h100-8", gone("removed", 0), gone("lost", 1, at=200))
    first, second = ((gpu.uuid, gpu.slot.bus_id) for gpu in scenario.gpus[:2])
    with rig(scenario, config) as running:
        running.run_to(180)
        assert names(running) == [("0", *first)]
        again = restarted_later(running, 60)
        assert names(again) == sorted([("0", *first), ("0", *second)])
        assert again.value("gpu_up", uuid=scenario.gpus[2].uuid) == 1
        reaches_the_end(again)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_board_that_was_replaced_is_forgotten_and_its_findings_end(
    tmp_path: Path, config: Config, restarts: int
) -> None:
    replaced = f'at = {REPAIRED_AT}\ngpu = 1\neffect = {{ kind = "replace_gpu", model = "a10" }}'
    scenario = scenario_with(tmp_path, "dual-a10", gone("lost", 1), replaced)
    old, new = scenario.gpus[1].uuid, scenario.card(1, REPAIRED_AT).uuid
    with rig(scenario, config) as first:
        first.run_to(200)
        running = restarted(first) if restarts else first
        running.run_to(REPAIRED_AT - STEP)
        assert names(running) == [("1", old, scenario.gpus[1].slot.bus_id)]
        running.run_to(REPAIRED_AT + LOOK_AGAIN + 30)
        assert running.series("gpu_up", uuid=old) == []
        assert running.value("gpu_up", uuid=new) == 1
        ended = running.report.ended
        assert {"gpu.lost", "xid.79"} <= {each.check.code for each in ended}
        assert {(each.uuid, each.end) for each in ended} == {(old, EndReason.REPLACED.value)}
        assert names(running) == []


@pytest.mark.slow
def test_a_gpu_that_is_no_longer_expected_is_not_remembered(tmp_path: Path, config: Config) -> None:
    with rig(pair_with(tmp_path, "h100-8", gone("removed", until=3600)), config) as running:
        running.run_to(200)
        again = restarted(running, replace(config, expect_gpu_count=1))
        again.run(WINDOW + HOLD + 2 * STEP)
        assert (names(again), silent(again)) == ([], [])


@pytest.mark.parametrize(
    ("on_bus", "boards", "unnamed", "named", "found"),
    [
        (BUS, (), [1], {0: BUS[0], 2: BUS[2]}, {1: BUS[1]}),
        (BUS, (), [0, 2], {1: BUS[1]}, {0: BUS[0], 2: BUS[2]}),
        (BUS, (), [0, 1, 2], {}, dict(enumerate(BUS))),
        (BUS[:1], BUS[1:], [1, 2], {0: BUS[0]}, {1: BUS[1], 2: BUS[2]}),
        ((), BUS[:2], [1], {0: BUS[0]}, {1: BUS[1]}),
        # The driver counts fewer than there are, so any of two may be meant.
        (BUS, (), [0], {1: BUS[2]}, {}),
        # It counts more, or numbers them otherwise.
        (BUS[:2], (), [1, 2], {0: BUS[0]}, {}),
        (BUS, (), [0, 1], {2: BUS[0]}, {}),
        ((), (), [0], {}, {}),
    ],
)
def test_a_gpu_without_a_name_is_where_no_other_is(
    on_bus: tuple[str, ...], boards: tuple[str, ...], unnamed: list[int], named: dict[int, str], found: dict[int, str]
) -> None:
    places = Places(frozenset(on_bus), {address: Board(f"GPU-{address}", slot=address) for address in boards})
    assert places.of(unnamed, named) == found


def test_of_more_gpus_than_a_host_has_those_that_are_gone_longest_are_forgotten(config: Config) -> None:
    gpus = HostGpus(config, partial(InlineLane, VirtualClock()))
    for number in range(MAX_GPUS + 3):
        gpus.remember([Board(f"GPU-{number}", slot=f"0000:{number:02x}:00.0")], float(number))
    gpus.conclude(set(), (), Places(frozenset(), {}), now=1000.0)
    assert [gpu.key for gpu in gpus] == [f"GPU-{number}" for number in range(3, MAX_GPUS + 3)]
