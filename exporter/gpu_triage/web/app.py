"""The web application: metrics, health, the status page, the verdict and the runbooks, each from a source at hand."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from gpu_triage.errors import ConfigError
from gpu_triage.web.messages import RETRY, Answer, QueryError, Request, accepts_gzip, metric_names, prefers_text, text
from gpu_triage.web.paths import ACQUIRE_PATH, HEALTHY_PATH, READY_PATH, RELEASE_PATH, RUNBOOKS_PATH, VERDICT_PATH

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpu_triage.exposition import Page

    _Route = Callable[[Request], Awaitable[Answer]]

_READ = ("GET", "HEAD")
_CHANGE = ("POST",)
_STATUS_FRESH_SECONDS = 1.0
"""However many look at the status, it is judged anew once in this time; the fast tier brings no news sooner."""

logger = logging.getLogger(__name__)


class Source(Protocol):
    """Where the answers come from."""

    def page(self, accept: str, names: tuple[str, ...], gzipped: bool) -> Page:  # noqa: FBT001 - a fact of the client
        """The latest samples, encoded.

        Args:
            accept: the client's Accept header, "" where it sent none.
            names: the metric families wanted; empty for all, and then the answer must be at hand at once.
            gzipped: whether the client takes gzip.
        """

    def scraped(self) -> None:
        """Count one answered scrape."""

    def alive(self) -> str | None:
        """Why this process should be restarted; None where it should be left running."""

    def ready(self) -> str | None:
        """What the first samples still lack; None once they are taken."""

    def status_page(self) -> Answer:
        """The page for people; may take tens of milliseconds, and is never called while a verdict is made."""

    def verdict(self) -> Answer:
        """The verdict for programs; as `status_page`."""

    def verdict_lines(self) -> Answer:
        """The verdict for shell scripts; as `status_page`."""

    def release(self) -> None:
        """Let go of every GPU, so that one can be reset or its driver unbound."""

    def acquire(self) -> None:
        """Take the GPUs back."""


class WebApp:
    """The web application.

    Args:
        source: asked at each request.
        lifecycle: whether GPUs can be released and acquired over HTTP.
        telemetry_path: URL path of the metrics.
        max_requests: scrapes prepared at the same time; more are turned away with 503. Who does not read what was
            prepared takes no place here: the server bounds those (`Limits.unread`).

    Raises:
        ConfigError: `telemetry_path` is not an absolute path or is taken by another page.
    """

    def __init__(
        self,
        source: Source,
        *,
        lifecycle: bool = False,
        telemetry_path: str = "/metrics",
        max_requests: int = 40,
    ) -> None:
        self._source = source
        self._telemetry_path = telemetry_path
        self._max_requests = max_requests
        self._scrapes = 0
        self._failing: set[str] = set()
        # Encoding a selection of families takes milliseconds and each client may want another one; the loop
        # must go on answering probes meanwhile. A full page is encoded beforehand: handing it to a thread
        # and back would cost more than it takes.
        self._encoders = ThreadPoolExecutor(max_workers=2, thread_name_prefix="encode")
        # One thread: a page and a verdict take turns, and no flood of them takes a second core from the host's jobs.
        self._judge = ThreadPoolExecutor(max_workers=1, thread_name_prefix="judge")
        self._verdict_json = _Shared(source.verdict, self._judge)
        self._verdict_lines = _Shared(source.verdict_lines, self._judge)
        self._routes: dict[str, tuple[tuple[str, ...], _Route]] = {
            "/": (_READ, _Shared(source.status_page, self._judge).answer),
            RUNBOOKS_PATH: (_READ, self._runbook),
            RUNBOOKS_PATH.rstrip("/"): (_READ, _to_runbooks),
            VERDICT_PATH: (_READ, self._verdict),
            HEALTHY_PATH: (_READ, _probe(source.alive, "healthy")),
            READY_PATH: (_READ, _probe(source.ready, "ready")),
        }
        if lifecycle:
            self._routes[RELEASE_PATH] = (_CHANGE, _order(source.release, "releasing"))
            self._routes[ACQUIRE_PATH] = (_CHANGE, _order(source.acquire, "acquiring"))
        taken = telemetry_path in self._routes or telemetry_path.startswith(RUNBOOKS_PATH)
        if taken or not telemetry_path.startswith("/"):
            raise ConfigError(
                f"--web.telemetry-path {telemetry_path!r}: must start with a slash and be none of "
                f"{', '.join(self._routes)}"
            )
        self._routes[telemetry_path] = (_READ, self._metrics)

    async def respond(self, request: Request) -> Answer:
        """The answer to one request."""
        scrape = request.path == self._telemetry_path
        if scrape and self._scrapes >= self._max_requests:
            return text(503, "too many scrapes at one time", RETRY)
        self._scrapes += scrape
        try:
            return await self._answer(request)
        finally:
            self._scrapes -= scrape

    def close(self) -> None:
        """Drop the work that nobody waits for any more; returns at once."""
        for executor in (self._encoders, self._judge):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, request: Request) -> Answer:
        path = RUNBOOKS_PATH if request.path.startswith(RUNBOOKS_PATH) else request.path
        if path not in self._routes:
            return text(404, "not found")
        methods, route = self._routes[path]
        if request.method not in methods:
            return text(405, "method not allowed", (b"allow", ", ".join(methods).encode()))
        try:
            answer = await route(request)
        except Exception:
            # Once until it works again: what every scrape hits must not fill the log.
            if path not in self._failing:
                self._failing.add(path)
                logger.exception("cannot answer %s", path)
            return text(500, "internal error")
        self._failing.discard(path)
        return answer

    async def _metrics(self, request: Request) -> Answer:
        try:
            names = metric_names(request.query)
        except QueryError as error:
            return text(400, str(error))
        accept = request.header(b"accept")
        gzip = accepts_gzip(request.header(b"accept-encoding"))
        if names:
            loop = asyncio.get_running_loop()
            page = await loop.run_in_executor(self._encoders, self._source.page, accept, names, gzip)
        else:
            page = self._source.page(accept, names, gzip)
        self._source.scraped()
        vary = (b"vary", b"accept, accept-encoding")
        encoding = ((b"content-encoding", b"gzip"),) if page.gzipped else ()
        return Answer(200, page.body, page.content_type, (vary, *encoding))

    async def _verdict(self, request: Request) -> Answer:
        lines = prefers_text(request.header(b"accept"))
        answer = await (self._verdict_lines if lines else self._verdict_json).answer(request)
        return replace(answer, headers=(*answer.headers, (b"vary", b"accept")))

    async def _runbook(self, request: Request) -> Answer:
        name, plain = request.path.removeprefix(RUNBOOKS_PATH), prefers_text(request.header(b"accept"))
        return await asyncio.get_running_loop().run_in_executor(self._judge, _runbook, name, plain)


class _Shared:
    """An answer that takes too long for the event loop and is wanted by many: made once for all who ask in a second."""

    def __init__(self, make: Callable[[], Answer], executor: Executor) -> None:
        self._make = make
        self._executor = executor
        self._begun_at = 0.0
        self._made: asyncio.Future[Answer] | None = None

    async def answer(self, _request: Request) -> Answer:
        loop = asyncio.get_running_loop()
        if self._made is None or (self._made.done() and loop.time() - self._begun_at >= _STATUS_FRESH_SECONDS):
            self._begun_at = loop.time()
            self._made = loop.run_in_executor(self._executor, self._make)
        # One client that goes away must not take the answer from the others.
        return await asyncio.shield(self._made)


def _runbook(name: str, plain: bool) -> Answer:  # noqa: FBT001 - an executor passes no keywords
    # Here and not above: a daemon that nobody asks for a runbook never loads what renders them.
    from gpu_triage.web.page.runbook import runbook_answer  # noqa: PLC0415

    return runbook_answer(name, plain=plain)


async def _to_runbooks(_request: Request) -> Answer:
    # Relative, so that it holds behind a proxy that puts a prefix before every path.
    return text(308, "moved", (b"location", b"runbooks/"))


def _probe(complain: Callable[[], str | None], praise: str) -> _Route:
    async def answer(_request: Request) -> Answer:
        complaint = complain()
        return text(200, praise) if complaint is None else text(503, complaint)

    return answer


def _order(carry_out: Callable[[], None], confirmation: str) -> _Route:
    async def answer(request: Request) -> Answer:
        if request.header(b"origin"):
            # Only browsers send it: no page that somebody happens to have open may give orders here.
            return text(403, "not from a browser")
        carry_out()
        return text(202, confirmation)

    return answer
