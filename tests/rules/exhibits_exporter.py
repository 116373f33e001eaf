"""Exhibits of the exporter itself, and of the fleet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tests.rules.exhibits import (
    NOW,
    RECENTLY,
    Exhibit,
    lately,
    merged,
    of_host,
    of_its_host,
    steady,
)
from tests.rules.handwritten import Series, host

RACK: Final = "gpu-triage-rack-7"
"""Hosts of a job of their own: the others are down for other reasons."""


def scraped(values: Sequence[float], instance: str = "a", *, first: int = 90, **labels: str) -> Series:
    """Whether a target could be scraped; what our exporter says of itself goes with it, from `first` on."""
    said = [1.0 if value == 1 and minute >= first else math.nan for minute, value in enumerate(values)]
    return {**host("up", values, instance, **labels), **host("gpu_exporter_build_info", said, instance, **labels)}


def rack(hosts: int, down: int) -> Series:
    """A rack of which some hosts are down; links lead to the exporter that is there for longest."""
    each = (
        scraped(
            steady(1) if number <= hosts - down else lately(0, 1),
            f"gpu-rack7-{number:02}:9836",
            first=5 * number,
            job=RACK,
        )
        for number in range(1, hosts + 1)
    )
    return merged(*each)


def collector(name: str, metric: str, values: Sequence[float]) -> Series:
    return host(f"gpu_exporter_collector_{metric}", values, collector=name)


def wrong_clock(seconds: float) -> Series:
    return host("gpu_exporter_time_seconds", [60.0 * minute + seconds for minute in range(NOW + 1)])


RESTARTING: Final = [1.0 if minute < RECENTLY - 30 or minute % 6 == 0 else 0.0 for minute in range(NOW + 1)]
OVERDUE: Final = [math.nan] * (RECENTLY + 2) + [60.0 * (minute - RECENTLY) for minute in range(RECENTLY + 2, NOW + 1)]
DRIVERS: Final = ("570.172.08", "580.95.05")

EXHIBITS: Final = (
    Exhibit("GpuExportersDown", "", rack(20, 5)),
    of_host("GpuExporterDown", scraped(lately(0, 1))),
    of_host("GpuExporterDown", scraped(RESTARTING), what="restarting"),
    Exhibit("GpuExporterAbsent", "", host("up", steady(1), "prometheus:9090", job="prometheus"), alone=True),
    of_host(
        "GpuExporterXidDeaf",
        of_its_host("gpu_exporter_xid_source_up", 0, source="kmsg"),
        of_its_host("gpu_exporter_xid_source_up", 0, source="nvml"),
    ),
    of_host("GpuReleased", of_its_host("gpu_exporter_gpus_released", 1)),
    of_host("GpuExporterCollectorFailing", collector("host_nfs", "success", lately(0, 1))),
    of_host(
        "GpuExporterStale",
        collector("ecc", "stale_seconds", OVERDUE),
    ),
    of_host("GpuHostClockWrong", wrong_clock(-4200.0)),
    of_host("GpuHostClockWrong", wrong_clock(7200.0), what="ahead"),
    of_host("GpuExporterWebConfigReloadFailed", host("gpu_exporter_web_config_reload_success", lately(0, 1))),
    of_host("GpuExporterSimulated", of_its_host("gpu_exporter_simulated", 1)),
    Exhibit("GpuTriageWatchdog", "", {}),
    Exhibit(
        "GpuDriverVersionDrift",
        "",
        merged(
            *(
                host("gpu_driver_info", steady(1), f"gpu-drift-{number}:9836", driver_version=version)
                for number, version in enumerate(DRIVERS)
            )
        ),
    ),
)
