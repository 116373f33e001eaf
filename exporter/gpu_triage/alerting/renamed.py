"""Alerts that were merged into others, and alert settings that moved to the exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpu_triage.alerting.rule_source import Alert


class Renamed(NamedTuple):
    alert: str  # the new alert's name
    code: str  # value of its label `code` that corresponds to the old alert
    variant: str = ""  # of the rule, as in the settings

    @property
    def key(self) -> str:
        return f"{self.alert}.{self.variant}" if self.variant else self.alert


RENAMED: Final[Mapping[str, Renamed]] = MappingProxyType(
    {
        "GpuRetiredPagesPending": Renamed("GpuRowRemapPending", "memory.retired_pages_pending"),
        "GpuProcessBlocked": Renamed("GpuHostTaskHung", "work.blocked"),
        "GpuInfinibandPortFlapping": Renamed("GpuInfinibandLinkDegraded", "network.port_flapping"),
        "GpuInfinibandErrorsRising": Renamed("GpuInfinibandLinkDegraded", "network.port_errors"),
        "GpuInfinibandRateDegraded": Renamed("GpuInfinibandLinkDegraded", "network.port_slow"),
        "GpuStarvedByMemory": Renamed("GpuStarved", "memory.starved"),
        "GpuStarvedByStorage": Renamed("GpuStarved", "storage.starved"),
        "GpuStarvedByCpu": Renamed("GpuStarved", "cpu.starved", "fix_job"),
        "GpuStarvedByNetwork": Renamed("GpuStarved", "network.starved"),
        "GpuPcieWidthDowntrained.idle": Renamed("GpuPcieWidthDowntrained", "pcie.width_idle", "warning"),
        "GpuRecoveryActionNeeded.drain": Renamed("GpuRecoveryActionNeeded", "recovery.drain_and_reset", "warning"),
    }
)
"""By the alert's key in the previous release."""


def moved(document: Any, alerts: Mapping[str, Alert]) -> Iterator[str]:
    """A message for each setting of the previous release that has moved."""
    chosen = document.get("alerts") if isinstance(document, dict) else None
    for key, settings in (chosen if isinstance(chosen, dict) else {}).items():
        if key in RENAMED and key not in alerts:
            yield f"alerts.{key}: is part of {RENAMED[key].key} now; rename it"
        elif key in alerts and isinstance(settings, dict):
            yield from _settings_moved(alerts[key], settings)


def _settings_moved(alert: Alert, settings: Mapping[str, Any]) -> Iterator[str]:
    code = alert.codes[0] if alert.codes else ""
    if code and "for" in settings:
        yield f"alerts.{alert.key}.for: is an option of the exporter now; set judge.{code}.wait in its configuration"
    thresholds = settings.get("thresholds") if code else None
    for name in thresholds if isinstance(thresholds, dict) else ():
        yield (
            f"alerts.{alert.key}.thresholds.{name}: is an option of the exporter now; set it below judge.{code} in its "
            "configuration (gpu-triage judge --print-config lists what there is)"
        )
