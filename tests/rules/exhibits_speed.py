"""Exhibits of steps 2 and 3: something holds the GPU back, or the path to it is broken."""

from __future__ import annotations

import math
from typing import Final

from tests.rules.exhibits import (
    BOARD,
    BOARDS,
    NOW,
    POD,
    SLURM,
    USER,
    Exhibit,
    Owner,
    growing,
    lately,
    merged,
    of_gpu,
    of_host,
    steady,
)
from tests.rules.handwritten import Series, host

LOADED: Final = merged(
    BOARD.series("gpu_busy_seconds_total", growing(57)), BOARD.series("gpu_performance_state", steady(0))
)
"""A GPU at work."""


def throttled(reason: str, share: float) -> Series:
    return BOARD.series("gpu_throttle_seconds_total", growing(60 * share), reason=reason)


def held_back(alert: str, reason: str, share: float, owner: Owner = POD) -> Exhibit:
    return of_gpu(alert, LOADED, throttled(reason, share), owners=(owner,))


def watts(draw: float, limit: float, default: float) -> Series:
    return merged(
        BOARD.series("gpu_power_watts", steady(draw)),
        BOARD.series("gpu_power_limit_watts", steady(limit)),
        BOARD.series("gpu_power_default_limit_watts", steady(default)),
    )


def link(attribute: str, value: float, expected: float) -> Series:
    return merged(
        BOARD.series(f"gpu_pcie_link_{attribute}", steady(value)),
        BOARD.series(f"gpu_pcie_link_expected_{attribute}", steady(expected)),
    )


def nvlinks(*numbers: int) -> tuple[Series, ...]:
    """Links that went down, beside one that is up."""
    down = (BOARD.series("gpu_nvlink_up", lately(0, math.nan), link=str(number)) for number in numbers)
    return (*down, BOARD.series("gpu_nvlink_links_up", steady(1)))


def elsewhere(processes: float) -> Series:
    """Processes that may not run where the GPU is."""
    return merged(
        BOARD.series("gpu_numa_mismatched_processes", steady(processes)), BOARD.series("gpu_numa_node", steady(1))
    )


def aer(severity: str, errors: list[float]) -> Series:
    return BOARD.series("gpu_pcie_aer_errors_total", errors, device="port", severity=severity)


ONCE: Final = [0.0] * (NOW - 20) + [1.0] * 21
"""A counter of one error within the last half hour."""
SLOTS: Final = merged(
    *(board.identity() for board in BOARDS),
    *(
        board.series("gpu_pcie_link_expected_width", steady(8 if board is BOARD else 16))
        for board in BOARDS
    ),
)  # fmt: skip
PAIRS: Final = (
    BOARD.series(
        "gpu_p2p_status",
        steady(1),
        peer_uuid=BOARDS[0].uuid,
        peer_gpu=str(BOARDS[0].number),
        capability="read",
        status="chipset_not_supported",
        level="node",
    ),
    *(board.series("gpu_p2p_peers", steady(6), capability="read", status="ok", level="node") for board in BOARDS),
)

HELD_BACK: Final = (
    held_back("GpuHwThermalThrottling", "hw_thermal", 0.4, SLURM),
    held_back("GpuSwThermalThrottling", "sw_thermal", 0.5),
    of_gpu("GpuTemperatureNearSlowdown", BOARD.series("gpu_temperature_margin_celsius", steady(3))),
    of_gpu("GpuTemperatureNearSlowdown", BOARD.series("gpu_temperature_margin_celsius", steady(-2)), what="above"),
    held_back("GpuPowerBrake", "hw_power_brake", 0.3, SLURM),
    held_back("GpuHwSlowdownUnattributed", "hw_slowdown", 0.25),
    of_gpu("GpuPowerCapped", LOADED, throttled("sw_power_cap", 0.97), watts(498, 500, 700), owners=(USER,)),
    of_gpu(
        "GpuClockPolicyDrift",
        BOARD.series("gpu_clock_target_hertz", steady(1.2e9), clock="graphics"),
        BOARD.series("gpu_clock_default_hertz", steady(1.98e9), clock="graphics"),
    ),
)

PATH: Final = (
    of_gpu("GpuPcieWidthDowntrained", LOADED, link("width", 8, 16), owners=(SLURM,)),
    of_gpu("GpuPcieWidthDowntrained", LOADED, link("width", 1, 16), what="one-lane"),
    of_gpu(
        "GpuPcieWidthDowntrained",
        LOADED,
        link("width", 8, 16),
        BOARD.series("gpu_pcie_link_device_max_width", steady(16)),
        BOARD.series("gpu_pcie_link_slot_max_width", steady(8)),
        what="slot",
    ),
    of_gpu("GpuPcieWidthDowntrained.idle", link("width", 8, 16)),
    of_gpu(
        "GpuPcieWidthDowntrained.idle",
        link("width", 8, 16),
        BOARD.series("gpu_pcie_link_device_max_width", steady(8)),
        what="card",
    ),
    of_gpu("GpuPcieGenerationDowntrained", LOADED, link("generation", 3, 5)),
    of_gpu(
        "GpuPcieGenerationDowntrained",
        LOADED,
        link("generation", 3, 5),
        BOARD.series("gpu_pcie_link_slot_max_generation", steady(3)),
        what="slot",
    ),
    of_gpu(
        "GpuPcieLinkFlapping",
        LOADED,
        BOARD.series("gpu_pcie_link_transitions_total", growing(2), attribute="width"),
    ),
    of_gpu("GpuNvlinkDown", *nvlinks(4)),
    of_gpu("GpuNvlinkDown", *nvlinks(4, 5, 6), what="several", owners=(SLURM,)),
    of_gpu("GpuNumaMismatch", elsewhere(1), owners=(USER,)),
    of_gpu("GpuNumaMismatch", elsewhere(4), what="several"),
    of_gpu("GpuBaselineDrift", BOARD.series("gpu_baseline_mismatch", lately(1), field="vbios_version"), owners=()),
    of_host("GpuBaselineDrift", host("gpu_baseline_mismatch", lately(1), field="iommu"), what="host"),
    of_host(
        "GpuInfinibandPortDown",
        host("gpu_host_infiniband_up", lately(0, 1), device="mlx5_0", port="1"),
        owners=(SLURM,),
    ),
    of_host(
        "GpuInfinibandPortFlapping",
        host("gpu_host_infiniband_link_downs_total", growing(0.1), device="mlx5_0", port="1"),
        owners=(SLURM,),
    ),
    of_host(
        "GpuInfinibandErrorsRising",
        host("gpu_host_infiniband_link_errors_total", growing(5), device="mlx5_0", port="1"),
        owners=(POD,),
    ),
    of_host(
        "GpuInfinibandRateDegraded",
        host("gpu_host_infiniband_rate_expected_ratio", steady(0.25), device="mlx5_0", port="1"),
        owners=(SLURM,),
    ),
    of_host(
        "GpuNetworkLinkDegraded",
        host("gpu_host_network_speed_expected_ratio", steady(0.5), device="bond0"),
        owners=(SLURM,),
    ),
    of_host(
        "GpuNetworkLinkDegraded",
        host("gpu_host_network_carrier_downs_total", growing(0.2), device="eno1"),
        what="flapping",
    ),
    of_gpu("GpuPcieReplaysRising", BOARD.series("gpu_pcie_replays_total", growing(5))),
    of_gpu("GpuPcieAerErrors", aer("correctable", growing(20)), aer("nonfatal", steady(0))),
    of_gpu("GpuPcieAerErrors", aer("correctable", growing(20)), aer("nonfatal", ONCE), what="uncorrected"),
    of_gpu("GpuPcieAerErrors", aer("correctable", steady(0)), aer("fatal", ONCE), what="one-uncorrected"),
    of_gpu("GpuPcieBelowPeers", SLOTS),
    of_gpu("GpuNvlinkErrorsRising", BOARD.series("gpu_nvlink_errors_total", growing(3), type="replay")),
    of_gpu("GpuP2pUnavailable", *(board.identity() for board in BOARDS), *PAIRS),
)
