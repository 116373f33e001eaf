"""How each file reader describes its input in the documentation."""

from __future__ import annotations

from typing import NamedTuple


class About(NamedTuple):
    """One kind of input.

    Attributes:
        kind: name of the input in reports.
        forms: recognized forms and options; "" if there is only one.
        tells: what can be learned about a host from it.
    """

    kind: str
    forms: str
    tells: str
