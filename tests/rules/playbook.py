"""The alerts of the playbook: their names, how loud they are, and how long each one waits."""

from __future__ import annotations

from typing import Final

ALERTS: Final = frozenset(
    {
        # severity, for: 0 where the fact is latched
        ("GpuDriverUnavailable", "critical", "5m"),
        ("GpuMissing", "critical", "5m"),
        ("GpuLost", "critical", "1m"),
        ("GpuXidCritical", "critical", "0"),
        ("GpuXidContained", "warning", "0"),
        ("GpuXidApplication", "info", "0"),
        ("GpuXidUnlisted", "info", "0"),
        ("GpuEccUncorrected", "critical", "0"),
        ("GpuEccCorrectedRising", "warning", "1h"),
        ("GpuRowRemapFailed", "critical", "0"),
        ("GpuRowRemapPending", "warning", "1h"),
        ("GpuRetiredPagesPending", "warning", "1h"),
        ("GpuRecoveryActionNeeded", "critical", "0"),
        ("GpuNvlinkDown", "warning", "5m"),
        ("GpuNvlinkErrorsRising", "warning", "15m"),
        ("GpuFabricUnhealthy", "critical", "5m"),
        ("GpuHwThermalThrottling", "critical", "10m"),
        ("GpuSwThermalThrottling", "warning", "30m"),
        ("GpuTemperatureNearSlowdown", "warning", "15m"),
        ("GpuPowerBrake", "critical", "5m"),
        ("GpuHwSlowdownUnattributed", "warning", "15m"),
        ("GpuPowerCapped", "info", "1h"),
        ("GpuClockPolicyDrift", "warning", "30m"),
        ("GpuPcieWidthDowntrained", "critical", "15m"),
        ("GpuPcieWidthDowntrained", "warning", "1h"),
        ("GpuPcieGenerationDowntrained", "critical", "10m"),
        ("GpuPcieLinkFlapping", "warning", "15m"),
        ("GpuPcieReplaysRising", "warning", "15m"),
        ("GpuPcieAerErrors", "warning", "15m"),
        ("GpuPcieBelowPeers", "info", "30m"),
        ("GpuP2pUnavailable", "warning", "15m"),
        ("GpuNumaMismatch", "warning", "30m"),
        ("GpuBaselineDrift", "warning", "5m"),
        ("GpuStarvedByStorage", "warning", "20m"),
        ("GpuStarvedByCpu", "warning", "20m"),
        ("GpuStarvedByNetwork", "warning", "20m"),
        ("GpuHostSwapping", "warning", "15m"),
        ("GpuHungProcess", "warning", "20m"),
        ("GpuImbalance", "warning", "20m"),
        ("GpuStraggler", "warning", "15m"),
        ("GpuBusyButLowPower", "info", "30m"),
        ("GpuMemoryNearFull", "info", "30m"),
        ("GpuAllocatedIdle", "info", "5m"),
        ("GpuPersistenceModeOff", "info", "1h"),
        ("GpuDriverVersionDrift", "info", "1h"),
        ("GpuReleased", "info", "1h"),
        ("GpuExporterDown", "critical", "5m"),
        ("GpuExporterCollectorFailing", "warning", "10m"),
        ("GpuExporterStale", "warning", "5m"),
        ("GpuExporterWebConfigReloadFailed", "warning", "5m"),
        ("GpuExporterSimulated", "info", "0"),
        ("GpuTriageWatchdog", "none", "0"),
    }
)
"""Name, severity and ``for`` of every alert."""

NAMES: Final = frozenset(name for name, _, _ in ALERTS)
