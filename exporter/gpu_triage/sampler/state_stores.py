"""All files of the state directory that are written while the exporter runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_triage.read.exporter.health import CollectorHealth
from gpu_triage.sampler.lanes import Lane
from gpu_triage.sampler.state_file import AnyStateNews
from gpu_triage.sampler.state_store import StateStore


class StateStores:
    """A sampler's stores as a group; None arguments are ignored. Only the sampler's thread calls it."""

    def __init__(self, *stores: StateStore[Any] | None) -> None:
        self._stores = [store for store in stores if store is not None]

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Lanes that read and write the files."""
        return tuple(store.lane for store in self._stores)

    def submit(self, now: float) -> None:
        """As StateStore.submit, for each."""
        for store in self._stores:
            store.submit(now)

    def finish(self) -> bool:
        """As StateStore.finish, for each; returns whether any has something left to do."""
        left = [store.finish() for store in self._stores]
        return any(left)

    def save(self, wait: Callable[[Callable[[], bool]], bool], take: Callable[[], None]) -> None:
        """Write what is not on disk yet, as far as time permits, before the exporter exits.

        Args:
            wait: waits until the given condition holds or the time is up; returns whether it holds.
            take: processes the results of visits that have ended.
        """
        take()
        while self.finish() and wait(self._next_done()):
            take()

    def _next_done(self) -> Callable[[], bool]:
        """Condition: at least one of the files that are busy now has become idle; true immediately if none is busy."""
        busy = [lane for lane in self.lanes if lane.busy_since is not None]
        return lambda: not busy or any(lane.busy_since is None for lane in busy)

    def log_lost(self) -> None:
        """As StateStore.log_lost, for each."""
        for store in self._stores:
            store.log_lost()

    def idle(self) -> bool:
        """Whether no file is being read or written."""
        return all(lane.busy_since is None for lane in self.lanes)

    def take(self, news: AnyStateNews, now: float) -> tuple[str, ...]:
        """As StateStore.take, for the store that reported."""
        (store,) = (store for store in self._stores if store.name == news.name)
        return store.take(news, now)

    def health(self, now: float) -> tuple[CollectorHealth, ...]:
        """Health of each store that is kept on disk."""
        return tuple(health for store in self._stores for health in store.health(now))

    def works(self, now: float) -> bool | None:
        """Whether all changes are being saved; None until that is known."""
        saved = [store.saves(now) for store in self._stores]
        return False if False in saved else None if None in saved else True
