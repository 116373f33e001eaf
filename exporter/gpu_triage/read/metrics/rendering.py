"""Turn readings into samples: a field annotated with a metric is published as that metric."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from gpu_triage.read.metrics.metric import Kind, MetricSpec, Sample


class Each:
    """Annotation of a field with readings, or one: each is rendered with these of its attributes as labels."""

    def __init__(self, *attributes: str) -> None:
        self.attributes = attributes


def each(*attributes: str) -> Callable[[Any], Iterator[Sample]]:
    """Return a function that yields the samples of each of several readings, with these of its attributes as labels."""
    return partial(_nested, Each(*attributes), labels=())


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
    for field in _published(reading.__class__):
        value = field.value(reading)
        if value is not None:
            yield from field.render(field.spec, value, (*labels, *field.labels))


def _one(spec: MetricSpec, value: Any, labels: tuple[str, ...]) -> Iterator[Sample]:
    if not isinstance(value, str):
        yield spec.sample(value, *labels)
    elif spec.kind is Kind.INFO:
        yield spec.sample(1, *labels, value)
    else:
        yield spec.sample(spec.value_of(value), *labels)


def _by_key(spec: MetricSpec, values: Mapping[str | tuple[str, ...], Any], labels: tuple[str, ...]) -> Iterator[Sample]:
    for key, value in values.items():
        own = (key,) if isinstance(key, str) else key
        yield from _one(spec, value, (*labels, *own))


def _nested(spec: Each, readings: Any, labels: tuple[str, ...]) -> Iterator[Sample]:
    for reading in readings if isinstance(readings, tuple) else (readings,):
        own = list(labels)
        for name in spec.attributes:
            value = getattr(reading, name)
            own += value if isinstance(value, tuple) else (str(value),)
        yield from samples(reading, tuple(own))


class _Field(NamedTuple):
    """A published field of a reading type."""

    value: Callable[[Any], Any]  # of a reading
    render: Callable[..., Iterator[Sample]]  # given `spec`, the value and its labels
    spec: MetricSpec | Each
    labels: tuple[str, ...] = ()  # constant ones, after those of the reading


@cache
def _published(kind: type) -> tuple[_Field, ...]:
    """Cached, because resolving annotations is slow."""
    found = list[_Field]()
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated:
            value, spec, *labels = get_args(hint)
            if isinstance(spec, Each):
                found.append(_Field(attrgetter(name), _nested, spec))
            elif isinstance(spec, MetricSpec):
                is_mapping = any(get_origin(each) is Mapping for each in (value, *get_args(value)))
                found.append(_Field(attrgetter(name), _by_key if is_mapping else _one, spec, tuple(labels)))
    return tuple(found)
