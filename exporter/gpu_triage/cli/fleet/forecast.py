"""A linear trend with its uncertainty, from weekly means: days differ by weekday, and neighbors are not independent."""

import math
from collections.abc import Sequence
from statistics import fmean, linear_regression
from typing import Final, NamedTuple

FEWEST_WEEKS: Final = 4
"""Two degrees of freedom: with fewer, the interval is too wide to be of use."""
_T_975: Final = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles of Student's t from two degrees of freedom on; the last one is a little wide for more."""


class Forecast(NamedTuple):
    """What a week so many weeks after the last one has by the trend, with the 95 % prediction interval of its mean."""

    now: float  # mean of the last week
    weeks: int  # half as many as the trend was seen in
    value: float
    low: float
    high: float


def forecast(days: Sequence[float | None]) -> Forecast | None:
    """From one value per day, the oldest first; None for fewer than four weeks, counted from the last day, or a gap."""
    known = [value for value in days[len(days) % 7 :] if value is not None]
    count = len(known) // 7
    if count < FEWEST_WEEKS or count < len(days) // 7:
        return None
    means, weeks = [fmean(known[7 * week : 7 * week + 7]) for week in range(count)], range(count)
    slope, start = linear_regression(weeks, means)
    missed = sum((value - start - slope * week) ** 2 for week, value in enumerate(means))
    ahead = count // 2
    far = (count - 1) / 2 + ahead  # from the middle of the weeks
    spread = sum((week - (count - 1) / 2) ** 2 for week in weeks)
    error = math.sqrt(missed / (count - 2) * (1 + 1 / count + far**2 / spread))
    either = _T_975[min(count - 4, len(_T_975) - 1)] * error
    value = start + slope * (count - 1 + ahead)
    return Forecast(means[-1], ahead, value, value - either, value + either)
