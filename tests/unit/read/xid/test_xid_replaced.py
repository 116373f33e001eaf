"""Xids of cards that are exchanged in their slot on a running host."""

from pathlib import Path

import pytest
from tests.incident_hosts import host, restarted, xid
from tests.parts import some
from tests.rig import Rig, only, rig

from gpu_triage.driver.nvml.session import Device
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.xid.xid_events import CardFound, XidReport, XidSource
from gpu_triage.read.xid.xid_ledger import XidName
from gpu_triage.sampler.xid import XidOwners

pytestmark = pytest.mark.slow

LEAN = only("power", "identity")
ADDRESS = "0000:b3:00.0"
BY_NVML = ', reported_by = "nvml"'
LOST = 'at = 20\ngpu = 1\neffect = { kind = "lost" }'
REPLACED = 'at = 40\ngpu = 1\neffect = { kind = "replace_gpu", model = "v100-sxm2-16gb" }'
FOUND = f"pci {ADDRESS}: [10de:1db1] type 00 class 0x030200"


def counts(running: Rig) -> dict[tuple[str, str], float]:
    series = running.series("gpu_xid_errors_total")
    return {(labels["uuid"], labels["xid"]): value for labels, value in series if value}


def unassigned(running: Rig) -> dict[tuple[str, str], float]:
    series = running.series("gpu_xid_unassigned_errors_total")
    return {(labels["pci_bus_id"], labels["xid"]): value for labels, value in series}


def of_old(running: Rig, old: str) -> dict[str, float]:
    """Counts of a card that was replaced, by Xid: under its UUID, and under its address once its slot is another's."""
    by_uuid = {xid: count for (uuid, xid), count in counts(running).items() if uuid == old}
    by_address = {xid: count for (address, xid), count in unassigned(running).items() if address == ADDRESS}
    assert not by_uuid.keys() & by_address.keys()
    return {**by_uuid, **by_address}


def test_a_new_card_does_not_inherit_the_xids_of_the_one_it_replaces(tmp_path: Path) -> None:
    scenario = host(tmp_path, LOST, REPLACED)
    old, new = scenario.gpus[1].uuid, scenario.card(1, 40).uuid
    with rig(scenario, LEAN) as running:
        running.run_to(30)
        assert counts(running) == {(old, "79"): 1}
        for second in (39, 40, 41, 45, 50, 60, 100, 120):
            running.run_to(second)
            assert of_old(running, old) == {"79": 1}
            assert counts(running).keys() <= {(old, "79")}
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
        assert counts(running) == {(new, "31"): 1}
        assert of_old(running, old) == {"48": 1}


def test_a_new_card_that_fails_before_the_driver_shows_it_has_its_own_xid(tmp_path: Path) -> None:
    scenario = host(tmp_path, LOST, REPLACED, xid(41, 143, 1, ', reported_by = "kmsg"'))
    old, new = scenario.gpus[1].uuid, scenario.card(1, 40).uuid
    with rig(scenario, LEAN) as running:
        running.run_to(42)
        assert running.value("gpu_up", uuid=new) is None
        assert (counts(running), unassigned(running)) == ({(old, "79"): 1}, {(ADDRESS, "143"): 1})
        running.run_to(130)
        assert counts(running) == {(new, "143"): 1}
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
        assert counts(again) == ({(new, "31"): 1} if at > 160 else {})
        again.run_to(200)
        assert unassigned(again) == {(ADDRESS, "79"): 1}
        assert counts(again) == {(new, "31"): 1}


def test_a_card_that_is_found_again_keeps_its_xids_while_the_exporter_lives(tmp_path: Path) -> None:
    away = 'at = 20\nuntil = 40\ngpu = 1\neffect = { kind = "removed" }'
    scenario = host(tmp_path, xid(10, 48, 1), away, xid(200, 31, 1))
    uuid = scenario.gpus[1].uuid
    with rig(scenario, LEAN) as running:
        for second in (19, 21, 39, 40, 41, 45, 50, 60, 100, 120):
            running.run_to(second)
            assert counts(running) == {(uuid, "48"): 1}
            assert unassigned(running) == {}
        running.run_to(210)
        assert counts(running) == {(uuid, "48"): 1, (uuid, "31"): 1}


@pytest.mark.parametrize(
    ("logged", "more"),
    [
        # The cards are found at boot.
        ({FOUND: 50, f"NVRM: Xid (PCI:{ADDRESS}): 62, 2351 (d0f)": 40}, {"62": 1}),
        # The driver is loaded and bound anew.
        (
            {
                "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.14": 0,
                f"nvidia {ADDRESS}: enabling device (0000 -> 0002)": 0,
            },
            {},
        ),
    ],
)
def test_what_exchanges_no_card_takes_no_xid(tmp_path: Path, logged: dict[str, float], more: dict[str, float]) -> None:
    scenario = host(tmp_path, xid(20, 48, 1))
    xids = {(scenario.gpus[1].uuid, code): count for code, count in (more | {"48": 1}).items()}
    with rig(scenario, LEAN) as running:
        running.run_to(0 if more else 30)
        for number, (text, ago) in enumerate(logged.items()):
            running.kernel_logs((1 if more else 9001) + number, text, ago=ago)
        running.run_to(30)
        assert counts(running) == xids
        again = restarted(running)
        again.run(5)
        assert (counts(again), unassigned(again)) == (xids, {})


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
        assert counts(running) == {(new, "31"): 1}
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
