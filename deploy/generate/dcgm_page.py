"""The list in docs/dcgm.md: which alerts work with only the series recorded by `rules/compat/dcgm.yml`."""

from collections.abc import Mapping
from textwrap import fill
from typing import Final

from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.read.xid.codes import XID_CODES, XidKind

_XIDS: Final = (XidKind.PAGE, XidKind.TICKET)
_WORKING: Final = frozenset({"GpuDriverVersionDrift", "GpuExporterAbsent", "GpuTriageWatchdog"})
"""Alerts that need neither a finding nor a running exporter."""


def alerts_from_dcgm() -> str:
    """The alerts, of those enabled by default, that can fire from DCGM's metrics."""
    codes: dict[str, tuple[str, ...]] = {}
    sources = (source for source in shipped_sources() if not source.optional)
    for alert in (alert for source in sources for alert in source.alerts if alert.enabled):
        codes[alert.name] = (*codes.get(alert.name, ()), *alert.codes)
    working = sorted(name for name in codes if _works(name, codes))
    links = ", ".join(f"[{name}](../exporter/gpu_triage/serve/handbook/runbooks/{name}.md)" for name in working)
    said = (
        f"From DCGM's metrics alone, {len(working)} of {len(codes)} alerts can fire, if you collect the fields above: "
        f"{links}. The others need an exporter on the host."
    )
    return f"{fill(said, 130, break_long_words=False, break_on_hyphens=False)}\n"


def _works(name: str, codes: Mapping[str, tuple[str, ...]]) -> bool:
    return name in _WORKING or not recorded_codes().isdisjoint(codes[name])


def recorded_codes() -> frozenset[str]:
    """Of the findings that the rules of compat/dcgm.yml record."""
    found = (each.code for source in shipped_sources() for group in source.groups for each in group.dcgm_findings)
    return frozenset({*found, *(f"xid.{xid.code}" for xid in XID_CODES.values() if xid.kind in _XIDS)})
