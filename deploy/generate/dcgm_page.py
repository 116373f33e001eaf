"""The table in docs/dcgm.md: which alerts work with only the series recorded by `rules/compat/dcgm.yml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpu_triage.alerting import dcgm
from gpu_triage.alerting.shipped import shipped_sources

_WORKING: Final = frozenset({"GpuDriverVersionDrift", "GpuExporterAbsent", "GpuTriageWatchdog"})
"""Alerts that need neither a finding nor a running exporter."""


def alerts_from_dcgm() -> str:
    """A row for each alert that is enabled by default, working ones first."""
    codes: dict[str, tuple[str, ...]] = {}
    for alert in (alert for source in shipped_sources() for alert in source.alerts if alert.enabled):
        codes[alert.name] = (*codes.get(alert.name, ()), *alert.codes)
    rows = sorted((not _works(name, codes), name, _lacks(name, codes)) for name in codes)
    lines = (
        f"| [{name}]({_runbook(name)}) | {'blind' if blind else 'works'} | {lacks} |" for blind, name, lacks in rows
    )
    return "\n".join(("| Alert | From DCGM alone | Lacks |", "|---|---|---|", *lines, ""))


def _works(name: str, codes: Mapping[str, tuple[str, ...]]) -> bool:
    return name in _WORKING or not dcgm.recorded_codes().isdisjoint(codes[name])


def _lacks(name: str, codes: Mapping[str, tuple[str, ...]]) -> str:
    if _works(name, codes):
        return "nothing"
    return ", ".join(f"`{code}`" for code in codes[name] if not code.startswith("xid.")) or (
        "Xids of programs" if codes[name] else "an exporter"
    )


def _runbook(name: str) -> str:
    return f"../exporter/gpu_triage/serve/handbook/runbooks/{name}.md"
