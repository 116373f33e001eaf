"""Xids, memory errors and lost GPUs: who is told, how often, and until when. Series by hand, a sample a minute."""

from __future__ import annotations

import math

import pytest
from tests.rules.handwritten import Firing, Series, Told, gpu, host

SEEN = 5
"""Minute at which it happens."""
MINUTES = 150
ALL = frozenset(range(SEEN, MINUTES))


def xid(code: int, *, at: float = SEEN, first: int | None = None, **labels: str) -> Series:
    """An Xid's timestamp, scraped from minute `first` on."""
    seen = math.ceil(at) if first is None else first
    column = [math.nan] * seen + [at * 60] * (MINUTES - seen)
    return gpu("gpu_xid_last_timestamp_seconds", column, xid=str(code), **labels)


def level(metric: str, value: float, *, until: int = MINUTES, **labels: str) -> Series:
    """A fact that lasts; 0 before and after."""
    column = [0.0] * SEEN + [value] * (until - SEEN) + [0.0] * (MINUTES - until)
    return gpu(metric, column, **labels)


def uncorrected(*, until: int = MINUTES) -> Series:
    """One double-bit error, until the reset that clears it."""
    return level("gpu_ecc_volatile_errors_total", 1, until=until, severity="uncorrected")


def test_an_xid_pages_though_prometheus_was_away_for_a_quarter_of_an_hour(firing: Firing) -> None:
    assert min(firing("GpuXidCritical", xid(62, first=SEEN + 14))) == SEEN + 14


def test_an_xid_without_lasting_damage_is_over_after_an_hour(firing: Firing) -> None:
    assert max(firing("GpuXidCritical", xid(62), minutes=90)) in range(SEEN + 60, SEEN + 68)


@pytest.mark.parametrize(
    "damage",
    [
        uncorrected(),
        level("gpu_recovery_action", 1),
        level("gpu_row_remap_failure", 1),
        level("gpu_bottleneck", 7),
        gpu("gpu_up", [1.0] * SEEN + [0.0] * (MINUTES - SEEN)),
        host("gpu_driver_up", [1.0] * SEEN + [0.0] * (MINUTES - SEEN)),
    ],
    ids=["uncorrected errors", "recovery action", "row remap failure", "job hangs", "lost", "driver gone"],
)
def test_an_xid_stays_a_page_while_its_damage_lasts(firing: Firing, damage: Series) -> None:
    assert firing("GpuXidCritical", {**xid(48), **damage}, minutes=MINUTES) == ALL


def test_a_reset_ends_the_page(firing: Firing) -> None:
    reset = gpu("gpu_reset_timestamp_seconds", [math.nan] * 20 + [20 * 60.0] * (MINUTES - 20))
    assert max(firing("GpuXidCritical", {**xid(48), **uncorrected(until=20), **reset})) in range(20, 30)


def test_a_target_that_is_away_for_three_minutes_ends_no_page(firing: Firing) -> None:
    away = [1.0 if minute not in (20, 21, 22) else math.nan for minute in range(MINUTES)]
    series = {
        **gpu("gpu_row_remap_failure", away),
        **gpu("gpu_ecc_volatile_errors_total", away, severity="uncorrected"),
        **gpu("gpu_recovery_action", away),
    }
    for alert in ("GpuRowRemapFailed", "GpuEccUncorrected", "GpuRecoveryActionNeeded"):
        assert firing(alert, series) >= frozenset(range(10, 60)), alert


def test_several_codes_of_one_gpu_are_one_alert_about_the_worst(told: Told) -> None:
    (alert,) = told("GpuXidCritical", {**xid(48), **xid(64, at=6), **xid(95, at=5.5)}, 10)
    assert "a GPU 0: Xid 48, 64, 95, a memory error was not contained" in alert.annotations["summary"]


@pytest.mark.parametrize("fatal", ["true", ""])
def test_an_nvlink_5_error_that_is_fatal_or_of_unknown_severity_pages(firing: Firing, fatal: str) -> None:
    assert firing("GpuXidCritical", xid(149, fatal=fatal))


def test_a_nonfatal_nvlink_5_error_is_a_ticket(firing: Firing, told: Told) -> None:
    series = xid(145, fatal="false")
    assert firing("GpuXidCritical", series) == frozenset()
    (ticket,) = told("GpuXidContained", series, 10)
    assert ticket.labels["severity"] == "warning"
    assert "Xid 145, " in ticket.annotations["summary"]


def test_an_error_that_the_gpu_contained_is_a_ticket(firing: Firing) -> None:
    """Whatever else it leaves: a double-bit error, a counter that rises, a row to remap, a reset that is due."""
    series = {
        **xid(94),
        **xid(48, at=SEEN - 0.01),
        **xid(63),
        **uncorrected(),
        **level("gpu_row_remap_pending", 1),
        **level("gpu_recovery_action", 4),
    }
    assert firing("GpuXidContained", series, minutes=MINUTES) == ALL
    for page in ("GpuXidCritical", "GpuEccUncorrected"):
        assert firing(page, series, minutes=MINUTES) == frozenset(), page


def test_a_double_bit_error_hours_after_a_contained_one_pages(firing: Firing) -> None:
    assert firing("GpuXidCritical", {**xid(94), **xid(48, at=50), **uncorrected()}) == frozenset(range(50, 60))


def test_uncorrected_errors_without_an_xid_page(firing: Firing) -> None:
    assert firing("GpuEccUncorrected", uncorrected(), minutes=MINUTES) == ALL


def test_a_contained_error_before_the_last_reset_explains_no_new_one(firing: Firing) -> None:
    reset = gpu("gpu_reset_timestamp_seconds", [math.nan] * 20 + [20 * 60.0] * (MINUTES - 20))
    assert min(firing("GpuEccUncorrected", {**xid(94), **uncorrected(), **reset})) == 20


@pytest.mark.parametrize("action", [1, 2, 3, 5, 6, 7])
def test_a_recovery_action_that_cannot_wait_pages(told: Told, action: int) -> None:
    (alert,) = told("GpuRecoveryActionNeeded", level("gpu_recovery_action", action), 20)
    assert alert.labels["severity"] == "critical"


def test_draining_before_a_reset_is_a_ticket(told: Told) -> None:
    (alert,) = told("GpuRecoveryActionNeeded", level("gpu_recovery_action", 4), 20)
    assert alert.labels["severity"] == "warning"


@pytest.mark.parametrize("code", [54, 151, 155])
def test_codes_that_somebody_must_look_at_are_tickets(told: Told, code: int) -> None:
    (alert,) = told("GpuXidContained", xid(code), 20)
    assert alert.labels["severity"] == "warning"


def test_a_code_that_nobody_listed_is_a_ticket(told: Told) -> None:
    (alert,) = told("GpuXidUnlisted", xid(271), 20)
    assert (alert.labels["severity"], alert.labels["xid"]) == ("warning", "271")


def test_a_gpu_that_was_there_since_the_boot_is_missing_for_as_long_as_it_is(firing: Firing) -> None:
    minutes = 9 * 60
    series = {
        **host("gpu_devices", [8.0] * 60 + [7.0] * (minutes - 60), source="nvml"),
        **host("gpu_devices", [8.0] * minutes, source="boot"),
    }
    assert firing("GpuMissing", series, minutes=minutes) == frozenset(range(66, minutes))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("no_permission", "may be healthy"),
        ("stalled", "may still run"),
        ("lost", ") has failed"),
        ("reset_required", "Drain the GPU and reset it."),
    ],
)
def test_a_gpu_that_does_not_answer_is_told_with_what_that_means_for_its_job(
    told: Told, reason: str, words: str
) -> None:
    series = {
        **gpu("gpu_up", [0.0] * MINUTES),
        **gpu("gpu_error_info", [1.0] * MINUTES, error=reason),
        **gpu("gpu_info", [1.0] * MINUTES, pci_bus_id="0000:65:00.0", serial="1650"),
        **gpu("gpu_process_info", [1.0] * MINUTES, workload_pod="train-0", workload_namespace="ml", user="root"),
    }
    (alert,) = told("GpuLost", series, 20)
    description = alert.annotations["description"]
    assert words in description
    assert "GPU 0 of a (PCI 0000:65:00.0, serial 1650)" in description
    assert " (pod ml/train-0)" in description


def test_sram_errors_beyond_the_boards_threshold_are_a_ticket_until_it_is_replaced(firing: Firing) -> None:
    assert firing("GpuEccSramThreshold", level("gpu_ecc_sram_threshold_exceeded", 1), minutes=MINUTES) == ALL


def incidents(days: str, count: float, by: str = "board", kind: str = "79") -> Series:
    """What the exporter's ledger says."""
    return gpu("gpu_incidents_recent", [count] * MINUTES, days=days, by=by, kind=kind, pci_bus_id="0000:65:00.0")


@pytest.mark.parametrize(
    ("series", "fires"),
    [
        ({**incidents("7", 2), **incidents("30", 2)}, True),
        ({**incidents("7", 1), **incidents("30", 3)}, True),
        ({**incidents("7", 1), **incidents("30", 2)}, False),
        ({**incidents("7", 5, kind="reset"), **incidents("30", 9, kind="reset")}, False),
    ],
    ids=["twice in a week", "three times in a month", "twice in a month", "reset on purpose"],
)
def test_the_same_fault_again_is_told(firing: Firing, series: Series, *, fires: bool) -> None:
    assert bool(firing("GpuRepeatOffender", series)) == fires


def test_a_slot_that_broke_two_boards_is_blamed_before_the_board(told: Told) -> None:
    boards = gpu("gpu_incident_boards_recent", [2.0] * MINUTES, days="30", kind="79", pci_bus_id="0000:65:00.0")
    series = {**incidents("7", 2, by="slot"), **incidents("30", 3, by="slot"), **boards}
    (alert,) = told("GpuRepeatOffender", series, 20)
    assert "Xid 79 in this slot (3 times" in alert.annotations["description"]
    assert "inspect slot, riser, power and cooling" in alert.annotations["description"]


def service(values: list[float]) -> Series:
    return host("gpu_host_service_running", values, service="nvidia-fabricmanager")


def test_a_fabric_manager_that_stops_is_told_of_at_the_next_minute(firing: Firing) -> None:
    told = firing("GpuFabricServiceDown", service([1.0] * 20 + [0.0] * 20 + [1.0] * 20))
    assert {21, 39} <= told
    assert not told & {*range(20), *range(50, 60)}


def test_a_host_that_needs_no_fabric_manager_or_has_no_imex_is_not_told_of(firing: Firing) -> None:
    imex = host("gpu_host_service_running", [1.0] * 20 + [0.0] * 40, service="nvidia-imex")
    assert firing("GpuFabricServiceDown", {**imex, **host("gpu_driver_up", [1.0] * 60)}) == frozenset()


@pytest.mark.parametrize(("configuration", "health", "told"), [(5.0, 1.0, True), (4.0, 1.0, False), (5.0, 2.0, False)])
def test_a_wrong_configuration_of_the_fabric_is_told_unless_the_gpu_is_unused_or_its_fabric_unhealthy(
    firing: Firing, configuration: float, health: float, *, told: bool
) -> None:
    series = {**gpu("gpu_fabric_configuration", [configuration] * 30), **gpu("gpu_fabric_health", [health] * 30)}
    assert (20 in firing("GpuFabricDegraded", series, minutes=30)) == told


def test_a_gpu_that_is_lost_while_others_answer_past_a_driver_that_hangs_pages_at_once(firing: Firing) -> None:
    lost = gpu("gpu_up", [1.0] * SEEN + [0.0] * (MINUTES - SEEN))
    driver = host("gpu_driver_up", [1.0] * SEEN + [0.0] * (MINUTES - SEEN))
    answering = gpu("gpu_up", [1.0] * MINUTES, "GPU-2", gpu="1")
    assert min(firing("GpuLost", {**lost, **answering, **driver})) in range(SEEN + 1, SEEN + 3)
    assert firing("GpuLost", {**lost, **driver}) == frozenset()
    silent = gpu("gpu_up", [1.0] * SEEN + [0.0] * (MINUTES - SEEN), "GPU-2", gpu="1")
    elsewhere = gpu("gpu_up", [1.0] * MINUTES, "GPU-3", instance="b")
    assert firing("GpuLost", {**lost, **silent, **elsewhere, **driver}) == frozenset()


def test_a_driver_that_hangs_pages_though_its_gpus_answer(firing: Firing) -> None:
    series = {
        **host("gpu_driver_up", [1.0] * SEEN + [0.0] * 30 + [1.0] * (MINUTES - SEEN - 30)),
        **host("gpu_devices", [2.0] * MINUTES, source="pci"),
        **host("gpu_devices", [2.0] * SEEN + [math.nan] * 30 + [2.0] * (MINUTES - SEEN - 30), source="nvml"),
        **gpu("gpu_up", [1.0] * MINUTES),
        **gpu("gpu_up", [1.0] * MINUTES, "GPU-2", gpu="1"),
    }
    assert firing("GpuDriverUnavailable", series) == frozenset(range(SEEN + 6, SEEN + 35))
    assert firing("GpuMissing", series) == frozenset()
    brief = {**series, **host("gpu_driver_up", [1.0] * SEEN + [0.0] * 4 + [1.0] * (MINUTES - SEEN - 4))}
    assert firing("GpuDriverUnavailable", brief) == frozenset()
