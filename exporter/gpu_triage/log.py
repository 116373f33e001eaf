"""Structured logging: one line per event, in logfmt or JSON, on top of the standard library's logging.

Modules log with ``logging.getLogger("gpu_triage.<module>")`` and put details into fields, not the message::

    log.warning("GPU stalled", extra=fields(gpu=3, deadline_seconds=5.0))
    ts=2026-01-02T03:04:05.678Z level=warning msg="GPU stalled" gpu=3 deadline_seconds=5.0
"""

import json
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Final, TextIO

LOGGER = "gpu_triage"
_BARE = re.compile(r"[^\s\"=\\]+")

MOST_LINES: Final = 60
_REFILL_SECONDS: Final = 60.0
"""A place in the code may write so many lines at once, and then one a minute: jobs, clients and the kernel can cause
any number. The others are summed up in one line, before the next one of the place or at the end."""

QUIET_SECONDS: Final = 600.0
"""How long they are counted before that."""

_MOST_KINDS: Final = 1000

Fact = str | int | float | bool | None


def fields(**facts: object) -> dict[str, object]:
    """The ``extra`` argument of a log call that adds these fields to the line, in this order."""
    return {"fields": facts}


def repeated(kind: object, quiet_seconds: float, **facts: object) -> dict[str, object]:
    """As `fields`, for a line that may come again and again: for so long, others of this kind are only counted."""
    return {"fields": facts, "repeats": (kind, quiet_seconds)}


def configure(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Send this program's log, from a `level` on, and all Python warnings to one stream; a second call replaces it."""
    handler = _Handler(sys.stderr if stream is None else stream)
    handler.setFormatter(FORMATTERS[log_format])
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(LOGGER).setLevel(level.upper())


class _Place:
    """A place in the code that logs, and what it may log now. Times are monotonic seconds."""

    def __init__(self, record: logging.LogRecord, now: float) -> None:
        # Not the record itself, which keeps the frames of an exception.
        self.origin = (record.name, record.levelno, record.pathname, record.lineno)
        self.message = record.msg
        self.left_out = 0
        self.left_out_since = now
        self._room = float(MOST_LINES)
        self._at = now
        self._quiet_until: dict[object, float] = {}  # by kind

    def admits(self, record: logging.LogRecord, now: float) -> bool:
        kind, seconds = getattr(record, "repeats", (None, 0.0))
        self._room = min(float(MOST_LINES), self._room + (now - self._at) / _REFILL_SECONDS)
        self._at = now
        if self._room < 1 or now < self._quiet_until.get(kind, now):
            self.left_out_since = self.left_out_since if self.left_out else now
            self.left_out += 1
            return False
        self._room -= 1
        if seconds:
            self._quiet_until.pop(kind, None)
            self._quiet_until[kind] = now + seconds
            for oldest in tuple(self._quiet_until)[:-_MOST_KINDS]:
                del self._quiet_until[oldest]
        return True


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]  # not subscriptable before Python 3.11
    """Writes lines, a limited number from each place. If the stream is closed or full, a line is lost, nothing else."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._now = now
        self._places: dict[tuple[str, int], _Place] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or count it; those that are only counted are summed up after a while, and at the end."""
        now = self._now()
        place = self._places.setdefault((record.pathname, record.lineno), _Place(record, now))
        admitted = place.admits(record, now)
        if place.left_out and now - place.left_out_since >= QUIET_SECONDS:
            self._sum_up(place)
        if admitted:
            super().emit(record)

    def close(self) -> None:
        """Sum up what was left out until now."""
        for place in self._places.values():
            if place.left_out:
                self._sum_up(place)
        super().close()

    def _sum_up(self, place: _Place) -> None:
        lines, place.left_out = place.left_out, 0
        said = logging.LogRecord(*place.origin, "lines of the log were left out", (), None)
        said.__dict__.update(fields(of=place.message, lines=lines))
        super().emit(said)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop the line: there is nowhere left to report the failure."""


class _LineFormatter(logging.Formatter):
    """Formats a record as one line; a record that can't be formatted is replaced by an error line, never raised."""

    def __init__(self, line: Callable[[dict[str, Fact]], str]) -> None:
        super().__init__()
        self._line = line

    def format(self, record: logging.LogRecord) -> str:
        try:
            return self._line(dict(_facts(record)))
        except Exception as error:  # noqa: BLE001 - an error in a field's __str__ must not reach the caller
            message = "a log record could not be formatted"
            place = f"{record.filename}:{record.lineno}"
            return self._line({"level": "error", "msg": message, "at": place, "error": type(error).__name__})


def _logfmt(facts: dict[str, Fact]) -> str:
    """``key=value`` pairs; a value with special characters is quoted like a JSON string."""
    return " ".join(f"{key}={_logfmt_value(fact)}" for key, fact in facts.items())


FORMATTERS = {"logfmt": _LineFormatter(_logfmt), "json": _LineFormatter(json.dumps)}


def _facts(record: logging.LogRecord) -> Iterator[tuple[str, Fact]]:
    at = datetime.fromtimestamp(record.created, timezone.utc)
    yield "ts", f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
    yield "level", record.levelname.lower()
    yield "msg", record.getMessage()
    if record.name != LOGGER and not record.name.startswith(f"{LOGGER}."):
        yield "logger", record.name
    for key, value in getattr(record, "fields", {}).items():
        yield key, _fact(value)
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        yield "error", f"{type(error).__name__}: {_fact(error)}"
        yield "traceback", logging.Formatter().formatException(record.exc_info)


def _fact(value: object) -> Fact:
    """Numbers, booleans and None keep their types, except NaN and infinity, which JSON lacks."""
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _logfmt_value(fact: Fact) -> str:
    if not isinstance(fact, str):
        return json.dumps(fact)
    if fact != "null" and fact.isprintable() and _BARE.fullmatch(fact):
        return fact
    return f'"{"".join(map(_escaped, fact))}"'


def _escaped(character: str) -> str:
    if character.isprintable() and character not in '"\\':
        return character
    return json.dumps(character)[1:-1]
