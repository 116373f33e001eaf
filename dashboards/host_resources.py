"""Panels about the CPUs, storage, network and memory of hosts: those of the diagnosis, and the rest for GPU host."""

from dashboards.board import Row
from dashboards.palette import WATCH
from dashboards.panels import PanelBuilder, Query, Size, lines, shares
from dashboards.selectors import MOST_ROWS, OF_HOST, TARGET, host, host_legend, in_15m, most, rate
from dashboards.steps import of_finding
from dashboards.tables import HOST, Column, table_of
from dashboards.value_mappings import PORT_STATE

_BY_NODE = f"{TARGET}, numa_node"
_ADAPTER = host_legend("{{device}}")
_PORT = f"{_ADAPTER} port {{{{port}}}}"
_NODE = host_legend("node {{numa_node}}")


def processors() -> Row:
    return Row(
        "CPU",
        busiest_cpus(),
        shares(
            "CPU utilization, by NUMA node",
            "A node near 1 starves its GPUs even if the rest of the host is idle: give the job more CPUs, or run "
            "fewer data workers on this node. No data: no exporter answers.",
            Query(most(f"1 - {_cpu('idle|iowait', _BY_NODE)} / {_cpu('.+', _BY_NODE)}"), _NODE),
            line_at=(of_finding("cpu.starved", "node"), WATCH),
        ),
        lines(
            "CPU time, by mode",
            "How many CPUs work for programs, for the kernel, or wait for I/O, on each NUMA node. No data: no exporter "
            "answers.",
            Query(most(_working()), host_legend("node {{numa_node}} {{mode}}")),
            unit="short",
        ),
        shares(
            "Clock of the busiest CPU, by NUMA node",
            "As a share of its highest. Below 0.45 while it is busy: a governor, a power cap or heat holds it "
            "back. No data: no CPU is busy, or the host does not report clocks, as most virtual machines.",
            Query(most(host("gpu_host_cpu_busiest_frequency_ratio")), _NODE),
            line_at=(of_finding("cpu.slow_clock", "ratio"), WATCH),
            low_is_worse=True,
        ),
        pressure(),
    )


def storage() -> Row:
    by = f"{TARGET}, mount"
    seconds = f"sum by ({by}) ({_rate('gpu_host_nfs_operation_seconds_total')})"
    operations = f"sum by ({by}) ({_rate('gpu_host_nfs_operations_total')})"
    return Row(
        "Storage and memory",
        disk_busy(Size(8, 7)),
        lines(
            "Disks",
            "Bytes read and written per second. No data: the host has no disk of its own.",
            Query(most(_rate("gpu_host_disk_read_bytes_total")), f"{_ADAPTER} read"),
            Query(most(_rate("gpu_host_disk_written_bytes_total")), f"{_ADAPTER} written"),
            unit="Bps",
        ),
        lines(
            "NFS latency",
            "Mean time of an operation on each mount with at least ten a second. Above 50 ms the server, or the "
            "network to it, is slow: ask whoever runs it. No data: no NFS mount is in use.",
            Query(most(f"{seconds} / ({operations} >= 10)"), host_legend("{{mount}}")),
            unit="s",
            line_at=(of_finding("storage.starved", "nfs"), WATCH),
        ),
        shares(
            "I/O wait share of CPU time",
            "Above a tenth while GPUs wait: storage. The kernel counts it only while CPUs are idle, so a busy host "
            "hides it. No data: no exporter answers.",
            Query(most(f"{_cpu('iowait', TARGET)} / {_cpu('.+', TARGET)}"), OF_HOST),
            line_at=(of_finding("storage.starved", "iowait"), WATCH),
        ),
        lines(
            "Memory of the host",
            "Available and total, and swap in use. Swap in use alone means nothing. No data: no exporter answers.",
            Query(most(host("gpu_host_memory_available_bytes")), host_legend("available")),
            Query(most(host("gpu_host_memory_total_bytes")), host_legend("total")),
            Query(most(host("gpu_host_swap_used_bytes")), host_legend("swap used")),
            unit="bytes",
        ),
        lines(
            "Swap-in",
            "Memory read back from swap because something needs it. If it goes on, the host is short of memory and "
            "every step of the job pays for it. No data: no exporter answers.",
            Query(most(_rate("gpu_host_swap_in_bytes_total")), OF_HOST),
            unit="Bps",
            line_at=(of_finding("memory.starved", "rate"), WATCH),
        ),
    )


def network() -> Row:
    return Row(
        "Network and PCIe",
        network_utilization(),
        lines(
            "Network",
            "Bytes per second of each adapter. No data: no network adapter that is up.",
            Query(most(_rate("gpu_host_network_receive_bytes_total")), f"{_ADAPTER} received"),
            Query(most(_rate("gpu_host_network_transmit_bytes_total")), f"{_ADAPTER} sent"),
            unit="Bps",
        ),
        lines(
            "InfiniBand and RoCE",
            "Bytes per second of each port. No data: the host has no such port.",
            Query(most(_rate("gpu_host_infiniband_receive_bytes_total")), f"{_PORT} received"),
            Query(most(_rate("gpu_host_infiniband_transmit_bytes_total")), f"{_PORT} sent"),
            unit="Bps",
        ),
        lines(
            "Network errors and drops",
            "Damaged or dropped frames per second. If they go on, they cost retransmissions: check cable and "
            "optics, and the switch for congestion. No data: no network adapter that is up.",
            Query(most(_rate("gpu_host_network_errors_total")), f"{_ADAPTER} errors {{{{direction}}}}"),
            Query(most(_rate("gpu_host_network_drops_total")), f"{_ADAPTER} drops {{{{direction}}}}"),
            unit="pps",
        ),
        lines(
            "Network port events in 15 minutes",
            "Link errors, downs and timeouts; each kind of event where the exporter runs with --metrics.profile full. "
            "No data: the host has no InfiniBand or RoCE port, and no adapter that counts downs.",
            Query(most(in_15m(host("gpu_host_infiniband_link_errors_total"))), f"{_PORT} link errors"),
            Query(most(in_15m(host("gpu_host_infiniband_link_downs_total"))), f"{_PORT} went down"),
            Query(most(in_15m(host("gpu_host_infiniband_timeouts_total"))), f"{_PORT} timeouts"),
            Query(most(in_15m(host("gpu_host_infiniband_events_total")) + " > 0"), f"{_PORT} {{{{event}}}}"),
            Query(most(in_15m(host("gpu_host_network_carrier_downs_total"))), f"{_ADAPTER} went down"),
            unit="short",
        ),
        shares(
            "Links below their usual speed",
            "Network ports and interfaces below the speed that they had, or that others of their kind have: cable, "
            "transceiver or switch port. PCIe uplinks of switches: what is left of the bandwidth that all GPUs and "
            "adapters behind the switch share. No data: all links have their usual speed, or none is known.",
            Query(most(host("gpu_host_infiniband_rate_expected_ratio") + " < 1"), _PORT),
            Query(most(host("gpu_host_network_speed_expected_ratio") + " < 1"), _ADAPTER),
            Query(most(host("gpu_host_pcie_uplink_ratio")), host_legend("{{bridge}} below {{port}}")),
            low_is_worse=True,
        ),
        table_of(
            "Ports without a link",
            "Their physical state. Polling or disabled: no signal, or no cable. No data: every port has a link, or the "
            "host has no InfiniBand, or no exporter answers.",
            HOST,
            Column("Port of", label="device"),
            Column("Port", label="port"),
            Column("State", expr=_port_states(), texts=PORT_STATE),
            sort="State",
            size=Size(8, 7),
        ),
        folded=True,
    )


def disk_busy(size: Size) -> PanelBuilder:
    return shares(
        "Disk busy time",
        "A disk near 1 while GPUs wait: the data comes from there. Cache, stage or spread the data set. With more than "
        "40 disks: the busiest. No data: the host has no disk of its own.",
        Query(most(f"clamp_max({_rate('gpu_host_disk_busy_seconds_total')}, 1)"), _ADAPTER),
        size=size,
        line_at=(of_finding("storage.starved", "disk"), WATCH),
    )


def pressure() -> PanelBuilder:
    return shares(
        "Pressure",
        "Share of time in which some or all tasks were stalled on CPU, memory or I/O. What rises first as the "
        "GPUs slow down is what is scarce. No data: the kernel has no pressure stall information (psi=1).",
        Query(most(_rate("gpu_host_pressure_seconds_total")), host_legend("{{resource}} {{kind}}")),
        line_at=(of_finding("storage.starved", "pressure"), WATCH),
    )


def busiest_cpus() -> PanelBuilder:
    return shares(
        "Busiest CPU, by NUMA node",
        "One CPU at 1 while others idle: a single thread feeds the GPU. Give the data loader more workers. No data: no "
        "exporter answers.",
        Query(most(host("gpu_host_cpu_busiest_ratio")), _NODE),
        line_at=(of_finding("cpu.starved", "busiest"), WATCH),
    )


def network_utilization() -> PanelBuilder:
    ethernet = f"on ({TARGET}, device) ({host('gpu_host_network_speed_bytes_per_second')} > 0)"
    infiniband = f"on ({TARGET}, device, port) ({host('gpu_host_infiniband_rate_bytes_per_second')} > 0)"
    return lines(
        "Network utilization",
        "Each adapter, both directions; a RoCE port carries its RDMA and the traffic of its network interface. Near 1 "
        "while GPUs wait: the network is the limit. Far below it with slow collectives: look for a bad link or a wrong "
        "route. No data: no adapter tells its speed, as in most virtual machines.",
        Query(most(f"{_rate('gpu_host_network_receive_bytes_total')} / {ethernet}"), f"{_ADAPTER} received"),
        Query(most(f"{_rate('gpu_host_network_transmit_bytes_total')} / {ethernet}"), f"{_ADAPTER} sent"),
        Query(most(f"{_rate('gpu_host_infiniband_receive_bytes_total')} / {infiniband}"), f"{_PORT} received"),
        Query(most(f"{_rate('gpu_host_infiniband_transmit_bytes_total')} / {infiniband}"), f"{_PORT} sent"),
        unit="percentunit",
        line_at=(of_finding("network.starved", "line_rate"), WATCH),
    )


def _rate(metric: str) -> str:
    return rate(host(metric))


def _cpu(modes: str, by: str) -> str:
    counted = host("gpu_host_cpu_seconds_total", f'mode=~"{modes}"')
    return f"sum by ({by}) ({rate(counted)})"


def _working() -> str:
    counted = host("gpu_host_cpu_seconds_total", 'mode!="idle"')
    return f"sum by ({TARGET}, numa_node, mode) ({rate(counted)})"


def _port_states() -> str:
    down = host("gpu_host_infiniband_physical_state")
    state = f"max by ({TARGET}, device, port) ({down} != 5)"
    return f"{state}\nand\ntopk({MOST_ROWS}, {state})"
