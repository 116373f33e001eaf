"""Text on the dashboards' colors is legible, and color-blind people see a fault."""

import pytest
from dashboards.palette import BAD, CLASS_COLORS, GOOD
from tests.gathered import for_each
from tests.unit.judge.test_color_vision import (
    DEUTERANOPIA,
    NORMAL,
    PROTANOPIA,
    TRITANOPIA,
    Matrix,
    difference,
    luminance,
)

LEAST_CONTRAST = 4.5
"""WCAG 2.2, 1.4.3."""
LEAST_FROM_WELL = 15.0
FAULTS = [color for name, color in CLASS_COLORS.items() if name not in {"compute", "idle", "unattributed"}]


def text_on(color: str) -> str:
    """What Grafana writes in on a cell or tile, in the light and the dark theme: `getTextColorForAlphaBackground`."""
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return "#202226" if (299 * red + 587 * green + 114 * blue) / 1000 > 180 else "#f7f8fa"


@for_each("color", CLASS_COLORS.values())
def test_text_is_legible(color: str) -> None:
    darker, lighter = sorted(luminance(each) for each in (color, text_on(color)))
    assert (lighter + 0.05) / (darker + 0.05) >= LEAST_CONTRAST


@pytest.mark.parametrize(
    "vision", [NORMAL, DEUTERANOPIA, PROTANOPIA, TRITANOPIA], ids=["normal", "deuteranopia", "protanopia", "tritanopia"]
)
def test_a_fault_does_not_look_like_a_gpu_that_is_well(vision: Matrix) -> None:
    assert BAD in FAULTS
    assert min(difference(color, GOOD, vision) for color in FAULTS) >= LEAST_FROM_WELL
