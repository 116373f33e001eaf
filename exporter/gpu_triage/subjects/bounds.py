"""How many devices of one kind are read and published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

MOST_DEVICES: Final = 256
"""Far more than a GPU host has, unless each path of a storage network or each virtual function counts as one."""


class Bound:
    """Leaves out what is beyond a number, and says so once."""

    def __init__(self, most: int, error: str) -> None:
        """The bound, and the name under which going beyond it is counted as an error."""
        self._most = most
        self._error = error
        self._told = False

    def kept(self, found: Sequence[T], failures: list[str], minor: Callable[[T], bool] | None = None) -> Sequence[T]:
        """The first of what was found, in its order.

        Args:
            found: all of it.
            failures: where the error is noted.
            minor: what is left out before anything else; asked only where something must be.
        """
        if len(found) <= self._most:
            return found
        if not self._told:
            self._told = True
            failures.append(self._error)
        if minor is None:
            return found[: self._most]
        ranked = sorted((minor(each), place) for place, each in enumerate(found))
        return [found[place] for place in sorted(place for _, place in ranked[: self._most])]


def is_virtual_function(device: Path) -> bool:
    """Whether a device of /sys/class is one that an adapter was cut into (SR-IOV), not the adapter.

    Source: ``/sys/class/*/*/device/physfn``
    """
    try:
        return (device / "device" / "physfn").is_symlink()
    except OSError:
        return False
