"""A baseline takes over the fields that are accepted, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.read.baseline.test_baseline_compare import CHANGED, HOST, A, B

from gpu_triage.read.baseline.differences import ACCEPTABLE, GPU_FIELDS, HOST_FIELDS, accepted, changes
from gpu_triage.read.baseline.host_facts import HostFacts, LinkFacts, decode, encode

EVERYTHING_ELSE = replace(
    HOST,
    at=9.0,
    gpu_count=3,
    driver_version="590",
    iommu_active=True,
    gpus=(
        replace(
            A,
            uuid="GPU-c",
            name="NVIDIA A30",
            vbios_version="95",
            pcie=LinkFacts(3, 8, 3, 8, 3, 8),
            numa_node=1,
            nics={"eth0": "sys"},
            peers={"GPU-b": {"level": "sys", "p2p_read": "not_supported", "p2p_write": "ok"}},
            nvlinks_up=(0,),
            power_watts={"enforced": 100.0, "max": 150.0},
            clocks={"target_hertz": {"sm": 1.2e9}},
            persistence_mode=False,
            ecc_mode=False,
        ),
        replace(B, pci_bus_id="0000:99:00.0", peers={"GPU-c": {"level": "sys", "p2p_read": "ok", "p2p_write": "ok"}}),
    ),
)
"""A host of which no field is as it was."""


def _differing(recorded: HostFacts, now: HostFacts) -> set[str]:
    return {each.field for each in changes(recorded, now)}


def test_the_host_differs_in_every_field_that_can_be_accepted() -> None:
    assert _differing(HOST, EVERYTHING_ELSE) == {*ACCEPTABLE}
    assert {*HOST_FIELDS, *GPU_FIELDS} < {*ACCEPTABLE}


@pytest.mark.parametrize("field", ACCEPTABLE)
def test_a_field_that_is_accepted_no_longer_differs_and_every_other_still_does(field: str) -> None:
    merged = accepted(HOST, EVERYTHING_ELSE, {field})
    assert merged.at == 9.0
    assert _differing(merged, EVERYTHING_ELSE) == {*ACCEPTABLE} - {field}
    # What is kept is what was recorded: without the field, nothing differs from before.
    assert _differing(HOST, merged) == {field}


def test_all_of_it_can_be_accepted_and_written() -> None:
    merged = accepted(HOST, EVERYTHING_ELSE, ACCEPTABLE)
    assert changes(merged, EVERYTHING_ELSE) == ()
    assert decode(encode(merged).encode(), "file") == merged


@pytest.mark.parametrize(("changed", "expected"), CHANGED, ids=[row[1][0] for row in CHANGED])
def test_each_change_is_accepted_by_its_name(changed: dict[str, Any], expected: tuple[str, str, str]) -> None:
    now = replace(HOST, gpus=(replace(A, **changed), B))
    assert changes(accepted(HOST, now, {expected[0]}), now) == ()
    assert accepted(HOST, now, set(ACCEPTABLE) - {expected[0]}) == HOST


def test_what_is_not_reported_now_is_kept() -> None:
    silent = dict.fromkeys(("pcie", "nics", "peers", "nvlinks_up", "power_watts", "clocks", "numa_node"))
    now = HostFacts(0.0, None, None, None, (replace(A, name="", **silent), B))  # type: ignore[arg-type]
    assert accepted(HOST, now, ACCEPTABLE) == HOST


def test_a_link_takes_the_limits_of_card_and_slot_with_it() -> None:
    now = replace(HOST, gpus=(replace(A, pcie=LinkFacts(3, 8, 4, 16, 3, 8)), B))
    assert accepted(HOST, now, {"pcie_width"}).gpus[0].pcie == LinkFacts(4, 8, 4, 16, 4, 8)


def test_a_gpu_that_is_gone_is_forgotten_only_with_its_board() -> None:
    now = replace(HOST, gpu_count=1, gpus=(replace(A, peers={}),))
    assert [gpu.uuid for gpu in accepted(HOST, now, {"gpu_count"}).gpus] == ["GPU-a", "GPU-b"]
    merged = accepted(HOST, now, {"gpu_count", "uuid"})
    assert [gpu.uuid for gpu in merged.gpus] == ["GPU-a"]
    assert merged.gpus[0].peers is None
    assert changes(merged, now) == ()


def test_a_gpu_that_was_added_comes_with_its_peers() -> None:
    one = replace(HOST, gpu_count=1, gpus=(replace(A, peers=None),))
    assert changes(accepted(one, HOST, {"gpu_count"}), HOST) != ()
    merged = accepted(one, HOST, {"gpu_count", "gpu_model"})
    assert changes(merged, HOST) == ()
    assert merged.gpus == HOST.gpus


def test_a_replaced_board_is_known_to_its_peers_by_its_new_name() -> None:
    board = replace(A, uuid="GPU-c")
    peer = replace(B, peers={"GPU-c": {"level": "pix", "p2p_read": "ok", "p2p_write": "ok"}})
    merged = accepted(HOST, replace(HOST, gpus=(board, peer)), {"uuid"})
    assert merged.gpus == (board, peer)
