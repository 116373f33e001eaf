"""Serves outcomes as bytes. Each collector's page is encoded once per change; a scrape only joins pages.

Metric families never span collectors, so pages can be joined in any order.
"""

import logging
import math
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

from gpu_triage.log import fields
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_TIME_SECONDS
from gpu_triage.read.selection import Selection
from gpu_triage.sampler.outcomes import HOST, Outcome
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.serve.exposition.encoding import END, Encoder, Format
from gpu_triage.serve.exposition.process import Process, process_samples
from gpu_triage.serve.messages import Answer, weighted

log = logging.getLogger(__name__)

_AHEAD_SECONDS: Final = 3.0
"""A format not requested for this long is encoded on request instead of at each publication; most scrapers come every
15 s."""

_LONGEST_SECONDS: Final = 3.0
"""How long any response is reused; limited, because it contains the time of the scrape."""


@dataclass(slots=True)
class _CollectorPage:
    """A collector's page in one format."""

    encoder: Encoder  # encodes the page
    outcomes: Mapping[str, Outcome] | None = None  # those shown, by subject
    good_until: float = -math.inf  # monotonic seconds after which one of the outcomes is stale
    body: bytes = b""  # the encoded page


class _WholePage(NamedTuple):
    """The body of a response, and the monotonic second after which something in it is stale."""

    body: bytes
    good_until: float


class Exposition:
    """Keeps the pages of all collectors of a sampler encoded, in the formats that clients request."""

    def __init__(self, sampler: Sampler, selection: Selection) -> None:
        self._store = sampler.store
        self._clock = sampler.freshness.clock
        self._expires_at = sampler.freshness.expires_at
        self._shown = selection
        # Kept, because it keeps its start: setting the system clock must not look like a restart.
        self._process = cache(Process)
        self._process_encoders = {form: Encoder(form) for form in Format}
        self._encoding = threading.Lock()
        self._pages: dict[tuple[Format, str], _CollectorPage] = {}
        self._whole: dict[tuple[Format, bool], _WholePage] = {}
        self._wanted_at: dict[tuple[Format, bool], float] = {}

    def refresh(self) -> None:
        """Encode changes in the usual formats, on the sampler's thread: until then, scrapes get the last response."""
        now = time.monotonic()
        with self._encoding:
            for (form, gzipped), wanted_at in tuple(self._wanted_at.items()):
                if now - wanted_at > _AHEAD_SECONDS:
                    self._whole.pop((form, gzipped), None)
                else:
                    self._whole[form, gzipped] = self._encode_page(form, gzipped=gzipped)

    def page(self, accept: str, names: tuple[str, ...], gzipped: bool) -> Answer:  # noqa: FBT001 - a client property
        """The metrics as the header `accept` prefers; only those with these exposed `names`, all if there are none."""
        form = negotiate(accept)
        if names:
            body = self._selection(form, frozenset(names))
            return Answer(200, gzipped_page(body) if gzipped else body, form.value)
        page = self._page_at_hand(form, gzipped=gzipped)
        if page is None:
            with self._encoding:
                # Another thread may have encoded it while this one waited for the lock.
                page = self._page_at_hand(form, gzipped=gzipped) or self._encode_page(form, gzipped=gzipped)
                self._whole[form, gzipped] = page
        self._wanted_at[form, gzipped] = time.monotonic()
        return Answer(200, page.body, form.value)

    def _page_at_hand(self, form: Format, *, gzipped: bool) -> _WholePage | None:
        """The page as last encoded; None before the first, or if some of it is stale by now."""
        # Checked at each scrape, because after a hang or the sampler's end there is no publication to trigger it.
        page = self._whole.get((form, gzipped))
        return None if page is None or self._now() > page.good_until else page

    def _encode_page(self, form: Format, *, gzipped: bool) -> _WholePage:
        now = self._now()
        pages = [self._collector_page(form, name, now) for name in self._store.collectors]
        own = self._process_encoders[form].encode((self._own_outcome(),)) + _end(form)
        good_until = min(now + _LONGEST_SECONDS, min((page.good_until for page in pages), default=math.inf))
        body = b"".join((*(page.body for page in pages), own))
        return _WholePage(gzipped_page(body) if gzipped else body, good_until)

    def _now(self) -> float:
        return self._clock.now().monotonic

    def _fresh(self, outcomes: Mapping[str, Outcome], now: float) -> list[Outcome]:
        return [outcome for outcome in outcomes.values() if now <= self._expires_at(outcome)]

    def _collector_page(self, form: Format, collector: str, now: float) -> _CollectorPage:
        page = self._pages.get((form, collector))
        if page is None:
            page = self._pages[form, collector] = _CollectorPage(Encoder(form, self._shown))
        outcomes = self._store.of(collector)
        if page.outcomes is outcomes and now <= page.good_until:
            return page
        fresh = self._fresh(outcomes, now)
        page.outcomes, page.good_until = outcomes, min(map(self._expires_at, fresh), default=math.inf)
        try:
            page.body = page.encoder.encode(fresh)
        except Exception:
            # One collector's encoding error must not affect the others' pages.
            log.exception("encoding failed", extra=fields(collector=collector))
            page.body = b""
        return page

    def _selection(self, form: Format, names: frozenset[str]) -> bytes:
        now, pages_of = self._now(), map(self._store.of, self._store.collectors)
        chosen = ([_only(outcome, names) for outcome in self._fresh(outcomes, now)] for outcomes in pages_of)
        pages = [Encoder(form, self._shown).encode(outcomes) for outcomes in chosen]
        own = Encoder(form).encode((_only(self._own_outcome(), names),))
        return b"".join((*pages, own, _end(form)))

    def _own_outcome(self) -> Outcome:
        """Metrics about this process, which have no collector: read when a page is encoded."""
        at = self._clock.now()
        time_now = GPU_EXPORTER_TIME_SECONDS.sample(round(at.wall, 3))
        samples = (*self._shown.of((time_now,)), *process_samples(self._process))
        return Outcome("process", HOST, samples, at)


def negotiate(accept: str) -> Format:
    """OpenMetrics for clients that weight it at least as high as the text format, text for all others."""
    weights = {Format.TEXT: 0.0, Format.OPENMETRICS: 0.0}
    for media_type, options, weight in weighted(accept):
        if media_type == "application/openmetrics-text" and options.get("version", "1.0.0") == "1.0.0":
            weights[Format.OPENMETRICS] = max(weights[Format.OPENMETRICS], weight)
        elif media_type in {"text/plain", "text/*", "*/*"}:
            weights[Format.TEXT] = max(weights[Format.TEXT], weight)
    best = weights[Format.OPENMETRICS]
    return Format.OPENMETRICS if best > 0 and best >= weights[Format.TEXT] else Format.TEXT


def _end(form: Format) -> bytes:
    return END if form is Format.OPENMETRICS else b""


def _only(outcome: Outcome, names: frozenset[str]) -> Outcome:
    """The outcome reduced to the series with these names; a family from elsewhere is kept if it contains one."""
    return replace(
        outcome,
        samples=tuple(sample for sample in outcome.samples if sample.spec.name in names),
        foreign=tuple(family for family in outcome.foreign if any(s.name in names for s in family.samples)),
    )


_LEVEL: Final = 1
"""Level 9 would take five times as long to save a tenth."""


def gzipped_page(page: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=zlib.MAX_WBITS | 16)
    return packer.compress(page) + packer.flush()
