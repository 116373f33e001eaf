"""A driver's version as numbers, to be compared with the release that changed something."""

from __future__ import annotations


def version_numbers(version: str | None) -> tuple[int, ...]:
    """Numbers of a version; empty, which is less than any, where it is unknown or begins with none.

    >>> version_numbers("535.113.01"), version_numbers(None)
    ((535, 113, 1), ())
    """
    numbers: list[int] = []
    for part in (version or "").split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
