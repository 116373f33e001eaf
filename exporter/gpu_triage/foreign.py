"""Metric families that others made, as text: prometheus_client writes them, and is loaded where there are any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest as generate_text
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

_END: Final = b"# EOF\n"

_ESCAPING: Final = "allow-utf-8"
"""Of names. The default goes through each name character by character, for half the time of a page."""


class _Families(NamedTuple):
    """What prometheus_client's encoders take for a registry."""

    metrics: tuple[Metric, ...]

    def collect(self) -> Iterator[Metric]:
        """The families."""
        yield from self.metrics


def encode(families: tuple[Metric, ...], *, openmetrics: bool) -> bytes:
    """Families in OpenMetrics, without its last line, or in the text format."""
    if openmetrics:
        encoded: bytes = generate_openmetrics(_Families(families), escaping=_ESCAPING)  # type: ignore[no-untyped-call] # not annotated there
        return encoded.removesuffix(_END)
    text: bytes = generate_text(_Families(families), escaping=_ESCAPING)
    return text
