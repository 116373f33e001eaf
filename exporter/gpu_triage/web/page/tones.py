"""Which colour stands for what: one tone for each step of the playbook, in its order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.diagnosis.codes import Severity
from gpu_triage.diagnosis.report import Fitness

OF_CLASS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sick": "sick",
        **dict.fromkeys(("thermal", "power_brake", "power_cap", "clock_cap"), "held"),
        "pcie_link": "path",
        **dict.fromkeys(("memory", "storage", "cpu", "network", "numa"), "starved"),
        **dict.fromkeys(("hung", "communication", "unattributed"), "software"),
        "compute": "well",
        "idle": "idle",
    }
)
"""Tone of a bottleneck class."""

OF_FITNESS: Final[Mapping[Fitness, str]] = MappingProxyType(
    {Fitness.DRAIN: "sick", Fitness.WATCH: "held", Fitness.KEEP: "well"}
)

OF_SEVERITY: Final[Mapping[Severity, str]] = MappingProxyType(
    {Severity.CRITICAL: "sick", Severity.WARNING: "held", Severity.INFO: "starved"}
)
