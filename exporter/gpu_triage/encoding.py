"""Outcomes in an exposition format, as prometheus_client writes them, each series' name and labels written once.

Its encoder goes through every label of every sample anew, for most of the time of a page, though from one round to the
next only values change. So what it wrote of a series is kept up to its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest as generate_text
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.samples import Sample as WireSample
from prometheus_client.utils import floatToGoString

from gpu_triage.sampler.outcomes import Outcome
from gpu_triage.selection import EVERYTHING, Selection
from gpu_triage.subjects.metric import Kind, MetricSpec

END: Final = b"# EOF\n"
"""The last line of OpenMetrics."""

_ESCAPING: Final = "allow-utf-8"
"""Of names; ours need none. The default goes through each name character by character, for half the time of a page."""

_GONE_SERIES_KEPT: Final = 64
"""Series of one metric that may be kept beyond twice those that are there, as processes come and go."""

_Values = dict[tuple[str, ...], float]


class Format(Enum):
    """An exposition format and its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(slots=True)
class _Lines:
    """A metric's text.

    Attributes:
        header: its HELP and TYPE.
        series: by labels, the line of a series up to its value.
    """

    header: str = ""
    series: dict[tuple[str, ...], str] = field(default_factory=dict)


class Encoder:
    """Encodes one collector's outcomes in one format. Not thread-safe."""

    def __init__(self, form: Format, selection: Selection = EVERYTHING) -> None:
        self._form = form
        self._selection = selection
        self._metrics: dict[MetricSpec, _Lines] = {}
        self._foreign: tuple[tuple[Metric, ...], bytes] = ((), b"")

    def encode(self, outcomes: tuple[Outcome, ...]) -> bytes:
        """The page of these outcomes."""
        series = _series(outcomes, self._selection)
        self._metrics = {spec: self._lines_of(spec, values) for spec, values in series.items()}
        text = "".join([_text(self._metrics[spec], values) for spec, values in series.items()])
        return text.encode() + self._foreign_text(_foreign(outcomes))

    def _foreign_text(self, families: tuple[Metric, ...]) -> bytes:
        """What others made: maybe thousands of series, the same families as long as nothing changes."""
        before, encoded = self._foreign
        if len(before) != len(families) or any(one is not other for one, other in zip(before, families, strict=True)):
            encoded = encode(self._form, families)
            self._foreign = families, encoded
        return encoded

    def _lines_of(self, spec: MetricSpec, values: _Values) -> _Lines:
        """The text of a metric, with every series that there is."""
        lines = self._metrics.get(spec) or _Lines()
        new = [labels for labels in values if labels not in lines.series]
        if new:
            # One zero a line: what stands before it is the series.
            zeros = encode(self._form, (_family(spec, dict.fromkeys(new, 0.0)),)).decode()
            rows = zeros.split("\n")[:-1]
            lines.header = "".join(f"{row}\n" for row in rows[: -len(new)])
            lines.series.update(zip(new, (row.removesuffix("0.0") for row in rows[-len(new) :]), strict=True))
        if len(lines.series) > 2 * len(values) + _GONE_SERIES_KEPT:
            lines.series = {labels: lines.series[labels] for labels in values}
        return lines


class _Families(NamedTuple):
    """What prometheus_client's encoders take for a registry."""

    metrics: tuple[Metric, ...]

    def collect(self) -> Iterator[Metric]:
        """The families."""
        yield from self.metrics


def families_of(outcomes: tuple[Outcome, ...], selection: Selection = EVERYTHING) -> tuple[Metric, ...]:
    """What prometheus_client's encoders take: the samples grouped by metric, and what others made."""
    return (*(_family(spec, values) for spec, values in _series(outcomes, selection).items()), *_foreign(outcomes))


def _series(outcomes: tuple[Outcome, ...], selection: Selection) -> dict[MetricSpec, _Values]:
    """Values by metric and labels, each series once: of two subjects that claim one, the first has it."""
    series: dict[MetricSpec, _Values] = {}
    for outcome in outcomes:
        for sample in selection.of(outcome.samples):
            series.setdefault(sample.spec, {}).setdefault(sample.labels, sample.value)
    return series


def _foreign(outcomes: tuple[Outcome, ...]) -> tuple[Metric, ...]:
    return tuple(family for outcome in outcomes for family in outcome.foreign)


def _family(spec: MetricSpec, values: _Values) -> Metric:
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


def encode(form: Format, families: tuple[Metric, ...]) -> bytes:
    """Families as prometheus_client encodes them, without OpenMetrics' last line."""
    bare = {family.name for family in families if _is_bare_counter(family)}
    families = tuple(_of_unknown_type(family) if family.name in bare else family for family in families)
    if form is Format.TEXT:
        text: bytes = generate_text(_Families(families), escaping=_ESCAPING)
        for name in bare:
            text = text.replace(f"\n# TYPE {name} untyped\n".encode(), f"\n# TYPE {name} counter\n".encode(), 1)
        return text
    encoded: bytes = generate_openmetrics(_Families(families), escaping=_ESCAPING)  # type: ignore[no-untyped-call] # not annotated there
    return encoded.removesuffix(END)


def _is_bare_counter(family: Metric) -> bool:
    """Whether it is a counter without ``_total``, which the text format allows and OpenMetrics does not."""
    return family.type == "counter" and any(sample.name == family.name for sample in family.samples)


def _of_unknown_type(family: Metric) -> Metric:
    """The family as one whose name is left alone: prometheus_client puts ``_total`` behind that of every counter."""
    unknown = Metric(family.name, family.documentation, "unknown")
    unknown.samples = family.samples
    return unknown


def _text(lines: _Lines, values: _Values) -> str:
    series = lines.series
    written: Callable[[float], str] = floatToGoString
    return lines.header + "".join([f"{series[labels]}{written(value)}\n" for labels, value in values.items()])
