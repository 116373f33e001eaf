"""The two shapes nearly every reading has: a value or none, and values by label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpu_triage.catalogue import MetricSpec, Sample


def present(spec: MetricSpec, value: float | None, *labels: str) -> Iterator[Sample]:
    """One sample if there is a value, none if not: absent is not zero."""
    if value is not None:
        yield spec.sample(value, *labels)


def by_label(spec: MetricSpec, values: Mapping[str, float], *labels: str) -> Iterator[Sample]:
    """One sample for each entry, its key as the last label."""
    for label, value in values.items():
        yield spec.sample(value, *labels, label)
