"""An option's value as the operator gave it, before it is understood."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Given:
    """One option's text and where it was written.

    Attributes:
        texts: one text; several only for an option that may be given several times.
        source: the flag, ``environment variable NAME`` or ``config.yml: key``, for messages.
    """

    texts: tuple[str, ...]
    source: str
