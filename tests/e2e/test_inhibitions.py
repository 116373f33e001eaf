"""A real Alertmanager holds back what the inhibitions say, and nothing beside it."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from tests.conftest import RequiresTool
from tests.e2e.processes import alertmanager, fire, wait_for

Labels = dict[str, str]

SIX = {"uuid": "GPU-6"}
LOST: Labels = {"alertname": "GpuLost", "severity": "critical", **SIX}
XID: Labels = {"alertname": "GpuXidCritical", "severity": "critical", **SIX}
AT_65, AT_B3 = {"pci_bus_id": "0000:65:00.0"}, {"pci_bus_id": "0000:b3:00.0"}
"""GPUs that were lost before the exporter started have no UUID."""
XID_OF_UNKNOWN: Labels = {"alertname": "GpuXidCritical", "severity": "critical"}
LOST_UNKNOWN: Labels = {"alertname": "GpuLost", "severity": "critical", "code": "gpu.lost", "gpu": "1"}
UNCORRECTED: Labels = {"alertname": "GpuEccUncorrected", "severity": "critical", **SIX}
RESET: Labels = {"alertname": "GpuRecoveryActionNeeded", "severity": "critical", **SIX}
DRAIN_AND_RESET = RESET | {"severity": "warning"}
CONTAINED: Labels = {"alertname": "GpuXidContained", "severity": "warning", **SIX}
NVLINK = XID | {"path": "nvlink"}
FABRIC: Labels = {"alertname": "GpuFabricUnhealthy", "severity": "critical"}
BOARD: Labels = {"alertname": "GpuBoardLost", "severity": "critical", "code": "gpu.board_lost"}
DRIVER: Labels = {"alertname": "GpuDriverUnavailable", "severity": "critical"}
MISSING: Labels = {"alertname": "GpuMissing", "severity": "critical"}
DOWN: Labels = {"alertname": "GpuExporterDown", "severity": "critical"}
NARROW: Labels = {"alertname": "GpuPcieWidthDowntrained", "severity": "critical", **SIX}
STORAGE: Labels = {"alertname": "GpuStarved", "severity": "warning", "code": "storage.starved", "uuid": "GPU-0"}


def _in_fleet(code: str) -> Labels:
    return {"alertname": "GpuInFleetIncident", "severity": "none", "code": code}


def _ticket(name: str, **labels: str) -> Labels:
    return {"alertname": name, "severity": "warning", **labels}


HELD_BACK = [
    (_in_fleet("host.down"), DOWN),
    (
        _in_fleet("thermal.hw"),
        {"alertname": "GpuHwThermalThrottling", "severity": "critical", "code": "thermal.hw", **SIX},
    ),
    (_in_fleet("storage.not_responding"), _ticket("GpuHostTaskHung", code="host.hung_task")),
    (_in_fleet("network.port_down"), _ticket("GpuInfinibandLinkDegraded", code="network.port_slow")),
    (_in_fleet("driver.unavailable"), MISSING),
    (XID, LOST),
    (LOST, RESET),
    (RESET, UNCORRECTED),
    (XID, _ticket("GpuRowRemapPending", **SIX)),
    (XID_OF_UNKNOWN | AT_B3, LOST_UNKNOWN | AT_B3),
    (LOST_UNKNOWN | AT_B3, _ticket("GpuXidContained", **AT_B3)),
    (CONTAINED, DRAIN_AND_RESET),
    (NVLINK, FABRIC),
    (FABRIC, _ticket("GpuNvlinkDown", uuid="GPU-0")),
    (BOARD, XID),
    ({"alertname": "GpuNvswitchFatal", "severity": "critical"}, BOARD),
    (XID, DRIVER),
    (DRIVER, MISSING),
    (DOWN, STORAGE),
    (NARROW, NARROW | {"severity": "warning"}),
    (NARROW, {"alertname": "GpuPcieGenerationDowntrained", "severity": "critical", **SIX}),
    ({"alertname": "GpuPowerBrake", "severity": "critical", **SIX}, _ticket("GpuStraggler", **SIX)),
    (_ticket("GpuHostSwapping"), _ticket("GpuStarved", code="memory.starved", **SIX)),
    (_ticket("GpuInfinibandPortDown"), _ticket("GpuInfinibandLinkDegraded", code="network.port_flapping")),
    (MISSING, _ticket("GpuBaselineDrift", field="gpu_count")),
]
TOLD = [
    (LOST, XID | {"uuid": "GPU-2"}),
    # Another card than the one that is known to be lost.
    (LOST, XID_OF_UNKNOWN),
    (XID_OF_UNKNOWN | AT_65, LOST_UNKNOWN | AT_B3),
    (XID_OF_UNKNOWN, LOST_UNKNOWN),
    (LOST_UNKNOWN | AT_65, _ticket("GpuXidContained", **AT_B3)),
    (XID, FABRIC),
    (XID, _ticket("GpuRepeatOffender", **SIX)),
    (XID_OF_UNKNOWN, _ticket("GpuBaselineDrift", field="power_limit")),
    (NARROW, STORAGE),
    (_in_fleet("thermal.hw"), DOWN),
    (_in_fleet("host.down"), DRIVER),
    (_ticket("GpuHostSwapping"), STORAGE),
    (DOWN, DRIVER),
    (MISSING, _ticket("GpuBaselineDrift", field="power_limit")),
]
FLEET_WIDE: tuple[Labels, Labels] = (
    {"alertname": "GpuFleetHwThermalThrottling", "severity": "critical", "cluster": "east", "job": "gpu-triage"},
    {"alertname": "GpuFleetSwThermalThrottling", "severity": "warning", "cluster": "east", "job": "gpu-triage"},
)
OTHER_CLUSTER = FLEET_WIDE[1] | {"cluster": "west"}


def _held_back(url: str) -> set[frozenset[tuple[str, str]]]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: list[Any] = json.load(answer)
    return {frozenset(alert["labels"].items()) for alert in found if alert["status"]["inhibitedBy"]}


def test_only_symptoms_are_quiet_beside_a_cause(repository: Path, tmp_path: Path, requires_tool: RequiresTool) -> None:
    """Every pair is a host of its own, so that pairs cannot hold each other back; those that must not come first."""
    told = [({"instance": f"told-{i}", "job": "gpu-triage"}, *pair) for i, pair in enumerate(TOLD)]
    held = [({"instance": f"held-{i}", "job": "gpu-triage"}, *pair) for i, pair in enumerate(HELD_BACK)]
    wanted = {frozenset((host | symptom).items()) for host, _, symptom in held} | {frozenset(FLEET_WIDE[1].items())}
    # Hosts of the same names in another cluster, where the causes do not fire.
    namesakes = [host | symptom | {"cluster": "north"} for host, _, symptom in held]
    config = repository / "deploy/alertmanager/alertmanager.yml"
    with alertmanager(requires_tool("prometheus-alertmanager"), tmp_path, config) as url:
        both = (host | labels for host, *both in (*told, *held) for labels in both)
        fire(url, ({"labels": each} for each in (*both, *namesakes, OTHER_CLUSTER, *FLEET_WIDE)))
        wait_for(lambda: len(_held_back(url)) >= len(wanted))
        assert _held_back(url) == wanted
