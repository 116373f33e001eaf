"""A straight line through what was measured, and how far the points are from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression


@dataclass(frozen=True, slots=True)
class Line:
    """A least-squares line."""

    base: float  # value at 0
    slope: float  # growth per unit
    points: tuple[tuple[float, float], ...]  # that it was fitted to

    def at(self, x: float) -> float:
        return self.base + self.slope * x

    def reaches(self, y: float) -> float:
        """Where the line has this value; 0 where it has more from the start, or does not rise."""
        return max(0.0, (y - self.base) / self.slope) if self.slope > 0 else 0.0

    @property
    def sizes(self) -> int:
        return len({x for x, _ in self.points})

    @property
    def worst_residual(self) -> float:
        """The largest distance of a point from the line, as a share of the point's value; 0 for two points."""
        return max(abs(y - self.at(x)) / abs(y) for x, y in self.points)


def line_through(points: Sequence[tuple[float, float]]) -> Line | None:
    """The line that fits best; None where fewer than two different sizes were measured."""
    usable = tuple(sorted(point for point in points if point[1]))
    if len({x for x, _ in usable}) < 2:
        return None
    slope, base = linear_regression(*zip(*usable, strict=True))
    return Line(base, slope, usable)
