"""What rules/compat/bmc.yml makes of BMCs and hwmon beside GPU hosts, and what the alerts about their GPUs then say."""

import math
from collections.abc import Mapping

import pytest
from tests.conftest import RequiresTool
from tests.rules.handwritten import Played, Series, gpu, host, merged, over, play
from tests.rules.rulefile import BMC, alert_files

ALERT, BRAKE = "GpuHostChassisFault", "GpuPowerBrake"
END, FAILS, SHOWN_AT = 90, 20, 30
NAN = math.nan
OURS = host("up", over((1, END)), "gpu-7:9836")
DCGM = gpu("gpu_info", over((1, END)), recorded_from="dcgm", job="dcgm-exporter", instance="gpu-7:9400")
FAILING = ((0, FAILS), (2, END - FAILS))


def ipmi(metric: str, *spans: tuple[float, int], instance: str = "gpu-7:9290", **labels: str) -> Series:
    return host(f"ipmi_{metric}", over(*spans), instance, job="ipmi", id="1", **labels)


def supply(*spans: tuple[float, int], instance: str = "gpu-7:9290") -> Series:
    return ipmi("sensor_state", *spans, instance=instance, name="PS2 Status", type="Power Supply")


def fan(*spans: tuple[float, int], least: float = 800) -> Series:
    labels = {"job": "node", "chip": "platform_nct6775_656", "sensor": "fan3"}
    rpm = host("node_hwmon_fan_rpm", over(*spans), "gpu-7:9100", **labels)
    return merged(rpm, host("node_hwmon_fan_min_rpm", over((least, END)), "gpu-7:9100", **labels))


def brake(job: str, instance: str) -> Series:
    labels = {"code": "power.brake", "severity": "critical", "action": "inspect_hardware"}
    return gpu("gpu_finding", over((2, END)), job=job, instance=instance, **labels)


FAULTS: Mapping[str, tuple[str, int, Series]] = {
    "a supply": ("power_supply", 25, supply(*FAILING)),
    "a supply's input": ("power_supply", 25, ipmi("power_state", (0, FAILS), (1, END - FAILS), name="PSU1 Input")),
    "a fan": ("fan", 25, ipmi("fan_speed_state", *FAILING, name="Fan1A")),
    "too few fans": ("fan", 25, ipmi("sensor_state", *FAILING, name="Fan Redundancy", type="Fan")),
    "warm air": ("inlet", 25, ipmi("temperature_state", *FAILING, name="Inlet Temp")),
    "a fan of hwmon": ("fan", 30, fan((1200, FAILS), (0, END - FAILS))),
    "read every 10 minutes": ("power_supply", 25, supply(*((0, 1), (NAN, 9)) * 2, *((2, 1), (NAN, 9)) * 7)),
}
"""The part that fails, the minute from which a ticket stands, and the series of the host."""
QUIET: Mapping[str, Series] = {
    "healthy": merged(supply((0, END)), ipmi("temperature_state", (0, END), name="Inlet Temp")),
    "a sensor without a state": merged(supply((NAN, END)), ipmi("fan_speed_state", (NAN, END), name="Fan9")),
    "four minutes": supply((0, FAILS), (2, 4), (0, END - FAILS - 4)),
    "warm inside": ipmi("temperature_state", *FAILING, name="CPU1 Temp"),
    "another sensor": ipmi("sensor_state", *FAILING, name="Intrusion", type="Physical Security"),
    "a fan at its minimum": fan((1200, FAILS), (800, END - FAILS)),
    "a fan that may stop": fan((1200, FAILS), (0, END - FAILS), least=0),
    "a header without a fan": fan((0, END)),
    "off": merged(supply(*FAILING), ipmi("chassis_power_state", (0, END))),
    "a host without GPUs": supply(*FAILING, instance="login-1:9290"),
}
CASES: Mapping[str, Series] = {
    **{name: merged(OURS, series) for name, (_, _, series) in FAULTS.items()},
    **{name: merged(OURS, series) for name, series in QUIET.items()},
    "beside ours": merged(OURS, DCGM, supply(*FAILING), brake("gpu-triage", "gpu-7:9836")),
    "beside DCGM": merged(DCGM, supply(*FAILING), brake("dcgm-exporter", "gpu-7:9400")),
}


@pytest.fixture(scope="module")
def played(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    shown = {ALERT: SHOWN_AT, BRAKE: SHOWN_AT}
    directory, files = tmp_path_factory.mktemp("bmc"), (BMC, *alert_files())
    return play(requires_tool("promtool"), directory, files, CASES, minutes=END, shown=shown)


@pytest.mark.parametrize("name", FAULTS)
def test_what_fails_in_the_chassis_is_a_ticket_while_it_stands(name: str, played: Mapping[str, Played]) -> None:
    part, first, _ = FAULTS[name]
    ((labels, at),) = played[name].firing[ALERT].items()
    assert (dict(labels)["part"], dict(labels)["instance"]) == (part, "gpu-7:9836")
    assert at == frozenset(range(first, END))


@pytest.mark.parametrize("name", QUIET)
def test_what_is_no_fault_of_a_gpu_host_is_none(name: str, played: Mapping[str, Played]) -> None:
    assert played[name].minutes(ALERT) == []


@pytest.mark.parametrize(("name", "job"), [("beside ours", "gpu-triage"), ("beside DCGM", "dcgm-exporter")])
def test_an_alert_about_the_gpus_says_what_the_chassis_reports(
    name: str, job: str, played: Mapping[str, Played]
) -> None:
    for alert in (ALERT, BRAKE):
        (sent,) = played[name].shown[alert]
        assert sent.labels["job"] == job
        assert "PS2 Status since 00:20 UTC" in sent.annotations["description"]
