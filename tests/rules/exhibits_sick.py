"""Exhibits of step 1: the GPU is sick, or gone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tests.rules.exhibits import (
    BOARD,
    BOARDS,
    FIVE,
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
    of_its_host,
    steady,
)
from tests.rules.handwritten import Series, host

SEEN_AT: Final = 1773457927.25
"""14 March 2026, 03:12:07 UTC. Time begins in 1970 here, so the rules take it for a moment ago."""


def xid(code: int, *, seconds_before: float = 0, **labels: str) -> Series:
    """The last time that the driver reported this code."""
    at = [SEEN_AT - seconds_before] * (NOW + 1)
    return BOARD.series("gpu_xid_last_timestamp_seconds", at, xid=str(code), **labels)


def xid_of_no_gpu(code: int, **labels: str) -> Series:
    """The same of a GPU that was gone before the exporter started."""
    at = [SEEN_AT] * (NOW + 1)
    return host("gpu_xid_unassigned_last_timestamp_seconds", at, xid=str(code), pci_bus_id=BOARD.address, **labels)


def sxid(code: int, switch: str) -> Series:
    """The last time that an NVSwitch reported this fatal error."""
    labels = {"sxid": str(code), "pci_bus_id": switch, "fatal": "true"}
    return host("gpu_nvswitch_sxid_last_timestamp_seconds", [SEEN_AT] * (NOW + 1), **labels)


def of_address(alert: str, code: int, **labels: str) -> Exhibit:
    """An alert about a GPU of which only the PCI address is known."""
    return Exhibit(alert, "unassigned-address", xid_of_no_gpu(code, **labels))


def uncorrected(errors: float) -> Series:
    return BOARD.series("gpu_ecc_volatile_errors_total", lately(errors), severity="uncorrected")


def recovery(action: float) -> Series:
    return BOARD.series("gpu_recovery_action", lately(action))


def page(code: int, *more: Series, what: str = "", owner: Owner = POD) -> Exhibit:
    return of_gpu("GpuXidCritical", xid(code), *more, what=what or f"xid-{code}", owners=(owner,))


def lost(error: str, what: str = "", owner: Owner = POD) -> Exhibit:
    series = (BOARD.series("gpu_up", lately(0, 1)), BOARD.series("gpu_error_info", lately(1), error=error))
    return of_gpu("GpuLost", *series, what=what, owners=(owner,))


def devices(**counts: float) -> Series:
    """How many GPUs there are, by who says so."""
    return merged(*(of_its_host("gpu_devices", count, source=source) for source, count in counts.items()))


def without_driver(error: str, on_the_bus: float, what: str = "", owner: Owner = POD) -> Exhibit:
    return of_host(
        "GpuDriverUnavailable",
        host("gpu_driver_up", lately(0, 1)),
        host("gpu_driver_error_info", lately(1), error=error),
        devices(pci=on_the_bus),
        what=what,
        owners=(owner,),
    )


def outside_the_fabric(*numbers: int) -> tuple[Series, ...]:
    return tuple(BOARDS[number].series("gpu_fabric_state", lately(2, 3)) for number in numbers)


def incidents(by: str, kind: str, week: float, month: float) -> Series:
    """What the exporter's ledger says."""
    labels = {"by": by, "kind": kind, "pci_bus_id": BOARD.address}
    # The slot's are told first.
    first = 0 if by == "slot" else 5
    each = {days: [math.nan] * first + [count] * (NOW + 1 - first) for days, count in (("7", week), ("30", month))}
    return merged(*(BOARD.series("gpu_incidents_recent", values, days=days, **labels) for days, values in each.items()))


def incidents_of_no_gpu(kind: str, month: float) -> Series:
    """The same of a slot whose GPU the driver has not shown."""
    labels = {"by": "slot", "kind": kind, "pci_bus_id": BOARD.address}
    return merged(*(of_its_host("gpu_incidents_recent", month, days=days, **labels) for days in ("7", "30")))


def boards_in_the_slot(kind: str, count: float) -> Series:
    labels = {"kind": kind, "pci_bus_id": BOARD.address, "days": "30"}
    return BOARD.series("gpu_incident_boards_recent", steady(count), **labels)


RECORDED = BOARD.series("gpu_flight_recording_timestamp_seconds", steady(1), file="20260314T031207Z-gpu-3-ecc.tar.gz")
HOST_RECORDED = merged(
    of_its_host("gpu_flight_recording_timestamp_seconds", 1, file="20260314T021500Z-host-driver.tar.gz"),
    of_its_host("gpu_flight_recording_timestamp_seconds", 2, file="20260314T031500Z-host-driver.tar.gz"),
)
ASKS_FOR = {2: "reboot", 3: "end-of-p2p", 5: "imex", 6: "bus-reset", 7: "system-reboot", 9: "unknown"}
PROGRAM_ERRORS = tuple(
    merged(
        BOARD.series("gpu_xid_errors_total", growing(0.5), xid=code),
        BOARD.series("gpu_xid_last_timestamp_seconds", [SEEN_AT] * (NOW + 1), xid=code),
    )
    for code in ("13", "31")
)
CONTAINED = (xid(94), xid(48, seconds_before=1), uncorrected(1))

EXHIBITS: Final = (
    of_gpu("GpuXidCritical", xid(79), BOARD.series("gpu_up", lately(0, 1)), owners=(SLURM,)),
    page(48, uncorrected(1), recovery(1)),
    page(95, uncorrected(2), owner=SLURM),
    page(64, xid(48), recovery(1), what="xid-64-and-48"),
    page(74, owner=USER),
    page(119, recovery(2), owner=SLURM),
    page(149, what="xid-149-fatal"),
    of_gpu("GpuXidCritical", xid(62), what="five-owners", owners=FIVE),
    of_address("GpuXidCritical", 79),
    lost("lost", owner=SLURM),
    lost("missing", "missing"),
    lost("reset_required", "reset-required", USER),
    lost("stalled", "stalled", SLURM),
    lost("no_permission", "no-permission"),
    lost("timeout", "timeout"),
    of_address("GpuLost", 79),
    of_gpu("GpuEccUncorrected", uncorrected(1)),
    of_gpu("GpuEccUncorrected", uncorrected(1), RECORDED, what="recorded"),
    replace(of_gpu("GpuEccUncorrected", uncorrected(3), what="several", owners=(USER,)), cluster="east"),
    of_gpu("GpuRowRemapFailed", BOARD.series("gpu_row_remap_failure", lately(1)), owners=(SLURM,)),
    of_gpu("GpuRecoveryActionNeeded", recovery(1)),
    *(of_gpu("GpuRecoveryActionNeeded", recovery(a), what=what, owners=(SLURM,)) for a, what in ASKS_FOR.items()),
    of_gpu("GpuRecoveryActionNeeded.drain", recovery(4)),
    of_gpu("GpuXidContained", *CONTAINED),
    of_gpu("GpuXidContained", xid(63), what="xid-63", owners=(SLURM,)),
    of_gpu("GpuXidContained", xid(149, fatal="false"), what="xid-149-nonfatal"),
    of_gpu("GpuXidContained", xid(154), recovery(2), what="xid-154", owners=(USER,)),
    of_address("GpuXidContained", 154),
    of_gpu("GpuXidUnlisted", xid(271)),
    of_address("GpuXidUnlisted", 271),
    of_gpu("GpuXidSameUnit", BOARD.series("gpu_xid_suspect_unit_processes", lately(3), unit="GPC 10 TPC 1")),
    of_gpu(
        "GpuFabricDegraded",
        *(BOARD.series("gpu_fabric_fault", lately(1), fault=f) for f in ("degraded_bandwidth", "route_recovery")),
        owners=(SLURM,),
    ),
    of_gpu("GpuFabricDegraded", BOARD.series("gpu_fabric_configuration", lately(5, 1)), what="configuration"),
    of_host("GpuNvswitchFatal", sxid(20034, "0000:c1:00.0"), owners=(SLURM,)),
    of_host("GpuNvswitchFatal", sxid(20034, "0000:c1:00.0"), sxid(19084, "0000:c2:00.0"), what="two-switches"),
    of_host(
        "GpuFabricServiceDown",
        host("gpu_host_service_running", lately(0, 1), service="nvidia-fabricmanager"),
        owners=(SLURM,),
    ),
    without_driver("driver_not_loaded", 8),
    without_driver("version_mismatch", 1, "one-gpu", SLURM),
    of_host("GpuMissing", devices(nvml=7, pci=8, boot=8)),
    of_host("GpuMissing", devices(nvml=7, pci=8, boot=8), HOST_RECORDED, what="recorded"),
    of_host("GpuMissing", devices(nvml=7, pci=7, expected=8), what="off-the-bus"),
    of_host("GpuMissing", devices(nvml=4, pci=4, expected=8), what="several"),
    of_host("GpuMissing", devices(nvml=1, pci=1, boot=2), what="one-left"),
    of_gpu("GpuXidApplication", *PROGRAM_ERRORS, owners=(USER,)),
    of_gpu("GpuEccSramThreshold", BOARD.series("gpu_ecc_sram_threshold_exceeded", steady(1))),
    of_gpu("GpuRowRemapPending", BOARD.series("gpu_row_remap_pending", steady(1)), owners=(SLURM,)),
    of_gpu("GpuRetiredPagesPending", BOARD.series("gpu_retired_pages_pending", steady(1)), owners=(USER,)),
    of_host("GpuFabricUnhealthy", *outside_the_fabric(0, 1, 2, 3), owners=(POD, SLURM)),
    of_host("GpuFabricUnhealthy", *outside_the_fabric(3), what="one-gpu", owners=(POD,)),
    of_gpu("GpuEccCorrectedRising", BOARD.series("gpu_ecc_volatile_errors_total", growing(5), severity="corrected")),
    of_gpu("GpuRepeatOffender", incidents("board", "48", 2, 2)),
    of_gpu(
        "GpuRepeatOffender",
        incidents("slot", "79", 2, 3),
        incidents("board", "79", 1, 2),
        boards_in_the_slot("79", 2),
        what="slot",
        owners=(SLURM,),
    ),
    of_gpu("GpuRepeatOffender", incidents("board", "lost", 1, 3), what="lost"),
    Exhibit("GpuRepeatOffender", "unassigned-address", incidents_of_no_gpu("79", 2)),
)
