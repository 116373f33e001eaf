"""Serves outcomes as bytes. Each collector's page is encoded once per change; a scrape only joins pages.

Metric families never span collectors, so pages can be joined in any order. A deflate stream can be split at full
flushes, because the data after one doesn't refer to the data before it. So pages are compressed once per change, too,
and a single gzip member, which every client supports, is built from them. Source: RFC 1951, RFC 1952.
"""

import logging
import math
import threading
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import is_
from typing import Final, NamedTuple

from gpu_triage.log import fields
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_TIME_SECONDS
from gpu_triage.read.selection import Selection
from gpu_triage.sampler.outcomes import HOST, Outcome
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.serve.exposition.encoding import END, Encoder, Format
from gpu_triage.serve.exposition.process import process_samples
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
    version: int = -1  # version of the outcomes shown
    good_until: float = -math.inf  # monotonic seconds after which one of the outcomes is stale
    body: bytes = b""  # the encoded page


@dataclass(slots=True)
class _Run:
    """Adjacent pages that change about equally often; `packed` is their part of a gzip stream."""

    pages: tuple[bytes, ...] = ()
    packed: bytes = b""

    def part(self, pages: tuple[bytes, ...]) -> bytes:
        """Compress these pages, or reuse the last result if they are unchanged."""
        if len(pages) != len(self.pages) or not all(map(is_, pages, self.pages)):
            self.pages, self.packed = pages, deflated(b"".join(pages))
        return self.packed


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
        self._process_encoders = {form: Encoder(form) for form in Format}
        self._encoding = threading.Lock()
        self._pages: dict[tuple[Format, str], _CollectorPage] = {}
        lengths = [len(tuple(run)) for _, run in groupby(self._store.collectors, lambda name: name in sampler.often)]
        self._runs = {form: [(length, _Run()) for length in lengths] for form in Format}
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
            return Answer(200, gzip_of((body,), (deflated(body),)) if gzipped else body, form.value)
        page = self._page_at_hand(form, gzipped=gzipped)
        if page is None:
            with self._encoding:
                # Another thread may have encoded it while this one waited for the lock.
                page = self._page_at_hand(form, gzipped=gzipped)
                if page is None:
                    page = self._whole[form, gzipped] = self._encode_page(form, gzipped=gzipped)
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
        bodies = [page.body for page in pages]
        return _WholePage(self._gzip(form, bodies, own) if gzipped else b"".join((*bodies, own)), good_until)

    def _gzip(self, form: Format, bodies: list[bytes], own: bytes) -> bytes:
        """Compress the pages; runs of unchanged pages reuse the previous result."""
        rest = iter(bodies)
        packed = [run.part(tuple(islice(rest, length))) for length, run in self._runs[form]]
        return gzip_of((*bodies, own), (*packed, deflated(own)))

    def _now(self) -> float:
        return self._clock.now().monotonic

    def _fresh(self, collector: str, now: float) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self._store.of(collector) if now <= self._expires_at(outcome))

    def _collector_page(self, form: Format, collector: str, now: float) -> _CollectorPage:
        page = self._pages.get((form, collector))
        if page is None:
            page = self._pages[form, collector] = _CollectorPage(Encoder(form, self._shown))
        version = self._store.version(collector)
        if page.version == version and now <= page.good_until:
            return page
        outcomes = self._store.of(collector)
        expiries = [self._expires_at(outcome) for outcome in outcomes]
        page.version = version
        page.good_until = min((at for at in expiries if now <= at), default=math.inf)
        try:
            fresh = (outcome for outcome, at in zip(outcomes, expiries, strict=True) if now <= at)
            body = page.encoder.encode(tuple(fresh))
        except Exception:
            # One collector's encoding error must not affect the others' pages.
            log.exception("encoding failed", extra=fields(collector=collector))
            body = b""
        if body != page.body:
            page.body = body
        return page

    def _selection(self, form: Format, names: frozenset[str]) -> bytes:
        now = self._now()
        chosen = ([_only(outcome, names) for outcome in self._fresh(name, now)] for name in self._store.collectors)
        pages = [Encoder(form, self._shown).encode(outcomes) for outcomes in chosen]
        own = Encoder(form).encode((_only(self._own_outcome(), names),))
        return b"".join((*pages, own, _end(form)))

    def _own_outcome(self) -> Outcome:
        """Metrics about this process, which have no collector: read when a page is encoded."""
        at = self._clock.now()
        time_now = GPU_EXPORTER_TIME_SECONDS.sample(round(at.wall, 3))
        samples = (*self._shown.of((time_now,)), *process_samples())
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

_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""No name, no timestamp, fastest level, unknown operating system."""

_LAST_BLOCK: Final = b"\x03\x00"
"""An empty block, marked as the last."""


def deflated(part: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH)


def gzip_of(parts: Iterable[bytes], packed: Iterable[bytes]) -> bytes:
    """A gzip file of these parts; `packed` are the same parts, each compressed with `deflated`."""
    checksum = length = 0
    for part in parts:
        checksum, length = zlib.crc32(part, checksum), length + len(part)
    trailer = checksum.to_bytes(4, "little") + (length & 0xFFFFFFFF).to_bytes(4, "little")
    return b"".join((_HEADER, *packed, _LAST_BLOCK, trailer))
