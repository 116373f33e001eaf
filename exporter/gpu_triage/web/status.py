"""The exporter's verdict on its own host, for people and for programs, from its last judgement; asks no hardware."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from gpu_triage import __version__
from gpu_triage.config import Config
from gpu_triage.diagnosis.daemon_judge import DaemonJudge
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
    """Shows the last judgement. What draws it is loaded when first asked: no scrape needs its memory.

    Args:
        sampler: whose samples are judged.
        judge: who judges them.
        config: of the exporter.
        alive: why the sampler publishes nothing any more; None while it does.
    """

    def __init__(self, sampler: Sampler, judge: DaemonJudge, config: Config, alive: Callable[[], str | None]) -> None:
        self._sampler = sampler
        self._judge = judge
        self._config = config
        self._alive = alive

    def status_page(self) -> Document:
        """As StatusSource."""
        from gpu_triage.web.page.document import PageFacts, document  # noqa: PLC0415 - see the class
        from gpu_triage.web.page.style import content_security_policy  # noqa: PLC0415 - likewise

        facts = PageFacts(
            version=__version__,
            host=self._judge.subject.name,
            scenario=self._config.simulate,
            telemetry_path=self._config.web_telemetry_path,
            silence=self._alive(),
            waiting_for=self._sampler.waiting_for(),
            judge_failed=self._judge_failed(),
        )
        return Document(document(self._judge.latest, facts), content_security_policy())

    def verdict(self) -> Verdict:
        """As StatusSource."""
        from gpu_triage.diagnosis.machine_readable import FORMAT, VERSION, render_json  # noqa: PLC0415 - see the class

        latest, why_not = self._judge.latest, self._why_no_verdict()
        if latest is None or why_not is not None:
            error = {"format": FORMAT, "version": VERSION, "error": why_not or "nothing was judged yet"}
            return Verdict(json.dumps(error, indent=2).encode() + b"\n", given=False)
        return Verdict(render_json(latest.report).encode(), given=True)

    def _why_no_verdict(self) -> str | None:
        silence, waiting_for = self._alive(), self._sampler.waiting_for()
        if silence is not None:
            return silence
        if self._judge_failed():
            return "the judge failed; the exporter's log has the cause"
        presence = self._sampler.presence
        driver_failed = presence is not None and presence.driver_error is not None
        # A driver that hangs from the start is a verdict of its own, not something to wait for.
        return None if waiting_for is None or driver_failed else f"waiting for {waiting_for}"

    def _judge_failed(self) -> bool:
        health = self._sampler.judge_health
        return health is not None and health.success is False
