"""How the GPUs are connected, which pairs have direct P2P, and which adapters are near each GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.view import GpuView, HostView
from gpu_triage.web.page.markup import UNKNOWN, foreign, safe, section, table

_LEGEND: Final = (
    "PIX: same PCIe switch. PXB: several switches. PHB: same host bridge. NODE: same NUMA node. SYS: across sockets. "
    "NV: joined by NVLink. Green: the GPU of the row reads the GPU of the column directly; red: through host memory."
)
_NEAR: Final = ("pix", "pxb")
_PAIR: Final = 2


@dataclass(frozen=True, slots=True)
class _Paths:
    """What is known of the pairs; all by uuids.

    Attributes:
        levels: of unordered pairs.
        statuses: of ordered pairs and a capability.
    """

    levels: Mapping[frozenset[str], str]
    statuses: Mapping[tuple[str, str, str], str]


def topology_section(host: HostView) -> str:
    """The matrix of GPUs; "" where there is no pair of which anything is known."""
    paths = _Paths(
        levels={
            frozenset((track.labels["uuid"], track.labels["peer_uuid"])): track.labels["level"]
            for track in host.evidence.series(catalogue.TOPOLOGY_INFO)
        },
        statuses={
            (track.labels["uuid"], track.labels["peer_uuid"], track.labels["capability"]): track.labels["status"]
            for track in host.evidence.series(catalogue.P2P_STATUS)
        },
    )
    if len(host.gpus) < _PAIR or not (paths.levels or paths.statuses):
        return ""
    heads = ["", *(f"GPU {gpu.gpu}" for gpu in host.gpus), "NUMA node", "Adapters nearby"]
    rows = (_row(gpu, host, paths) for gpu in host.gpus)
    body = f'{table("Topology and P2P", heads, rows, "matrix")}\n<p class="soft"><small>{_LEGEND}</small></p>'
    return section("topology", "Topology and P2P", body)


def _row(gpu: GpuView, host: HostView, paths: _Paths) -> str:
    cells = "".join(_cell(gpu, other, paths) for other in host.gpus)
    node = UNKNOWN if gpu.node is None else safe(gpu.node)
    return f'<tr><th scope="row">GPU {safe(gpu.gpu)}</th>{cells}<td>{node}</td><td>{_adapters(gpu)}</td></tr>'


def _cell(gpu: GpuView, other: GpuView, paths: _Paths) -> str:
    if gpu is other:
        return '<td class="self">X</td>'
    level = paths.levels.get(frozenset((gpu.uuid, other.uuid)), "").upper()
    status = paths.statuses.get((gpu.uuid, other.uuid, "read"))
    if paths.statuses.get((gpu.uuid, other.uuid, "nvlink")) == "ok":
        level = "NV"
    tone = "" if status is None else ("direct" if status == "ok" else "indirect")
    told = "P2P not reported" if status is None else f"P2P read: {status}"
    return (
        f'<td class="{tone}" title="{safe(told)}">{safe(level) or "?"}<span class="unseen">, {safe(told)}</span></td>'
    )


def _adapters(gpu: GpuView) -> str:
    near = [t.labels["nic"] for t in gpu.series(catalogue.NIC_TOPOLOGY_INFO) if t.labels["level"] in _NEAR]
    return ", ".join(foreign(nic) for nic in near) or UNKNOWN
