"""Limit how many devices of one kind are read and published."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from gpu_triage.driver.kernel.files import is_present

T = TypeVar("T")

MOST_DEVICES: Final = 256
"""Far more than a GPU host has, unless each path of a storage network or each virtual function counts as a device."""


class Bound:
    """Truncates a list to a maximum, and reports that once."""

    def __init__(self, most: int, error: str) -> None:
        self._most = most
        self._error = error
        self._reported = False

    def kept(self, found: Sequence[T], failures: list[str], minor: Callable[[T], bool] | None = None) -> Sequence[T]:
        """Return the first items up to the maximum, in their order; those that are `minor` are dropped first."""
        if len(found) <= self._most:
            return found
        if not self._reported:
            self._reported = True
            failures.append(self._error)
        if minor is None:
            return found[: self._most]
        ranked = sorted((minor(each), place) for place, each in enumerate(found))
        return [found[place] for place in sorted(place for _, place in ranked[: self._most])]


def is_virtual_function(device: Path) -> bool:
    """Whether a device of /sys/class is an SR-IOV virtual function. Source: ``/sys/class/*/*/device/physfn``."""
    return is_present(device / "device" / "physfn")
