"""The web application: metrics, health, status page, verdict and runbooks."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final

from gpu_triage import __version__
from gpu_triage.errors import ConfigError
from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.options.config import Config
from gpu_triage.read.selection import Selection
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.serve import messages
from gpu_triage.serve.exposition.page import Exposition

_Route = Callable[[messages.Request], Awaitable[messages.Answer]]
_JSON: Final = "application/json"
_READ = ("GET", "HEAD")
_CHANGE = ("POST",)
_STATUS_FRESH_SECONDS = 1.0
"""The status is judged at most this often, however many clients request it; the fast tier isn't more frequent."""

logger = logging.getLogger(__name__)


class WebApp:
    """The web application; raises ConfigError if the telemetry path is not an absolute path or is taken.

    More than `web_max_requests` scrapes at a time get a 503; clients that don't read their response don't count here,
    since the server limits those (`Limits.unread`).
    """

    def __init__(self, source: ExporterBackend, config: Config) -> None:
        self._source = source
        self._max_scrapes = config.web_max_requests
        self._scrapes = 0
        self._failing: set[str] = set()
        # Encoding a selection of metric families takes milliseconds, and each client may select others; the event
        # loop must still answer probes meanwhile. The full page is encoded in advance: handing it to a thread would
        # cost more than sending it.
        self._encoders = ThreadPoolExecutor(max_workers=2, thread_name_prefix="encode")
        # One thread, so that page and verdict requests can't take more than one core from the host's jobs.
        self._judge = ThreadPoolExecutor(max_workers=1, thread_name_prefix="judge")
        self._verdicts = {
            lines: _Shared(partial(source.verdict, as_lines=lines), self._judge) for lines in (False, True)
        }
        self._routes: dict[str, tuple[tuple[str, ...], _Route]] = {
            "/": (_READ, _Shared(source.status_page, self._judge).answer),
            messages.RUNBOOKS_PATH: (_READ, self._runbook),
            messages.RUNBOOKS_PATH.rstrip("/"): (_READ, _to_runbooks),
            messages.VERDICT_PATH: (_READ, self._verdict),
            messages.HEALTHY_PATH: (_READ, _probe(source.alive, "healthy")),
            messages.READY_PATH: (_READ, _probe(source.ready, "ready")),
        }
        if config.web_enable_lifecycle:
            self._routes[messages.RELEASE_PATH] = (_CHANGE, _order(source.release, "releasing"))
            self._routes[messages.ACQUIRE_PATH] = (_CHANGE, _order(source.acquire, "acquiring"))
        own = config.web_telemetry_path
        if own in self._routes or own.startswith(messages.RUNBOOKS_PATH) or not own.startswith("/"):
            raise ConfigError(
                f"--web.telemetry-path {own!r}: must start with a slash and be none of {', '.join(self._routes)}"
            )
        self._routes[own] = (_READ, self._metrics)

    def close(self) -> None:
        for executor in (self._encoders, self._judge):
            executor.shutdown(wait=False, cancel_futures=True)

    async def respond(self, request: messages.Request) -> messages.Answer:
        path = messages.RUNBOOKS_PATH if request.path.startswith(messages.RUNBOOKS_PATH) else request.path
        if path not in self._routes:
            return messages.text(404, "not found")
        methods, route = self._routes[path]
        if request.method not in methods:
            return messages.text(405, "method not allowed", (b"allow", ", ".join(methods).encode()))
        try:
            answer = await route(request)
        except Exception:
            # Log once until it works again, since every scrape may hit the same error.
            if path not in self._failing:
                self._failing.add(path)
                logger.exception("cannot answer %s", path)
            return messages.text(500, "internal error")
        self._failing.discard(path)
        return answer

    async def _metrics(self, request: messages.Request) -> messages.Answer:
        if self._scrapes >= self._max_scrapes:
            return messages.text(503, "too many scrapes at one time", messages.RETRY)
        try:
            names = messages.metric_names(request.query)
        except messages.QueryError as error:
            return messages.text(400, str(error))
        accept = request.header(b"accept")
        gzip = messages.accepts_gzip(request.header(b"accept-encoding"))
        if names:
            self._scrapes += 1
            try:
                loop = asyncio.get_running_loop()
                page = await loop.run_in_executor(self._encoders, self._source.page, accept, names, gzip)
            finally:
                self._scrapes -= 1
        else:
            page = self._source.page(accept, names, gzip)
        self._source.scraped()
        encoding = ((b"content-encoding", b"gzip"),) if gzip else ()
        return replace(page, headers=((b"vary", b"accept, accept-encoding"), *encoding))

    async def _verdict(self, request: messages.Request) -> messages.Answer:
        answer = await self._verdicts[messages.prefers_text(request.header(b"accept"))].answer(request)
        return replace(answer, headers=(*answer.headers, (b"vary", b"accept")))

    async def _runbook(self, request: messages.Request) -> messages.Answer:
        name, loop = request.path.removeprefix(messages.RUNBOOKS_PATH), asyncio.get_running_loop()
        plain = messages.prefers_text(request.header(b"accept"))
        return await loop.run_in_executor(self._judge, _runbook, name, plain)


class _Shared:
    """A slow response that many clients want: computed in a thread, and shared by all requests within a second."""

    def __init__(self, make: Callable[[], messages.Answer], executor: Executor) -> None:
        self._make = make
        self._executor = executor
        self._begun_at = 0.0
        self._made: asyncio.Future[messages.Answer] | None = None

    async def answer(self, _request: messages.Request) -> messages.Answer:
        loop = asyncio.get_running_loop()
        if self._made is None or (self._made.done() and loop.time() - self._begun_at >= _STATUS_FRESH_SECONDS):
            self._begun_at = loop.time()
            self._made = loop.run_in_executor(self._executor, self._make)
        # A client that disconnects must not cancel the response for the others.
        return await asyncio.shield(self._made)


def _runbook(name: str, plain: bool) -> messages.Answer:  # noqa: FBT001 - executors don't pass keyword arguments
    # Imported lazily: the renderer uses memory only once a runbook is requested.
    from gpu_triage.serve.page.runbook import runbook_answer  # noqa: PLC0415

    return runbook_answer(name, plain=plain)


async def _to_runbooks(_request: messages.Request) -> messages.Answer:
    # Relative, so that it works behind a proxy that adds a path prefix.
    return messages.text(308, "moved", (b"location", b"runbooks/"))


def _probe(complain: Callable[[], str | None], praise: str) -> _Route:
    async def answer(_request: messages.Request) -> messages.Answer:
        complaint = complain()
        return messages.text(200, praise) if complaint is None else messages.text(503, complaint)

    return answer


def _order(carry_out: Callable[[], None], confirmation: str) -> _Route:
    async def answer(request: messages.Request) -> messages.Answer:
        if request.header(b"origin"):
            # Only browsers send it: a web page open in someone's browser must not control the exporter.
            return messages.text(403, "not from a browser")
        carry_out()
        return messages.text(202, confirmation)

    return answer


class ExporterBackend:
    """Source of the web application: latest samples and judgment; never accesses hardware.

    `alive` returns why the sampler no longer publishes, or None; `scenario_progress` what happens next in a simulation.
    The renderers of page and verdict are imported on first use, because scrapes don't need them in memory.
    """

    def __init__(
        self,
        sampler: Sampler,
        judge: DaemonJudge,
        config: Config,
        alive: Callable[[], str | None],
        scenario_progress: Callable[[], str] | None = None,
    ) -> None:
        exposition = Exposition(sampler, Selection(config))
        self.published = exposition.refresh  # to be called on the sampler's thread after each publication
        self.page = exposition.page
        # Returns what the first samples are still waiting for; None once they are complete.
        self.ready = sampler.waiting_for
        self.alive = alive
        self._scenario_progress = scenario_progress
        self._sampler = sampler
        self._judge = judge
        self._config = config

    def scraped(self) -> None:
        self._sampler.status.scrapes += 1

    def release(self) -> None:
        logger.info("releasing the GPUs")
        self._sampler.driver.release()

    def acquire(self) -> None:
        logger.info("reacquiring the GPUs")
        self._sampler.driver.acquire()

    def status_page(self) -> messages.Answer:
        """The status page as HTML; may take tens of milliseconds, and never runs at the same time as `verdict`."""
        from gpu_triage.serve.page.document import PageFacts, document  # noqa: PLC0415 - lazy, see the class
        from gpu_triage.serve.page.style import POLICY  # noqa: PLC0415 - as above

        facts = PageFacts(
            version=__version__,
            host=self._judge.subject.name,
            scenario=self._config.simulate,
            scenario_progress=None if self._scenario_progress is None else self._scenario_progress(),
            telemetry_path=self._config.web_telemetry_path,
            silence=self.alive(),
            waiting_for=self.ready(),
            judge_failed=self._judge_failed(),
        )
        return messages.html(document(self._judge.latest, facts), POLICY)

    def verdict(self, *, as_lines: bool) -> messages.Answer:
        """The verdict as `gpu-triage check` prints it, as JSON or lines, or a 503 with the reason."""
        from gpu_triage.judge.report.machine_readable import FORMAT, VERSION, render_json, render_lines  # noqa: PLC0415 - lazy, see the class

        latest, why_not = self._judge.latest, self._why_no_verdict()
        if latest is not None and why_not is None:
            if as_lines:
                return messages.text(200, render_lines(latest.report).rstrip("\n"))
            return messages.Answer(200, render_json(latest.report).encode(), _JSON)
        why_not = why_not or "nothing was judged yet"
        if as_lines:
            return messages.text(503, why_not, messages.RETRY)
        error = {"format": FORMAT, "version": VERSION, "error": why_not}
        return messages.Answer(503, json.dumps(error, indent=2).encode() + b"\n", _JSON, (messages.RETRY,))

    def _why_no_verdict(self) -> str | None:
        silence, waiting_for = self.alive(), self.ready()
        if silence is not None:
            return silence
        if self._judge_failed():
            return "the judge failed; the exporter's log has the cause"
        presence = self._sampler.presence
        driver_failed = presence is not None and presence.driver_error is not None
        # A driver that hangs from the start is a verdict in itself, not something to wait for.
        return None if waiting_for is None or driver_failed else f"waiting for {waiting_for}"

    def _judge_failed(self) -> bool:
        health = self._sampler.judge_health
        return health is not None and health.success is False
