"""A history as OpenMetrics text with timestamps (https://prometheus.io/docs/specs/om/open_metrics_spec/)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from gpu_triage_simulator.history import History
    from gpu_triage_simulator.series import SeriesKey

_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = _LABEL_ESCAPES


def write_openmetrics(history: History, stream: TextIO) -> None:
    """Write a history, with all samples of a family and of a series together and in time order, then ``# EOF``.

    Raises:
        OSError: the stream cannot be written.
    """
    stamps = [_stamp(history.start_seconds + i * history.step_seconds) for i in range(history.steps)]
    for family in history.families:
        stream.write(f"# TYPE {family.name} {family.kind}\n")
        if family.help:
            stream.write(f"# HELP {family.name} {family.help.translate(_HELP_ESCAPES)}\n")
        stream.writelines("".join(_lines(key, history.series, stamps)) for key in family.series)
    stream.write("# EOF\n")


def _lines(key: SeriesKey, series: Mapping[SeriesKey, Sequence[float]], stamps: list[str]) -> Iterator[str]:
    name, labels = key
    inside = ",".join(f'{label}="{value.translate(_LABEL_ESCAPES)}"' for label, value in labels)
    start = f"{name}{{{inside}}} " if inside else f"{name} "
    for value, stamp in zip(series[key], stamps, strict=True):
        if value == value:  # noqa: PLR0124 - the fastest test for NaN, for tens of millions of values
            yield f"{start}{value!r} {stamp}\n"


def _stamp(seconds: float) -> str:
    """Unix seconds, to the millisecond, because that is the database's resolution."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")
