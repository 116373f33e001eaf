"""Encodes metric families from elsewhere with prometheus_client, which is imported only if there are any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest as generate_text
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

_END: Final = b"# EOF\n"

_ESCAPING: Final = "allow-utf-8"
"""Escaping of names. The default checks each name character by character, which takes half the time of a page."""


class _Families(NamedTuple):
    """The part of the registry interface that prometheus_client's encoders need."""

    metrics: tuple[Metric, ...]

    def collect(self) -> Iterator[Metric]:
        yield from self.metrics


def encode(families: tuple[Metric, ...], *, openmetrics: bool) -> bytes:
    """Encode families in OpenMetrics, without the final EOF line, or in the text format."""
    if openmetrics:
        encoded: bytes = generate_openmetrics(_Families(families), escaping=_ESCAPING)  # type: ignore[no-untyped-call] # it lacks annotations
        return encoded.removesuffix(_END)
    text: bytes = generate_text(_Families(families), escaping=_ESCAPING)
    return text
