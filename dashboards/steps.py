"""The steps of the playbook, with the bottleneck classes and alerts that each covers."""

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpu_triage.alerting.rule_source import Alert
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Area

RUNBOOKS_URL: Final = "http://${exporter:raw}/runbooks"
"""URL of playbook and runbooks, which every exporter serves. `raw` prevents escaping of the port's colon."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the playbook.

    Attributes:
        title: number and subject, as shown on the tile and at the start of the row title.
        contents: what the row shows, for readers of the collapsed row.
        anchor: of its section in the playbook.
        areas: areas of the findings that its alerts relay; empty if it has no alerts, or only those about exporters.
        classes: bottleneck classes that make it positive.
        judged_by: series that must exist for a verdict.
        key_panel: title of the panel to look at first.
        decide: what to do if this step finds the cause.
        per_gpu: whether that series is per GPU instead of per host.
    """

    title: str
    contents: str
    anchor: str
    areas: tuple[Area, ...]
    classes: tuple[str, ...]
    judged_by: str
    key_panel: str
    decide: str
    per_gpu: bool = True

    @property
    def row(self) -> str:
        return f"{self.title}: {self.contents}"

    @property
    def url(self) -> str:
        return f"{RUNBOOKS_URL}/playbook#{self.anchor}"


SEEN: Final = Step(
    "0 Monitoring",
    "exporters and scrapes",
    "0-can-you-trust-what-you-see",
    (),
    (),
    "gpu_exporter_build_info",
    per_gpu=False,
    key_panel="Exporter status",
    decide="Repair the exporter or its scrape first: the panels below only show what it sees.",
)
SICK: Final = Step(
    "1 GPU health",
    "ECC, Xids, driver",
    "1-is-it-sick",
    (Area.DRIVER, Area.HEALTH),
    ("sick",),
    "gpu_bottleneck",
    key_panel="Health of each GPU",
    decide="Drain the host and follow the runbook of the alert; tuning a sick GPU wastes the night.",
)
HELD_BACK: Final = Step(
    "2 Throttling",
    "heat, power, clocks",
    "2-is-it-held-back",
    (Area.CLOCKS,),
    ("thermal", "power_brake", "power_cap", "clock_cap"),
    "gpu_throttle_seconds_total",
    key_panel="Thermal throttling",
    decide="Heat and power brake go to the machine room; a lowered limit goes to whoever set it.",
)
PATH: Final = Step(
    "3 Interconnect",
    "PCIe, NVLink, fabric, network ports, peers",
    "3-is-the-path-to-it-broken",
    (Area.PCIE, Area.PEERS),
    ("pcie_link", "numa"),
    "gpu_pcie_link_expected_width",
    key_panel="PCIe bandwidth relative to expected",
    decide="Move the job to another GPU and have the card, riser and slot inspected.",
)
STARVED: Final = Step(
    "4 Host resources",
    "storage, CPU, memory, network",
    "4-is-it-starved",
    (Area.HOST,),
    ("memory", "storage", "cpu", "network"),
    "gpu_host_cpu_busiest_ratio",
    per_gpu=False,
    key_panel="GPUs waiting for their host",
    decide="Relieve the scarce resource; the GPUs themselves are fine.",
)
SOFTWARE: Final = Step(
    "5 Software",
    "processes, slow ranks, kernel log",
    "5-is-the-software-in-the-way",
    (Area.WORK, Area.SETTINGS),
    ("hung", "communication"),
    "gpu_sm_utilization_ratio",
    key_panel="Compute processes",
    decide="Talk to the job's owner: look for a hang, an imbalance, or ranks waiting for each other.",
)
TUNE: Final = Step(
    "6 GPU-bound work",
    "SM, tensor core and memory activity",
    "6-only-then-tune",
    (),
    ("compute",),
    "gpu_bottleneck",
    key_panel="SM activity",
    decide="Nothing is wrong with the machine: profile the job, or give it more GPUs.",
)
STEPS: Final = (SEEN, SICK, HELD_BACK, PATH, STARVED, SOFTWARE, TUNE)


def alerts_of(step: Step) -> tuple[str, ...]:
    """Names of the step's alerts that are enabled by default and count toward its verdict."""
    of_promql = (alert for source in shipped_sources() if source.path in _OF_PROMQL for alert in source.alerts)
    names = {alert.name for alert in of_promql if alert.severity in COUNTED and _belongs(alert, step)}
    found = (check for check in CHECKS if check.area in step.areas and check.relayed)
    return tuple(sorted(names | {check.alert for check in found if check.alert and check.severity.value in COUNTED}))


def _belongs(alert: Alert, step: Step) -> bool:
    """Whether an alert that Prometheus judges is of the step: by the finding that it counts, or by its subject."""
    code = _CODE.search(alert.expr)
    area = BY_CODE[code[1]].area if code and code[1] in BY_CODE else _AREA_OF_JOBS.get(alert.name)
    return step is SEEN if area is None else area in step.areas


_OF_PROMQL: Final = frozenset({"alerts-exporter.yml", "alerts-fleet.yml", "alerts-jobs.yml"})
_CODE: Final = re.compile(r'gpu_fleet_incident:since\{code="([^"]+)"')
_AREA_OF_JOBS: Final = MappingProxyType(
    {"GpuStragglerAcrossHosts": Area.CLOCKS, "GpuJobSlow": Area.WORK, "GpuJobHung": Area.WORK}
)


def of_finding(code: str, name: str) -> float:
    """The default of a finding's threshold, for the limits that panels draw."""
    return LIMITS[code][name].value


def of_alert(name: str, threshold: str) -> float:
    """The same of an alert that Prometheus judges."""
    every = (alert for source in shipped_sources() for alert in source.alerts)
    return next(alert.thresholds[threshold].value for alert in every if alert.name == name)


COUNTED: Final = frozenset({"critical", "warning"})
"""Severities that make a step suspect; others are context."""
