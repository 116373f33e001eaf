"""The values of settings, each read from its text.

Every function raises ValueError with what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

from gpu_triage.alerting.durations import LONGEST, seconds
from gpu_triage.alerting.settings import (
    GRAFANA_URL,
    JOB,
    LABEL_NAME,
    MOST_CHARACTERS,
    RUNBOOK_URL,
    SEVERITIES,
    TEXT,
)
from gpu_triage.alerting.sources import Threshold
from gpu_triage.alerting.tokens import plain

_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
_NOT_RE2: Final = re.compile(r"\(\?(=|!|<=|<!|P=)|\\[1-9]")


def _matches(pattern: str, text: str) -> bool:
    return 0 < len(text) <= MOST_CHARACTERS and re.fullmatch(pattern, text) is not None


def parse_job(text: str) -> str:
    """The name of scrape jobs, as a regular expression."""
    if not _matches(JOB, text):
        raise ValueError(f"write a regular expression of at most {MOST_CHARACTERS} characters, such as .*gpu-triage.*")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"this is no regular expression: {error}") from error
    if unsupported := _NOT_RE2.search(text):
        raise ValueError(f"Prometheus does not support {unsupported[0]} in regular expressions; leave it out")
    return text


def parse_label_name(text: str) -> str:
    """The name of a label."""
    if not _matches(LABEL_NAME, text):
        raise ValueError("a label begins with a letter and has only letters, digits and underscores")
    return text


def refusal_of(name: str, reserved: tuple[str, ...]) -> str | None:
    """Why a label or an annotation cannot have this name; None if it can."""
    if name in reserved:
        return "belongs to the rules; choose another name"
    if not _matches(LABEL_NAME, name):
        return "is not a valid name; begin with a letter and use only letters, digits and underscores"
    return None


def parse_text(text: str) -> str:
    """The value of a label or an annotation."""
    if not _matches(TEXT, text):
        raise ValueError(f"write one line of at most {MOST_CHARACTERS} characters without braces")
    return text


def parse_grafana_url(text: str) -> str:
    """Grafana's address, without a slash at its end."""
    if not _matches(GRAFANA_URL, text):
        raise ValueError("write Grafana's address, such as https://grafana.example.org")
    return text.rstrip("/")


def parse_runbook_url(text: str) -> str:
    """The address that runbooks are below, likewise."""
    if not _matches(RUNBOOK_URL, text):
        raise ValueError(
            "write the address that the runbooks are below, such as https://wiki.example.org/runbooks; "
            "of templates it may hold {{ $labels.instance }} and other labels"
        )
    return text.rstrip("/")


def parse_flag(text: str) -> bool:
    """Whether something is on."""
    if text not in ("true", "false"):
        raise ValueError("write true or false")
    return text == "true"


def parse_hold(text: str) -> str:
    """A duration, as it is written."""
    length, longest = seconds(text), seconds(LONGEST)
    if length is None or longest is None:
        raise ValueError("write a duration with its unit, such as 30s, 15m or 1h30m")
    if length > longest:
        raise ValueError(f"the longest is {LONGEST}")
    return text


def parse_severity(text: str) -> str:
    """How urgent an alert is."""
    if text in SEVERITIES:
        return text
    close = get_close_matches(text, SEVERITIES, n=1)
    raise ValueError(f"did you mean {close[0]}?" if close else f"write one of {', '.join(SEVERITIES)}")


def parse_within(limits: Threshold) -> Callable[[str], float]:
    """A parser of numbers in a threshold's range."""

    def number(text: str) -> float:
        if not _NUMBER.fullmatch(text):
            raise ValueError(f"write a number from {plain(limits.low)} to {plain(limits.high)}")
        value = float(text)
        if not limits.low <= value <= limits.high:
            nearest = limits.low if value < limits.low else limits.high
            raise ValueError(f"the nearest allowed value is {plain(nearest)}")
        return value

    return number
