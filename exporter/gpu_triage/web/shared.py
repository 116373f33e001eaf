"""One answer for all who ask at the same time: computed off the event loop, once, and good for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """The latest result of a computation that takes too long for the event loop, and is wanted by many.

    Used on the event loop only.

    Args:
        compute: makes the result; called on the executor's threads, never twice at the same time.
        executor: where.
        fresh_seconds: how long a result is good for; who asks within it starts nothing.
        now: monotonic seconds.
    """

    def __init__(
        self,
        compute: Callable[[], T],
        executor: Executor,
        fresh_seconds: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compute = compute
        self._executor = executor
        self._fresh_seconds = fresh_seconds
        self._now = now
        self._begun_at = 0.0
        self._result: asyncio.Future[T] | None = None

    async def get(self) -> T:
        """The result; raises what the computation raised."""
        result = self._result
        if result is None or (result.done() and self._now() - self._begun_at >= self._fresh_seconds):
            self._begun_at = self._now()
            result = self._result = asyncio.get_running_loop().run_in_executor(self._executor, self._compute)
        # One client that goes away must not take the answer from the others.
        return await asyncio.shield(result)
