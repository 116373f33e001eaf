"""Steps 1 to 3 of the diagnosis: is it sick, is it held back, is the path to it broken?"""

from dashboards.board import Row
from dashboards.fleet_links import link_columns
from dashboards.palette import BAD, WATCH
from dashboards.panels import PanelBuilder, Query, Size, limits, lines, shares, timeline
from dashboards.selectors import (
    MOST_ROWS,
    TARGET,
    age,
    by_gpu,
    gpu,
    gpu_state,
    host,
    host_legend,
    in_15m,
    legend,
    link_of_expected,
    lowest_first,
    most,
    rate,
    risen,
    when,
    worst,
    worst_first,
    worst_gpus,
)
from dashboards.steps import HELD_BACK, PATH, SICK, of_finding
from dashboards.tables import GPU, HOST, Column, ago, table_of
from dashboards.value_mappings import GPU_STATE, NO_FAULT, REACHED, RECOVERY, WATCH_IF_YES

XID_CATALOG = ("What NVIDIA says of this Xid", "https://docs.nvidia.com/deploy/xid-errors/index.html")
FAULT = limits((1, BAD))
HALF = Size(12, 8)


def sick() -> Row:
    uncorrected = by_gpu(gpu("gpu_ecc_volatile_errors_total", 'severity="uncorrected"'))
    sram_over_limit = by_gpu(gpu("gpu_ecc_sram_threshold_exceeded"))
    recent = by_gpu(gpu("gpu_xid_last_timestamp_seconds"), "xid")
    corrected = f"increase({gpu('gpu_ecc_volatile_errors_total', _CORRECTED)}[1h])"
    return Row(
        SICK.row,
        table_of(
            SICK.key_panel,
            "One row per GPU, those to drain first. Red in any column: drain the host and follow the runbook. N/A: "
            "this model does not report it, which is normal. No data: no GPU is known.",
            HOST,
            GPU,
            Column("Verdict", expr=worst_gpus(gpu_state()), texts=GPU_STATE, width=80),
            Column("State", expr=worst_gpus(by_gpu(gpu("gpu_up"))), texts=REACHED, width=70),
            Column("Uncorrected ECC", expr=worst_gpus(uncorrected), steps=FAULT, width=136),
            Column("Remap failed", expr=worst_gpus(by_gpu(gpu("gpu_row_remap_failure"))), texts=NO_FAULT, width=112),
            Column(
                "Remap pending", expr=worst_gpus(by_gpu(gpu("gpu_row_remap_pending"))), texts=WATCH_IF_YES, width=134
            ),
            Column(
                "Retirement pending",
                expr=worst_gpus(by_gpu(gpu("gpu_retired_pages_pending"))),
                texts=WATCH_IF_YES,
                width=157,
            ),
            Column("Recovery needed", expr=worst_gpus(by_gpu(gpu("gpu_recovery_action"))), texts=RECOVERY, width=150),
            Column("SRAM errors over limit", expr=worst_gpus(sram_over_limit), texts=NO_FAULT, width=195),
            sort=("-Verdict", "State"),
            filterable=False,
        ),
        table_of(
            "Recent Xids",
            "Errors that the driver reported for each GPU, and when. 79: the GPU fell off the bus. 48, 94, 95: "
            "memory. 13, 31, 43: usually the program. No data: no Xid since the start of the host's kernel log, or it "
            "is not read.",
            HOST,
            GPU,
            Column("Xid", label="xid", link=XID_CATALOG, width=60),
            ago("When", expr=when(f"topk({MOST_ROWS}, {recent})")),
            sort="-When",
            size=Size(10, 8),
            filterable=False,
        ),
        lines(
            "Corrected ECC errors per hour",
            "Corrected errors do no harm, but a GPU whose count keeps rising above its peers' is a candidate for "
            "replacement. No data: the GPUs have no ECC, or it is off.",
            worst(corrected),
            unit="short",
            size=Size(7, 8),
        ),
        timeline(
            "GPUs and drivers that answer",
            "Whether each GPU answers the driver, and the driver of each host. A lost GPU takes its job along. While a "
            "driver does not answer, the host can run no GPU job, and its GPUs are missing here: load or repair it. "
            "No data: no exporter answers.",
            Query(worst_first(gpu("gpu_up"))),
            Query(lowest_first(host("gpu_driver_up")), host_legend("driver")),
            texts=REACHED,
            size=Size(7, 8),
        ),
        folded=True,
    )


def held_back() -> Row:
    clocks = f"{gpu('gpu_clock_target_hertz')} / {gpu('gpu_clock_default_hertz')}"
    return Row(
        HELD_BACK.row,
        _throttled(
            HELD_BACK.key_panel,
            "Share of time in which heat lowered the clocks. Above the line under load: compare temperatures. One "
            "GPU alone: its cooling. All GPUs of a host: the room.",
            "hw_thermal|sw_thermal",
            of_finding("thermal.hw", "share"),
        ),
        _throttled(
            "Power brake, slowdown and power cap",
            "A brake or slowdown comes from the power supply or the chassis: a share that stays above the line goes to "
            "whoever runs the hardware. The power cap (sw_power_cap) is near 1 for hours at full load, which is "
            "normal, unless the next panel shows a limit below its default.",
            "hw_power_brake|hw_slowdown|sw_power_cap",
            of_finding("power.brake", "share"),
        ),
        lines(
            "Limits relative to default",
            "Power limit and application clocks. Below 1: somebody or something lowered them. Find out who, and reset "
            "them with nvidia-smi -pl or -rac. No data: the driver does not report limits and their defaults.",
            Query(worst(power_limit()), legend("power limit")),
            Query(worst(clocks), legend("{{clock}} clock")),
            unit="percentunit",
            line_at=(of_finding("power.limit", "ratio"), WATCH),
            low_is_worse=True,
        ),
        lines(
            "Temperature",
            "GPU and, if reported, memory. Compare GPUs under the same load: if one is hotter, check its fan, "
            "filter and heat sink. No data: the GPUs report no temperature.",
            Query(worst(gpu("gpu_temperature_celsius")), legend("{{sensor}}")),
            unit="celsius",
            floor=None,
            size=HALF,
        ),
        lines(
            "SM clock",
            "What throttling costs. A GPU slower than its busy peers makes every rank of the job wait. No data: the "
            "GPUs report no clocks.",
            worst(gpu("gpu_clock_hertz", 'clock="sm"')),
            unit="hertz",
            size=HALF,
            low_is_worse=True,
        ),
        folded=True,
    )


def path() -> Row:
    return Row(
        PATH.row,
        lines(
            PATH.key_panel,
            "Lanes times speed, against what the card, slot and baseline allow. Stays at a half or a quarter under "
            "load: lanes are lost, inspect the riser and slot. Dips while idle are power saving. No data: the GPUs "
            "report no PCIe link, as in a virtual machine.",
            worst(link_of_expected()),
            unit="percentunit",
            size=Size(8, 8),
            low_is_worse=True,
        ),
        table_of(
            "PCIe links: actual and expected",
            "Width and generation now, what they should be, and what the slot supports. Slot below the card: the "
            "card is in the wrong slot. Link below the slot: a fault. A lower generation while idle is normal. No "
            "data: the GPUs report no PCIe link.",
            *link_columns(),
            sort="Share",
            size=Size(16, 8),
            filterable=False,
        ),
        lines(
            "PCIe errors in 15 minutes",
            "Replays counted by the GPU, and errors reported to the kernel at either end of the link (AER). Errors "
            "that keep coming on a link that lost lanes: card or riser. No data: neither GPU nor kernel counts them.",
            Query(worst(in_15m(gpu("gpu_pcie_replays_total"))), legend("replays")),
            Query(worst(risen(gpu("gpu_pcie_aer_errors_total"))), legend("AER {{device}} {{severity}}")),
            unit="short",
            line_at=(of_finding("pcie.replays", "count"), WATCH),
            size=HALF,
        ),
        lines(
            "NVLink links down, and errors in 15 minutes",
            "Links of the model that are not active: above 0, collectives are slow or fail: drain the host. Replays, "
            "recoveries and CRC errors of all links of a GPU: rising on one GPU, its link or the baseboard. No data: "
            "there is no NVLink here.",
            Query(worst(f"sum by ({TARGET}, gpu) ({_LINKS_DOWN})"), legend("links down")),
            Query(worst(f"sum by ({TARGET}, gpu, type) ({_NVLINK_ERRORS})"), legend("{{type}}")),
            unit="short",
            size=HALF,
        ),
        lines(
            "Network port errors in 15 minutes",
            "Errors of the links of InfiniBand and RoCE ports, links that went down, and RDMA requests not "
            "acknowledged. Link errors on one port: its cable or transceiver. Timeouts alone: look at the other "
            "hosts of the job and at the switches. No data: the host has no such port, or does not count for it.",
            Query(_of_ports("gpu_host_infiniband_link_errors_total"), f"{_PORT} link errors"),
            Query(_of_ports("gpu_host_infiniband_link_downs_total"), f"{_PORT} went down"),
            Query(_of_ports("gpu_host_infiniband_timeouts_total"), f"{_PORT} timeouts"),
            Query(_of_ports("gpu_host_network_carrier_downs_total"), f"{_ADAPTER} went down"),
            unit="short",
            line_at=(of_finding("network.port_errors", "count"), WATCH),
            size=HALF,
        ),
        lines(
            "NVSwitch fabric faults",
            "Faults that the driver reports of a GPU's part of the NVSwitch fabric, services that do not run, and "
            "errors of switches in the last 15 minutes (SXid); each has a line of its own while it lasts. A fatal SXid "
            "or a service that does not run: drain the host. No data: no GPU is in a fabric, or it is not read.",
            Query(worst(gpu("gpu_fabric_fault") + " > 0"), legend("{{fault}}")),
            Query(most(f"1 - {host('gpu_host_service_running')} > 0"), host_legend("{{service}} does not run")),
            Query(
                most(f"({age(host('gpu_nvswitch_sxid_last_timestamp_seconds'))} < bool 900) > 0"),
                host_legend("{{pci_bus_id}} SXid {{sxid}}, fatal: {{fatal}}"),
            ),
            Query(f"0 * count by (cluster) ({gpu('gpu_fabric_state')})", "{{cluster}} without a fault"),
            unit="short",
            size=HALF,
        ),
        folded=True,
    )


_CORRECTED = 'severity="corrected"'
_ADAPTER = host_legend("{{device}}")
_PORT = f"{_ADAPTER} port {{{{port}}}}"
_LINKS_DOWN = f"{gpu('gpu_nvlink_links')} - {gpu('gpu_nvlink_links_up')}"
_NVLINK_ERRORS = f"increase({gpu('gpu_nvlink_errors_total')}[15m])"


def power_limit() -> str:
    """The enforced power limit of each GPU, relative to its default."""
    return f"{gpu('gpu_power_limit_watts')} / ({gpu('gpu_power_default_limit_watts')} > 0)"


def _of_ports(metric: str) -> str:
    return most(in_15m(host(metric)))


def _throttled(title: str, description: str, reasons: str, from_share: float) -> PanelBuilder:
    share = f"clamp_max({rate(gpu('gpu_throttle_seconds_total', _of_reasons(reasons)))}, 1)"
    return shares(
        title,
        f"{description} No data: the driver gives no reasons for throttling.",
        Query(worst(share), legend("{{reason}}")),
        line_at=(from_share, BAD),
    )


def _of_reasons(reasons: str) -> str:
    return f'reason=~"{reasons}"'
