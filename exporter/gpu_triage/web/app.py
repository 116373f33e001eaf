"""The ASGI application: metrics, health, the status page, the verdict and the runbooks, each from a source at hand."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from gpu_triage.errors import ConfigError
from gpu_triage.web.answer import Answer, Receive, Scope, Send, deliver, text
from gpu_triage.web.negotiation import QueryError, accepts_gzip, header, metric_names
from gpu_triage.web.runbooks import PREFIX, Runbooks
from gpu_triage.web.shared import Shared
from gpu_triage.web.status import Document, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    _Route = tuple[tuple[str, ...], Callable[[Scope], Awaitable[Answer]]]

HEALTHY_PATH = "/-/healthy"
READY_PATH = "/-/ready"
VERDICT_PATH = "/api/v1/verdict"
RELEASE_PATH = "/-/release"
ACQUIRE_PATH = "/-/acquire"
_READ = ("GET", "HEAD")
_CHANGE = ("POST",)
_JSON = "application/json"
_RETRY_AFTER_SECONDS = b"1"
_STATUS_FRESH_SECONDS = 1.0
"""However many look at the status, it is judged anew once in this time; the fast tier brings no news sooner."""

logger = logging.getLogger(__name__)


class Page(Protocol):
    """One encoded page of metrics."""

    @property
    def body(self) -> bytes:
        """As it goes over the wire."""

    @property
    def content_type(self) -> str:
        """Media type of the chosen exposition format, with version and charset."""

    @property
    def gzipped(self) -> bool:
        """Whether the body is gzip."""


class MetricsSource(Protocol):
    """Where the metrics come from."""

    def page(self, accept: str, names: tuple[str, ...], gzipped: bool) -> Page:  # noqa: FBT001 - a fact of the client
        """The latest samples, encoded.

        Args:
            accept: the client's Accept header, "" where it sent none.
            names: the metric families wanted; empty for all, and then the answer must be at hand at once.
            gzipped: whether the client takes gzip.
        """

    def scraped(self) -> None:
        """Count one answered scrape."""


class HealthSource(Protocol):
    """What the probes are told."""

    def alive(self) -> str | None:
        """Why this process should be restarted; None where it should be left running."""

    def ready(self) -> str | None:
        """What the first samples still lack; None once they are taken."""


class StatusSource(Protocol):
    """The verdict on the host. Both may take tens of milliseconds, and are never called at the same time."""

    def status_page(self) -> Document:
        """The page for people, as of now."""

    def verdict(self) -> Verdict:
        """The verdict for programs, as of now."""


class LifecycleSource(Protocol):
    """What can be asked of the daemon."""

    def release(self) -> None:
        """Let go of every GPU, so that one can be reset or its driver unbound."""

    def acquire(self) -> None:
        """Take the GPUs back."""


class WebApp:
    """The ASGI application.

    Args:
        metrics: asked once a scrape.
        health: asked by the probes.
        status: asked by the status page and the verdict.
        lifecycle: told to release and acquire; None where that is not allowed over HTTP.
        telemetry_path: URL path of the metrics.
        max_requests: scrapes prepared at the same time; more are turned away with 503. Who does not read what was
            prepared takes no place here: the server bounds those (`Limits.unread`).

    Raises:
        ConfigError: `telemetry_path` is not an absolute path or is taken by another page.
    """

    def __init__(
        self,
        metrics: MetricsSource,
        health: HealthSource,
        status: StatusSource,
        *,
        lifecycle: LifecycleSource | None = None,
        telemetry_path: str = "/metrics",
        max_requests: int = 40,
    ) -> None:
        self._metrics = metrics
        self._health = health
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
        self._page = Shared(status.status_page, self._judge, _STATUS_FRESH_SECONDS)
        self._verdict = Shared(status.verdict, self._judge, _STATUS_FRESH_SECONDS)
        self._runbooks = Runbooks()
        self._routes: dict[str, _Route] = {
            "/": (_READ, self._page_answer),
            PREFIX: (_READ, self._runbook_answer),
            PREFIX.rstrip("/"): (_READ, self._runbooks_moved),
            VERDICT_PATH: (_READ, self._verdict_answer),
            HEALTHY_PATH: (_READ, self._healthy_answer),
            READY_PATH: (_READ, self._ready_answer),
        }
        if lifecycle is not None:
            self._routes[RELEASE_PATH] = (_CHANGE, _order(lifecycle.release, "releasing"))
            self._routes[ACQUIRE_PATH] = (_CHANGE, _order(lifecycle.acquire, "acquiring"))
        if not telemetry_path.startswith("/") or telemetry_path in self._routes or telemetry_path.startswith(PREFIX):
            raise ConfigError(
                f"--web.telemetry-path {telemetry_path!r}: must start with a slash and be none of "
                f"{', '.join(self._routes)}"
            )
        self._routes[telemetry_path] = (_READ, self._metrics_answer)

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request; the body, if any, is left unread (the protocol bounds it)."""
        scrape = scope["path"] == self._telemetry_path
        if scrape and self._scrapes >= self._max_requests:
            await deliver(text(503, "too many scrapes at one time", ((b"retry-after", _RETRY_AFTER_SECONDS),)), send)
            return
        self._scrapes += scrape
        try:
            answer = await self._answer(scope)
        except asyncio.CancelledError:
            # Only the server's end cancels, and the client is gone by then; uvicorn would log a failure.
            logger.debug("a request was given up at the end")
            return
        finally:
            self._scrapes -= scrape
        await deliver(answer, send)

    def close(self) -> None:
        """Drop the work that nobody waits for any more; returns at once."""
        for executor in (self._encoders, self._judge):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, scope: Scope) -> Answer:
        path = PREFIX if scope["path"].startswith(PREFIX) else scope["path"]
        if path not in self._routes:
            return text(404, "not found")
        methods, route = self._routes[path]
        if scope["method"] not in methods:
            return text(405, "method not allowed", ((b"allow", ", ".join(methods).encode()),))
        try:
            answer = await route(scope)
        except Exception:
            # Once until it works again: what every scrape hits must not fill the log.
            if path not in self._failing:
                self._failing.add(path)
                logger.exception("cannot answer %s", path)
            return text(500, "internal error")
        self._failing.discard(path)
        return answer

    async def _metrics_answer(self, scope: Scope) -> Answer:
        try:
            names = metric_names(scope["query_string"])
        except QueryError as error:
            return text(400, str(error))
        accept = header(scope["headers"], b"accept")
        gzip = accepts_gzip(header(scope["headers"], b"accept-encoding"))
        if names:
            loop = asyncio.get_running_loop()
            page = await loop.run_in_executor(self._encoders, self._metrics.page, accept, names, gzip)
        else:
            page = self._metrics.page(accept, names, gzip)
        self._metrics.scraped()
        vary = (b"vary", b"accept, accept-encoding")
        encoding = ((b"content-encoding", b"gzip"),) if page.gzipped else ()
        return Answer(200, page.body, page.content_type, (vary, *encoding))

    async def _healthy_answer(self, _scope: Scope) -> Answer:
        return _verdict(self._health.alive(), "healthy")

    async def _ready_answer(self, _scope: Scope) -> Answer:
        return _verdict(self._health.ready(), "ready")

    async def _page_answer(self, _scope: Scope) -> Answer:
        page = await self._page.get()
        policy = (b"content-security-policy", page.policy)
        return Answer(200, page.body, "text/html; charset=utf-8", (policy, (b"referrer-policy", b"no-referrer")))

    async def _runbook_answer(self, scope: Scope) -> Answer:
        loop = asyncio.get_running_loop()
        accept = header(scope["headers"], b"accept")
        return await loop.run_in_executor(self._judge, self._runbooks.answer, scope["path"], accept)

    async def _runbooks_moved(self, _scope: Scope) -> Answer:
        # Relative, so that it holds behind a proxy that puts a prefix before every path.
        return text(308, "moved", ((b"location", b"runbooks/"),))

    async def _verdict_answer(self, _scope: Scope) -> Answer:
        verdict = await self._verdict.get()
        if verdict.given:
            return Answer(200, verdict.body, _JSON)
        return Answer(503, verdict.body, _JSON, ((b"retry-after", _RETRY_AFTER_SECONDS),))


def _order(carry_out: Callable[[], None], confirmation: str) -> Callable[[Scope], Awaitable[Answer]]:
    async def answer(scope: Scope) -> Answer:
        if header(scope["headers"], b"origin"):
            # Only browsers send it: no page that somebody happens to have open may give orders here.
            return text(403, "not from a browser")
        carry_out()
        return text(202, confirmation)

    return answer


def _verdict(complaint: str | None, praise: str) -> Answer:
    return text(200, praise) if complaint is None else text(503, complaint)
