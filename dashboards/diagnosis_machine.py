"""Steps 1 to 3 of the diagnosis: is it sick, is it held back, is the path to it broken?"""

from __future__ import annotations

from dashboards.board import Row
from dashboards.panels import PanelBuilder, Query, Size, limits, lines, timeline
from dashboards.selectors import by_gpu, gpu, host, worst
from dashboards.steps import HELD_BACK, PATH, SICK
from dashboards.tables import GPU, HOST, Column, table_of
from dashboards.words import NO_FAULT, RECOVERY, SUSPECT, UP

XID_CATALOGUE = ("What NVIDIA says of this Xid", "https://docs.nvidia.com/deploy/xid-errors/index.html")
FAULT = limits((1, "dark-red"))


def sick() -> Row:
    """Is it sick?"""
    return Row(
        SICK.title,
        (
            table_of(
                SICK.key_panel,
                "One row a GPU, the sick first. Red in any column: drain the host, take the job off, follow the "
                "runbook. N/A: this model does not report it, which is no fault.",
                (
                    HOST,
                    GPU,
                    Column("State", expr=by_gpu(gpu("gpu_up")), words=UP),
                    Column(
                        "Uncorrected ECC",
                        expr=by_gpu(gpu("gpu_ecc_volatile_errors_total", 'severity="uncorrected"')),
                        steps=FAULT,
                    ),
                    Column("Remap failed", expr=by_gpu(gpu("gpu_row_remap_failure")), words=NO_FAULT),
                    Column("Remap pending", expr=by_gpu(gpu("gpu_row_remap_pending")), words=SUSPECT),
                    Column("Retirement pending", expr=by_gpu(gpu("gpu_retired_pages_pending")), words=SUSPECT),
                    Column("Recovery asked for", expr=by_gpu(gpu("gpu_recovery_action")), words=RECOVERY),
                    Column(
                        "SRAM errors over limit", expr=by_gpu(gpu("gpu_ecc_sram_threshold_exceeded")), words=NO_FAULT
                    ),
                ),
                sort="State",
                size=Size(14, 9),
            ),
            table_of(
                "Xids, the latest first",
                "What the driver reported of each GPU, and how long ago. 79: it fell off the bus. 48, 94, 95: memory. "
                "13, 31, 43: most often the program. No data: none reported since the host's kernel log begins.",
                (
                    HOST,
                    GPU,
                    Column("Xid", label="xid", link=XID_CATALOGUE, width=60),
                    Column(
                        "Ago",
                        expr=f"time() - max by (job, instance, gpu, xid) ({gpu('gpu_xid_last_timestamp_seconds')})",
                        unit="s",
                    ),
                ),
                sort="Ago",
                size=Size(10, 9),
                empty="No data: no Xid reported",
            ),
            timeline(
                "GPUs that answer",
                "Whether each GPU answered the driver. Lost: its job is gone too, and no panel below says more of it.",
                worst(gpu("gpu_up")),
                UP,
                size=Size(8, 8),
            ),
            lines(
                "Corrected ECC errors in an hour",
                "Corrected errors cost nothing; a GPU that keeps rising above its peers is a candidate for "
                "replacement.",
                worst(f"increase({gpu('gpu_ecc_volatile_errors_total', _CORRECTED)}[1h])"),
                unit="short",
                size=Size(8, 8),
            ),
            timeline(
                "Drivers that answer",
                "Whether the NVIDIA driver of each host answers. While it does not, the host runs no GPU job and its "
                "GPUs are missing here: load or repair the driver.",
                [Query(host("gpu_driver_up"), "{{instance}}")],
                ((1, "answers", "green"), (0, "does not", "dark-red")),
                size=Size(8, 8),
            ),
        ),
    )


def held_back() -> Row:
    """Is it held back?"""
    return Row(
        HELD_BACK.title,
        (
            _throttled(
                HELD_BACK.key_panel,
                "Share of time in which heat made the clock lower. Above the line while busy: look at temperature and "
                "neighbours; one GPU alone is its cooling, all of a host is the room.",
                "hw_thermal|sw_thermal",
                0.1,
            ),
            _throttled(
                "Time held back by the power brake or an unnamed slowdown",
                "The board slows itself: power supply, or a signal from the chassis. Any lasting share above the line "
                "is for whoever runs the hardware.",
                "hw_power_brake|hw_slowdown",
                0.05,
            ),
            _throttled(
                "Time held back by the power cap",
                "At full load the cap is normal, near 1 for hours. It is a finding only where the limit beside it is "
                "below its default.",
                "sw_power_cap",
                0.5,
            ),
            lines(
                "Power limit, as a share of its default",
                "Below 1 somebody or something lowered the limit: ask who, and set it back with nvidia-smi -pl.",
                worst(gpu("instance_gpu:gpu_power_limit:ratio_to_default")),
                unit="percentunit",
                line_at=(1, "orange"),
            ),
            lines(
                "Temperature",
                "GPU and, where reported, memory. Compare neighbours under equal load: one that is hotter has a fan, a "
                "filter or a heat sink to look at.",
                [Query(worst(gpu("gpu_temperature_celsius")), "{{instance}} GPU {{gpu}} {{sensor}}")],
                unit="celsius",
                floor=None,
            ),
            lines(
                "SM clock",
                "What throttling costs. A GPU that is slower than its busy peers makes every rank of its job wait.",
                worst(gpu("gpu_clock_hertz", 'clock="sm"')),
                unit="hertz",
            ),
            lines(
                "Degrees left until the GPU slows down",
                "Room up to the temperature at which the hardware slows down. Under 5 degrees it will throttle with "
                "the next warm hour: cool it before it does.",
                worst(gpu("gpu_temperature_margin_celsius")),
                unit="celsius",
                floor=None,
                line_at=(5, "orange"),
            ),
            lines(
                "Clock setting, as a share of its default",
                "Below 1 somebody set application clocks lower: nvidia-smi -rac resets them. No data: this driver does "
                "not report the setting.",
                [
                    Query(
                        worst(f"{gpu('gpu_clock_target_hertz')} / {gpu('gpu_clock_default_hertz')}"),
                        "{{instance}} GPU {{gpu}} {{clock}}",
                    )
                ],
                unit="percentunit",
                line_at=(1, "orange"),
            ),
        ),
    )


def path() -> Row:
    """Is the path to it broken?"""
    return Row(
        PATH.title,
        (
            lines(
                PATH.key_panel,
                "Lanes times speed, against what card, slot and baseline allow. A quarter or a half that stays under "
                "load: lanes are lost, inspect riser and slot. Dips at rest are power saving.",
                worst(gpu("instance_gpu:gpu_pcie_link:ratio_to_expected")),
                unit="percentunit",
                size=Size(12, 8),
            ),
            table_of(
                "Links as they are and as they should be",
                "Width and generation now, what they should be, and what the slot can do. A slot below its card is a "
                "wrong slot; a link below its slot is a fault. At rest a lower generation is normal.",
                link_columns(),
                sort="Share",
                size=Size(12, 8),
            ),
            lines(
                "PCIe errors in 15 minutes",
                "Replays counted by the GPU, and errors that the kernel was told of at either end of the link (AER). "
                "Errors that keep coming with a link that lost lanes: card or riser.",
                [
                    Query(worst(f"increase({gpu('gpu_pcie_replays_total')}[15m])"), "{{instance}} GPU {{gpu}} replays"),
                    Query(
                        worst(f"increase({gpu('gpu_pcie_aer_errors_total')}[15m])"),
                        "{{instance}} GPU {{gpu}} AER {{device}} {{severity}}",
                    ),
                ],
                unit="short",
                line_at=(30, "orange"),
            ),
            lines(
                "NVLink links that are down",
                "Links that the model has and that are not active. Any above 0 on an NVLink host slows collectives, or "
                "ends them: drain it. No data: no NVLink here.",
                worst(f"sum by (job, instance, gpu) (1 - {gpu('gpu_nvlink_up')})"),
                unit="short",
            ),
            lines(
                "NVLink errors in 15 minutes",
                "Replays, recoveries and CRC errors of all links of a GPU. Rising at one GPU: its link or its "
                "baseboard.",
                [
                    Query(
                        worst(f"sum by (job, instance, gpu, type) (increase({gpu('gpu_nvlink_errors_total')}[15m]))"),
                        "{{instance}} GPU {{gpu}} {{type}}",
                    )
                ],
                unit="short",
            ),
            lines(
                "Peers out of reach",
                "Pairs of GPUs of one model whose direct access is refused, by GPU. Expected where peers sit behind "
                "different root ports; elsewhere look for ACS, IOMMU or virtualisation.",
                worst(f"sum by (job, instance, gpu) ({gpu('gpu_p2p_status', _REFUSED)})"),
                unit="short",
            ),
            lines(
                "Processes on the wrong NUMA node",
                "Compute processes all of whose CPUs are on another node than their GPU: every transfer crosses the "
                "sockets. Pin them with numactl or the scheduler's binding.",
                worst(gpu("gpu_numa_mismatched_processes")),
                unit="short",
            ),
            lines(
                "PCIe traffic",
                "What goes over the link, both ways. A link at its ceiling (about 25 GB/s for generation 4, 16 lanes) "
                "is the bottleneck; hardly any with a waiting GPU means that nobody feeds it.",
                [
                    Query(worst(f"rate({gpu('gpu_pcie_receive_bytes_total')}[$__rate_interval])"), _RECEIVED),
                    Query(worst(f"rate({gpu('gpu_pcie_transmit_bytes_total')}[$__rate_interval])"), _SENT),
                ],
                unit="Bps",
            ),
        ),
    )


def link_columns() -> tuple[Column, ...]:
    """The PCIe link of each GPU beside what card and slot allow."""
    return (
        HOST,
        GPU,
        Column(
            "Share",
            expr=by_gpu(gpu("instance_gpu:gpu_pcie_link:ratio_to_expected")),
            unit="percentunit",
            steps=limits((0.99, "green"), base="orange"),
        ),
        Column("Width", expr=by_gpu(gpu("gpu_pcie_link_width"))),
        Column("Expected width", expr=by_gpu(gpu("gpu_pcie_link_expected_width"))),
        Column("Slot's width", expr=by_gpu(gpu("gpu_pcie_link_slot_max_width"))),
        Column("Gen", expr=by_gpu(gpu("gpu_pcie_link_generation"))),
        Column("Expected gen", expr=by_gpu(gpu("gpu_pcie_link_expected_generation"))),
        Column("Slot's gen", expr=by_gpu(gpu("gpu_pcie_link_slot_max_generation"))),
    )


_CORRECTED = 'severity="corrected"'
_REFUSED = 'capability=~"read|write", status!~"ok|unknown"'
_RECEIVED = "{{instance}} GPU {{gpu}} received"
_SENT = "{{instance}} GPU {{gpu}} sent"


def _throttled(title: str, description: str, reasons: str, from_share: float) -> PanelBuilder:
    expr = worst(gpu("instance_gpu_reason:gpu_throttle:ratio5m", f'reason=~"{reasons}"'))
    legend = "{{instance}} GPU {{gpu}} {{reason}}"
    return lines(title, description, [Query(expr, legend)], unit="percentunit", top=1, line_at=(from_share, "dark-red"))
