"""Classes can be told apart by people who see no green or no red."""

import math
from collections.abc import Mapping
from itertools import combinations

import pytest
from tests.gathered import every

from dashboards import palette
from gpu_triage.judge.findings.verdicts import CLASS_COLORS, TONE_COLORS

Triple = tuple[float, float, float]
Matrix = tuple[Triple, Triple, Triple]

LEAST_DIFFERENCE = 12.0
NORMAL: Matrix = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009,
# severity 1.0, of linear red, green and blue.
DEUTERANOPIA: Matrix = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
PROTANOPIA: Matrix = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
TRITANOPIA: Matrix = ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900))
# IEC 61966-2-1: linear sRGB to XYZ, of the white point D65.
TO_XYZ: Matrix = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)


def times(matrix: Matrix, color: Triple) -> Triple:
    first, second, third = (math.fsum(a * b for a, b in zip(row, color, strict=True)) for row in matrix)
    return first, second, third


def linear(color: str) -> Triple:
    red, green, blue = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return _linear(red), _linear(green), _linear(blue)


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    """Relative luminance, from 0 for black to 1 for white."""
    return times(TO_XYZ, linear(color))[1]


def lab(color: Triple) -> Triple:
    """CIE 1976 L*, a*, b* of linear sRGB."""
    white = times(TO_XYZ, (1, 1, 1))
    x, y, z = (_root(value / most) for value, most in zip(times(TO_XYZ, color), white, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _root(value: float) -> float:
    return float(value ** (1 / 3)) if value > (6 / 29) ** 3 else value * 841 / 108 + 4 / 29


def seen(color: str, vision: Matrix) -> Triple:
    red, green, blue = (min(1.0, max(0.0, channel)) for channel in times(vision, linear(color)))
    return lab((red, green, blue))


def difference(one: str, other: str, vision: Matrix = NORMAL) -> float:
    """CIE 1976 color difference, ΔE*ab: about 2.3 is just noticeable."""
    return math.dist(seen(one, vision), seen(other, vision))


@pytest.mark.parametrize("vision", [NORMAL, DEUTERANOPIA, PROTANOPIA], ids=["normal", "deuteranopia", "protanopia"])
@pytest.mark.parametrize("colors", [CLASS_COLORS, palette.CLASS_COLORS], ids=["status page", "dashboards"])
def test_every_two_classes_differ_for_everyone(colors: Mapping[str, str], vision: Matrix) -> None:
    alike = {
        f"{one}, {other}": round(found, 1)
        for (one, first), (other, second) in every(combinations(colors.items(), 2))
        if (found := difference(first, second, vision)) < LEAST_DIFFERENCE
    }
    assert alike == {}
    for first, second in combinations(TONE_COLORS.values(), 2):
        assert difference(first, second, vision) >= LEAST_DIFFERENCE
