"""Turn readings into samples: a field annotated with a metric is published as that metric."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from gpu_triage.read.metrics.metric import Kind, MetricSpec, Sample

_MOST_READINGS: Final = 4096
"""Cached series by reading type and labels: more than a host with 16 GPUs has, not counting processes."""

_MOST_KEYS: Final = 64  # how many stale keys of one mapping field may stay cached


class Each:
    """Annotation of a field with readings, or one: each is rendered with these of its attributes as labels."""

    def __init__(self, *attributes: str) -> None:
        self.attributes = attributes


class _Series:
    """One series with its last sample, which is reused while the value does not change."""

    __slots__ = ("_labels", "_last", "_spec")

    def __init__(self, spec: MetricSpec, labels: tuple[str, ...]) -> None:
        self._spec, self._labels = spec, labels
        self._last: tuple[Any, Sample] | None = None

    def sample(self, value: Any) -> Sample:
        last = self._last
        if last is not None and last[0] == value:
            return last[1]
        spec = self._spec
        is_text = isinstance(value, str)
        if is_text and spec.kind is Kind.INFO:
            sample = spec.sample(1, *self._labels, value)
        elif is_text:
            sample = spec.sample(spec.value_of(value), *self._labels)
        elif last is None:
            sample = spec.sample(value, *self._labels)
        else:
            sample = spec.next_sample(value, self._labels)
        # Assigned atomically: another thread may render a reading of the same subject.
        self._last = value, sample
        return sample


class _Keyed:
    __slots__ = ("_labels", "_series", "_spec")

    def __init__(self, spec: MetricSpec, labels: tuple[str, ...]) -> None:
        self._spec, self._labels = spec, labels
        self._series: dict[str | tuple[str, ...], _Series] = {}

    def samples(self, values: Mapping[str | tuple[str, ...], Any]) -> Iterator[Sample]:
        if len(self._series) > len(values) + _MOST_KEYS:
            self._series = {}
        known = self._series
        for key, value in values.items():
            series = known.get(key)
            if series is None:
                own = (key,) if isinstance(key, str) else key
                series = known[key] = _Series(self._spec, (*self._labels, *own))
            yield series.sample(value)


class _Nested:
    __slots__ = ("_attributes", "_labels")

    def __init__(self, each: Each, labels: tuple[str, ...]) -> None:
        self._attributes = each.attributes
        self._labels = labels

    def samples(self, readings: Any) -> Iterator[Sample]:
        for reading in readings if isinstance(readings, tuple) else (readings,):
            labels = list(self._labels)
            for name in self._attributes:
                value = getattr(reading, name)
                labels += value if isinstance(value, tuple) else (str(value),)
            yield from samples(reading, tuple(labels))


def each(*attributes: str) -> Callable[[Any], Iterator[Sample]]:
    """Return a function that yields the samples of each of several readings, with these of its attributes as labels."""
    return _Nested(Each(*attributes), ()).samples


def samples(reading: Any, labels: tuple[str, ...] = ()) -> Iterator[Sample]:
    """Yield the samples of a reading, from the fields annotated with a metric, in order.

    | Annotation | Samples |
    |---|---|
    | ``Annotated[float | None, SPEC]`` | one, or none if the value is None: absent is not zero |
    | ``Annotated[float | None, SPEC, "core"]`` | the same, with one more label |
    | ``Annotated[Mapping[str, float], SPEC]`` | one per entry, with its key (or each part of a tuple) as last label |
    | ``Annotated[str | None, SPEC]`` | info metric: 1, the text as the last label; otherwise the value of that state |
    | ``Annotated[tuple[Link, ...], Each("name")]`` | those of each link, with its name as one more label |

    >>> from dataclasses import make_dataclass
    >>> from gpu_triage.read.metrics.metric import gpu_gauge
    >>> heat = gpu_gauge("Temperature.", labels=("sensor",), source="nvml")
    >>> reading = make_dataclass("Reading", [("core", Annotated[float | None, heat, "gpu"])])
    >>> [(sample.labels, sample.value) for sample in samples(reading(84), ("0", "GPU-1"))]
    [(('0', 'GPU-1', 'gpu'), 84.0)]
    >>> list(samples(reading(None), ("0", "GPU-1")))
    []
    """
    for of, series in _series_of(reading.__class__, labels):
        value = of(reading)
        if value is None:
            continue
        if isinstance(series, _Series):
            yield series.sample(value)
        else:
            yield from series.samples(value)


_Published = _Series | _Keyed | _Nested


@lru_cache(_MOST_READINGS)
def _series_of(kind: type, labels: tuple[str, ...]) -> tuple[tuple[Callable[[object], Any], _Published], ...]:
    return tuple((attrgetter(name), make((*labels, *more))) for name, more, make in _published(kind))


@cache
def _published(kind: type) -> tuple[tuple[str, tuple[str, ...], Callable[[tuple[str, ...]], _Published]], ...]:
    """Published fields of a reading type, with their constant labels. Cached, because resolving annotations is slow."""
    found: list[tuple[str, tuple[str, ...], Callable[[tuple[str, ...]], _Published]]] = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated:
            value, spec, *labels = get_args(hint)
            if isinstance(spec, Each):
                found.append((name, (), partial(_Nested, spec)))
            elif isinstance(spec, MetricSpec):
                is_mapping = any(get_origin(each) is Mapping for each in (value, *get_args(value)))
                found.append((name, tuple(labels), partial(_Keyed if is_mapping else _Series, spec)))
    return tuple(found)
