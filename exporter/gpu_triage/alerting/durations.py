"""Durations as Prometheus writes them: ``30s``, ``1h30m``."""

from __future__ import annotations

import re
from typing import Final

_SECONDS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_WORDS: Final = {"d": "day", "h": "hour", "m": "minute", "s": "second"}
_PART: Final = re.compile(r"([0-9]+)([dhms])")

PATTERN: Final = "^([0-9]{1,2}d)?([0-9]{1,3}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$"
"""What a duration looks like, apart from the empty text: days, hours, minutes and seconds, in this order."""

LONGEST: Final = "7d"


def seconds(text: str) -> int | None:
    """How long a duration is; None if the text is none."""
    if not text or not re.fullmatch(PATTERN, text):
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def in_words(text: str) -> str:
    """A duration as prose has it: ``10 minutes``, ``1 hour 30 minutes``."""
    parts = [(int(number), _WORDS[unit]) for number, unit in _PART.findall(text)]
    return " ".join(f"{number} {word}{'s' * (number != 1)}" for number, word in parts if number) or "a moment"
