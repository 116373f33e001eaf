"""Outcomes to bytes. Each collector's page is encoded once per change; a scrape only joins pages.

The encoding itself is prometheus_client's. Families never span collectors, so pages can be joined in any order.
"""

from __future__ import annotations

import gzip
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from prometheus_client import Metric, ProcessCollector
from prometheus_client.exposition import generate_latest as generate_text
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.samples import Sample as WireSample

from gpu_triage.catalogue import Kind, MetricSpec
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore

log = logging.getLogger(__name__)

_ESCAPING: Final = "allow-utf-8"
"""Of names; ours need none. The default goes through each name character by character, for half the time of a page."""

_END: Final = b"# EOF\n"
_GZIP_LEVEL: Final = 1
"""Level 9 costs five times the time for a tenth less."""

_WANTED_FOR_SECONDS: Final = 300.0
"""A format not asked for in so long is no longer kept encoded."""

_LONGEST_ACCEPT: Final = 2048


class Format(Enum):
    """An exposition format and its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Page(NamedTuple):
    """An answer to a scrape.

    Attributes:
        body: encoded metrics, compressed if `gzipped`.
        content_type: of the format.
        gzipped: whether the body is compressed.
    """

    body: bytes
    content_type: str
    gzipped: bool


@dataclass(frozen=True, slots=True)
class _Encoded:
    version: int
    body: bytes


class _Families(NamedTuple):
    """What prometheus_client's encoders take for a registry."""

    metrics: tuple[Metric, ...]

    def collect(self) -> Iterator[Metric]:
        """The families."""
        yield from self.metrics


class Exposition:
    """Keeps the page of every collector encoded, in the formats that are asked for."""

    def __init__(self, store: OutcomeStore) -> None:
        self._store = store
        self._process = ProcessCollector(registry=None)
        self._encoding = threading.Lock()
        self._pages: dict[tuple[Format, str], _Encoded] = {}
        self._answers: dict[tuple[Format, bool], bytes] = {}
        self._wanted_at: dict[tuple[Format, bool], float] = {}

    def refresh(self) -> None:
        """Encode what changed, in the formats that are scraped.

        Called after each publication, on the sampler's thread: scrapes go on with the answer before until the new
        one is whole, and never wait for an encoding.
        """
        horizon = time.monotonic() - _WANTED_FOR_SECONDS
        with self._encoding:
            for form, gzipped in sorted(self._wanted_at, key=lambda wanted: wanted[1]):
                if self._wanted_at[form, gzipped] < horizon:
                    self._forget(form, gzipped=gzipped)
                else:
                    self._answers[form, gzipped] = self._encode_answer(form, gzipped=gzipped)

    def page(self, accept: str, names: tuple[str, ...], gzipped: bool) -> Page:  # noqa: FBT001 - a fact of the client
        """The metrics in the format the client prefers.

        Args:
            accept: the Accept header; "" for none.
            names: only these series, by name on the wire; empty for all.
            gzipped: whether to compress.
        """
        form = negotiate(accept)
        if names:
            body = self._selection(form, frozenset(names))
            return Page(_compress(body) if gzipped else body, form.value, gzipped)
        answer = self._answers.get((form, gzipped))
        if answer is None:
            with self._encoding:
                answer = self._answers[form, gzipped] = self._encode_answer(form, gzipped=gzipped)
        self._wanted_at[form, gzipped] = time.monotonic()
        return Page(answer, form.value, gzipped)

    def _encode_answer(self, form: Format, *, gzipped: bool) -> bytes:
        pages = [self._collector_page(form, name) for name in self._store.collectors]
        pages.append(_encode(form, tuple(self._process.collect())))
        answer = b"".join(pages) + (_END if form is Format.OPENMETRICS else b"")
        return _compress(answer) if gzipped else answer

    def _collector_page(self, form: Format, collector: str) -> bytes:
        version = self._store.version(collector)
        kept = self._pages.get((form, collector))
        if kept is not None and kept.version == version:
            return kept.body
        try:
            body = _encode(form, _families(self._store.of(collector)))
        except Exception:
            # One collector that cannot be encoded must not cost the others their page.
            log.exception("encoding failed", extra={"fields": {"collector": collector}})
            body = b""
        self._pages[form, collector] = _Encoded(version, body)
        return body

    def _selection(self, form: Format, names: frozenset[str]) -> bytes:
        families = [f for name in self._store.collectors for f in _families(self._store.of(name))]
        families.extend(self._process.collect())
        chosen = tuple(family for family in families if any(s.name in names for s in family.samples))
        return _encode(form, chosen) + (_END if form is Format.OPENMETRICS else b"")

    def _forget(self, form: Format, *, gzipped: bool) -> None:
        del self._wanted_at[form, gzipped]
        self._answers.pop((form, gzipped), None)
        if not any(other is form for other, _ in self._wanted_at):
            self._pages = {key: page for key, page in self._pages.items() if key[0] is not form}


def negotiate(accept: str) -> Format:
    """OpenMetrics for clients that like it no less than the text format, text for all others."""
    weights = {Format.TEXT: 0.0, Format.OPENMETRICS: 0.0}
    for entry in accept[:_LONGEST_ACCEPT].split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        options = dict(p.split("=", 1) for p in parameters if "=" in p)
        if media_type == "application/openmetrics-text" and options.get("version", "1.0.0") == "1.0.0":
            form = Format.OPENMETRICS
        elif media_type in {"text/plain", "text/*", "*/*"}:
            form = Format.TEXT
        else:
            continue
        weights[form] = max(weights[form], _weight(options.get("q", "1")))
    best = weights[Format.OPENMETRICS]
    return Format.OPENMETRICS if best > 0 and best >= weights[Format.TEXT] else Format.TEXT


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


def _families(outcomes: tuple[Outcome, ...]) -> tuple[Metric, ...]:
    """Samples grouped by metric, each series once: of two subjects that claim one, the first has it."""
    series: dict[MetricSpec, dict[tuple[str, ...], float]] = {}
    for outcome in outcomes:
        for sample in outcome.samples:
            series.setdefault(sample.spec, {}).setdefault(sample.labels, sample.value)
    foreign = tuple(family for outcome in outcomes for family in outcome.foreign)
    return (*(_family(spec, values) for spec, values in series.items()), *foreign)


def _family(spec: MetricSpec, values: dict[tuple[str, ...], float]) -> Metric:
    counter = spec.kind is Kind.COUNTER
    family = Metric(
        spec.name.removesuffix("_total") if counter else spec.name,
        spec.help,
        "counter" if counter else "gauge",
    )
    family.samples = [
        WireSample(spec.name, dict(zip(spec.labels, labels, strict=True)), value) for labels, value in values.items()
    ]
    return family


def _encode(form: Format, families: tuple[Metric, ...]) -> bytes:
    if form is Format.TEXT:
        return generate_text(_Families(families), escaping=_ESCAPING)
    encoded: bytes = generate_openmetrics(_Families(families), escaping=_ESCAPING)  # type: ignore[no-untyped-call] # not annotated there
    return encoded.removesuffix(_END)


def _compress(body: bytes) -> bytes:
    return gzip.compress(body, _GZIP_LEVEL, mtime=0)
