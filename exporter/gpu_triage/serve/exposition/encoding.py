"""Encodes outcomes in an exposition format.

From round to round only values change, and most don't. So lines are cached, and only those of changed samples are
rewritten. The output is byte for byte that of prometheus_client for the same families; that library is used for
families from elsewhere only, because it imports an HTTP server, an HTTP client and TLS.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterator
from copy import copy
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from gpu_triage.documents import printable
from gpu_triage.read.metrics.metric import Kind, MetricSpec, Sample
from gpu_triage.read.selection import EVERYTHING, Selection

if TYPE_CHECKING:
    from prometheus_client import Metric

    from gpu_triage.sampler.outcomes import Outcome

END: Final = b"# EOF\n"
"""Last line in OpenMetrics."""

_DIGITS_WITHOUT_EXPONENT: Final = 6

_ESCAPING: Final = "allow-utf-8"
"""Of names, by prometheus_client. Its default checks each one character by character, which takes half the time."""

_MAX_VALUE_BYTES: Final = 200
"""Of a label, in UTF-8. Prometheus drops the whole page if one value is longer than the chart's scrape allows."""


class Format(Enum):
    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Encoder:
    """Encodes one collector's outcomes in one format. Not thread-safe."""

    def __init__(self, form: Format, selection: Selection = EVERYTHING) -> None:
        self._form = form
        self._selection = selection
        self._samples: tuple[Sample, ...] = ()
        self._places: list[int | None] = []
        self._parts: list[str] = []
        self._foreign: tuple[tuple[Metric, ...], bytes] = ((), b"")

    def encode(self, outcomes: Collection[Outcome]) -> bytes:
        samples = tuple(chain.from_iterable([outcome.samples for outcome in outcomes]))
        if not self._rewrite(samples):
            self._write(samples)
        self._samples, own = samples, "".join(self._parts).encode()
        return own + self._foreign_text(tuple([family for outcome in outcomes for family in outcome.foreign]))

    def _rewrite(self, samples: tuple[Sample, ...]) -> bool:
        """Replace values in cached lines; False if the set of lines changed."""
        if len(samples) != len(self._samples):
            return False
        changed = [number for number, sample in enumerate(samples) if sample != self._samples[number]]
        for number in changed:
            sample, before, place = samples[number], self._samples[number], self._places[number]
            if sample.spec is not before.spec or sample.labels != before.labels:
                return False
            shown = self._selection.shown(sample.spec)
            if not isinstance(shown, bool) and shown(sample) != (place is not None):
                return False
            if place is not None:
                line = self._parts[place]
                self._parts[place] = f"{line[: line.rindex(' ')]} {go_float(sample.value)}\n"
        return True

    def _write(self, samples: tuple[Sample, ...]) -> None:
        """Write the whole page; if two subjects claim a series, as it reads with bounded labels, the first one wins."""
        metrics: dict[MetricSpec, dict[tuple[str, ...], int]] = {}
        for number, sample in enumerate(samples):
            shown = self._selection.shown(sample.spec)
            if shown:
                series = metrics.setdefault(sample.spec, {})
                if shown is True or shown(sample):
                    series.setdefault(tuple(map(label_value, sample.labels)), number)
        self._places, self._parts = [None] * len(samples), []
        for spec, series in metrics.items():
            if series:
                self._parts.append(_header(spec, self._form))
            for labels, number in series.items():
                self._places[number] = len(self._parts)
                self._parts.append(f"{_series_text(spec, labels)} {go_float(samples[number].value)}\n")

    def _foreign_text(self, families: tuple[Metric, ...]) -> bytes:
        """Families from elsewhere: possibly thousands of series, the same objects as long as nothing changes."""
        before, encoded = self._foreign
        if len(before) != len(families) or any(one is not other for one, other in zip(before, families, strict=True)):
            encoded = encode_families(tuple(map(_bounded, families)), self._form)
            self._foreign = families, encoded
        return encoded


class _Families(NamedTuple):
    """The part of the registry interface that prometheus_client's encoders need."""

    metrics: tuple[Metric, ...]

    def collect(self) -> Iterator[Metric]:
        yield from self.metrics


def encode_families(families: tuple[Metric, ...], form: Format) -> bytes:
    """Encode families from elsewhere with prometheus_client, without the final line of OpenMetrics."""
    # Imported only if there are any.
    from prometheus_client import exposition  # noqa: PLC0415
    from prometheus_client.openmetrics import exposition as openmetrics  # noqa: PLC0415

    if form is Format.OPENMETRICS:
        encoded: bytes = openmetrics.generate_latest(_Families(families), escaping=_ESCAPING)  # type: ignore[no-untyped-call] # it lacks annotations
        return encoded.removesuffix(END)
    text: bytes = exposition.generate_latest(_Families(families), escaping=_ESCAPING)
    return text


def label_value(text: str) -> str:
    """The text as the value of a label: printable characters, at most 200 bytes.

    Users choose the names of processes, cgroups and devices. A changed text ends in a checksum: two remain two series.
    """
    if text.isprintable() and len(text.encode()) <= _MAX_VALUE_BYTES:
        return text
    checksum = f"~{zlib.crc32(text.encode(errors='surrogatepass')):08x}"
    return printable(text).encode()[: _MAX_VALUE_BYTES - len(checksum)].decode(errors="ignore") + checksum


def _bounded(family: Metric) -> Metric:
    """A family from elsewhere with labels and help text as they may be published, each series once."""
    bounded = copy(family)
    bounded.documentation = "\n".join(map(printable, family.documentation.split("\n")))
    series = set[object]()
    bounded.samples = []
    for sample in family.samples:
        labels = {name: label_value(value) for name, value in sample.labels.items()}
        if (key := (sample.name, *labels.items())) not in series:
            series.add(key)
            bounded.samples.append(sample._replace(labels=labels))
    return bounded


def go_float(value: float) -> str:
    """Format a number as Go does, and so every Prometheus exporter: with an exponent from a million up.

    >>> go_float(0.25), go_float(1234567.0), go_float(1e-07), go_float(math.inf)
    ('0.25', '1.234567e+06', '1e-07', '+Inf')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    dot = text.find(".")
    if value > 0 and dot > _DIGITS_WITHOUT_EXPONENT:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02d}"
    return text


def _header(spec: MetricSpec, form: Format) -> str:
    text = spec.help.replace("\\", r"\\").replace("\n", r"\n")
    counter, name = spec.kind is Kind.COUNTER, spec.name
    if form is Format.OPENMETRICS:
        text = text.replace('"', r"\"")
        name = name.removesuffix("_total") if counter else name
    return f"# HELP {name} {text}\n# TYPE {name} {'counter' if counter else 'gauge'}\n"


def _series_text(spec: MetricSpec, labels: tuple[str, ...]) -> str:
    """Metric name and labels, sorted alphabetically."""
    if not labels:
        return spec.name
    pairs = sorted(zip(spec.labels, labels, strict=True))
    inside = ",".join([f'{name}="{_escaped(value)}"' for name, value in pairs])
    return f"{spec.name}{{{inside}}}"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"")
