"""GPU detail: health, and the GPU's host."""

from __future__ import annotations

from dashboards.board import Row
from dashboards.panels import Query, Size, lines
from dashboards.selectors import TARGET, by_gpu, gpu, host, host_legend, in_15m, legend, rate, when
from dashboards.tables import GPU as GPU_COLUMN
from dashboards.tables import HOST, Column, table_of
from dashboards.value_mappings import FABRIC_CONFIGURATION, FABRIC_HEALTH, FABRIC_STATE, NO_FAULT, PORT_STATE, RECOVERY


def health() -> Row:
    return Row(
        "Health",
        table_of(
            "Faults and repairs",
            "Anything red kills jobs: drain, then reset or replace. N/A: this model does not report it.",
            HOST,
            GPU_COLUMN,
            Column("Recovery needed", expr=by_gpu(gpu("gpu_recovery_action")), texts=RECOVERY),
            Column("Remap failed", expr=by_gpu(gpu("gpu_row_remap_failure")), texts=NO_FAULT),
            Column("Remap pending", expr=by_gpu(gpu("gpu_row_remap_pending")), texts=NO_FAULT),
            Column("Banks pending", expr=by_gpu(gpu("gpu_bank_remap_pending")), texts=NO_FAULT),
            Column("Pages pending", expr=by_gpu(gpu("gpu_retired_pages_pending")), texts=NO_FAULT),
            Column("SRAM over limit", expr=by_gpu(gpu("gpu_ecc_sram_threshold_exceeded")), texts=NO_FAULT),
            Column("Fabric", expr=by_gpu(gpu("gpu_fabric_state")), texts=FABRIC_STATE),
            Column("Fabric's health", expr=by_gpu(gpu("gpu_fabric_health")), texts=FABRIC_HEALTH),
            Column("Fabric's configuration", expr=by_gpu(gpu("gpu_fabric_configuration")), texts=FABRIC_CONFIGURATION),
            Column("Failures in one unit", expr=by_gpu(gpu("gpu_xid_suspect_unit_processes"))),
            Column("Fabric's faults", expr=f"sum by ({TARGET}, gpu) ({gpu('gpu_fabric_fault')})"),
            Column("Last reset", expr=when(by_gpu(gpu("gpu_reset_timestamp_seconds"))), unit="dateTimeFromNow"),
            Column("Error", label="error"),
            Column("Fails", expr=f"max by ({TARGET}, gpu, error) ({gpu('gpu_error_info')})"),
            size=Size(24, 4),
        ),
        table_of(
            "Fabric over several hosts",
            "GPUs of one clique reach each other's memory through the switches, also on other hosts. "
            "No data: no GPU of this host is in a fabric of several hosts.",
            HOST,
            GPU_COLUMN,
            Column("Fabric", label="cluster_uuid"),
            Column("Clique", label="clique"),
            Column("Joined", expr=f"max by ({TARGET}, gpu, cluster_uuid, clique) ({gpu('gpu_fabric_info')})"),
            size=Size(24, 4),
        ),
        table_of(
            "Incidents",
            "How often this board, and this slot, had the same fault. A reset will not fix what keeps coming back.",
            HOST,
            GPU_COLUMN,
            Column("Fault", label="kind"),
            Column("On the", label="by"),
            Column("Last 7 days", expr=_incidents(_WEEK)),
            Column("Last 30 days", expr=_incidents(_MONTH)),
            Column(
                "Boards in this slot",
                expr=f"max by ({TARGET}, gpu, kind) ({gpu('gpu_incident_boards_recent', _MONTH)})",
            ),
            sort="-Last 30 days",
            size=Size(24, 5),
        ),
        lines(
            "ECC errors per hour",
            "Uncorrected ones kill jobs. More corrected ones than its peers: plan a replacement. dram: the "
            "device memory, which the GPU repairs by remapping. sram: the chip itself, which it cannot repair.",
            Query(f"increase({gpu('gpu_ecc_volatile_errors_total')}[1h])", legend("{{severity}}")),
            Query(f"increase({gpu('gpu_ecc_aggregate_errors_total')}[1h])", legend("{{severity}}, lifetime")),
            Query(f"increase({gpu('gpu_ecc_memory_errors_total')}[1h])", legend("{{severity}} in {{memory}}")),
            unit="short",
        ),
        lines(
            "Repaired memory",
            "Rows remapped and pages retired so far, by cause, and whole banks replaced. A few rows are normal; a "
            "rise due to uncorrectable errors is not.",
            Query(gpu("gpu_remapped_rows"), legend("rows, {{cause}}")),
            Query(gpu("gpu_retired_pages"), legend("pages, {{cause}}")),
            Query(gpu("gpu_remapped_banks"), legend("banks, {{state}}")),
            unit="short",
        ),
        lines(
            "Memory banks, by spares left",
            "Banks with few or no spare rows, and groups of banks without spare banks, cannot be repaired much longer.",
            Query(gpu("gpu_row_remap_banks"), legend("banks, rows left: {{availability}}")),
            Query(gpu("gpu_bank_remap_groups"), legend("groups, banks left: {{availability}}")),
            unit="short",
        ),
        lines(
            "Xids in 15 minutes",
            "What the driver reported, by Xid.",
            Query(in_15m(gpu("gpu_xid_errors_total")), legend("Xid {{xid}}")),
            unit="short",
        ),
        table_of(
            "Xids of this GPU",
            "Every Xid since the start of the host's kernel log, and when it last occurred.",
            HOST,
            GPU_COLUMN,
            Column("Xid", label="xid"),
            Column("When", expr=when(f"max by ({TARGET}, gpu, xid) ({_LAST_XID})"), unit="dateTimeFromNow"),
            sort="-When",
            size=Size(8, 7),
            empty="No data: no Xid reported",
        ),
        table_of(
            "Xids of unlisted GPUs",
            "Xids of a PCI address that the driver does not list, often a GPU that fell off the bus.",
            HOST,
            Column("PCI address", label="pci_bus_id"),
            Column("Xid", label="xid"),
            Column("When", expr=when(f"max by ({TARGET}, pci_bus_id, xid) ({_UNASSIGNED})"), unit="dateTimeFromNow"),
            sort="-When",
            size=Size(8, 7),
            empty="No data: no such Xid",
        ),
    )


def host_beside() -> Row:
    return Row(
        "Host resources",
        lines(
            "CPU time, by NUMA node",
            "Busy CPUs and I/O wait, per node. The GPU's own node is in its settings above.",
            Query(f"sum by ({TARGET}, numa_node, mode) ({rate(_WORKING)})", host_legend("node {{numa_node}} {{mode}}")),
            unit="short",
        ),
        lines(
            "Pressure",
            "Share of time in which tasks were stalled on a resource: those of the host and, with "
            "--metrics.profile full, those of each job on the GPU. Stopped: share of the periods in which a job "
            "was stopped by its own CPU limit.",
            Query(rate(host("gpu_host_pressure_seconds_total")), host_legend("{{resource}} {{kind}}")),
            Query(rate(gpu("gpu_cgroup_pressure_seconds_total")), legend("{{cgroup}} {{resource}} {{kind}}")),
            Query(f"{_STOPPED} / ({_PERIODS} > 0)", legend("{{cgroup}} stopped by its CPU limit")),
            unit="percentunit",
        ),
        lines(
            "Disks",
            "Bytes read and written per second.",
            Query(rate(host("gpu_host_disk_read_bytes_total")), host_legend("{{device}} read")),
            Query(rate(host("gpu_host_disk_written_bytes_total")), host_legend("{{device}} written")),
            unit="Bps",
        ),
        lines(
            "Network",
            "Bytes per second of each adapter.",
            Query(rate(host("gpu_host_network_receive_bytes_total")), host_legend("{{device}} received")),
            Query(rate(host("gpu_host_network_transmit_bytes_total")), host_legend("{{device}} sent")),
            unit="Bps",
        ),
        lines(
            "InfiniBand and RoCE",
            "Bytes per second of each port.",
            Query(rate(host("gpu_host_infiniband_receive_bytes_total")), _PORT + " received"),
            Query(rate(host("gpu_host_infiniband_transmit_bytes_total")), _PORT + " sent"),
            unit="Bps",
        ),
        lines(
            "Network port utilization",
            "Shown while a port or an interface runs below the speed that it had, or that its like have: cable, "
            "transceiver or switch port.",
            Query(host("gpu_host_infiniband_rate_expected_ratio") + " < 1", _PORT),
            Query(host("gpu_host_network_speed_expected_ratio") + " < 1", host_legend("{{device}}")),
            unit="percentunit",
            top=1,
        ),
        lines(
            "Network port events in 15 minutes",
            "Link errors, downs and timeouts; each event of its own where the exporter runs with "
            "--metrics.profile full.",
            Query(in_15m(host("gpu_host_infiniband_link_errors_total")), _PORT + " link errors"),
            Query(in_15m(host("gpu_host_infiniband_link_downs_total")), _PORT + " went down"),
            Query(in_15m(host("gpu_host_infiniband_timeouts_total")), _PORT + " timeouts"),
            Query(in_15m(host("gpu_host_infiniband_events_total")) + " > 0", _PORT + " {{event}}"),
            Query(in_15m(host("gpu_host_network_carrier_downs_total")), host_legend("{{device}} went down")),
            unit="short",
        ),
        table_of(
            "Ports without a link",
            "Their physical state. Polling or disabled: no signal, or no cable.",
            HOST,
            Column("Port of", label="device"),
            Column("Port", label="port"),
            Column("State", expr=_PORT_STATE, texts=PORT_STATE),
            size=Size(8, 7),
        ),
        lines(
            "Memory of the host",
            "Available and total, and swap in use.",
            Query(host("gpu_host_memory_available_bytes"), host_legend("available")),
            Query(host("gpu_host_memory_total_bytes"), host_legend("total")),
            Query(host("gpu_host_swap_used_bytes"), host_legend("swap used")),
            unit="bytes",
        ),
    )


_PORT = host_legend("{{device}} port {{port}}")
_STOPPED = rate(gpu("gpu_cgroup_cpu_throttled_periods_total"))
_PERIODS = rate(gpu("gpu_cgroup_cpu_periods_total"))

_PORT_STATE = f"max by ({TARGET}, device, port) ({host('gpu_host_infiniband_physical_state')} != 5)"

_WORKING = host("gpu_host_cpu_seconds_total", 'mode!="idle"')

_LAST_XID = gpu("gpu_xid_last_timestamp_seconds")

_UNASSIGNED = host("gpu_xid_unassigned_last_timestamp_seconds")
_WEEK = 'days="7"'
_MONTH = 'days="30"'


def _incidents(days: str) -> str:
    return f"max by ({TARGET}, gpu, kind, by) ({gpu('gpu_incidents_recent', days)})"
