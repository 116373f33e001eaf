"""Topology section: how GPUs are connected, which pairs have direct P2P, and which NICs are near each GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.read.gpu.nic_topology import GPU_NIC_TOPOLOGY_INFO
from gpu_triage.read.gpu.topology import GPU_P2P_STATUS, GPU_TOPOLOGY_INFO
from gpu_triage.serve.page.markup import UNKNOWN, foreign, safe, section, table

_LEGEND: Final = (
    "PIX: same PCIe switch. PXB: several switches. PHB: same host bridge. NODE: same NUMA node. SYS: across sockets. "
    "NV: joined by NVLink. Green: the GPU of the row reads the GPU of the column directly; red: through host memory."
)
_NEAR: Final = ("pix", "pxb")
_PAIR: Final = 2


class _Paths(NamedTuple):
    """Connections of GPU pairs: levels by unordered pair of UUIDs, P2P status by ordered pair and capability."""

    levels: Mapping[frozenset[str], str]
    statuses: Mapping[tuple[str, str, str], str]


def topology_section(host: HostEvidence) -> str:
    """The matrix of GPUs; "" if there is no data for any pair."""
    paths = _Paths(
        levels={
            frozenset((track.labels["uuid"], track.labels["peer_uuid"])): track.labels["level"]
            for track in host.series(GPU_TOPOLOGY_INFO)
        },
        statuses={
            (track.labels["uuid"], track.labels["peer_uuid"], track.labels["capability"]): track.labels["status"]
            for track in host.series(GPU_P2P_STATUS)
        },
    )
    if len(host.gpus) < _PAIR or not (paths.levels or paths.statuses):
        return ""
    heads = ["", *(f"GPU {gpu.gpu}" for gpu in host.gpus), "NUMA node", "Adapters nearby"]
    rows = (_row(gpu, host, paths) for gpu in host.gpus)
    body = f'{table("Topology and P2P", heads, rows, "matrix")}\n<p class="soft"><small>{_LEGEND}</small></p>'
    return section("topology", "Topology and P2P", body)


def _row(gpu: GpuEvidence, host: HostEvidence, paths: _Paths) -> str:
    cells = "".join(_cell(gpu, other, paths) for other in host.gpus)
    node = UNKNOWN if gpu.node is None else safe(gpu.node)
    return f'<tr><th scope="row">GPU {safe(gpu.gpu)}</th>{cells}<td>{node}</td><td>{_adapters(gpu)}</td></tr>'


def _cell(gpu: GpuEvidence, other: GpuEvidence, paths: _Paths) -> str:
    if gpu is other:
        return '<td class="self">X</td>'
    level = paths.levels.get(frozenset((gpu.uuid, other.uuid)), "").upper()
    status = paths.statuses.get((gpu.uuid, other.uuid, "read"))
    if paths.statuses.get((gpu.uuid, other.uuid, "nvlink")) == "ok":
        level = "NV"
    tone = "" if status is None else ("direct" if status == "ok" else "indirect")
    p2p = "P2P not reported" if status is None else f"P2P read: {status}"
    return f'<td class="{tone}" title="{safe(p2p)}">{safe(level) or "?"}<span class="unseen">, {safe(p2p)}</span></td>'


def _adapters(gpu: GpuEvidence) -> str:
    near = [t.labels["nic"] for t in gpu.series(GPU_NIC_TOPOLOGY_INFO) if t.labels["level"] in _NEAR]
    return ", ".join(foreign(nic) for nic in near) or UNKNOWN
