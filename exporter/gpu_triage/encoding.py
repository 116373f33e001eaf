"""Outcomes in an exposition format.

From one round to the next only values change, and most of them do not. So each series' line is kept, and written anew
with another value. Pages are byte for byte what prometheus_client writes of the same families; it is not used, because
it loads an HTTP server, an HTTP client and TLS along with it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from gpu_triage.selection import EVERYTHING, Selection, Shown
from gpu_triage.subjects.metric import Kind, MetricSpec

if TYPE_CHECKING:
    from prometheus_client import Metric

    from gpu_triage.sampler.outcomes import Outcome

END: Final = b"# EOF\n"
"""The last line of OpenMetrics."""

_GONE_SERIES_KEPT: Final = 64
"""Series of one metric that may be kept beyond twice those that are there, as processes come and go."""

_DIGITS_WITHOUT_EXPONENT: Final = 6

_Values = dict[tuple[str, ...], float]


class Format(Enum):
    """An exposition format and its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class _Line(NamedTuple):
    """A series as written last.

    Attributes:
        text: the whole line.
        series: how many characters of it stand before the value.
        value: that is in it.
    """

    text: str
    series: int
    value: float


@dataclass(slots=True)
class _Lines:
    """A metric's text.

    Attributes:
        header: its HELP and TYPE.
        series: by labels.
    """

    header: str
    series: dict[tuple[str, ...], _Line] = field(default_factory=dict)


class Encoder:
    """Encodes one collector's outcomes in one format. Not thread-safe."""

    def __init__(self, form: Format, selection: Selection = EVERYTHING) -> None:
        self._form = form
        self._selection = selection
        self._metrics: dict[MetricSpec, _Lines] = {}
        self._foreign: tuple[tuple[Metric, ...], bytes] = ((), b"")

    def encode(self, outcomes: Collection[Outcome]) -> bytes:
        """The page of these outcomes."""
        series = self._series(outcomes)
        self._metrics = {spec: self._lines_of(spec, values) for spec, values in series.items()}
        text = "".join([_text(self._metrics[spec], values) for spec, values in series.items()])
        foreign = tuple([family for outcome in outcomes for family in outcome.foreign])
        return text.encode() + self._foreign_text(foreign)

    def _series(self, outcomes: Collection[Outcome]) -> dict[MetricSpec, _Values]:
        """Values by metric and labels, each series once: of two subjects that claim one, the first has it."""
        series: dict[MetricSpec, _Values] = {}
        for outcome in outcomes:
            current: MetricSpec | None = None
            shown: Shown = False
            values: _Values = {}
            for sample in outcome.samples:
                spec, labels, value = sample
                if spec is not current:
                    # Samples of one metric mostly stand together.
                    current, shown = spec, self._selection.shown(spec)
                    values = series.setdefault(spec, {}) if shown else {}
                if shown is True or (shown and shown(sample)):
                    values.setdefault(labels, value)
        return {spec: values for spec, values in series.items() if values}

    def _foreign_text(self, families: tuple[Metric, ...]) -> bytes:
        """What others made: maybe thousands of series, the same families as long as nothing changes."""
        before, encoded = self._foreign
        if len(before) != len(families) or any(one is not other for one, other in zip(before, families, strict=True)):
            from gpu_triage.foreign import encode  # noqa: PLC0415 - see the module

            encoded = encode(families, openmetrics=self._form is Format.OPENMETRICS)
            self._foreign = families, encoded
        return encoded

    def _lines_of(self, spec: MetricSpec, values: _Values) -> _Lines:
        """The text of a metric, with every series that there is, maybe with an earlier value."""
        lines = self._metrics.get(spec)
        if lines is None:
            lines = _Lines(_header(spec, self._form))
        if not values.keys() <= lines.series.keys():
            for labels, value in values.items():
                if labels not in lines.series:
                    lines.series[labels] = _line(_series_text(spec, labels), value)
        if len(lines.series) > 2 * len(values) + _GONE_SERIES_KEPT:
            lines.series = {labels: lines.series[labels] for labels in values}
        return lines


def go_float(value: float) -> str:
    """A number as Go, and with it every Prometheus exporter, writes it: with an exponent from a million on.

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
    """The name and the labels, these in their alphabetical order."""
    if not labels:
        return f"{spec.name} "
    pairs = sorted(zip(spec.labels, labels, strict=True))
    inside = ",".join([f'{name}="{_escaped(value)}"' for name, value in pairs])
    return f"{spec.name}{{{inside}}} "


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _line(series: str, value: float) -> _Line:
    return _Line(f"{series}{go_float(value)}\n", len(series), value)


def _text(lines: _Lines, values: _Values) -> str:
    series = lines.series
    parts = [lines.header]
    for labels, value in values.items():
        line = series[labels]
        if line.value != value:
            line = series[labels] = _line(line.text[: line.series], value)
        parts.append(line.text)
    return "".join(parts)
