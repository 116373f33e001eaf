"""GPU capacity review: the forecast of `gpu-triage report`, in PromQL: a linear trend of the means of whole weeks.

Weeks are counted back from the last midnight of the time range, which is ``$__to``: the last one is week 0. Sums over
weeks are those over their days, so that only the squares of the means take a subquery in a subquery.
"""

from typing import Final

from dashboards.panels import Cell, PanelBuilder, Size, strip
from dashboards.selectors import HOST
from gpu_triage.cli.fleet.review import DAY_SECONDS, day_sums
from gpu_triage.cli.fleet.review_page import FEWEST_WEEKS, T_975

_WEEK_SECONDS: Final = 7 * DAY_SECONDS
_GPUS: Final = f"{day_sums(f'{{{HOST}}}')['allocated']} / 24"
_AGO: Final = "vector($__to / 1000 - time())"
_WEEK: Final = f"floor({_AGO} / {_WEEK_SECONDS})"
# A second before a midnight, the period has as many midnights as days, whether or not the server counts both ends.
_WEEKS: Final = "floor(count_over_time(vector(1)[$over:1d] offset 1s) / 7)"
_DAILY: Final = f"({_GPUS} and on () {_WEEKS} > {_WEEK})"
_MEAN: Final = f"avg_over_time({_DAILY}[$over:1d])"
_SPREAD: Final = f"({_WEEKS} * ({_WEEKS} ^ 2 - 1) / 12)"
_MIDDLE: Final = f"(({_WEEKS} - 1) / 2)"
_FAR: Final = f"({_MIDDLE} + floor({_WEEKS} / 2))"
_MOMENT: Final = f"sum_over_time(({_DAILY} * {_WEEK})[$over:1d]) / 7"
_SLOPE: Final = f"(({_MIDDLE} * {_WEEKS} * {_MEAN} - {_MOMENT}) / {_SPREAD})"
_SQUARE_OF_WEEK: Final = (
    f"(avg_over_time(({_GPUS})[167h:1d]) ^ 2 and on () {_WEEKS} > {_WEEK} "
    f"and on () floor({_AGO} / {DAY_SECONDS}) % 7 == 0)"
)
_MISSED: Final = f"sum_over_time({_SQUARE_OF_WEEK}[$over:1d]) - {_WEEKS} * {_MEAN} ^ 2 - {_SLOPE} ^ 2 * {_SPREAD}"
_ERROR: Final = f"sqrt(clamp_min({_MISSED}, 0) / ({_WEEKS} - 2) * (1 + 1 / {_WEEKS} + {_FAR} ^ 2 / {_SPREAD}))"
_QUANTILE: Final = " + ".join(
    f"{value} * ({_WEEKS} {'>=' if value == T_975[-1] else '=='} bool {weeks})"
    for weeks, value in enumerate(T_975, FEWEST_WEEKS)
)
_EITHER: Final = f"({_QUANTILE}) * {_ERROR}"
_KNOWN: Final = f"count_over_time({_DAILY}[$over:1d]) == 7 * {_WEEKS} and {_WEEKS} >= {FEWEST_WEEKS}"
_VALUE: Final = f"{_MEAN} + {_SLOPE} * {_FAR}"


def forecast(size: Size) -> PanelBuilder:
    return strip(
        "Forecast of allocated GPUs",
        "If the trend of the weekly means goes on, as many GPUs are allocated half the period later, 95 % between at "
        "least and at most. A range as wide as the number: no trend can be seen. No data: it takes a period of "
        f"{FEWEST_WEEKS} whole weeks in which the allocation is known on each day.",
        Cell("last week", _if_known(f"avg_over_time(({_GPUS})[7d:1d])"), decimals=1),
        Cell("forecast", _if_known(_VALUE), decimals=1),
        Cell("at least", _if_known(f"clamp_min({_VALUE} - {_EITHER}, 0)"), decimals=1),
        Cell("at most", _if_known(f"{_VALUE} + {_EITHER}"), decimals=1),
        size=size,
    )


def _if_known(expr: str) -> str:
    return f"{expr}\nand\n{_KNOWN}"
