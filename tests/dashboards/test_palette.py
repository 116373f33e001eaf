"""Text on the dashboards' colors is legible, and color-blind people see a fault."""

from itertools import combinations

import pytest
from dashboards.palette import BAD, CLASS_COLORS, GOOD, TONE_COLORS
from tests.gathered import every, for_each
from tests.unit.judge.test_color_vision import (
    DEUTERANOPIA,
    LEAST_DIFFERENCE,
    NORMAL,
    PROTANOPIA,
    TRITANOPIA,
    Matrix,
    difference,
    luminance,
)

from gpu_triage.judge.findings import verdicts

LEAST_CONTRAST = 4.5
"""WCAG 2.2, 1.4.3."""
LEAST_FROM_WELL = 15.0
NO_FAULTS = {"compute", "idle", "unattributed"}

every_vision = pytest.mark.parametrize(
    "vision", [NORMAL, DEUTERANOPIA, PROTANOPIA, TRITANOPIA], ids=["normal", "deuteranopia", "protanopia", "tritanopia"]
)


def text_on(color: str) -> str:
    """What Grafana writes in on a cell or tile in the light and the dark theme: `getTextColorForAlphaBackground`."""
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return "#202226" if (299 * red + 587 * green + 114 * blue) / 1000 > 180 else "#f7f8fa"


@for_each(("name", "color"), CLASS_COLORS.items(), ids=lambda case: case[0])
def test_text_is_legible(name: str, color: str) -> None:
    darker, lighter = sorted(luminance(each) for each in (color, text_on(color)))
    assert (lighter + 0.05) / (darker + 0.05) >= LEAST_CONTRAST, name


@every_vision
def test_a_fault_does_not_look_like_a_gpu_that_is_well(vision: Matrix) -> None:
    faults = {name: color for name, color in CLASS_COLORS.items() if name not in NO_FAULTS}
    assert BAD in faults.values()
    assert {name: color for name, color in faults.items() if difference(color, GOOD, vision) < LEAST_FROM_WELL} == {}


@pytest.mark.parametrize("vision", [NORMAL, DEUTERANOPIA, PROTANOPIA], ids=["normal", "deuteranopia", "protanopia"])
def test_every_two_classes_differ(vision: Matrix) -> None:
    alike = [
        (one, other)
        for one, other in every(combinations(CLASS_COLORS, 2))
        if difference(CLASS_COLORS[one], CLASS_COLORS[other], vision) < LEAST_DIFFERENCE
    ]
    assert alike == []


def test_classes_and_tones_are_those_of_the_status_page() -> None:
    assert list(CLASS_COLORS) == list(verdicts.CLASS_COLORS)
    assert list(TONE_COLORS) == list(verdicts.TONE_COLORS)
