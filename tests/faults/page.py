"""A page of metrics as text, and in what two of them differ."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

Page = Mapping[str, float]
"""Value by series, the series written as on the page."""

_INDEX = re.compile(r'(\bgpu|peer_gpu)="[^"]*",?')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

OWN = re.compile(
    r"(process|python)_|gpu_exporter_(scrapes|errors_total|collector_(success|duration|last_success)|simulated|build"
    r"|call_inflight|last_publication|time_seconds|slowest_collector)"
    r"|gpu_(up|error_info|driver_up|driver_error_info)\b"
    r"|gpu_(host_)?(verdict|finding)|gpu_bottleneck|gpu_compute_bound"
    r"|gpu_(reset_timestamp|incident)"
    r'|gpu_info\{.*\buuid=""'
)
"""Series that say how the exporter fares, what it makes of the readings or remembers of the past: they are looked at
one by one, not compared. A finding stays confirmed for its hold after its fault is over; see `Stage.holding`."""


def parsed(page: str) -> Page:
    lines = [line.rpartition(" ") for line in page.splitlines() if not line.startswith("#")]
    series = {name: float(value) for name, _, value in lines}
    assert len(series) == len(lines), "a series appears twice"
    return series


def found(page: Page, name: str, **labels: str) -> list[tuple[Mapping[str, str], float]]:
    had = [(labels_of(series), value) for series, value in page.items() if name_of(series) == name]
    return [(own, value) for own, value in had if labels.items() <= own.items()]


_TICKS = {"gpu_host_cpu_busiest_ratio": 0.01}
"""How much the kernel's counting in whole ticks may make of a ratio over a few seconds."""


@cache
def _known_by_uuid(series: str) -> str:
    """A series without the index of its GPU: indices move when a GPU comes or goes."""
    return _INDEX.sub("", series)


@cache
def _is_reading(series: str) -> bool:
    return not OWN.match(series)


@cache
def name_of(series: str) -> str:
    return series.partition("{")[0]


@cache
def labels_of(series: str) -> Mapping[str, str]:
    return MappingProxyType(dict(_LABEL.findall(series.partition("{")[2])))


def readings(page: Page) -> Page:
    return {_known_by_uuid(series): value for series, value in page.items() if _is_reading(series)}


def counters(page: Page) -> Page:
    """The series that must not fall, known by UUID alone."""
    return {_known_by_uuid(series): value for series, value in page.items() if name_of(series).endswith("_total")}


@dataclass(frozen=True, slots=True)
class Difference:
    """In what a page differs from a healthy one; series by name without their index."""

    absent: frozenset[str]  # only the healthy page has them
    extra: frozenset[str]  # only this page has them
    changed: frozenset[str]  # another value on both


def difference(page: Page, healthy: Page, lately: Iterable[Page]) -> Difference:
    """In what a page differs from the healthy one of its time.

    Args:
        lately: healthy pages around this time. A value is as it should be if it is between theirs: a fault may have
            moved the beat of the slower tiers.
    """
    around = tuple(lately)
    changed = set()
    for series, value in page.items():
        if series in healthy and value != healthy[series]:
            values = [other[series] for other in around if series in other]
            ticks = _TICKS.get(name_of(series), 0.0)
            close = math.isclose(value, healthy[series], rel_tol=1e-9, abs_tol=ticks)
            if not (min(values) <= value <= max(values) or close):
                changed.add(series)
    return Difference(
        absent=frozenset(healthy.keys() - page.keys()),
        extra=frozenset(page.keys() - healthy.keys()),
        changed=frozenset(changed),
    )
