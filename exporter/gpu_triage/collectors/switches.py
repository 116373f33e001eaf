"""The options that switch collectors on and off."""

from __future__ import annotations

from typing import Final

from gpu_triage.collectors import xid
from gpu_triage.collectors.registry import ALL_COLLECTORS
from gpu_triage.options.table import CollectorSwitch

COLLECTOR_SWITCHES: Final = (
    *(CollectorSwitch(c.name, c.about, c.default) for c in ALL_COLLECTORS if getattr(c, "needs", None) is None),
    CollectorSwitch(xid.NAME, xid.ABOUT, default=True),
)
"""What ``--collector.<name>`` can name; a collector that needs an option of its own is switched by that."""
