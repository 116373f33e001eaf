"""Alerts about power, heat and the seconds of classes, on series written by hand, a sample a minute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from tests.rules.handwritten import Firing, Series, counter, gpu
from tests.rules.vocabulary import CLASSES

CAPPED_MINUTES = 80


def capped(share: float, power_watts: float, limit_watts: float = 300, bit: float = 0) -> dict[str, Sequence[float]]:
    """A GPU of 350 W by default whose driver counts capped time."""
    return {
        **gpu("gpu_throttle_seconds_total", counter([60 * share] * CAPPED_MINUTES), reason="sw_power_cap"),
        **gpu("gpu_throttle_active", [bit] * CAPPED_MINUTES, reason="sw_power_cap"),
        **gpu("gpu_power_watts", [float(power_watts)] * CAPPED_MINUTES),
        **gpu("gpu_power_limit_watts", [float(limit_watts)] * CAPPED_MINUTES),
        **gpu("gpu_power_default_limit_watts", [350.0] * CAPPED_MINUTES),
    }


@pytest.mark.parametrize(
    ("series", "told"),
    [
        pytest.param(capped(0.95, 295), True, id="near a lowered limit"),
        pytest.param(capped(0.95, 90), False, id="at a third of it, and the bit was never seen"),
        pytest.param(capped(0.95, 90, bit=1), True, id="the driver says so"),
        pytest.param(capped(0.95, 345, limit_watts=350), False, id="at the default limit"),
        pytest.param(capped(0.6, 295), False, id="for too little of the time"),
        pytest.param(capped(0.45, 90), False, id="miscounted"),
    ],
)
def test_a_power_cap_needs_power_near_the_limit_or_the_bit(firing: Firing, series: Series, *, told: bool) -> None:
    assert bool(firing("GpuPowerCapped", series, minutes=CAPPED_MINUTES)) == told


def hot(busy: float, reason: str, share: float, p_state: float = 0) -> dict[str, Sequence[float]]:
    """A GPU that heat slows down."""
    return {
        **gpu("gpu_busy_seconds_total", counter([60 * busy] * 60)),
        **gpu("gpu_performance_state", [p_state] * 60),
        **gpu("gpu_throttle_seconds_total", counter([60 * share] * 60), reason=reason),
    }


@pytest.mark.parametrize(
    ("alert", "series", "told"),
    [
        ("GpuHwThermalThrottling", hot(0.75, "hw_thermal", 0.5), True),
        ("GpuHwThermalThrottling", hot(0.25, "hw_thermal", 0.15), True),
        ("GpuHwThermalThrottling", hot(0.75, "hw_thermal", 0.08), False),
        ("GpuHwThermalThrottling", hot(0.1, "hw_thermal", 0.5), False),
        ("GpuHwThermalThrottling", hot(0.3, "hw_thermal", 0.5, p_state=8), False),
        ("GpuSwThermalThrottling", hot(0.75, "sw_thermal", 0.5), True),
        ("GpuSwThermalThrottling", hot(0.75, "sw_thermal", 0.2), False),
        ("GpuSwThermalThrottling", hot(0.1, "sw_thermal", 0.5), False),
    ],
)
def test_heat_counts_while_the_gpu_is_under_load(firing: Firing, alert: str, series: Series, *, told: bool) -> None:
    assert bool(firing(alert, series)) == told


def classes(minutes: Sequence[Mapping[str, float] | None], uuid: str = "GPU-1") -> dict[str, Sequence[float]]:
    """The seconds of every class, from what share of each minute it took; None while nobody scrapes.

    A share of "restart" is none: the exporter starts anew then, and counts from 0.
    """
    series: dict[str, Sequence[float]] = {}
    for name in CLASSES:
        seconds, column = 0.0, []
        for minute in minutes:
            if minute is not None and "restart" in minute:
                seconds = 0.0
            seconds += 60 * (minute or {}).get(name, 0.0)
            column.append(math.nan if minute is None else seconds)
        series |= gpu("gpu_bottleneck_seconds_total", column, uuid, **{"class": name})
    return series


FED, STARVED, FREE = {"compute": 1.0}, {"storage": 1.0}, {"idle": 1.0}
ONSET = 15
PLAIN = [*[FED] * ONSET, *[STARVED] * 45]
STARVED_ALERTS = {"GpuStarvedByStorage": "storage", "GpuStarvedByCpu": "cpu", "GpuStarvedByNetwork": "network"}


@pytest.mark.parametrize("alert", STARVED_ALERTS)
def test_a_class_that_lasts_is_told_of_half_a_window_and_a_wait_after_it_began(firing: Firing, alert: str) -> None:
    starved = {STARVED_ALERTS[alert]: 1.0}
    fires = firing(alert, classes([starved if minute is STARVED else minute for minute in PLAIN]))
    assert min(fires) in range(ONSET + 25, ONSET + 28)


def test_one_alert_counts_the_gpus_of_a_host(firing: Firing) -> None:
    fires = firing("GpuStarvedByStorage", classes(PLAIN) | classes([FED] * 60, uuid="GPU-2"))
    assert fires


@pytest.mark.parametrize(
    ("what", "minutes"),
    [
        ("nobody scrapes for eight minutes", [*PLAIN[:22], *[None] * 8, *PLAIN[30:]]),
        ("the exporter is down for eight minutes", [*PLAIN[:22], *[None] * 8, {**STARVED, "restart": 1}, *PLAIN[31:]]),
        (
            "the exporter starts anew, and anew",
            [{**m, "restart": 1} if i in (20, 33) else m for i, m in enumerate(PLAIN)],
        ),
        ("two minutes between two jobs", [*PLAIN[:26], FREE, FREE, *PLAIN[28:]]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_gaps_restarts_and_the_time_between_jobs_cost_nothing(
    firing: Firing, what: str, minutes: Sequence[Mapping[str, float] | None]
) -> None:
    plain = min(firing("GpuStarvedByStorage", classes(PLAIN)))
    assert min(firing("GpuStarvedByStorage", classes(minutes))) - plain in range(-1, 2), what


def test_what_takes_less_than_half_of_the_time_is_not_told_of(firing: Firing) -> None:
    half = [{"storage": 0.45, "compute": 0.55}] * 60
    assert firing("GpuStarvedByStorage", classes(half)) == frozenset()


@pytest.mark.parametrize(("alert", "name"), [("GpuHungProcess", "hung"), ("GpuBusyButLowPower", "communication")])
def test_a_class_of_software_is_told_of_by_gpu(firing: Firing, alert: str, name: str) -> None:
    minutes = [*[FED] * ONSET, *[{name: 1.0}] * 55]
    assert firing(alert, classes(minutes), minutes=70)
    assert not firing(alert, classes([FED] * 70), minutes=70)
