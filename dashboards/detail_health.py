"""GPU detail: power and heat, links, health, and the host around the GPU."""

from __future__ import annotations

from dashboards.board import Row
from dashboards.panels import PanelBuilder, Query, Size, lines
from dashboards.selectors import JOB_INSTANCE, by_gpu, gpu, host, rate
from dashboards.tables import GPU as GPU_COLUMN
from dashboards.tables import HOST, Column, table_of
from dashboards.words import FABRIC_HEALTH, FABRIC_STATE, NO_FAULT, RECOVERY


def power() -> Row:
    """Power, heat and what they cost."""
    return Row(
        "Power, clocks and heat",
        (
            lines(
                "Power and its limits",
                "The enforced limit is what caps now; below the default somebody lowered it.",
                [
                    Query(gpu("gpu_power_watts"), _named("draws")),
                    Query(gpu("gpu_power_limit_watts"), _named("limit")),
                    Query(gpu("gpu_power_default_limit_watts"), _named("default limit")),
                    Query(gpu("gpu_power_min_limit_watts"), _named("lowest limit")),
                    Query(gpu("gpu_power_max_limit_watts"), _named("highest limit")),
                    Query(rate(gpu("gpu_energy_joules_total")), _named("mean, from energy")),
                ],
                unit="watt",
            ),
            lines(
                "Temperatures and limits",
                "Near slowdown the clocks fall; at shutdown the GPU goes. Compare with its neighbours.",
                [
                    Query(gpu("gpu_temperature_celsius"), _named("{{sensor}}")),
                    Query(gpu("gpu_temperature_threshold_celsius"), _named("limit: {{threshold}}")),
                    Query(gpu("gpu_temperature_margin_celsius"), _named("left until slowdown")),
                ],
                unit="celsius",
                floor=None,
            ),
            lines(
                "Fans",
                "Share of full speed. At full speed and hot: dust, a dead fan beside it, or hot air.",
                [Query(gpu("gpu_fan_speed_ratio"), _named("fan {{fan}}"))],
                unit="percentunit",
                top=1,
            ),
            lines(
                "Time held back, by reason",
                "Share of time in which each reason lowered the clock. Idle and a cap at full load are normal.",
                [Query(rate(gpu("gpu_throttle_seconds_total")), _named("{{reason}}"))],
                unit="percentunit",
                size=Size(12, 7),
            ),
            lines(
                "Reasons at this moment",
                "1 while a reason holds: a moment's look, which the shares beside it do not miss between two looks.",
                [Query(gpu("gpu_throttle_active"), _named("{{reason}}"))],
                unit="none",
                size=Size(12, 7),
                top=1,
            ),
            lines(
                "Clocks",
                "What runs now. Below the highest clock at load: see the reasons above.",
                [
                    Query(gpu("gpu_clock_hertz"), _named("{{clock}}")),
                    Query(gpu("gpu_clock_max_hertz"), _named("{{clock}} highest")),
                ],
                unit="hertz",
                size=Size(12, 7),
            ),
            lines(
                "Clock settings",
                "Application clocks and their defaults. No data: this driver has none.",
                [
                    Query(gpu("gpu_clock_target_hertz"), _named("{{clock}} set")),
                    Query(gpu("gpu_clock_default_hertz"), _named("{{clock}} default")),
                ],
                unit="hertz",
                size=Size(12, 7),
            ),
        ),
    )


def links() -> Row:
    """PCIe, NVLink and peers."""
    return Row(
        "PCIe, NVLink and peers",
        (
            _pcie_level("width"),
            _pcie_level("generation"),
            lines(
                "PCIe bytes",
                "From the GPU's counters, and where switched on from 20 ms samples.",
                [
                    Query(rate(gpu("gpu_pcie_receive_bytes_total")), _named("received")),
                    Query(rate(gpu("gpu_pcie_transmit_bytes_total")), _named("sent")),
                    Query(gpu("gpu_pcie_throughput_bytes_per_second"), _named("sample {{direction}}")),
                ],
                unit="Bps",
            ),
            lines(
                "PCIe errors and changes of the link, in 15 minutes",
                "Replays, errors by type, AER at both ends, and changes of width or generation. Changes under load: "
                "the link flaps.",
                [
                    Query(_in_15m("gpu_pcie_replays_total"), _named("replays")),
                    Query(_in_15m("gpu_pcie_errors_total"), _named("{{type}}")),
                    Query(_in_15m("gpu_pcie_aer_errors_total"), _named("AER {{device}} {{severity}}")),
                    Query(_in_15m("gpu_pcie_link_transitions_total"), _named("changes of {{attribute}}")),
                ],
                unit="short",
            ),
            lines(
                "NVLink bytes",
                "All links, both ways. One link below the others: look at its errors.",
                [
                    Query(rate(gpu("gpu_nvlink_receive_bytes_total")), _named("link {{link}} received")),
                    Query(rate(gpu("gpu_nvlink_transmit_bytes_total")), _named("link {{link}} sent")),
                ],
                unit="Bps",
            ),
            lines(
                "NVLink state and errors, in 15 minutes",
                "Links that are up (1), and their errors by type.",
                [
                    Query(gpu("gpu_nvlink_up"), _named("link {{link}} up")),
                    Query(_in_15m("gpu_nvlink_errors_total"), _named("link {{link}} {{type}}")),
                ],
                unit="short",
            ),
            table_of(
                "Peers",
                "How near each other GPU is and whether this one may read and write it directly. Refused at level sys "
                "is usual; refused between neighbours is not.",
                (
                    HOST,
                    GPU_COLUMN,
                    Column("Peer", label="peer_gpu"),
                    Column("Capability", label="capability"),
                    Column("Status", label="status"),
                    Column("Reported", expr=f"max by (job, instance, gpu, peer_gpu, capability, status) ({_p2p()})"),
                ),
                size=Size(8, 7),
            ),
            table_of(
                "Distance to peers",
                "The level of what lies between: internal, pix, pxb, phb, node, sys, from near to far.",
                (
                    HOST,
                    GPU_COLUMN,
                    Column("Peer", label="peer_gpu"),
                    Column("Level", label="level"),
                    Column("Reported", expr=f"max by (job, instance, gpu, peer_gpu, level) ({_topology()})"),
                ),
                size=Size(8, 7),
            ),
            table_of(
                "Distance to network adapters",
                "Use the adapter at the nearest level for GPUDirect; sys crosses the sockets.",
                (
                    HOST,
                    GPU_COLUMN,
                    Column("Adapter", label="nic"),
                    Column("Level", label="level"),
                    Column(
                        "Reported", expr=f"max by (job, instance, gpu, nic, level) ({gpu('gpu_nic_topology_info')})"
                    ),
                ),
                size=Size(8, 7),
            ),
        ),
    )


def health() -> Row:
    """Errors and repairs."""
    return Row(
        "Health",
        (
            table_of(
                "Faults and repairs",
                "Whatever is red ends jobs: drain and reset, or replace. N/A: this model does not report it.",
                (
                    HOST,
                    GPU_COLUMN,
                    Column("Recovery asked for", expr=by_gpu(gpu("gpu_recovery_action")), words=RECOVERY),
                    Column("Remap failed", expr=by_gpu(gpu("gpu_row_remap_failure")), words=NO_FAULT),
                    Column("Remap pending", expr=by_gpu(gpu("gpu_row_remap_pending")), words=NO_FAULT),
                    Column("Pages pending", expr=by_gpu(gpu("gpu_retired_pages_pending")), words=NO_FAULT),
                    Column("SRAM over limit", expr=by_gpu(gpu("gpu_ecc_sram_threshold_exceeded")), words=NO_FAULT),
                    Column("Fabric", expr=by_gpu(gpu("gpu_fabric_state")), words=FABRIC_STATE),
                    Column("Fabric's health", expr=by_gpu(gpu("gpu_fabric_health")), words=FABRIC_HEALTH),
                    Column("Error", label="error"),
                    Column("Fails", expr=f"max by (job, instance, gpu, error) ({gpu('gpu_error_info')})"),
                ),
                size=Size(24, 4),
            ),
            lines(
                "ECC errors in an hour",
                "Uncorrected ones end jobs. Corrected ones that rise above its peers: plan a replacement.",
                [
                    Query(f"increase({gpu('gpu_ecc_volatile_errors_total')}[1h])", _named("{{severity}}")),
                    Query(f"increase({gpu('gpu_ecc_aggregate_errors_total')}[1h])", _named("{{severity}}, lifetime")),
                ],
                unit="short",
            ),
            lines(
                "Repaired memory",
                "Rows remapped and pages retired so far, by cause. A few are normal; rising with uncorrectable ones is "
                "not.",
                [
                    Query(gpu("gpu_remapped_rows"), _named("rows, {{cause}}")),
                    Query(gpu("gpu_retired_pages"), _named("pages, {{cause}}")),
                ],
                unit="short",
            ),
            lines(
                "Banks by spare rows left",
                "Banks with none or few spare rows left cannot be repaired much longer.",
                [Query(gpu("gpu_row_remap_banks"), _named("{{availability}}"))],
                unit="short",
            ),
            lines(
                "Xids in 15 minutes",
                "What the driver reported, by code.",
                [Query(_in_15m("gpu_xid_errors_total"), _named("Xid {{xid}}"))],
                unit="short",
            ),
            table_of(
                "Xids of this GPU",
                "Every code seen since the host's kernel log begins, and how long ago.",
                (
                    HOST,
                    GPU_COLUMN,
                    Column("Xid", label="xid"),
                    Column("Ago", expr=f"time() - max by (job, instance, gpu, xid) ({_last_xid()})", unit="s"),
                ),
                sort="Ago",
                size=Size(8, 7),
                empty="No data: no Xid reported",
            ),
            table_of(
                "Xids of GPUs without a number",
                "Xids of a PCI address that the driver does not list, often a GPU that is gone.",
                (
                    HOST,
                    Column("PCI address", label="pci_bus_id"),
                    Column("Xid", label="xid"),
                    Column("Ago", expr=f"time() - max by (job, instance, pci_bus_id, xid) ({_unassigned()})", unit="s"),
                ),
                sort="Ago",
                size=Size(8, 7),
                empty="No data: no such Xid",
            ),
        ),
    )


def host_beside() -> Row:
    """What its host does at the same time."""
    return Row(
        "The host around it",
        (
            lines(
                "CPU time, by NUMA node",
                "Work and waiting of the node's CPUs. The GPU's own node is named in its settings above.",
                [
                    Query(
                        f"sum by (job, instance, numa_node, mode) (rate({_working()}[$__rate_interval]))",
                        "{{instance}} node {{numa_node}} {{mode}}",
                    )
                ],
                unit="short",
            ),
            lines(
                "Pressure",
                "Share of time in which tasks stalled for a resource.",
                [Query(rate(host("gpu_host_pressure_seconds_total")), "{{instance}} {{resource}} {{kind}}")],
                unit="percentunit",
            ),
            lines(
                "Disks",
                "Bytes read and written a second.",
                [
                    Query(rate(host("gpu_host_disk_read_bytes_total")), "{{instance}} {{device}} read"),
                    Query(rate(host("gpu_host_disk_written_bytes_total")), "{{instance}} {{device}} written"),
                ],
                unit="Bps",
            ),
            lines(
                "Network",
                "Bytes a second of each adapter.",
                [
                    Query(rate(host("gpu_host_network_receive_bytes_total")), "{{instance}} {{device}} received"),
                    Query(rate(host("gpu_host_network_transmit_bytes_total")), "{{instance}} {{device}} sent"),
                ],
                unit="Bps",
            ),
            lines(
                "InfiniBand and RoCE",
                "Bytes a second of each port.",
                [
                    Query(rate(host("gpu_host_infiniband_receive_bytes_total")), _PORT + " received"),
                    Query(rate(host("gpu_host_infiniband_transmit_bytes_total")), _PORT + " sent"),
                ],
                unit="Bps",
            ),
            lines(
                "Memory of the host",
                "Available and total, and swap in use.",
                [
                    Query(host("gpu_host_memory_available_bytes"), "{{instance}} available"),
                    Query(host("gpu_host_memory_total_bytes"), "{{instance}} total"),
                    Query(host("gpu_host_swap_used_bytes"), "{{instance}} swap used"),
                ],
                unit="bytes",
            ),
        ),
    )


_PORT = "{{instance}} {{device}} port {{port}}"


def _pcie_level(attribute: str) -> PanelBuilder:
    return lines(
        f"PCIe {attribute}",
        "Now, expected, and what card and slot can do. Below expected under load: card, riser or slot. A generation "
        "falls at rest by design.",
        [
            Query(gpu(f"gpu_pcie_link_{attribute}"), _named("now")),
            Query(gpu(f"gpu_pcie_link_expected_{attribute}"), _named("expected")),
            Query(gpu(f"gpu_pcie_link_device_max_{attribute}"), _named("card")),
            Query(gpu(f"gpu_pcie_link_slot_max_{attribute}"), _named("slot")),
        ],
        unit="none",
    )


def _working() -> str:
    return host("gpu_host_cpu_seconds_total", 'mode!="idle"')


def _p2p() -> str:
    return gpu("gpu_p2p_status")


def _topology() -> str:
    """The exporter tells each pair once: from the lower to the higher GPU, and here also the other way round."""
    mirrored = f'gpu_topology_info{{{JOB_INSTANCE}, peer_gpu=~"$gpu"}}'
    swapped = f'label_replace(label_replace({mirrored}, "from", "$1", "gpu", "(.*)"), "gpu", "$1", "peer_gpu", "(.*)")'
    return f'{gpu("gpu_topology_info")} or label_replace({swapped}, "peer_gpu", "$1", "from", "(.*)")'


def _last_xid() -> str:
    return gpu("gpu_xid_last_timestamp_seconds")


def _unassigned() -> str:
    return host("gpu_xid_unassigned_last_timestamp_seconds")


def _in_15m(metric: str) -> str:
    return f"increase({gpu(metric)}[15m])"


def _named(what: str) -> str:
    return "{{instance}} GPU {{gpu}} " + what
