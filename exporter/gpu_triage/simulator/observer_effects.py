"""What can happen to those who look at a simulated host: the exporter, its scraper, and whoever operates them.

The machine knows nothing of it, so only a history plays these; ``serve --simulate`` leaves them out, for there a real
exporter is looked at by a real Prometheus. They take hold with the sampler's next round.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExporterRestart:
    """The exporter ends and starts anew at once: its own counters reset, Xids are read again from the kernel log."""


@dataclass(frozen=True, slots=True)
class ExporterDown:
    """The exporter does not run: a scrape finds nobody. It starts anew at the end."""


@dataclass(frozen=True, slots=True)
class ScrapeGap:
    """Nobody scrapes: no samples at all, ``up`` included, while the exporter runs on."""


@dataclass(frozen=True, slots=True)
class Release:
    """The exporter lets go of every GPU, as after SIGUSR1, and takes them back at the end, as after SIGUSR2."""
