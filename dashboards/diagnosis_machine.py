"""Steps 1 to 3 of the diagnosis: is it sick, is it held back, is the path to it broken?"""

from __future__ import annotations

from dashboards.board import Row
from dashboards.fleet_links import link_columns
from dashboards.palette import BAD, WATCH
from dashboards.panels import PanelBuilder, Query, Size, limits, lines, timeline
from dashboards.selectors import (
    OF_HOST,
    TARGET,
    age,
    by_gpu,
    gpu,
    host,
    host_legend,
    in_15m,
    legend,
    link_of_expected,
    rate,
    when,
    worst,
)
from dashboards.steps import HELD_BACK, PATH, SICK
from dashboards.tables import GPU, HOST, Column, table_of
from dashboards.value_mappings import NO_FAULT, REACHED, RECOVERY, SUSPECT, UP

XID_CATALOG = ("What NVIDIA says of this Xid", "https://docs.nvidia.com/deploy/xid-errors/index.html")
FAULT = limits((1, BAD))


def sick() -> Row:
    return Row(
        SICK.row,
        table_of(
            SICK.key_panel,
            "One row per GPU, lost GPUs first. Red in any column: drain the host and follow the runbook. N/A: this "
            "model does not report it, which is normal.",
            HOST,
            GPU,
            Column("State", expr=by_gpu(gpu("gpu_up")), texts=REACHED),
            Column(
                "Uncorrected ECC",
                expr=by_gpu(gpu("gpu_ecc_volatile_errors_total", 'severity="uncorrected"')),
                steps=FAULT,
            ),
            Column("Remap failed", expr=by_gpu(gpu("gpu_row_remap_failure")), texts=NO_FAULT),
            Column("Remap pending", expr=by_gpu(gpu("gpu_row_remap_pending")), texts=SUSPECT),
            Column("Retirement pending", expr=by_gpu(gpu("gpu_retired_pages_pending")), texts=SUSPECT),
            Column("Recovery needed", expr=by_gpu(gpu("gpu_recovery_action")), texts=RECOVERY),
            Column("SRAM errors over limit", expr=by_gpu(gpu("gpu_ecc_sram_threshold_exceeded")), texts=NO_FAULT),
            sort="State",
            size=Size(14, 9),
        ),
        table_of(
            "Recent Xids",
            "Errors that the driver reported for each GPU, and when. 79: the GPU fell off the bus. 48, 94, 95: "
            "memory. 13, 31, 43: usually the program. No data: none since the start of the host's kernel log.",
            HOST,
            GPU,
            Column("Xid", label="xid", link=XID_CATALOG, width=60),
            Column(
                "When",
                expr=when(f"max by ({TARGET}, gpu, xid) ({gpu('gpu_xid_last_timestamp_seconds')})"),
                unit="dateTimeFromNow",
            ),
            sort="-When",
            size=Size(10, 9),
            empty="No data: no Xid reported",
        ),
        timeline(
            "GPU status",
            "Whether each GPU answers the driver. Lost: its job is gone too, and the panels below have no more "
            "data for it.",
            worst(gpu("gpu_up")),
            texts=REACHED,
            size=Size(8, 8),
        ),
        lines(
            "Corrected ECC errors per hour",
            "Corrected errors do no harm, but a GPU whose count keeps rising above its peers' is a candidate for "
            "replacement.",
            worst(f"increase({gpu('gpu_ecc_volatile_errors_total', _CORRECTED)}[1h])"),
            unit="short",
            size=Size(8, 8),
        ),
        timeline(
            "Driver status",
            "Whether the NVIDIA driver of each host responds. While it does not, the host can run no GPU job and "
            "its GPUs are missing here: load or repair the driver.",
            Query(host("gpu_driver_up"), OF_HOST),
            texts=UP,
            size=Size(8, 8),
        ),
        folded=True,
    )


def held_back() -> Row:
    return Row(
        HELD_BACK.row,
        _throttled(
            HELD_BACK.key_panel,
            "Share of time in which heat lowered the clocks. Above the line under load: compare temperatures. One "
            "GPU alone: its cooling. All GPUs of a host: the room.",
            "hw_thermal|sw_thermal",
            0.1,
        ),
        _throttled(
            "Power brake and unexplained slowdown",
            "The board slows itself down: power supply, or a signal from the chassis. A share that stays above the "
            "line goes to whoever runs the hardware.",
            "hw_power_brake|hw_slowdown",
            0.05,
        ),
        _throttled(
            "Power cap throttling",
            "Near 1 for hours is normal at full load. It is a finding only if the power limit, in the next panel, "
            "is below its default.",
            "sw_power_cap",
            0.5,
        ),
        lines(
            "Power limit relative to default",
            "Below 1: somebody or something lowered the limit. Find out who, and reset it with nvidia-smi -pl.",
            worst(power_limit()),
            unit="percentunit",
            line_at=(1, WATCH),
        ),
        lines(
            "Temperature",
            "GPU and, if reported, memory. Compare GPUs under the same load: if one is hotter, check its fan, "
            "filter and heat sink.",
            Query(worst(gpu("gpu_temperature_celsius")), legend("{{sensor}}")),
            unit="celsius",
            floor=None,
        ),
        lines(
            "SM clock",
            "What throttling costs. A GPU slower than its busy peers makes every rank of the job wait.",
            worst(gpu("gpu_clock_hertz", 'clock="sm"')),
            unit="hertz",
        ),
        lines(
            "Thermal margin",
            "How far each GPU is below the temperature at which the hardware slows it down. Below 5 degrees it "
            "will throttle in the next warm hour: cool it first.",
            worst(gpu("gpu_temperature_margin_celsius")),
            unit="celsius",
            floor=None,
            line_at=(5, WATCH),
        ),
        lines(
            "Application clocks relative to default",
            "Below 1: somebody lowered the application clocks; nvidia-smi -rac resets them. No data: this driver "
            "does not report them.",
            Query(worst(f"{gpu('gpu_clock_target_hertz')} / {gpu('gpu_clock_default_hertz')}"), legend("{{clock}}")),
            unit="percentunit",
            line_at=(1, WATCH),
        ),
        folded=True,
    )


def path() -> Row:
    return Row(
        PATH.row,
        lines(
            PATH.key_panel,
            "Lanes times speed, against what the card, slot and baseline allow. Stays at a half or a quarter under "
            "load: lanes are lost, inspect the riser and slot. Dips while idle are power saving.",
            worst(link_of_expected()),
            unit="percentunit",
            size=Size(12, 8),
        ),
        table_of(
            "PCIe links: actual and expected",
            "Width and generation now, what they should be, and what the slot supports. Slot below the card: the "
            "card is in the wrong slot. Link below the slot: a fault. A lower generation while idle is normal.",
            *link_columns(),
            sort="Share",
            size=Size(12, 8),
        ),
        lines(
            "PCIe uplinks of switches below their bandwidth",
            "What is left of the bandwidth that all GPUs and adapters behind the switch share. No data: all is.",
            Query(host("gpu_host_pcie_uplink_ratio"), host_legend("{{bridge}} below {{port}}")),
            unit="percentunit",
        ),
        lines(
            "PCIe errors in 15 minutes",
            "Replays counted by the GPU, and errors reported to the kernel at either end of the link (AER). Errors "
            "that keep coming on a link that lost lanes: card or riser.",
            Query(worst(in_15m(gpu("gpu_pcie_replays_total"))), legend("replays")),
            Query(worst(in_15m(gpu("gpu_pcie_aer_errors_total"))), legend("AER {{device}} {{severity}}")),
            unit="short",
            line_at=(30, WATCH),
        ),
        lines(
            "NVLink links down",
            "Links that the model has and that are not active. Anything above 0 slows collectives down or makes "
            "them fail: drain the host. No data: no NVLink here.",
            worst(f"sum by ({TARGET}, gpu) ({gpu('gpu_nvlink_links')} - {gpu('gpu_nvlink_links_up')})"),
            unit="short",
        ),
        lines(
            "NVLink errors in 15 minutes",
            "Replays, recoveries and CRC errors, all links of a GPU together. Rising on one GPU: its link or the "
            "baseboard.",
            Query(
                worst(f"sum by ({TARGET}, gpu, type) (increase({gpu('gpu_nvlink_errors_total')}[15m]))"),
                legend("{{type}}"),
            ),
            unit="short",
        ),
        lines(
            "Network port errors in 15 minutes",
            "Errors of the links of InfiniBand and RoCE ports, links that went down, and RDMA requests not "
            "acknowledged. Link errors on one port: its cable or transceiver. Timeouts alone: look at the other "
            "hosts of the job and at the switches. No data: nothing of it.",
            Query(in_15m(host("gpu_host_infiniband_link_errors_total")) + " > 0", f"{_PORT} link errors"),
            Query(in_15m(host("gpu_host_infiniband_link_downs_total")) + " > 0", f"{_PORT} went down"),
            Query(in_15m(host("gpu_host_infiniband_timeouts_total")) + " > 0", f"{_PORT} timeouts"),
            Query(in_15m(host("gpu_host_network_carrier_downs_total")) + " > 0", f"{_ADAPTER} went down"),
            unit="short",
            line_at=(30, WATCH),
        ),
        lines(
            "NVSwitch fabric faults",
            "Shown only while something is: faults that the driver reports of a GPU's part of the NVSwitch fabric, "
            "services that do not run, errors of switches in the last 15 minutes (SXid). A fatal SXid or a service "
            "that does not run: drain the host.",
            Query(worst(gpu("gpu_fabric_fault") + " > 0"), legend("{{fault}}")),
            Query(f"1 - {host('gpu_host_service_running')} > 0", host_legend("{{service}} does not run")),
            Query(
                f"({age(host('gpu_nvswitch_sxid_last_timestamp_seconds'))} < bool 900) > 0",
                host_legend("{{pci_bus_id}} SXid {{sxid}}, fatal: {{fatal}}"),
            ),
            unit="short",
        ),
        lines(
            "Peers without direct access",
            "How many peers each GPU cannot access directly (P2P). Expected between different root ports; "
            "otherwise look for ACS, IOMMU or virtualization.",
            worst(
                f"sum by ({TARGET}, gpu) ({gpu('gpu_p2p_peers', _REFUSED)})\n"
                f"or 0 * sum by ({TARGET}, gpu) ({gpu('gpu_p2p_peers')})"
            ),
            unit="short",
        ),
        lines(
            "Processes on the wrong NUMA node",
            "Compute processes that may only run on CPUs of another node than their GPU's: every transfer crosses "
            "sockets. Pin them with numactl or the scheduler's CPU binding.",
            worst(gpu("gpu_numa_mismatched_processes")),
            unit="short",
        ),
        lines(
            "PCIe traffic",
            "Traffic in both directions. A link at its ceiling (about 25 GB/s for generation 4, 16 lanes) is the "
            "bottleneck. Hardly any traffic while the GPU waits: nothing feeds it. Before Hopper, switch on the "
            "collector pcie_throughput, which samples 20 ms.",
            Query(worst(_pcie_traffic("receive")), _RECEIVED),
            Query(worst(_pcie_traffic("transmit")), _SENT),
            unit="Bps",
        ),
        folded=True,
    )


_ADAPTER = host_legend("{{device}}")
_PORT = f"{_ADAPTER} port {{{{port}}}}"


def power_limit() -> str:
    """The enforced power limit of each GPU, relative to its default."""
    return f"{gpu('gpu_power_limit_watts')} / ({gpu('gpu_power_default_limit_watts')} > 0)"


_CORRECTED = 'severity="corrected"'
_REFUSED = 'capability=~"read|write", status!~"ok|unknown"'
_RECEIVED = legend("received")
_SENT = legend("sent")


def _pcie_traffic(direction: str) -> str:
    sampled = gpu("gpu_pcie_throughput_bytes_per_second", f'direction="{direction}"')  # for cards without a counter
    return f"{rate(gpu(f'gpu_pcie_{direction}_bytes_total'))}\nor sum without (direction) ({sampled})"


def _throttled(title: str, description: str, reasons: str, from_share: float) -> PanelBuilder:
    share = f"clamp_max({rate(gpu('gpu_throttle_seconds_total', _of_reasons(reasons)))}, 1)"
    return lines(
        title,
        description,
        Query(worst(share), legend("{{reason}}")),
        unit="percentunit",
        top=1,
        line_at=(from_share, BAD),
    )


def _of_reasons(reasons: str) -> str:
    return f'reason=~"{reasons}"'
