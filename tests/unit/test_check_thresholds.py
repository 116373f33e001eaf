"""The numbers of `gpu-triage check` and those of the rules are the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gpu_triage.diagnosis import thresholds as ours
from gpu_triage.diagnosis.advice import CRITICAL_XIDS
from gpu_triage.diagnosis.codes import CONTAINED_XIDS
from gpu_triage.diagnosis.ladder import LADDER
from gpu_triage.hardware.xid_events import APPLICATION_XIDS

if TYPE_CHECKING:
    from pathlib import Path

Rules = dict[str, list[str]]

# Constant, rule, and what stands before the number there.
SAME = [
    (ours.LOADED_SHARE, "instance_gpu:gpu_under_load:active", r"ratio5m >= bool "),
    (ours.LOADED_P_STATE, "instance_gpu:gpu_under_load:active", r"performance_state <= bool "),
    (ours.WAITING_BELOW_SHARE, "instance_gpu:gpu_waiting:active", r"ratio5m < bool "),
    (ours.WORKING_SHARE, "instance_gpu:gpu_waiting:active", r"\[1h\]\)\)\s*>= bool "),
    (ours.BUSY_SHARE, "class compute", r"ratio5m >= "),
    (ours.THERMAL_SHARE, "class thermal", r"sw_thermal\"\}\) > "),
    (ours.BUSY_SHARE, "class thermal", r"gpu_busy:ratio5m >= "),
    (ours.POWER_BRAKE_SHARE, "class power_brake", r"hw_power_brake\"\}\) > "),
    (ours.POWER_BRAKE_SHARE, "class power_brake", r"unattributed:ratio5m > "),
    (ours.POWER_CAP_CLASS_SHARE, "class power_cap", r"sw_power_cap\"\}\) >= "),
    (ours.LOWERED_LIMIT_RATIO, "class power_cap", r"ratio_to_default < "),
    (ours.HUNG_BUSY_SHARE, "class hung", r"gpu_busy:ratio15m < "),
    (ours.HUNG_POWER_SHARE, "class hung", r"ratio_to_limit\[15m\]\) < "),
    (ours.HUNG_HELD_BYTES, "class hung", r"used_bytes\[15m\]\) >= "),
    (ours.SPINNING_BUSY_SHARE, "class communication", r"gpu_busy:ratio5m >= "),
    (ours.SPINNING_POWER_SHARE, "class communication", r"ratio_to_limit\[5m\]\) < "),
    (ours.SPINNING_SM_ACTIVITY, "class communication", r"sm_active_ratio\[5m\]\) >= "),
    (ours.SWAP_IN_BYTES_PER_SECOND, "instance:gpu_host_memory:saturated", r"rate5m >= bool "),
    (ours.MEMORY_PRESSURE_SHARE, "instance:gpu_host_memory:saturated", r"\}\s*\) >= bool "),
    (ours.IOWAIT_SHARE, "instance:gpu_host_storage:saturated", r"iowait:ratio5m >= bool "),
    (ours.IO_PRESSURE_SHARE, "instance:gpu_host_storage:saturated", r"\}\s*\) >= bool "),
    (ours.DISK_BUSY_SHARE, "instance:gpu_host_storage:saturated", r"disk:ratio5m\) >= bool "),
    (ours.NFS_SECONDS, "instance:gpu_host_storage:saturated", r"mean5m\) >= bool "),
    (ours.NFS_OPERATIONS_PER_SECOND, "instance_mount:gpu_host_nfs_operation_seconds:mean5m", r"\[5m\]\)\) >= "),
    (ours.NODE_CPU_SHARE, "instance_numa_node:gpu_host_cpu:saturated", r"ratio5m >= bool "),
    (ours.BUSIEST_CPU_SHARE, "instance_numa_node:gpu_host_cpu:saturated", r"\[5m\]\) >= bool "),
    (ours.LINE_RATE_SHARE, "instance:gpu_host_network:saturated", r"ratio5m\) >= (?:bool )?"),
    (ours.THERMAL_SHARE, "GpuHwThermalThrottling", r"hw_thermal\"\}\) > "),
    (ours.SW_THERMAL_SHARE, "GpuSwThermalThrottling", r"sw_thermal\"\}\[10m\]\)\) > "),
    (ours.NEAR_SLOWDOWN_CELSIUS, "GpuTemperatureNearSlowdown", r"margin_celsius\[5m\]\) < "),
    (ours.POWER_CAP_SHARE, "GpuPowerCapped", r"sw_power_cap\"\}\) > "),
    (ours.LINK_TRANSITIONS, "GpuPcieLinkFlapping", r"\)\s*\) > "),
    (ours.REPLAYS, "GpuPcieReplaysRising", r"\[15m\]\) > "),
    (ours.CORRECTABLE_AER_ERRORS, "GpuPcieAerErrors", r"correctable\"\}\[15m\]\)\) > "),
    (ours.NVLINK_REPLAYS_AND_RECOVERIES, "GpuNvlinkErrorsRising", r"recovery\"\}\[15m\]\)\) > "),
    (ours.NVLINK_CRC_ERRORS, "GpuNvlinkErrorsRising", r"crc\"\}\[15m\]\)\) > "),
    (1 - ours.STRAGGLER_BELOW_SHARE, "GpuStraggler", r"\(\s*(?=0\.9)"),
    (ours.STRAGGLER_PEERS, "GpuStraggler", r"busy_median5m\[10m\]\)\) >= "),
    (ours.POWER_CAP_CLASS_SHARE, "GpuStraggler", r"sw_power_cap\"\} >= "),
    (ours.LOWERED_LIMIT_RATIO, "GpuStraggler", r"ratio_to_default >= "),
    (ours.STRAGGLER_PEERS_CAP_SHARE, "GpuStraggler", r"\) <= "),
    (ours.MEMORY_FULL_SHARE, "GpuMemoryNearFull", r"free_bytes\) > "),
    (ours.SWAPPING_BYTES_PER_SECOND, "GpuHostSwapping", r"rate5m > "),
    (ours.XID_APPLICATION_COUNT, "GpuXidApplication", r"\) > "),
    (ours.XID_RECENT_SECONDS, "GpuXidUnlisted", r"time\(\) - "),
]


@pytest.fixture(scope="module")
def rules(repository: Path) -> Rules:
    """Expressions by the rule's name; those of the ladder by ``class NAME``."""
    found: Rules = {}
    for file in (*sorted((repository / "rules").glob("alerts-*.yml")), repository / "rules/recording.yml"):
        for group in yaml.safe_load(file.read_text())["groups"]:
            for rule in group["rules"]:
                found.setdefault(_name(rule), []).append(rule["expr"])
    return found


def _name(rule: dict[str, Any]) -> str:
    if rule.get("record") == "instance_gpu_class:gpu_bottleneck:candidate":
        return f"class {rule['labels']['class']}"
    return str(rule.get("alert") or rule.get("record"))


@pytest.mark.parametrize(("number", "rule", "before"), SAME, ids=[f"{rule}:{before}" for _, rule, before in SAME])
def test_a_number_is_the_same_in_check_and_rules(number: float, rule: str, before: str, rules: Rules) -> None:
    numbers = [float(each) for expression in rules[rule] for each in re.findall(before + r"([0-9.]+)", expression)]
    assert pytest.approx(number) in numbers


def test_the_ladder_has_the_rungs_of_the_rules_in_their_order(rules: Rules) -> None:
    ranks = {
        name.removeprefix("class "): int(re.findall(r"\+ ([0-9]+)", expressions[0])[-1])
        for name, expressions in rules.items()
        if name.startswith("class ")
    }
    ordered = sorted(ranks, key=ranks.__getitem__)
    assert [name for name in ordered if name != "hung"] == [*(name for name, _ in LADDER), "idle"]


@pytest.mark.parametrize(
    ("rule", "codes"),
    [
        ("GpuXidCritical", set(CRITICAL_XIDS)),
        ("GpuXidContained", set(CONTAINED_XIDS)),
        ("GpuXidApplication", set(APPLICATION_XIDS)),
    ],
)
def test_an_xid_is_of_the_same_kind_in_check_and_rules(rule: str, codes: set[int], rules: Rules) -> None:
    for matcher in re.findall(r'xid=~"([0-9|]+)"', rules[rule][0]):
        assert {int(code) for code in matcher.split("|")} == codes
    assert "xid=~" in rules[rule][0]
