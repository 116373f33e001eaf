"""Logs why clients are rejected: each cause once, and then rarely."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from gpu_triage.log import fields

QUIET_SECONDS: Final = 600.0
"""After logging a cause, further occurrences are only counted for this long."""

logger = logging.getLogger(__name__)


class RefusalLog:
    """Logs why clients are rejected: each cause at first occurrence, then at most once per `QUIET_SECONDS`."""

    def __init__(self, message: str, now: Callable[[], float] = time.monotonic) -> None:
        self._message = message
        self._now = now
        self._quiet_until: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def note(self, cause: str, address: str, **facts: str) -> None:
        """Record one rejected client, with additional fields for the log."""
        if self._now() < self._quiet_until.get(cause, 0.0):
            self._unlogged[cause] += 1
            return
        self._quiet_until[cause] = self._now() + QUIET_SECONDS
        since_last = self._unlogged.pop(cause, 0)
        logger.warning(self._message, extra=fields(cause=cause, client=address, **facts, since_last=since_last))
