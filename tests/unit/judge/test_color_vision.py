"""Classes can be told apart by people who see no green or no red."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest
from tests.gathered import every

from gpu_triage.judge.findings.verdicts import CLASS_COLORS, TONE_COLORS

Matrix = tuple[tuple[float, float, float], ...]

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
# IEC 61966-2-1: linear sRGB to XYZ, of the white point D65.
TO_XYZ: Matrix = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)


def times(matrix: Matrix, color: Sequence[float]) -> list[float]:
    return [math.fsum(a * b for a, b in zip(row, color, strict=True)) for row in matrix]


def seen(color: str, vision: Matrix) -> tuple[float, float, float]:
    """CIE 1976 L*, a*, b* of an sRGB color."""
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    mixed = [min(1.0, max(0.0, each)) for each in times(vision, linear)]
    shares = [each / most for each, most in zip(times(TO_XYZ, mixed), times(TO_XYZ, (1, 1, 1)), strict=True)]
    x, y, z = (each ** (1 / 3) if each > (6 / 29) ** 3 else each * 841 / 108 + 4 / 29 for each in shares)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("vision", [NORMAL, DEUTERANOPIA, PROTANOPIA], ids=["normal", "deuteranopia", "protanopia"])
@pytest.mark.parametrize("colors", [CLASS_COLORS, TONE_COLORS], ids=["classes", "tones"])
def test_every_two_colors_differ_for_everyone(vision: Matrix, colors: Mapping[str, str]) -> None:
    """By their CIE 1976 difference, ΔE*ab: about 2.3 is just noticeable."""
    alike = {
        f"{one}, {other}": round(found, 1)
        for (one, first), (other, second) in every(combinations(colors.items(), 2))
        if (found := math.dist(seen(first, vision), seen(second, vision))) < LEAST_DIFFERENCE
    }
    assert alike == {}
