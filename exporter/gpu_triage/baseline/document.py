"""The baseline as a file: versioned JSON that people can read, edit and diff (``docs/baseline.schema.json``).

What was not reported is left out. Each container of plain values stands on one line, so that a line is one fact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final

from gpu_triage.baseline.facts import GpuFacts, HostFacts, LinkFacts, PeerFacts
from gpu_triage.baseline.fields import Fields
from gpu_triage.errors import BaselineError

FORMAT: Final = "gpu-triage-baseline"
VERSION: Final = 1

MOST_BYTES: Final = 4 << 20
"""A host of 64 GPUs that all know each other takes half of it."""

_MOST_GPUS: Final = 256
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_CLOCKS: Final = ("max", "target", "default")
_LINK: Final = ("generation", "width", "device_generation", "device_width", "slot_generation", "slot_width")


def encode(facts: HostFacts) -> str:
    """The file's text; ends with a newline."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "recorded": timestamp(facts.at),
        "host": _given(gpu_count=facts.gpu_count, driver_version=facts.driver_version, iommu_active=facts.iommu_active),
        "gpus": [_encode_gpu(gpu) for gpu in facts.gpus],
    }
    return f"{_pretty(document, '')}\n"


def decode(text: str) -> HostFacts:
    """The facts in a file's text.

    Raises:
        BaselineError: ``malformed``, or ``unknown_version``; says which key is wrong.
    """
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BaselineError("malformed", f"is no JSON: {error}; write it with gpu-triage baseline write") from error
    root = Fields.of(raw, "")
    if root.text("format") != FORMAT:
        raise BaselineError("malformed", f"format: is not {FORMAT!r}; write the file with gpu-triage baseline write")
    version = root.required("version", root.integer("version", 1, 1 << 30))
    if version != VERSION:
        raise BaselineError("unknown_version", f"version: is {version}, this program knows {VERSION}; record it anew")
    host = root.table("host")
    facts = HostFacts(
        at=_seconds(root.required("recorded", root.text("recorded"))),
        gpu_count=host.required("host.gpu_count", host.integer("gpu_count", 0, _MOST_GPUS)),
        driver_version=host.text("driver_version"),
        iommu_active=host.flag("iommu_active"),
        gpus=tuple(_decode_gpu(Fields.of(gpu, f"gpus[{i}]")) for i, gpu in enumerate(root.array("gpus", _MOST_GPUS))),
    )
    host.finish()
    root.finish(ignored={"$schema"})
    if len({gpu.uuid for gpu in facts.gpus}) < len(facts.gpus):
        raise BaselineError("malformed", "gpus: two of them have one uuid; keep one of them")
    return facts


def timestamp(seconds: float) -> str:
    """A time as the file writes it: ``2026-01-15T00:00:00Z``."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(_TIME)


def _seconds(text: str) -> float:
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=timezone.utc).timestamp()
    except ValueError as error:
        raise BaselineError("malformed", f"recorded: is {text!r}; write it as 2026-01-15T00:00:00Z") from error


def _given(**facts: object) -> dict[str, object]:
    return {name: value for name, value in facts.items() if value is not None}


def _encode_gpu(gpu: GpuFacts) -> dict[str, object]:
    clocks = {
        "max_hertz": gpu.clock_max_hertz,
        "target_hertz": gpu.clock_target_hertz,
        "default_hertz": gpu.clock_default_hertz,
    }
    peers = gpu.peers
    return _given(
        uuid=gpu.uuid,
        pci_bus_id=gpu.pci_bus_id or None,
        name=gpu.name or None,
        vbios_version=gpu.vbios_version,
        pcie=_given(**{name: getattr(gpu.link, name) for name in _LINK}) if gpu.link else None,
        numa_node=gpu.numa_node,
        nics=None if gpu.nics is None else dict(gpu.nics),
        nvlinks_up=None if gpu.nvlinks_up is None else list(gpu.nvlinks_up),
        power_watts=None if gpu.power_watts is None else dict(gpu.power_watts),
        clocks={name: dict(hertz) for name, hertz in clocks.items() if hertz is not None} or None,
        persistence_mode=gpu.persistence_mode,
        ecc_mode=gpu.ecc_mode,
        peers=None if peers is None else {uuid: _encode_peer(peer) for uuid, peer in sorted(peers.items())},
    )


def _encode_peer(peer: PeerFacts) -> dict[str, object]:
    # Flat, so that a pair of GPUs is one line.
    return _given(level=peer.level, **{f"p2p_{name}": status for name, status in peer.p2p.items()})


def _decode_gpu(table: Fields) -> GpuFacts:
    link = table.optional_table("pcie")
    clocks = table.optional_table("clocks")
    hertz = {name: clocks.numbers(f"{name}_hertz") if clocks else None for name in _CLOCKS}
    gpu = GpuFacts(
        uuid=table.required("uuid", table.text("uuid")),
        pci_bus_id=table.text("pci_bus_id") or "",
        name=table.text("name") or "",
        vbios_version=table.text("vbios_version"),
        link=LinkFacts(**{name: link.integer(name, 1, 64) for name in _LINK}) if link else None,
        numa_node=table.integer("numa_node", -1, 1 << 16),
        nics=table.texts("nics"),
        peers=_decode_peers(table),
        nvlinks_up=table.integers("nvlinks_up", 0, 63),
        power_watts=table.numbers("power_watts"),
        clock_max_hertz=hertz["max"],
        clock_target_hertz=hertz["target"],
        clock_default_hertz=hertz["default"],
        persistence_mode=table.flag("persistence_mode"),
        ecc_mode=table.flag("ecc_mode"),
    )
    for each in (link, clocks, table):
        if each is not None:
            each.finish()
    return gpu


def _decode_peers(table: Fields) -> Mapping[str, PeerFacts] | None:
    peers = table.optional_table("peers")
    if peers is None:
        return None
    facts = {}
    for uuid in peers.names():
        peer = peers.texts(uuid) or {}
        unknown = [name for name in peer if name != "level" and not name.startswith("p2p_")]
        if unknown:
            raise BaselineError("malformed", f"{peers.where}.{uuid}: unknown key {unknown[0]!r}; leave it out")
        p2p = {name.removeprefix("p2p_"): status for name, status in peer.items() if name != "level"}
        facts[uuid] = PeerFacts(peer.get("level"), p2p)
    return facts


def _pretty(value: Any, indent: str) -> str:
    """JSON with two spaces a level, in which a container of plain values takes one line."""
    inner = f"{indent}  "
    if isinstance(value, dict) and any(isinstance(each, (dict, list)) for each in value.values()):
        lines = [f"{inner}{json.dumps(key)}: {_pretty(each, inner)}" for key, each in value.items()]
    elif isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value):
        lines = [f"{inner}{_pretty(each, inner)}" for each in value]
    else:
        return json.dumps(value, ensure_ascii=False)
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n" + ",\n".join(lines) + f"\n{indent}{last}"
