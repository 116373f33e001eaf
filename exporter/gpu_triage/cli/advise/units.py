"""Numbers of the answer with their units."""

from __future__ import annotations

from typing import Final

_WHOLE_GIB: Final = 100
"""Sizes from this many GiB are shown without decimals."""


def gib(size_bytes: float) -> str:
    """Format memory: ``1,043 GiB``, ``24.2 GiB``, ``0.03 GiB``."""
    size = size_bytes / 1024**3
    return f"{size:,.0f} GiB" if size >= _WHOLE_GIB else f"{size:.1f} GiB" if size >= 1 else f"{size:.2f} GiB"


def traffic(size_bytes: float) -> str:
    """Format data to exchange, in decimal units as bandwidth has them: ``6.00 GB``, ``27.6 MB``."""
    return _scaled(size_bytes, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)))


def rate(bytes_per_second: float) -> str:
    """Format a bandwidth: ``31.5 GB/s``."""
    return f"{_digits(bytes_per_second / 1e9)} GB/s"


def time(seconds: float) -> str:
    """Format a time: ``1.20 s``, ``33.3 ms``, ``0.115 ms``."""
    return f"{_digits(seconds)} s" if seconds >= 1 else f"{_digits(seconds * 1000)} ms"


def count(parameters: float) -> str:
    """Format a number of parameters as the option takes it: ``6.9M``."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if parameters >= size:
            return f"{parameters / size:.3g}{unit}"
    return f"{parameters:.0f}"


def _scaled(value: float, units: tuple[tuple[str, float], ...]) -> str:
    unit, size = next((each for each in units if value >= each[1]), units[-1])
    return f"{_digits(value / size)} {unit}"


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    for limit, decimals in ((100, 0), (10, 1), (1, 2)):
        if value >= limit:
            return f"{value:,.{decimals}f}"
    return f"{value:.3g}"
