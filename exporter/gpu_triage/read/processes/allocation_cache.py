"""Cache of GPU allocations between two answers of a scheduler."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

from gpu_triage.machine import Moment

Allocation = TypeVar("Allocation")


class AllocationCache(Generic[Allocation]):
    """Holders by device; expires when the last answer gets too old. Thread-safe.

    >>> cache = AllocationCache[str](fresh_for_seconds=15.0)
    >>> cache.keep({"GPU-1": frozenset({"alice"})}, Moment(monotonic=100.0, wall=0.0))
    >>> [sorted(cache.allocations({"GPU-1", "GPU-2"}, Moment(at, wall=0.0))) for at in (110.0, 120.0)]
    [['alice'], []]
    """

    def __init__(self, fresh_for_seconds: float) -> None:
        self._fresh_for_seconds = fresh_for_seconds
        self._latest: tuple[float, Mapping[str, frozenset[Allocation]]] | None = None

    def keep(self, allocations: Mapping[str, frozenset[Allocation]], at: Moment) -> None:
        """Store a new answer; devices not in it are free."""
        self._latest = (at.monotonic, allocations)  # replaced atomically: other threads read it

    def allocations(self, devices: Collection[str], at: Moment) -> frozenset[Allocation]:
        """See `machine.Holders`."""
        latest = self._latest
        if latest is None or not self.known(at):
            return frozenset()
        return frozenset().union(*(latest[1].get(device, frozenset()) for device in devices))

    def known(self, at: Moment) -> bool:
        """See `machine.Holders`."""
        latest = self._latest
        return latest is not None and at.monotonic - latest[0] <= self._fresh_for_seconds
