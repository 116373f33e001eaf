"""How near a GPU is to the temperature at which it slows down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.read.gpu.power import (
    GPU_TEMPERATURE_CELSIUS,
    GPU_TEMPERATURE_MARGIN_CELSIUS,
    GPU_TEMPERATURE_THRESHOLD_CELSIUS,
)


class Margin(NamedTuple):
    """Distance to the temperature at which a GPU or its memory slows down."""

    near: bool  # whether the margin is small
    celsius: float  # degrees left; negative above the slowdown temperature
    text: str  # the measurement, as text


def slowdown_margin(gpu: GpuEvidence) -> Margin | None:
    """Return the margin in the last samples, a small one if there is any; None if unknown."""
    margins = tuple(_margins(gpu))
    return next((margin for margin in margins if margin.near), margins[0] if margins else None)


def _margins(gpu: GpuEvidence) -> Iterator[Margin]:
    left, near_celsius = gpu.last(GPU_TEMPERATURE_MARGIN_CELSIUS), gpu.limit("thermal.margin", "margin")
    limits = [("memory", "memory_max", gpu.limit("thermal.margin", "memory_margin"))]
    if left is None:
        limits.insert(0, ("gpu", "slowdown", near_celsius))
    else:
        side = "above" if left < 0 else "below"
        words = f"{abs(left):.0f} °C {side} the temperature at which it slows down"
        yield Margin(left < near_celsius, left, words)
    for sensor, name, little_celsius in limits:
        heat = gpu.last(GPU_TEMPERATURE_CELSIUS, sensor=sensor)
        limit = gpu.last(GPU_TEMPERATURE_THRESHOLD_CELSIUS, threshold=name)
        if heat is not None and limit is not None:
            words = f"{sensor} at {heat:.0f} °C, {name} at {limit:.0f} °C"
            yield Margin(limit - heat < little_celsius, limit - heat, words)
