"""Tokens in the source, ``${name}``: found, filled in, and never left over by mistake."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gpu_triage.alerting.sources import SourceError

TOKEN: Final = re.compile(r"\$\{([a-z][a-z0-9_]*(?::[a-z]+)?)\}")
OPENING: Final = "${"


def expanded(text: str, macros: Mapping[str, str]) -> str:
    """The text with every macro written out; what they bring may hold tokens, which stay as they are."""
    return TOKEN.sub(lambda found: macros.get(found[1], found[0]), text)


def filled_in(where: str, text: str, values: Mapping[str, str]) -> str:
    """The text with every token replaced by its value.

    Raises:
        SourceError: a token has no value, or is not written like one.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise SourceError(f"{where}: {found[0]} is unknown; known are {', '.join(sorted(values))}")
        return values[found[1]]

    if OPENING in TOKEN.sub("", text):
        raise SourceError(f"{where}: '${{' begins no token; write ${{name}} in lower case")
    return TOKEN.sub(value, text)


def plain(number: float) -> str:
    """A number without exponent and trailing zeros; the chart's template writes it the same way."""
    return _without_zeros(f"{number:.6f}")


def percent(share: float) -> str:
    """A share as a percentage, likewise."""
    return f"{_without_zeros(f'{share * 100:.4f}')}%"


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".")
