"""The exporter's verdict on its own host, for people and for programs; made on request, from memory alone."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from typing import NamedTuple

from gpu_triage import __version__
from gpu_triage.config import Config
from gpu_triage.sampler.recent import RecentOutcomes
from gpu_triage.sampler.sampler import Sampler


class Document(NamedTuple):
    """A page for people.

    Attributes:
        body: HTML in UTF-8.
        policy: its Content-Security-Policy.
    """

    body: bytes
    policy: bytes


class Verdict(NamedTuple):
    """The verdict for programs.

    Attributes:
        body: JSON, as `gpu-triage check --format json` writes it; where there is none, an object with `error`.
        given: whether there is one.
    """

    body: bytes
    given: bool


class StatusBoard:
    """Judges what a sampler published lately. The judges are loaded when first asked: no scrape needs their memory.

    Args:
        sampler: whose samples.
        recent: what it published lately.
        config: of the exporter.
        alive: why the sampler publishes nothing any more; None while it does.
    """

    def __init__(
        self, sampler: Sampler, recent: RecentOutcomes, config: Config, alive: Callable[[], str | None]
    ) -> None:
        self._sampler = sampler
        self._recent = recent
        self._config = config
        self._alive = alive
        self._host = config.simulate or platform.node() or "this host"

    def status_page(self) -> Document:
        """As StatusSource."""
        from gpu_triage.diagnosis.standing import standing_of  # noqa: PLC0415 - see the class
        from gpu_triage.web.page.document import PageFacts, document  # noqa: PLC0415 - likewise
        from gpu_triage.web.page.style import content_security_policy  # noqa: PLC0415 - likewise

        facts = PageFacts(
            version=__version__,
            scenario=self._config.simulate,
            telemetry_path=self._config.web_telemetry_path,
            silence=self._alive(),
            waiting_for=self._sampler.waiting_for(),
            recording=None if self._config.replay is None else str(self._config.replay),
        )
        standing = standing_of(self._recent.snapshots(), self._host, time.time())
        return Document(document(standing, facts), content_security_policy())

    def verdict(self) -> Verdict:
        """As StatusSource."""
        from gpu_triage.diagnosis.machine_readable import FORMAT, VERSION, render_json  # noqa: PLC0415 - see the class
        from gpu_triage.diagnosis.standing import standing_of  # noqa: PLC0415 - likewise

        why_not = self._why_no_verdict()
        if why_not is not None:
            error = {"format": FORMAT, "version": VERSION, "error": why_not}
            return Verdict(json.dumps(error, indent=2).encode() + b"\n", given=False)
        report = standing_of(self._recent.snapshots(), self._host, time.time()).report
        return Verdict(render_json(report).encode(), given=True)

    def _why_no_verdict(self) -> str | None:
        silence, waiting_for = self._alive(), self._sampler.waiting_for()
        if silence is not None:
            return silence
        if not self._recent.snapshots():
            return "nothing was published yet"
        presence = self._sampler.presence
        driver_failed = presence is not None and presence.driver_error is not None
        # A driver that hangs from the start is a verdict of its own, not something to wait for.
        return None if waiting_for is None or driver_failed else f"waiting for {waiting_for}"
