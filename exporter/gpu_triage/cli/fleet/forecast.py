"""A linear trend with its uncertainty, from weekly means: days differ by weekday, and neighbors are not independent."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

FEWEST_WEEKS: Final = 4
"""Two degrees of freedom: with fewer, the interval says nothing."""
_AHEAD: Final = 2
"""A trend is continued for at most one week per so many that it was seen in."""
_T_975: Final = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles of Student's t from two degrees of freedom on; the last one is a little wide for more."""


class Forecast(NamedTuple):
    """What a week so many weeks after the last one has by the trend, with the 95 % prediction interval of its mean."""

    now: float  # mean of the last week
    weeks: int
    value: float
    low: float
    high: float


def forecast(days: Sequence[float | None]) -> Forecast | None:
    """From one value per day, the oldest first; None for fewer than four whole weeks, counted from the last day."""
    known = [each for each in (days[end - 7 : end] for end in range(len(days), 6, -7)) if None not in each]
    if len(known) < FEWEST_WEEKS or len(known) < len(days) // 7:
        return None
    means = [sum(value or 0.0 for value in week) / 7 for week in reversed(known)]
    count = len(means)
    center, mean = (count - 1) / 2, sum(means) / count
    spread = sum((place - center) ** 2 for place in range(count))
    slope = sum((place - center) * (value - mean) for place, value in enumerate(means)) / spread
    missed = sum((value - mean - slope * (place - center)) ** 2 for place, value in enumerate(means))
    ahead = count // _AHEAD
    far = count - 1 + ahead - center
    error = math.sqrt(missed / (count - 2) * (1 + 1 / count + far**2 / spread))
    either = _T_975[min(count - 2 - 2, len(_T_975) - 1)] * error
    value = mean + slope * far
    return Forecast(means[-1], ahead, value, value - either, value + either)
