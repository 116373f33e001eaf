"""From readings to samples: a field whose annotation names a metric is published as that metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from gpu_triage.subjects.metric import Kind, MetricSpec, Sample


class _Field(NamedTuple):
    """A field of a reading that is published.

    Attributes:
        of: takes it from the reading.
        sample: makes a sample of a value and all labels.
        labels: what follows the subject's labels, the same in every reading.
        keyed: whether it is a mapping, with a series for each key.
    """

    of: Callable[[object], Any]
    sample: Callable[..., Sample]
    labels: tuple[str, ...]
    keyed: bool


def samples(reading: Any, labels: tuple[str, ...] = ()) -> Iterator[Sample]:
    """The samples of a reading, from the fields that are annotated with a metric, in their order.

    | Annotation | Samples |
    |---|---|
    | ``Annotated[float | None, SPEC]`` | one, or none where the value is None: absent is not zero |
    | ``Annotated[float | None, SPEC, "core"]`` | the same, with one more label |
    | ``Annotated[Mapping[str, float], SPEC]`` | one for each entry, its key as the last label |
    | ``Annotated[str | None, SPEC]`` | of an info: 1, the text as the last label; otherwise the value of that state |

    >>> from dataclasses import make_dataclass
    >>> from gpu_triage.subjects.metric import gpu_gauge
    >>> heat = gpu_gauge("gpu_temperature_celsius", "Temperature.", labels=("sensor",), source="nvml")
    >>> reading = make_dataclass("Reading", [("core", Annotated[float | None, heat, "gpu"])])
    >>> [(sample.labels, sample.value) for sample in samples(reading(84), ("0", "GPU-1"))]
    [(('0', 'GPU-1', 'gpu'), 84.0)]
    >>> list(samples(reading(None), ("0", "GPU-1")))
    []

    Args:
        reading: an instance of a dataclass; None has no samples.
        labels: those that come first in all samples, such as the GPU's.
    """
    for of, sample, more, keyed in _fields(reading.__class__):
        value = of(reading)
        if value is None:
            continue
        if not keyed:
            yield sample(value, *labels, *more)
            continue
        first = (*labels, *more)
        for key, each in value.items():
            yield sample(each, *first, key)


@cache
def _fields(kind: type) -> tuple[_Field, ...]:
    """What is published of a reading of this type. Annotations are resolved once, not for each reading."""
    return tuple(_published(kind))


def _published(kind: type) -> Iterator[_Field]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated:
            value, spec, *labels = get_args(hint)
            if isinstance(spec, MetricSpec):
                mapping = next((each for each in (value, *get_args(value)) if get_origin(each) is Mapping), None)
                kinds = (value, *get_args(value)) if mapping is None else get_args(mapping)[1:]
                sample = partial(_sample_of_text, spec) if str in kinds else spec.sample
                yield _Field(attrgetter(name), sample, tuple(labels), mapping is not None)


def _sample_of_text(spec: MetricSpec, text: str, *labels: str) -> Sample:
    return spec.sample(1, *labels, text) if spec.kind is Kind.INFO else spec.sample(spec.value_of(text), *labels)
