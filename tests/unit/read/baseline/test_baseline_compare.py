"""What differs from a baseline, and the words for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_triage.judge.baseline_changes import meaning_of
from gpu_triage.read.baseline.differences import GPU_FIELDS, HOST_FIELDS, changes, compare, match
from gpu_triage.read.baseline.host_facts import GpuFacts, HostFacts, LinkFacts, expected_p2p

A = GpuFacts(
    "GPU-a",
    "0000:17:00.0",
    "NVIDIA A10",
    vbios_version="94.02",
    pcie=LinkFacts(4, 16, 4, 16, 4, 16),
    numa_node=0,
    nics={"eth0": "pix", "mlx5_0": "sys"},
    peers={"GPU-b": {"level": "pix", "p2p_read": "ok", "p2p_write": "ok"}},
    nvlinks_up=(0, 1),
    power_watts={"enforced": 150.0, "max": 150.0},
    clocks={"max_hertz": {"sm": 1.71e9}, "target_hertz": {"sm": 1.71e9}, "default_hertz": {"sm": 1.71e9}},
    persistence_mode=True,
    ecc_mode=True,
)
B = replace(
    A, uuid="GPU-b", pci_bus_id="0000:65:00.0", peers={"GPU-a": {"level": "pix", "p2p_read": "ok", "p2p_write": "ok"}}
)
HOST = HostFacts(0.0, 2, "580.95.05", False, (A, B))  # noqa: FBT003 - a fact


def _with(**changed: Any) -> HostFacts:
    return replace(HOST, gpus=(replace(A, **changed), B))


def _changes(now: HostFacts, recorded: HostFacts = HOST) -> list[tuple[str, str, str, str]]:
    """GPU ("" for the host), field, before and after of every change."""
    return [(c.gpu.latest.uuid if c.gpu else "", c.field, c.was, c.now) for c in changes(recorded, now)]


def test_a_host_is_equal_to_itself_in_every_field() -> None:
    verdicts = list(compare(HOST, replace(HOST, at=99.0)))
    assert [verdict.field for verdict in verdicts] == [*HOST_FIELDS, *GPU_FIELDS, *GPU_FIELDS]
    assert not any(verdict.differs for verdict in verdicts)
    assert changes(HOST, HOST) == ()


CHANGED: list[tuple[dict[str, Any], tuple[str, str, str]]] = [
    ({"name": "NVIDIA A30"}, ("gpu_model", "NVIDIA A10", "NVIDIA A30")),
    ({"pcie": LinkFacts(3, 16)}, ("pcie_generation", "generation 4", "generation 3")),
    ({"numa_node": -1}, ("numa_node", "0", "-1")),
    ({"nics": {"eth0": "sys", "mlx5_0": "sys"}}, ("nic_affinity", "eth0 pix", "eth0 sys")),
    ({"nics": {"eth1": "pix", "mlx5_0": "sys"}}, ("nic_affinity", "eth0 pix, eth1 absent", "eth0 absent, eth1 pix")),
    ({"nvlinks_up": (0,)}, ("nvlink", "link 1 up", "link 1 absent")),
    ({"vbios_version": "95"}, ("vbios_version", "94.02", "95")),
    ({"power_watts": {"enforced": 100.0, "max": 150.0}}, ("power_limit", "enforced 150 W", "enforced 100 W")),
    ({"clocks": {"target_hertz": {"sm": 1.2e9}}}, ("clocks", "target sm 1710 MHz", "target sm 1200 MHz")),
    ({"persistence_mode": False}, ("persistence_mode", "on", "off")),
    ({"ecc_mode": False}, ("ecc_mode", "on", "off")),
    (
        {"peers": {"GPU-b": {"level": "pix", "p2p_read": "not_supported", "p2p_write": "ok"}}},
        ("p2p", "read to 0000:65:00.0 ok", "read to 0000:65:00.0 not_supported"),
    ),
    (
        {"peers": {"GPU-b": {"level": "sys", "p2p_read": "ok", "p2p_write": "ok"}}},
        ("topology", "to 0000:65:00.0 pix", "to 0000:65:00.0 sys"),
    ),
]


@pytest.mark.parametrize(("changed", "expected"), CHANGED, ids=[row[1][0] for row in CHANGED])
def test_a_change_is_told_as_before_and_after(changed: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert _changes(_with(**changed)) == [("GPU-a", *expected)]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (replace(HOST, gpu_count=1), ("gpu_count", "2", "1")),
        (replace(HOST, driver_version="570"), ("driver_version", "580.95.05", "570")),
        (replace(HOST, iommu_active=True), ("iommu", "off", "on")),
    ],
)
def test_a_change_of_the_host_is_told_once(now: HostFacts, expected: tuple[str, str, str]) -> None:
    assert _changes(now) == [("", *expected)]


@pytest.mark.parametrize("changed", [{name: None} for name in ("pcie", "nics", "peers", "nvlinks_up", "ecc_mode")])
def test_what_one_side_does_not_report_is_not_compared(changed: dict[str, Any]) -> None:
    assert _changes(_with(**changed)) == []
    assert _changes(HOST, recorded=_with(**changed)) == []


def test_a_clock_that_the_driver_no_longer_reports_is_no_difference() -> None:
    assert _changes(_with(clocks={"max_hertz": {"sm": 1.71e9}, "target_hertz": {}})) == []


def test_power_that_differs_by_less_than_a_watt_is_the_same() -> None:
    assert _changes(_with(power_watts={"enforced": 150.2, "max": 150.0})) == []


def test_a_swapped_motherboard_is_told_from_a_bad_link() -> None:
    now = _with(pcie=LinkFacts(4, 8, 4, 16, 4, 8), numa_node=1)
    assert _changes(now) == [("GPU-a", "pcie_width", "x16", "x8"), ("GPU-a", "numa_node", "0", "1")]
    width, node = changes(HOST, now)
    assert "1/2 of what it did" in meaning_of(width)
    assert "The slot offers 8 lanes instead of 16 lanes. Reseating does not help" in meaning_of(width)
    assert "pin them again" in meaning_of(node)


def test_a_card_with_fewer_lanes_is_told_from_a_slot_with_fewer() -> None:
    (width,) = changes(HOST, _with(pcie=LinkFacts(4, 8, 4, 8, 4, 16)))
    assert "The card offers 8 lanes instead of 16 lanes. Reseating does not help: if it is the same card" in meaning_of(
        width
    )
    (width,) = changes(HOST, _with(pcie=LinkFacts(4, 8, 4, 16, 4, 16)))
    assert "Neither card nor slot says why. Drain the host now" in meaning_of(width)
    assert "reseat card and riser" in meaning_of(width)


def test_a_link_that_can_do_more_than_before_needs_no_repair() -> None:
    (width,) = changes(_with(pcie=LinkFacts(4, 8, 4, 16, 4, 8)), HOST)
    assert meaning_of(width) == "The link can carry 2 times what it did. The slot offers 16 lanes instead of 8 lanes."


def test_a_generation_less_halves_what_a_link_carries_and_the_slot_is_named() -> None:
    (generation,) = changes(HOST, _with(pcie=LinkFacts(3, 16, 4, 16, 3, 16)))
    assert "1/2 of what it did. The slot offers generation 3 instead of generation 4. Reseating" in meaning_of(
        generation
    )


def test_a_replaced_board_is_compared_with_the_one_before_it_and_peers_are_told_apart_by_slot() -> None:
    board = replace(A, uuid="GPU-c", numa_node=1)
    peer = replace(B, peers={"GPU-c": {"level": "pix", "p2p_read": "ok", "p2p_write": "ok"}})
    now = replace(HOST, gpus=(board, peer))
    assert _changes(now) == [("GPU-c", "uuid", "GPU-a", "GPU-c"), ("GPU-c", "numa_node", "0", "1")]


def test_boards_that_changed_places_are_still_themselves() -> None:
    now = replace(HOST, gpus=(replace(A, pci_bus_id=B.pci_bus_id), replace(B, pci_bus_id=A.pci_bus_id)))
    assert _changes(now) == [
        ("GPU-b", "pci_bus_id", "0000:65:00.0", "0000:17:00.0"),
        ("GPU-a", "pci_bus_id", "0000:17:00.0", "0000:65:00.0"),
    ]


def test_a_gpu_that_is_gone_and_one_that_is_new_are_told() -> None:
    new = replace(A, uuid="GPU-c", pci_bus_id="0000:99:00.0")
    assert _changes(replace(HOST, gpus=(A, new))) == [
        ("GPU-b", "uuid", "GPU-b", "absent"),
        ("GPU-c", "uuid", "absent", "GPU-c"),
        ("GPU-c", "gpu_model", "absent", "NVIDIA A10"),
    ]


def test_a_gpu_without_an_address_stands_for_nobody() -> None:
    nowhere = replace(A, uuid="GPU-c", pci_bus_id="")
    pairs = match((replace(A, pci_bus_id=""),), (nowhere,))
    assert {(p.recorded.uuid if p.recorded else None, p.now.uuid if p.now else None) for p in pairs} == {
        ("GPU-a", None),
        (None, "GPU-c"),
    }


def test_other_models_are_not_expected_to_reach_each_other() -> None:
    other = replace(B, name="NVIDIA A30", peers={"GPU-a": {"level": "pix", "p2p_read": "not_supported"}})
    assert expected_p2p(replace(HOST, gpus=(A, other))) is None
    assert expected_p2p(HOST) is True
