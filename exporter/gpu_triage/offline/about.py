"""What a reader of files reads, as the documentation lists it."""

from __future__ import annotations

from typing import NamedTuple


class About(NamedTuple):
    """One kind of input.

    Attributes:
        kind: what reports call it.
        forms: the forms and options that are recognized; "" where there is only one.
        tells: what it tells of a host.
    """

    kind: str
    forms: str
    tells: str
