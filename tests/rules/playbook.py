"""The alerts: their names, and of those that PromQL judges, how loud they are and how long each one waits."""

from __future__ import annotations

from typing import Final

from gpu_triage.alerting.shipped import shipped_sources

OF_PROMQL: Final = frozenset(
    {
        # severity, for
        ("GpuDriverVersionDrift", "info", "1h"),
        ("GpuExportersDown", "critical", "1m"),
        ("GpuExporterDown", "critical", "10m"),
        ("GpuExporterAbsent", "critical", "15m"),
        ("GpuExporterJudgeFailing", "critical", "30s"),
        ("GpuExporterTooOld", "warning", "15m"),
        ("GpuExporterXidDeaf", "warning", "15m"),
        ("GpuExporterCollectorFailing", "warning", "10m"),
        ("GpuExporterStale", "warning", "5m"),
        ("GpuHostClockWrong", "warning", "5m"),
        ("GpuExporterWebConfigReloadFailed", "warning", "5m"),
        ("GpuExporterSimulated", "info", "0"),
        ("GpuTriageWatchdog", "none", "0"),
    }
)
"""Name, severity and ``for`` of every alert about what no host can see of itself."""

NAMES: Final = frozenset(alert.name for source in shipped_sources() for alert in source.alerts if alert.enabled)
"""Of every alert that is on by default."""
