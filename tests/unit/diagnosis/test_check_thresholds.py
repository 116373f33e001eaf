"""Alerts that judge the metrics themselves have the numbers of the exporter's own judge."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.rules.rulefile import alerts, read_rules, rule_files

from gpu_triage.diagnosis.evidence import thresholds as ours
from gpu_triage.xid.codes import CONTAINED_ERROR, XID_CODES, XidKind, codes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# Constant, alert, and what stands before the number there.
SAME = [
    (ours.THERMAL_SHARE, "GpuHwThermalThrottling", r"hw_thermal\"\}\[5m\]\), 1\)\) > "),
    (ours.LOADED_SHARE, "GpuHwThermalThrottling", r"ratio5m\[15m\]\) < "),
    (ours.LOADED_P_STATE, "GpuHwThermalThrottling", r"performance_state\[15m\]\) > "),
    (ours.SW_THERMAL_SHARE, "GpuSwThermalThrottling", r"sw_thermal\"\}\[15m\]\), 1\)\) > "),
    (ours.LOADED_SHARE, "GpuSwThermalThrottling", r"ratio5m\[15m\]\) < "),
    (ours.NEAR_SLOWDOWN_CELSIUS, "GpuTemperatureNearSlowdown", r"margin_celsius\[5m\]\) < "),
    (ours.POWER_BRAKE_SHARE, "GpuPowerBrake", r"hw_power_brake\"\}\[5m\]\), 1\)\) > "),
    (ours.POWER_BRAKE_SHARE, "GpuHwSlowdownUnattributed", r"^\) > "),
    (ours.POWER_CAP_SHARE, "GpuPowerCapped", r"sw_power_cap\"\}\[5m\]\), 1\)\) > "),
    (ours.LOWERED_LIMIT_RATIO, "GpuPowerCapped", r"limit_watts < on \([a-z, ]+\) group_left \(\) "),
    (ours.NEAR_LIMIT_SHARE, "GpuPowerCapped", r"power_watts\[5m\]\) >= on \([a-z, ]+\) group_left \(\) "),
    (ours.LOADED_SHARE, "GpuPcieWidthDowntrained", r"busy_seconds_total\[10m\]\) >= "),
    (ours.LOADED_P_STATE, "GpuPcieWidthDowntrained", r"performance_state\[10m\]\) <= "),
    (ours.LOADED_SHARE, "GpuPcieGenerationDowntrained", r"busy_seconds_total\[10m\]\) >= "),
    (ours.LINK_TRANSITIONS, "GpuPcieLinkFlapping", r"^\) > "),
    (ours.LOADED_SHARE, "GpuPcieLinkFlapping", r"busy_seconds_total\[5m\]\) >= "),
    (ours.REPLAYS, "GpuPcieReplaysRising", r"\[15m\]\) > "),
    (ours.CORRECTABLE_AER_ERRORS, "GpuPcieAerErrors", r"correctable\"\}\[15m\]\)\) > "),
    (ours.NVLINK_REPLAYS_AND_RECOVERIES, "GpuNvlinkErrorsRising", r"recovery\"\}\[15m\]\)\) > "),
    (ours.NVLINK_CRC_ERRORS, "GpuNvlinkErrorsRising", r"crc\"\}\[15m\]\)\) > "),
    (ours.PORT_LINK_ERRORS, "GpuInfinibandErrorsRising", r"\[15m\]\) > "),
    (ours.STRAGGLER_BELOW_SHARE, "GpuStraggler", r"\(1 - "),
    (ours.STRAGGLER_PEERS, "GpuStraggler", r"busy_median5m\[10m\]\)\) >= "),
    (ours.POWER_CAP_CLASS_SHARE, "GpuStraggler", r"sw_power_cap\"\}\[5m\]\) >= "),
    (ours.NEAR_LIMIT_SHARE, "GpuStraggler", r"power_watts\[5m\]\) >= on \([a-z, ]+\) group_left \(\) "),
    (ours.LOWERED_LIMIT_RATIO, "GpuStraggler", r"limit_watts >= on \([a-z, ]+\) group_left \(\) "),
    (ours.STRAGGLER_PEERS_CAP_SHARE, "GpuStraggler", r"\) <= "),
    (ours.WORKING_SHARE, "GpuImbalance", r"ratio5m\[10m\]\) >= "),
    (ours.HELD_BYTES, "GpuImbalance", r"used_bytes >= "),
    (ours.MEMORY_FULL_SHARE, "GpuMemoryNearFull", r"free_bytes\) > "),
    (ours.MEMORY_GROWTH_SHARE, "GpuMemoryNearFull", r"group_left \(\) "),
    (ours.SWAPPING_BYTES_PER_SECOND, "GpuHostSwapping", r"bytes_total\[5m\]\) > "),
    (ours.HELD_BYTES, "GpuHostSwapping", r"used_bytes >= "),
    (ours.XID_APPLICATION_COUNT, "GpuXidApplication", r"\) > "),
    (ours.CONTAINED_SECONDS, "GpuXidCritical", r"\) < "),
    (ours.REPEATED_IN_7_DAYS, "GpuRepeatOffender", r"days=\"7\", kind!=\"reset\"\} >= "),
    (ours.REPEATED_IN_30_DAYS, "GpuRepeatOffender", r"days=\"30\", kind!=\"reset\"\} >= "),
]


@pytest.fixture(scope="module")
def expressions() -> Mapping[str, str]:
    """Expressions by alert; of an alert with several rules, the first."""
    found: dict[str, str] = {}
    for rule in alerts(read_rules(rule_files())):
        found.setdefault(rule.name, rule.expr)
    return found


@pytest.mark.parametrize(("number", "alert", "before"), SAME, ids=[f"{alert}:{before}" for _, alert, before in SAME])
def test_a_number_is_the_same_in_the_judge_and_the_alert(
    number: float, alert: str, before: str, expressions: Mapping[str, str]
) -> None:
    found = re.findall(before + r"([0-9.]+)", expressions[alert], re.MULTILINE)
    assert pytest.approx(number) in [float(each) for each in found]


def codes_in(expression: str) -> set[int]:
    """Xids that an expression names."""
    lists = re.findall(r'xid[!=]~?"([0-9|]+)"', expression)
    return {int(code) for codes in lists for code in codes.split("|")}


def test_an_xid_is_of_the_same_kind_in_the_judge_and_the_alert(expressions: Mapping[str, str]) -> None:
    page, ticket = set(codes_of(XidKind.PAGE)), set(codes_of(XidKind.TICKET))
    fatal_in_text = {xid.code for xid in XID_CODES.values() if xid.fatal_in_text}
    # A double-bit error that Xid 94 calls contained is no page: the alert names both.
    assert codes_in(expressions["GpuXidCritical"]) - {CONTAINED_ERROR} == page
    assert codes_in(expressions["GpuXidContained"]) == ticket | fatal_in_text
    assert codes_in(expressions["GpuXidApplication"]) == set(codes_of(XidKind.APPLICATION))
    assert codes_in(expressions["GpuXidUnlisted"]) == set(XID_CODES)
