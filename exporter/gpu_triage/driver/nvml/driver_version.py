"""Parse driver versions for comparison with the release that changed a behavior."""

from __future__ import annotations


def version_numbers(version: str | None) -> tuple[int, ...]:
    """Numeric components of a version; the empty tuple, which compares lowest, if unknown or not numeric.

    >>> version_numbers("535.113.01"), version_numbers(None)
    ((535, 113, 1), ())
    """
    numbers: list[int] = []
    for part in (version or "").split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
