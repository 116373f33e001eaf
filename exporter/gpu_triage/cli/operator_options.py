"""Until when, and why: values of the options of what an operator decides."""

import re
from datetime import datetime, timedelta
from typing import Final

from gpu_triage.documents import printable, quoted
from gpu_triage.options.values import TextType, parse_datetime
from gpu_triage.read.incidents.decisions import MOST_CHARACTERS

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_LENGTH: Final = re.compile(r"([0-9]{1,5})([mhd])")
_CLOCK: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}


def parse_until(text: str, now: datetime, longest_days: int) -> datetime:
    """Parse ``18:00``, ``2h``, ``2026-12-24`` (its end) or ``2026-12-01T08:00``, by the host's time zone.

    Raises:
        ValueError: it is not a time, or not within the next days.
    """
    if found := _LENGTH.fullmatch(text):
        until = now + timedelta(**{_UNITS[found[2]]: int(found[1])})
    elif found := _CLOCK.fullmatch(text):
        # Without a zone until the day is known: the offset may change in the night.
        today = now.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0, tzinfo=None)
        until = today.astimezone()
        if until <= now:
            until = (today + timedelta(days=1)).astimezone()
    else:
        try:
            until = (parse_datetime(text) + timedelta(days=bool(_DAY.fullmatch(text)))).astimezone()
        except (ValueError, OverflowError) as error:
            wrong = f"{quoted(text)} is no time; write one such as 18:00, 2h, 3d, 2026-12-24 or 2026-12-24T08:00"
            raise ValueError(wrong) from error
    if not now < until <= now + timedelta(days=longest_days):
        raise ValueError(f"{quoted(text)} is not within the next {longest_days} days")
    return until


def until_type(longest_days: int) -> TextType:
    return TextType("TIME", lambda text: parse_until(text, datetime.now().astimezone(), longest_days))


def parse_reason(text: str) -> str:
    reason = " ".join(printable(" ".join(text.split())).split())
    if not 0 < len(reason) <= MOST_CHARACTERS:
        raise ValueError(f"{quoted(text)} is no reason; write one line of at most {MOST_CHARACTERS} characters")
    return reason


REASON: Final = TextType("TEXT", parse_reason)
