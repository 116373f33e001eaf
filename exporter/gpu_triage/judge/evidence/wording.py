"""Indices of GPUs as text."""

from __future__ import annotations

from collections.abc import Iterable


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
