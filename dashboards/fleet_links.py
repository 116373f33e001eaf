"""GPU fleet & topology: links, peers, distances, NICs."""

from __future__ import annotations

from dashboards.board import Row
from dashboards.palette import BAD, BETWEEN, GOOD, WATCH
from dashboards.panels import PanelBuilder, Size, limits
from dashboards.selectors import TARGET, both_ways, by_gpu, gpu, link_of_expected
from dashboards.tables import GPU, HOST, Column, matrix, table_of
from dashboards.value_mappings import ALLOWED, YES
from gpu_triage.read.gpu.topology import GPU_TOPOLOGY_INFO


def links() -> Row:
    return Row("Links", _pcie(), _peers(), _levels(), _adapters())


def _pcie() -> PanelBuilder:
    return table_of(
        "PCIe links",
        "Every link, the most degraded first: width and generation now, expected, and what the slot supports. A slot "
        "below those of the same model: the card is in the wrong place.",
        *link_columns(),
        Column("NUMA node", expr=by_gpu(gpu("gpu_numa_node"))),
        sort="Share",
        size=Size(12, 10),
    )


def _peers() -> PanelBuilder:
    refused = gpu("gpu_p2p_status", 'capability="read", status!~"ok|unknown"')
    able = gpu("gpu_p2p_peers", 'capability="read", status="ok"')
    unknown = gpu("gpu_p2p_peers", 'capability="read", status="unknown"')
    pair = f"max by ({TARGET}, gpu, peer_gpu) ({both_ways()})"
    # Only refused pairs have their own series; counts show whether the driver allows the others.
    pairs = (
        f"max by ({TARGET}, gpu, peer_gpu) (0 * {refused})\n"
        f"or {pair} and on ({TARGET}, gpu) {able}\n"
        f"or 2 * {pair} and on ({TARGET}, gpu) {unknown}"
    )
    return matrix(
        "Direct access between GPUs",
        "Whether the GPU of the row can read the memory of the GPU of the column (P2P). Refused between neighbors of "
        "the same model: copies go through the host; look for ACS, IOMMU or virtualization.",
        _from_gpu(pairs),
        row="from",
        column="peer_gpu",
        texts=ALLOWED,
        size=Size(12, 10),
    )


def _levels() -> PanelBuilder:
    level = gpu("gpu_topology_info")
    ranked = " or ".join(f'{rank} * {level[:-1]}, level="{name}"}}' for rank, name, _ in _LEVELS)
    return matrix(
        "Distance between GPUs",
        "What lies between two GPUs. Put the ranks of one job on GPUs close to each other; sys crosses sockets.",
        _from_gpu(f"max by ({TARGET}, gpu, peer_gpu) ({ranked})"),
        row="from",
        column="peer_gpu",
        texts=_LEVELS,
        size=Size(12, 9),
    )


_LEVEL_COLORS = (GOOD, GOOD, GOOD, BETWEEN, WATCH, BAD)
_LEVELS = tuple(
    (rank, name, color)
    for rank, (name, color) in enumerate(zip(GPU_TOPOLOGY_INFO.label_values["level"], _LEVEL_COLORS, strict=True))
)


def _from_gpu(pairs: str) -> str:
    """The pairs with a label for the matrix row: cluster, host and index of the first GPU, ``east/a GPU 3``."""
    host = f'label_replace(label_join({pairs}, "host", "/", "cluster", "instance"), "host", "$1", "host", "/(.*)")'
    return f'label_join({host}, "from", " GPU ", "host", "gpu")'


def _adapters() -> PanelBuilder:
    return table_of(
        "Distance to network adapters",
        "The adapters that are close to each GPU: use these for GPUDirect. Others are published only with "
        "--metrics.profile full.",
        HOST,
        GPU,
        Column("Adapter", label="nic"),
        Column("Level", label="level"),
        Column("Reported", expr=f"max by ({TARGET}, gpu, nic, level) ({gpu('gpu_nic_topology_info')})", texts=YES),
        size=Size(12, 9),
    )


def link_columns() -> tuple[Column, ...]:
    return (
        HOST,
        GPU,
        Column("Share", expr=by_gpu(link_of_expected()), unit="percentunit", steps=limits((0.99, GOOD), base=WATCH)),
        Column("Width", expr=by_gpu(gpu("gpu_pcie_link_width"))),
        Column("Expected width", expr=by_gpu(gpu("gpu_pcie_link_expected_width"))),
        Column("Slot's width", expr=by_gpu(gpu("gpu_pcie_link_slot_max_width"))),
        Column("Gen", expr=by_gpu(gpu("gpu_pcie_link_generation"))),
        Column("Expected gen", expr=by_gpu(gpu("gpu_pcie_link_expected_generation"))),
        Column("Slot's gen", expr=by_gpu(gpu("gpu_pcie_link_slot_max_generation"))),
    )
