"""GPU fleet & topology: links, peers, distances, NICs."""

from dashboards.board import Row
from dashboards.palette import BETWEEN, GOOD, GRAY, WATCH
from dashboards.panels import PanelBuilder, Size, limits
from dashboards.selectors import (
    MOST_ROWS,
    TARGET,
    both_ways,
    by_gpu,
    gpu,
    link_of_expected,
    only,
    worst_gpus,
    worst_hosts,
)
from dashboards.tables import GPU, HOST, Column, matrix, table_of
from dashboards.value_mappings import ALLOWED
from gpu_triage.read.gpu.topology import GPU_TOPOLOGY_INFO


def links() -> Row:
    return Row("Links", _pcie(), _peers(), _levels(), _adapters())


def _pcie() -> PanelBuilder:
    return table_of(
        "PCIe links",
        "The most degraded links first: width and generation now, expected, and what the slot supports. A slot below "
        "those of the same model: the card is in the wrong place. No data: the GPUs report no PCIe link.",
        *link_columns(),
        Column("NUMA node", expr=most_degraded(gpu("gpu_numa_node")), width=100),
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
        "the same model: copies go through the host; look for ACS, IOMMU or virtualization. Of more than "
        f"{MOST_MATRICES} hosts: the worst. No data: each host has one GPU, or the driver does not report peers.",
        worst_hosts(pairs, MOST_MATRICES),
        column="peer_gpu",
        texts=ALLOWED,
        size=Size(12, 10),
    )


MOST_MATRICES = 25


def _levels() -> PanelBuilder:
    return matrix(
        "Distance between GPUs",
        "What joins two GPUs: NVLink, else what lies between them on the bus. Put the ranks of one job on GPUs close "
        "to each other; sys crosses sockets. NVLink to some GPUs at the same distance, as with bridges, cannot be "
        f"told apart, and shows the distance. Of more than {MOST_MATRICES} hosts: the worst. No data: each host has "
        "one GPU, or the driver does not report distances.",
        worst_hosts(_joined_by(), MOST_MATRICES),
        column="peer_gpu",
        texts=((_NVLINK, "NVLink", GOOD), *_LEVELS),
        size=Size(12, 9),
    )


_NVLINK = -1
_BY_NVLINK = 'capability="nvlink", status="ok"'
_LEVEL_COLORS = (GOOD, GOOD, GOOD, GRAY, GRAY, BETWEEN)
_LEVELS = tuple(
    (rank, name, color)
    for rank, (name, color) in enumerate(zip(GPU_TOPOLOGY_INFO.label_values["level"], _LEVEL_COLORS, strict=True))
)


def _joined_by() -> str:
    """The rank of what joins each pair: NVLink if the driver reports it to all peers at the distance."""
    pairs = f"max by ({TARGET}, gpu, peer_gpu, level) ({both_ways()})"
    at_distance = f"on ({TARGET}, gpu, level)"
    joined = f"sum by ({TARGET}, gpu, level) ({gpu('gpu_p2p_peers', _BY_NVLINK)})"
    all_joined = f"{joined} == count by ({TARGET}, gpu, level) ({pairs})"
    nvlink = f"{_NVLINK} * ({pairs}) and {at_distance} ({all_joined})"
    ranks = " or ".join(f'label_replace(vector({rank}), "level", "{name}", "", "")' for rank, name, _ in _LEVELS)
    distance = f"({pairs}) * on (level) group_left () ({ranks})"
    return f"max by ({TARGET}, gpu, peer_gpu) ({nvlink} or on ({TARGET}, gpu, peer_gpu) {distance})"


def _adapters() -> PanelBuilder:
    near = by_gpu(gpu("gpu_nic_topology_info"), "nic", "level")
    return table_of(
        "Distance to network adapters",
        "The adapters that are close to each GPU: use these for GPUDirect. Others are published only with "
        "--metrics.profile full. No data: no adapter is near a GPU, or the "
        "driver does not report distances.",
        HOST,
        GPU,
        Column("Adapter", label="nic"),
        Column("Level", label="level"),
        Column("Reported", expr=worst_gpus(near), hidden=True),
        sort=("Host", "GPU"),
        size=Size(12, 9),
    )


def most_degraded(expr: str) -> str:
    """Rows of the most degraded links only."""
    return only(by_gpu(expr), f"{TARGET}, gpu", f"bottomk({MOST_ROWS}, {by_gpu(link_of_expected())})")


def link_columns() -> tuple[Column, ...]:
    def of_link(what: str) -> str:
        return most_degraded(gpu(f"gpu_pcie_link_{what}"))

    share = most_degraded(link_of_expected())
    return (
        HOST,
        GPU,
        Column("Share", expr=share, unit="percentunit", steps=limits((0.99, GOOD), base=WATCH), decimals=0, width=80),
        Column("Width", expr=of_link("width"), unit="prefix:x", width=76),
        Column("Expected", expr=of_link("expected_width"), unit="prefix:x", width=100),
        Column("Slot", expr=of_link("slot_max_width"), unit="prefix:x", width=66),
        Column("Gen", expr=of_link("generation"), unit="prefix:gen ", width=66),
        Column("Expected gen", expr=of_link("expected_generation"), unit="prefix:gen ", width=124),
        Column("Slot's gen", expr=of_link("slot_max_generation"), unit="prefix:gen ", width=102),
    )
