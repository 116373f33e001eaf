"""Takes some fields of the present host over into its baseline, and keeps the rest as recorded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from gpu_triage.read.baseline.compare import BOARD, GPU_FIELDS, HOST_FIELDS, SLOT, GpuPair, match
from gpu_triage.read.baseline.facts import LEVEL, GpuFacts, HostFacts, LinkFacts, Peer

ACCEPTABLE: Final = (*HOST_FIELDS, *GPU_FIELDS, BOARD, SLOT)
"""Every field that `changes` reports."""

_HOST: Final = {"gpu_count": "gpu_count", "driver_version": "driver_version", "iommu": "iommu_active"}
_GPU: Final = {
    "gpu_model": "name",
    "numa_node": "numa_node",
    "nic_affinity": "nics",
    "nvlink": "nvlinks_up",
    "vbios_version": "vbios_version",
    "persistence_mode": "persistence_mode",
    "ecc_mode": "ecc_mode",
    SLOT: "pci_bus_id",
    BOARD: "uuid",
}
_LINK: Final = {
    f"pcie_{what}": (what, f"device_{what}", f"slot_{what}") for what in ("generation", "width")
}  # the limit, and those of card and slot, which explain it


def accepted(recorded: HostFacts, now: HostFacts, fields: Collection[str]) -> HostFacts:
    """The recorded host with these fields as they are now; values that are not reported now are kept.

    With `BOARD`, GPUs that are gone are removed. GPUs that were added come with their model.
    """
    named = [(pair, _name(pair, fields)) for pair in match(recorded.gpus, now.gpus) if _stays(pair, fields)]
    then = {pair.recorded.uuid: name for pair, name in named if pair.recorded}
    since = {pair.now.uuid: name for pair, name in named if pair.now}
    gpus = tuple(
        replace(_merged(pair, fields), uuid=name, peers=_peers(pair, fields, then, since)) for pair, name in named
    )
    return replace(recorded, at=now.at, gpus=gpus, **_taken(now, _HOST, fields))


def _stays(pair: GpuPair, fields: Collection[str]) -> bool:
    if pair.now is None:
        return BOARD not in fields
    return pair.recorded is not None or "gpu_model" in fields


def _name(pair: GpuPair, fields: Collection[str]) -> str:
    """The UUID of the GPU in the file from now on."""
    if pair.recorded is None or (pair.now is not None and BOARD in fields):
        return pair.latest.uuid
    return pair.recorded.uuid


def _merged(pair: GpuPair, fields: Collection[str]) -> GpuFacts:
    then, now = pair.recorded, pair.now
    if then is None or now is None:
        return pair.latest
    taken = _taken(now, _GPU, fields)
    if now.link is not None:
        known = {part for field in fields for part in _LINK.get(field, ())}
        parts = {part: value for part in known if (value := getattr(now.link, part)) is not None}
        taken["link"] = replace(then.link or LinkFacts(), **parts) if parts else then.link
    if "power_limit" in fields and now.power_watts is not None:
        taken["power_watts"] = {**(then.power_watts or {}), **now.power_watts}
    if "clocks" in fields and now.clocks is not None:
        tables = then.clocks or {}
        taken["clocks"] = {**tables, **{kind: {**tables.get(kind, {}), **table} for kind, table in now.clocks.items()}}
    return replace(then, **taken)


def _taken(now: HostFacts | GpuFacts, attributes: Mapping[str, str], fields: Collection[str]) -> dict[str, Any]:
    found = {attribute: getattr(now, attribute) for field, attribute in attributes.items() if field in fields}
    return {attribute: value for attribute, value in found.items() if value is not None and value != ""}


def _peers(
    pair: GpuPair, fields: Collection[str], then: Mapping[str, str], since: Mapping[str, str]
) -> dict[str, Peer] | None:
    """The GPU's peers by their UUIDs in the file, to which `then` and `since` map recorded and present ones."""
    recorded = (pair.recorded and pair.recorded.peers) or {}
    present = (pair.now and pair.now.peers) or {}
    found: dict[str, Peer] = {then[uuid]: dict(peer) for uuid, peer in recorded.items() if uuid in then}
    for uuid, peer in present.items():
        if uuid not in since:
            continue
        added = since[uuid] not in found
        known = found.setdefault(since[uuid], {})
        known |= {key: value for key, value in peer.items() if added or _field_of(key) in fields}
    return found or None


def _field_of(key: str) -> str:
    return "topology" if key == LEVEL else "p2p"
