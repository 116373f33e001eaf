"""Indices of GPUs, lists and lengths of time as text; imports nothing."""

from collections.abc import Iterable, Sequence


def ranges(indices: Iterable[str]) -> str:
    """Format GPU indices compactly: ``0-3, 6``; addresses (from files without indices) are just joined."""
    indices = list(indices)
    if not all(map(str.isdecimal, indices)):
        return ", ".join(indices)
    runs: list[list[int]] = []
    for index in sorted(map(int, indices)):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def first_few(words: Sequence[str], most: int) -> str:
    """Join the first words, and count the others: ``a, b and 3 more``."""
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")


def length_of_time(seconds: float) -> str:
    """Format a duration for people, in one unit: ``4 s``, ``3 min``, ``2 h``, ``5 days``."""
    # Switch to the next unit only at two of it: "90 min" is more precise than "2 h".
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
