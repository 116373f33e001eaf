"""Colours beside those of verdicts and bottleneck classes, and the ink that is legible on a colour."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.diagnosis.codes import Severity

OF_SEVERITY: Final[Mapping[Severity, str]] = MappingProxyType(
    {Severity.CRITICAL: "sick", Severity.WARNING: "held", Severity.INFO: "starved"}
)
"""Tone of a finding; the tone of a verdict is in the table of verdicts."""

BLACK: Final = "#000000"
WHITE: Final = "#ffffff"

_LINEAR_BELOW: Final = 0.04045
_WEIGHTS: Final = (0.2126, 0.7152, 0.0722)


def ink_on(colour: str) -> str:
    """Black or white, whichever has the higher contrast on this colour, ``#rrggbb``; at least 4.5:1 on any."""
    return max(WHITE, BLACK, key=lambda ink: contrast(ink, colour))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1-21 (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return sum(weight * _linear(channel) for weight, channel in zip(_WEIGHTS, channels, strict=True))


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= _LINEAR_BELOW else ((channel + 0.055) / 1.055) ** 2.4
