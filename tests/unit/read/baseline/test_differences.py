"""What differs from a baseline, the words for it, and what becomes of a baseline when fields are accepted."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from gpu_triage.cli.baseline_command import meaning_of
from gpu_triage.judge.conditions.links import LINK_ADVICE, Attribute, Part
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.baseline.differences import ACCEPTABLE, GPU_FIELDS, HOST_FIELDS, accepted, changes, compare, match
from gpu_triage.read.baseline.host_facts import GpuFacts, HostFacts, HostValues, LinkFacts, decode, encode, expected_p2p

PIX = {"level": "pix", "p2p_read": "ok", "p2p_write": "ok"}
A = GpuFacts(
    "GPU-a",
    "0000:17:00.0",
    "NVIDIA A10",
    vbios_version="94.02",
    pcie=LinkFacts(4, 16, 4, 16, 4, 16),
    numa_node=0,
    nics={"eth0": "pix", "mlx5_0": "sys"},
    peers={"GPU-b": PIX},
    nvlinks_up=(0, 1),
    power_watts={"enforced": 150.0, "max": 150.0},
    clocks={"max_hertz": {"sm": 1.71e9}, "target_hertz": {"sm": 1.71e9}, "default_hertz": {"sm": 1.71e9}},
    persistence_mode=True,
    ecc_mode=True,
)
B = replace(A, uuid="GPU-b", pci_bus_id="0000:65:00.0", peers={"GPU-a": PIX})
HOST = HostFacts(0.0, HostValues(2, "580.95.05", iommu_active=False), (A, B))
ALONE = replace(HOST.host, gpu_count=1)


def _with(**changed: Any) -> HostFacts:
    return replace(HOST, gpus=(replace(A, **changed), B))


def _changes(now: HostFacts, recorded: HostFacts = HOST) -> list[tuple[str, str, str, str]]:
    """GPU ("" for the host), field, before and after of every change."""
    return [(c.gpu.latest.uuid if c.gpu else "", c.field, c.was, c.now) for c in changes(recorded, now)]


def test_a_host_is_equal_to_itself_in_every_field() -> None:
    verdicts = list(compare(HOST, replace(HOST, at=99.0)))
    of_a_gpu = ["uuid", "pci_bus_id", *GPU_FIELDS]
    assert [verdict.field for verdict in verdicts] == [*HOST_FIELDS, *of_a_gpu, *of_a_gpu]
    assert not any(verdict.was or verdict.now for verdict in verdicts)
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
        {"peers": {"GPU-b": PIX | {"p2p_read": "not_supported"}}},
        ("p2p", "read to 0000:65:00.0 ok", "read to 0000:65:00.0 not_supported"),
    ),
    ({"peers": {"GPU-b": PIX | {"level": "sys"}}}, ("topology", "to 0000:65:00.0 pix", "to 0000:65:00.0 sys")),
]


@pytest.mark.parametrize(("changed", "expected"), CHANGED, ids=[row[1][0] for row in CHANGED])
def test_a_change_is_told_as_before_and_after(changed: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert _changes(_with(**changed)) == [("GPU-a", *expected)]


@pytest.mark.parametrize(
    "changed",
    [
        *({name: None} for name in ("pcie", "nics", "peers", "nvlinks_up", "ecc_mode")),
        {"pci_bus_id": ""},
        {"clocks": {"max_hertz": {"sm": 1.71e9}, "target_hertz": {}}},
        {"power_watts": {"enforced": 150.2, "max": 150.0}},  # by less than a watt
    ],
)
def test_what_one_side_does_not_report_is_not_compared(changed: dict[str, Any]) -> None:
    assert _changes(_with(**changed)) == []
    assert _changes(HOST, recorded=_with(**changed)) == []


FULL_LINK, LESS = LinkFacts(4, 16, 4, 16, 4, 16), LinkFacts(4, 8, 4, 16, 4, 8)


@pytest.mark.parametrize(
    ("then", "now", "share", "changed"),
    [
        (FULL_LINK, LESS, "1/2", "slot"),
        (FULL_LINK, LinkFacts(4, 8, 4, 8, 4, 16), "1/2", "card"),
        (FULL_LINK, LinkFacts(4, 8, 4, 16, 4, 16), "1/2", None),
        (FULL_LINK, LinkFacts(3, 16, 4, 16, 3, 16), "1/2", "slot"),
        (LESS, FULL_LINK, "2 times", "slot"),
    ],
)
def test_a_slower_link_is_explained(then: LinkFacts, now: LinkFacts, share: str, changed: Part | None) -> None:
    (change,) = changes(_with(pcie=then), _with(pcie=now))
    meaning = meaning_of(change)
    assert f" {share} " in meaning
    attribute: Attribute = "width" if change.field == "pcie_width" else "generation"
    for part in (*get_args(Part), None):
        advice = LINK_ADVICE.get((attribute, part), BY_CODE[f"pcie.{attribute}"].advice)
        assert meaning.endswith(advice.anywhere) is (part == changed and share == "1/2")
        assert (f"The {part} offers" in meaning) is (part is not None and part == changed)


def test_a_replaced_board_is_compared_with_the_one_before_it_and_peers_are_told_apart_by_slot() -> None:
    board = replace(A, uuid="GPU-c", numa_node=1)
    peer = replace(B, peers={"GPU-c": PIX})
    now = replace(HOST, gpus=(board, peer))
    assert _changes(now) == [("GPU-c", "uuid", "GPU-a", "GPU-c"), ("GPU-c", "numa_node", "0", "1")]


def test_boards_that_changed_places_are_still_themselves() -> None:
    now = replace(HOST, gpus=(replace(A, pci_bus_id=B.pci_bus_id), replace(B, pci_bus_id=A.pci_bus_id)))
    assert _changes(now) == [
        ("GPU-b", "pci_bus_id", "0000:65:00.0", "0000:17:00.0"),
        ("GPU-a", "pci_bus_id", "0000:17:00.0", "0000:65:00.0"),
    ]


def test_each_difference_has_a_meaning_of_its_own() -> None:
    fewer = replace(HOST, gpus=(A,))
    of_host = ({"gpu_count": 1}, {"driver_version": "570"}, {"iommu_active": True})
    hosts = [replace(HOST, host=replace(HOST.host, **each)) for each in of_host]
    pairs = [*((HOST, now) for now in hosts), (HOST, fewer), (fewer, HOST)]
    assert len({meaning_of(changes(then, now)[0]) for then, now in pairs}) == len(pairs) == 5


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
    uuids = {(p.recorded.uuid if p.recorded else None, p.now.uuid if p.now else None) for p in pairs}
    assert uuids == {("GPU-a", None), (None, "GPU-c")}


def test_other_models_are_not_expected_to_reach_each_other() -> None:
    other = replace(B, name="NVIDIA A30", peers={"GPU-a": {"level": "pix", "p2p_read": "not_supported"}})
    assert expected_p2p(replace(HOST, gpus=(A, other))) is None
    assert expected_p2p(HOST) is True


EVERYTHING_ELSE = replace(
    HOST,
    at=9.0,
    host=HostValues(3, "590", iommu_active=True),
    gpus=(
        replace(
            A,
            **{field: value for changed, _ in CHANGED for field, value in changed.items()}
            | {"uuid": "GPU-c", "pcie": LinkFacts(3, 8, 3, 8, 3, 8)}
            | {"peers": {"GPU-b": PIX | {"level": "sys", "p2p_read": "not_supported"}}},
        ),
        replace(B, pci_bus_id="0000:99:00.0", peers={"GPU-c": PIX | {"level": "sys"}}),
    ),
)
"""A host of which no field is as it was."""


def _differing(recorded: HostFacts, now: HostFacts) -> set[str]:
    return {each.field for each in changes(recorded, now)}


def test_the_host_differs_in_every_field_that_can_be_accepted_and_all_can_be_written() -> None:
    assert _differing(HOST, EVERYTHING_ELSE) == {*ACCEPTABLE}
    assert {*HOST_FIELDS, *GPU_FIELDS} < {*ACCEPTABLE}
    merged = accepted(HOST, EVERYTHING_ELSE, ACCEPTABLE)
    assert changes(merged, EVERYTHING_ELSE) == ()
    assert decode(encode(merged).encode(), "file") == merged


@pytest.mark.parametrize("field", ACCEPTABLE)
def test_a_field_that_is_accepted_no_longer_differs_and_every_other_still_does(field: str) -> None:
    merged = accepted(HOST, EVERYTHING_ELSE, {field})
    assert merged.at == 9.0
    assert _differing(merged, EVERYTHING_ELSE) == {*ACCEPTABLE} - {field}
    # What is kept is what was recorded: without the field, nothing differs from before.
    assert _differing(HOST, merged) == {field}


def test_what_is_not_reported_now_is_kept() -> None:
    silent = dict.fromkeys(("pcie", "nics", "peers", "nvlinks_up", "power_watts", "clocks", "numa_node"))
    now = HostFacts(0.0, HostValues(None), (replace(A, name="", **silent), B))  # type: ignore[arg-type]  # by name
    assert accepted(HOST, now, ACCEPTABLE) == HOST


def test_a_link_takes_the_limits_of_card_and_slot_with_it() -> None:
    now = replace(HOST, gpus=(replace(A, pcie=LinkFacts(3, 8, 4, 16, 3, 8)), B))
    assert accepted(HOST, now, {"pcie_width"}).gpus[0].pcie == LinkFacts(4, 8, 4, 16, 4, 8)


def test_a_gpu_that_is_gone_is_forgotten_only_with_its_board() -> None:
    now = replace(HOST, host=ALONE, gpus=(replace(A, peers={}),))
    assert [gpu.uuid for gpu in accepted(HOST, now, {"gpu_count"}).gpus] == ["GPU-a", "GPU-b"]
    merged = accepted(HOST, now, {"gpu_count", "uuid"})
    assert [gpu.uuid for gpu in merged.gpus] == ["GPU-a"]
    assert merged.gpus[0].peers is None
    assert changes(merged, now) == ()


def test_a_gpu_that_was_added_comes_with_its_peers() -> None:
    one = replace(HOST, host=ALONE, gpus=(replace(A, peers=None),))
    assert changes(accepted(one, HOST, {"gpu_count"}), HOST) != ()
    merged = accepted(one, HOST, {"gpu_count", "gpu_model"})
    assert changes(merged, HOST) == ()
    assert merged.gpus == HOST.gpus


def test_a_replaced_board_is_known_to_its_peers_by_its_new_name() -> None:
    board = replace(A, uuid="GPU-c")
    peer = replace(B, peers={"GPU-c": PIX})
    merged = accepted(HOST, replace(HOST, gpus=(board, peer)), {"uuid"})
    assert merged.gpus == (board, peer)
