"""Reports NVML and host calls that are taking too long."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from gpu_triage.read.exporter.exporter_health import CallInFlight
from gpu_triage.sampler.lanes import Lane, Step

log = logging.getLogger(__name__)

_NAMED_AFTER_SECONDS: Final = 1.0
"""Calls normally take milliseconds."""


class CallWatch:
    """Checks all lanes at each publication. Only the sampler's thread calls it."""

    def __init__(self, deadline_seconds: float) -> None:
        self._deadline_seconds = deadline_seconds
        self._logged: dict[tuple[Step, float], str] = {}

    def look(self, lanes: Iterable[Lane], now: float) -> tuple[CallInFlight, ...]:
        """Slow calls, slowest first. Logs when a call exceeds the deadline and when it finally returns."""
        calls: dict[tuple[Step, float], CallInFlight] = {}
        for lane in lanes:
            since, step = lane.busy_since, lane.step
            if since is not None and now - since >= _NAMED_AFTER_SECONDS:
                calls[step, since] = CallInFlight(step.gpu, step.collector, step.call.function, now - since)
        for key, call in calls.items():
            if call.seconds > self._deadline_seconds and key not in self._logged:
                self._logged[key] = call.function
                log.error("a call does not return", extra={"fields": _fields(key[0], call.function, call.seconds)})
        for key in self._logged.keys() - calls.keys():
            function = self._logged.pop(key)
            log.info("a call that did not return is over", extra={"fields": _fields(key[0], function, now - key[1])})
        return tuple(sorted(calls.values(), key=lambda call: -call.seconds))

    def hanging(self, calls: Iterable[CallInFlight]) -> frozenset[str]:
        return frozenset(call.collector for call in calls if call.seconds > self._deadline_seconds)


def _fields(step: Step, function: str, seconds: float) -> dict[str, object]:
    named = {"collector": step.collector, "gpu": step.gpu.gpu, "uuid": step.gpu.uuid, "function": function}
    return {name: text for name, text in named.items() if text} | {"seconds": round(seconds, 1)}
