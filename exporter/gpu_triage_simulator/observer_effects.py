"""What can happen to the exporter, its scraper, and their operators; not to the simulated host.

Only a history applies them; of a reboot, ``serve --simulate`` applies what happens to the host. It ignores the rest,
because there a real Prometheus scrapes a real exporter. They take effect at the sampler's next round.
"""

from dataclasses import dataclass

from gpu_triage_simulator.schema import Count, Seconds


@dataclass(frozen=True, slots=True)
class ExporterRestart:
    """The exporter restarts immediately: its own counters reset, and Xids are reread from the kernel log."""


@dataclass(frozen=True, slots=True)
class ExporterDown:
    """The exporter is not running, and scrapes fail. It starts again at the end."""


@dataclass(frozen=True, slots=True)
class ScrapeGap:
    """There are no scrapes: no samples at all, not even ``up``, while the exporter keeps running."""


@dataclass(frozen=True, slots=True)
class Release:
    """The exporter releases all GPUs, as after SIGUSR1, and acquires them at the end, as after SIGUSR2."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The operator runs ``gpu-triage maintenance on``, and at the end of the event ``off``."""

    lasts: Seconds
    reason: str


@dataclass(frozen=True, slots=True)
class Reboot:
    """The host is down, with the exporter and all processes. At the end it has booted, and all GPUs have been reset.

    The boot ID and the kernel log are new; the uptime and the kernel's counters go on, as the clock does.
    """


@dataclass(frozen=True, slots=True)
class Accept:
    """An operator accepts a finding of a GPU, as it is at the beginning of the event, until its end."""

    gpu: Count
    code: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """An operator records that a GPU was repaired."""

    gpu: Count
