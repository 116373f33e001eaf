"""Count SXids by switch and code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpu_triage.read.xid.ledger import CODES_PER_GPU, FATAL_LABELS, OTHER, XidCount, XidCounts, XidName
from gpu_triage.read.xid.switches import SwitchError

_MOST_SWITCHES: Final = 64


class SwitchErrors:
    """Counts the SXids of each switch by code, with the time of the latest."""

    def __init__(self) -> None:
        self._counts: dict[str, XidCounts] = {}

    def see(self, error: SwitchError) -> None:
        """Count an error."""
        if error.switch not in self._counts and len(self._counts) >= _MOST_SWITCHES:
            return
        counts = self._counts.setdefault(error.switch, {})
        fatal = FATAL_LABELS[error.fatal]
        name = XidName(str(error.code), fatal)
        if name not in counts and len(counts) >= CODES_PER_GPU:
            name = XidName(OTHER, fatal)
        before = counts.get(name, XidCount(0, 0.0))
        counts[name] = XidCount(before.count + 1, max(before.last_at, error.at))

    def counts(self) -> Mapping[str, XidCounts]:
        """Counts of every switch, by bus ID and then by code; switches without errors are missing."""
        return {switch: dict(counts) for switch, counts in self._counts.items()}
