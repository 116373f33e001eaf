"""Data source of the web application in a running exporter: metrics, health, and the verdict on its host."""

import json
import logging
from collections.abc import Callable
from typing import Final

from gpu_triage import __version__
from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.options.config import Config
from gpu_triage.read.selection import Selection
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.serve.app import WebApp
from gpu_triage.serve.exposition.page import Exposition
from gpu_triage.serve.messages import RETRY, Answer, html, text

_JSON: Final = "application/json"

log = logging.getLogger(__name__)


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

    def application(self) -> WebApp:
        return WebApp(
            self,
            lifecycle=self._config.web_enable_lifecycle,
            telemetry_path=self._config.web_telemetry_path,
            max_requests=self._config.web_max_requests,
        )

    def scraped(self) -> None:
        self._sampler.status.scrapes += 1

    def release(self) -> None:
        log.info("releasing the GPUs")
        self._sampler.release()

    def acquire(self) -> None:
        log.info("reacquiring the GPUs")
        self._sampler.acquire()

    def status_page(self) -> Answer:
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
        return html(document(self._judge.latest, facts), POLICY)

    def verdict(self, *, as_lines: bool) -> Answer:
        """The verdict as `gpu-triage check` prints it, as JSON or lines, or a 503 with the reason."""
        from gpu_triage.judge.report.machine_readable import FORMAT, VERSION, render_json, render_lines  # noqa: PLC0415 - lazy, see the class

        latest, why_not = self._judge.latest, self._why_no_verdict()
        if latest is not None and why_not is None:
            if as_lines:
                return text(200, render_lines(latest.report).rstrip("\n"))
            return Answer(200, render_json(latest.report).encode(), _JSON)
        why_not = why_not or "nothing was judged yet"
        if as_lines:
            return text(503, why_not, RETRY)
        error = {"format": FORMAT, "version": VERSION, "error": why_not}
        return Answer(503, json.dumps(error, indent=2).encode() + b"\n", _JSON, (RETRY,))

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
