"""The sources of the web application, for tests of what is put before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gpu_triage.web.status import Document, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
VERDICT = Verdict(b'{"verdict": "keep"}', given=True)
PAGE = Document(b"<!DOCTYPE html><p>Keep</p>", b"default-src 'none'")


class Encoded(NamedTuple):
    """One page of metrics, as `web.app.Page`."""

    body: bytes
    content_type: str
    gzipped: bool


@dataclass
class Host:
    """All three sources of a host where all is well, with what they were asked.

    Attributes:
        body: the metrics.
        hold: called while a selection of metrics or a verdict is made; that takes as long as this does.
        asked: of each page of metrics: Accept, names, gzip.
        scrapes: answered so far.
        dead, unready: what the probes are told.
        given: the verdict.
        judged: what was asked of the status, in order.
        broken: whether metrics and status page cannot be made.
    """

    body: bytes = b"gpu_up 1\n"
    hold: Callable[[], object] = lambda: None
    asked: list[tuple[str, tuple[str, ...], bool]] = field(default_factory=list)
    scrapes: int = 0
    dead: str | None = None
    unready: str | None = None
    given: Verdict = VERDICT
    judged: list[str] = field(default_factory=list)
    broken: bool = False

    def page(self, accept: str, names: tuple[str, ...], gzip: bool) -> Encoded:  # noqa: FBT001 - the contract's
        """As MetricsSource."""
        self.asked.append((accept, names, gzip))
        if self.broken:
            raise RuntimeError("secret of the encoder")
        if names:
            self.hold()
        return Encoded(self.body, OPENMETRICS, gzip)

    def scraped(self) -> None:
        """As MetricsSource."""
        self.scrapes += 1

    def alive(self) -> str | None:
        """As HealthSource."""
        return self.dead

    def ready(self) -> str | None:
        """As HealthSource."""
        return self.unready

    def status_page(self) -> Document:
        """As StatusSource."""
        self.judged.append("page")
        if self.broken:
            raise RuntimeError("secret of the judges")
        return PAGE

    def verdict(self) -> Verdict:
        """As StatusSource."""
        self.judged.append("verdict")
        self.hold()
        return self.given
