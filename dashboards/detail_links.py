"""GPU detail: PCIe, NVLink, NVLink-C2C and peers."""

from dashboards.board import Row
from dashboards.palette import WATCH
from dashboards.panels import PanelBuilder, Query, Size, lines
from dashboards.selectors import TARGET, both_ways, by_gpu, gpu, in_15m, legend, rate, risen
from dashboards.tables import Column, table_of
from gpu_triage.read.gpu.nvlink import EFFECTIVE_BER_LIMIT


def links() -> Row:
    return Row(
        "PCIe, NVLink and peers",
        _pcie_level("width"),
        _pcie_level("generation"),
        lines(
            "PCIe bytes",
            "From GPM on Hopper and later, and from 20 ms samples if that collector (pcie_throughput) is on. A link "
            "at its ceiling (about 25 GB/s for generation 4, 16 lanes) is the bottleneck; hardly any traffic while "
            "the GPU waits: nothing feeds it. No data: this card does not report it, and the collector is off.",
            Query(rate(gpu("gpu_pcie_receive_bytes_total")), legend("received")),
            Query(rate(gpu("gpu_pcie_transmit_bytes_total")), legend("sent")),
            Query(gpu("gpu_pcie_throughput_bytes_per_second"), legend("sample {{direction}}")),
            unit="Bps",
        ),
        lines(
            "PCIe errors and link changes, in 15 minutes",
            "Replays, errors by type, AER at both ends, and changes of width or generation. Changes under load: "
            "the link is flapping. No data: neither the GPU nor the kernel counts them.",
            Query(in_15m(gpu("gpu_pcie_replays_total")), legend("replays")),
            Query(in_15m(gpu("gpu_pcie_errors_total")), legend("{{type}}")),
            Query(risen(gpu("gpu_pcie_aer_errors_total")), legend("AER {{device}} {{severity}}")),
            Query(in_15m(gpu("gpu_pcie_link_transitions_total")), legend("changes of {{attribute}}")),
            unit="short",
        ),
        lines(
            "NVLink bytes",
            "All links of the GPU together. One GPU below the others: look at the errors of its links. No data: this "
            "card has no NVLink, or does not count its bytes.",
            Query(rate(gpu("gpu_nvlink_receive_bytes_total")), legend("received")),
            Query(rate(gpu("gpu_nvlink_transmit_bytes_total")), legend("sent")),
            unit="Bps",
        ),
        lines(
            "NVLink state and errors, in 15 minutes",
            "Links that are connected and that are up, those that are down, and errors by type: in all, and of "
            "single links. No data: this card has no NVLink.",
            Query(gpu("gpu_nvlink_links"), legend("links")),
            Query(gpu("gpu_nvlink_links_up"), legend("links up")),
            Query(gpu("gpu_nvlink_up"), legend("link {{link}} up")),
            Query(gpu("gpu_nvlink_link_speed_ratio"), legend("link {{link}}, share of its line rate")),
            Query(in_15m(gpu("gpu_nvlink_errors_total")), legend("{{type}}")),
            Query(risen(gpu("gpu_nvlink_link_errors_total")), legend("link {{link}} {{type}}")),
            unit="short",
        ),
        lines(
            "NVLink bit error ratio",
            "Of NVLink 5 and later. Effective: what error correction leaves; above the limit, the link is faulty. "
            "Symbol: of the symbols received. Single links: those above the limit; all of them with "
            "--metrics.profile full. No data: this card has no NVLink 5 or later.",
            Query(gpu("gpu_nvlink_bit_error_ratio"), legend("worst link, {{kind}}")),
            Query(gpu("gpu_nvlink_link_bit_error_ratio"), legend("link {{link}}, {{kind}}")),
            unit="sci",
            logarithmic=True,
            line_at=(EFFECTIVE_BER_LIMIT, WATCH),
        ),
        lines(
            "NVLink symbol errors and repaired blocks",
            "Per second, on NVLink 5 and later. Error correction repairs most symbol errors. Blocks are counted by "
            "how many of their symbols it repaired: those with many increase when a link degrades. They are "
            "published only with --metrics.profile full. No data: this card has no NVLink 5 or later.",
            Query(rate(gpu("gpu_nvlink_symbol_errors_total")), legend("symbol errors")),
            Query(rate(gpu("gpu_nvlink_fec_blocks_total", 'bin!="0"')), legend("blocks, {{bin}} repaired")),
            unit="short",
            logarithmic=True,
        ),
        table_of(
            "NVLink-C2C",
            "Links between the GPU and the CPU of its module, and their errors in the time shown. If not all are "
            "up, access to the host's memory is slower. No data: this card has no NVLink-C2C.",
            Column("Links", expr=by_gpu(gpu("gpu_c2c_links"))),
            Column("Up", expr=by_gpu(gpu("gpu_c2c_links_up"))),
            Column("Bandwidth", expr=by_gpu(gpu("gpu_c2c_max_bytes_per_second")), unit="Bps"),
            Column("Type of error", label="type"),
            Column(
                "Errors",
                expr=f"sum by ({TARGET}, gpu, type) (increase({gpu('gpu_c2c_errors_total')}[$__range]))",
                decimals=0,
            ),
            size=Size(8, 7),
        ),
        table_of(
            "Peers",
            "How many other GPUs this one can access directly (P2P), by their distance. No access at level sys is "
            "common; between neighbors it is a fault. No data: it is the only GPU, or the driver does not tell.",
            Column("Capability", label="capability"),
            Column("Status", label="status"),
            Column("Level", label="level"),
            Column("Peers", expr=by_gpu(gpu("gpu_p2p_peers"), "capability", "status", "level")),
            size=Size(12, 7),
        ),
        table_of(
            "Distance to peers and network adapters",
            "What lies between, from near to far: internal, pix, pxb, phb, node, sys. Use near adapters for GPUDirect. "
            "No data: it is the only GPU, or the driver does not tell.",
            Column("To", label="to"),
            Column("Level", label="level"),
            Column("Reported", expr=_distances(), hidden=True),
            sort="To",
            size=Size(12, 7),
        ),
        folded=True,
    )


def _distances() -> str:
    peers = f'label_replace({both_ways()}, "to", "GPU $1", "peer_gpu", "(.*)")'
    adapters = f'label_replace({gpu("gpu_nic_topology_info")}, "to", "$1", "nic", "(.*)")'
    return f"max by ({TARGET}, gpu, to, level) ({peers} or {adapters})"


def _pcie_level(attribute: str) -> PanelBuilder:
    declared = [Query(gpu("gpu_pcie_link_expected_width_declared"), legend("declared (1)"))]
    return lines(
        f"PCIe {attribute}",
        "Now, expected, and what the card and slot support. Below expected under load: card, riser or slot. The "
        "generation drops while idle by design. No data: the driver reports no PCIe link.",
        Query(gpu(f"gpu_pcie_link_{attribute}"), legend("now")),
        Query(gpu(f"gpu_pcie_link_expected_{attribute}"), legend("expected")),
        Query(gpu(f"gpu_pcie_link_device_max_{attribute}"), legend("card")),
        Query(gpu(f"gpu_pcie_link_slot_max_{attribute}"), legend("slot")),
        *(declared if attribute == "width" else ()),
        unit="none",
    )
