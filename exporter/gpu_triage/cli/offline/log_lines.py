"""The lines of kernel logs: time in any common form, and message; without those of a sender other than the kernel."""

import json
import re
import time
from calendar import timegm
from collections.abc import Iterator
from contextlib import suppress
from operator import le
from typing import Final, NamedTuple

from gpu_triage.cli.offline.lines import CRI
from gpu_triage.documents import packaged_toml
from gpu_triage.read.host import driver_messages, kernel_messages

_NAMES: Final = packaged_toml(__package__, "months.toml")["months"]
_MONTHS: Final = {name: number for number, names in enumerate(_NAMES, 1) for name in names.split()}
"""By prefix of the month name, in the languages that servers are set to; the longest matching prefix wins."""

_CLOCK: Final = r"(\d{1,2})[:.](\d{2})[:.](\d{2})"
_ISO: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})[T ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?")
_DATE: Final = re.compile(rf"{_CLOCK}\s*([AaPp][Mm])?")
_YEAR: Final = re.compile(r"(?<!\d)((?:19|20)\d{2})(?!\d)")
_DAY: Final = re.compile(r"(?<![\d:.])(\d{1,2})(?![\d:])")
_NUMBERED_MONTH: Final = re.compile(r"(\d{1,2})\s?[月월]")
_SYSLOG: Final = re.compile(
    rf"(?:([^\W\d]{{3,10}})\.?|(\d{{1,2}})\s?[月월]) +(\d{{1,2}})(?:,? ((?:19|20)\d{{2}}))? {_CLOCK}"
    r"(?! [AaPp][Mm]\b)(?:[.,]\d{1,9})?(?: [A-Z]{2,5})?(?: ((?:19|20)\d{2})\b)?"
)
_SECONDS: Final = re.compile(r"\[ *(\d{1,12}\.\d{1,9})\]")
_KMSG: Final = re.compile(r"(?:^|\s)\d{1,4},\d{1,19},(\d{1,19}),[^;]{0,80};")
_IN_BRACKETS: Final = re.compile(r"\[([^\[\]]{12,60}(?:19|20)\d{2})\]")
"""As printed by ``dmesg -T``: what writes its output to syslog puts a later time before it."""
MINUTE: Final = re.compile(r"\[(?:([^\W\d]{3,10})\.?|(\d{1,2})[月월]) ?(\d{1,2}) (\d{2}):(\d{2})\]")
_NO_YEAR: Final = 1972  # placeholder for the year missing from syslog, until it is inferred; a leap year

_NOON: Final = 12
DAY_SECONDS: Final = 86_400.0


class LogTime(NamedTuple):
    """When a line was logged; None for what it doesn't contain."""

    seconds: float | None = None  # since boot, by printk's clock
    wall: float | None = None  # in the host's wall clock
    lacks_year: bool = False  # whether the year in `wall` is a placeholder


NO_TIME: Final = LogTime()


def log_time(prefix: str) -> LogTime:
    """The time in a kernel log prefix, in any format of dmesg, journalctl or syslog."""
    found_seconds, record = _SECONDS.search(prefix), _KMSG.search(prefix)
    seconds = float(found_seconds[1]) if found_seconds else int(record[1]) / 1e6 if record else None
    if (bracketed := _IN_BRACKETS.search(prefix)) is not None and (wall := date_time(bracketed[1])) is not None:
        return LogTime(seconds, wall)
    if (iso := _ISO.search(prefix)) is not None:
        return LogTime(seconds, _of_iso(iso))
    if (minute := MINUTE.search(prefix)) is not None:
        found, year, day_and_clock = minute, "", (*minute.group(3, 4, 5), "0")
    elif (syslog := _SYSLOG.search(prefix)) is not None:
        found, year, day_and_clock = syslog, syslog[4] or syslog[8] or "", syslog.group(3, 5, 6, 7)
    else:
        return LogTime(seconds, date_time(prefix))
    month = int(found[2]) if found[2] else _month(found[1])
    wall = None if month is None else _wall(int(year or _NO_YEAR), month, *map(int, day_and_clock))
    return LogTime(seconds, wall, lacks_year=not year)


def with_year(wall: float, reference: float) -> float:
    """Add the year to a wall time: the latest one that puts it at most a day after the reference."""
    day, clock = divmod(wall, DAY_SECONDS)
    moment, year = time.gmtime(day * DAY_SECONDS), time.gmtime(reference + DAY_SECONDS).tm_year
    for candidate in range(year, year - 5, -1):
        found = _wall(candidate, moment.tm_mon, moment.tm_mday, 0, 0, 0)
        if found is not None and found + clock <= reference + DAY_SECONDS:
            return found + clock
    return wall


def date_time(text: str) -> float | None:
    """A date and time in any order and language, as printed by ``date``; None if it isn't one.

    >>> date_time("jeu. 25 août 2022 20:30:39 CEST") == date_time("Thu Aug 25 20:30:39 2022")
    True
    """
    if (iso := _ISO.search(text)) is not None:
        return _of_iso(iso)
    clock, year = _DATE.search(text), _YEAR.search(text)
    if clock is None or year is None:
        return None
    # The month almost always precedes the time; after it there may be a time zone that looks like a month.
    for rest in (text[: clock.start()], text):
        rest = rest.replace(clock[0], " ").replace(year[1], " ", 1)  # noqa: PLW2901 - remove the parts already parsed
        numbered = _NUMBERED_MONTH.search(rest)
        month = int(numbered[1]) if numbered is not None else _named_month(rest)
        day = _DAY.search(rest if numbered is None else rest.replace(numbered[0], " ", 1))
        if month is not None and day is not None:
            break
    else:
        return None
    hour = int(clock[1]) % _NOON + (_NOON if clock[4].lower() == "pm" else 0) if clock[4] else int(clock[1])
    return _wall(int(year[1]), month, int(day[1]), hour, int(clock[2]), int(clock[3]))


def _of_iso(iso: re.Match[str]) -> float | None:
    fraction = float(f"0.{iso[7]}") if iso[7] else 0.0
    return _wall(*map(int, iso.group(1, 2, 3, 4, 5)), int(iso[6] or 0), fraction=fraction)


def _named_month(text: str) -> int | None:
    words = (word for word in re.split(r"[^\w]+", text) if word and not word[0].isdigit())
    # The weekday comes first and may look like a month: "mar" is mardi (Tuesday) or março. So the last match wins.
    months = [month for word in words if (month := _month(word)) is not None]
    return months[-1] if months else None


def _month(name: str) -> int | None:
    name = name.lower().rstrip(".")
    return _MONTHS.get(name[:4]) or _MONTHS.get(name[:3])


def _wall(year: int, month: int, day: int, *clock: int, fraction: float = 0.0) -> float | None:
    """Seconds from year, month, day, hour, minute and second; None if out of range."""
    if 1 <= month <= 12 and 1 <= day <= 31 and all(map(le, clock, (24, 59, 61))):  # noqa: PLR2004 - the calendar
        return timegm((year, month, day, *clock)) + fraction
    return None


def written(wall: float) -> str:
    """A wall time as display text: ``2026-11-22 10:00:00``."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(wall))


_LONGEST_TEXT: Final = 400
MARKERS: Final = (
    *("SXid", "nouveau", '"MESSAGE":[', '"MESSAGE": ['),
    *driver_messages.MARKERS,
    *kernel_messages.MARKERS,
)
"""Substrings to search for; a line without any of them contains no known event."""

_MESSAGE: Final = re.compile(f"{driver_messages.BEGINNINGS}|{kernel_messages.BEGINNINGS}")
_LONGEST_PREFIX: Final = 240
_CLOCKS: Final = re.compile(r"(?:\[ *[\d.+TC]{1,24}\]\s*)+$")
_SECONDS_ALONE: Final = re.compile(r"\[ *\d{1,12}\.\d{1,9}\] ")
_EARLIEST, _LATEST = 1e9, 1e10  # Unix seconds
_RECORD: Final = re.compile(r"(\d{1,4}),\d{1,19},\d{1,19},[^;]{0,80};$")
_WRITER: Final = re.compile(r"([\w./@-]{1,64})(?:\[\d+\])?:$")
_OF_LOADER: Final = re.compile(driver_messages.OF_LOADERS)
_LOADER: Final = re.compile(r"\b(?:modprobe|insmod|systemd-modules-load|systemd-udevd|\(udev-worker\))(?:\[\d+\])?: $")
_DECODED: Final = re.compile(r"(?:^|\s)kern\s*:\s*[a-z]+\s*:$")
_TALOS: Final = re.compile(r"(?:^|\s)kern:\s+[a-z]+:\s+\[[\d:.TZ+-]{20,40}\]:$")
_OF_PROCESS: Final = re.compile(r"(?:^|\s)(?!kern\b)[a-z]\w{1,9}:\s+[a-z]+:\s+\[[\d:.TZ+-]{20,40}\]: ")
"""Log prefix of Talos' own processes."""
_RFC_5424: Final = re.compile(
    r"(?:<(\d{1,3})>)?(?:1 )?\S{1,40} \S{1,255} kernel \S{1,128} \S{1,32} (?:-|\[.{1,160}\])(?: ?\ufeff)?$"
)
_JSON_KEY: Final = re.compile(r'^\s*"[\w.@-]{1,40}" ?: ?"$')
_CELL_END: Final = re.compile(r'(?:\|\s*|"[,;]\s*"?|[,;]"|\t\s*|(?<!:) {2,}|,)$')
"""What separates the columns of a table, of CSV, or of ``kubectl get events`` from the message."""
_BULLET: Final = re.compile(r"^\s*(?:[-*+\u2022]|\d{1,4}[.)])\s+")
_DECORATION: Final = " `*_'\"\u2022"
_QUOTABLE: Final = "NVRM: Xid ("
_STAMP: Final = re.compile(r"\d:\d{2}[\d:.,+Z-]*$")
_KERNELS: Final = frozenset({"kernel", "kern", "messages", "syslog", "dmesg"})
_NEWLINE: Final = "#012"
"""How rsyslog escapes a newline in a message."""

_JSON_WRITERS: Final = ("SYSLOG_IDENTIFIER", "appname", "_TRANSPORT")
_JSON_TIMES: Final = (
    *("__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP", "timestamp", "@timestamp", "time", "_time", "ts", "date"),
    *("lastTimestamp", "eventTime", "firstTimestamp"),
)
_DEEPEST_JSON: Final = 12


class KernelMessage(NamedTuple):
    """A kernel message; escaped newlines are decoded."""

    prefix: str  # the text before it, with its timestamp
    text: str
    quoted: bool = False  # whether another sender repeats it
    place: int = 0  # line number


def kernel_messages_in(text: str, depth: int = _DEEPEST_JSON) -> Iterator[KernelMessage]:
    """The kernel messages in a line, or in JSON there; of what others say, only Xids count, which are quoted."""
    if text.lstrip()[:1] in ("{", "[") and '"' in text:
        with suppress(ValueError, RecursionError):
            yield from _in_json(json.loads(text), "", depth)
            return
    found = _MESSAGE.search(text)
    if found is not None and 0 < text.find("{") < found.start() and text.rstrip().endswith("}"):
        # Fluentd and Docker's logging drivers put a time and a tag before the record.
        with suppress(ValueError, RecursionError):
            yield from _in_json(json.loads(text[text.index("{") :]), text[: text.index("{")], depth)
            return
    if found is not None:
        prefix = text[max(0, found.start() - _LONGEST_PREFIX) : found.start()]
        if _is_kernels(prefix) or (_LOADER.search(prefix) and _OF_LOADER.match(text, found.start())):
            yield _message(text, found.start(), 0)
            return
    end = 0
    while found is not None and (start := text.find(_QUOTABLE, max(end, found.start()))) >= 0:
        yield _message(text, start, end)._replace(quoted=True)
        end = start + len(_QUOTABLE)


def _message(text: str, start: int, begin: int) -> KernelMessage:
    """The message that starts here, and the text before it, from `begin` on."""
    said = text[start : start + _LONGEST_TEXT]
    return KernelMessage(text[max(begin, start - _LONGEST_PREFIX) : start], said.replace(_NEWLINE, "\n"))


def _is_kernels(prefix: str) -> bool:
    """Whether the text before a message names the kernel as the sender, or names no sender."""
    if _SECONDS_ALONE.fullmatch(prefix) is not None:
        return True
    cells = _BULLET.sub("", CRI.sub("", prefix))
    cells, clocks = _CLOCKS.subn("", cells) if cells.rstrip().endswith("]") else (cells, 0)
    bare = cells.strip()
    if not bare.strip(_DECORATION) or (_CELL_END.search(cells) is not None and (clocks or "kern" in cells)):
        return True
    if bare.endswith(";"):
        record = _RECORD.search(bare)
        return record is None or int(record[1]) >> 3 == 0
    if bare.endswith(":"):
        writer = _WRITER.search(bare)
        name = "" if writer is None else writer[1].rpartition("/")[2]
        # grep prefixes the file name or line number; dmesg --decode prefixes the facility and level.
        is_file = name.isdigit() or ".log" in name
        return name in _KERNELS or is_file or any(form.search(bare) for form in (_DECODED, _TALOS))
    if (fields := _RFC_5424.match(bare)) is not None:
        return int(fields[1] or 0) >> 3 == 0
    is_end = bare.endswith(("]", ">", "MESSAGE=")) or _STAMP.search(bare) is not None or _JSON_KEY.match(prefix)
    return bool(is_end) and _OF_PROCESS.search(bare) is None


def _in_json(found: object, stamp: str, depth: int, *, by_kernel: bool = True) -> Iterator[KernelMessage]:
    """Messages in JSON; `stamp`: the time of the record, lines may have others; `by_kernel`: no other is named."""
    if isinstance(found, list) and found and all(isinstance(each, int) and 0 <= each < 256 for each in found):  # noqa: PLR2004 - a byte
        # journalctl encodes unusual characters as an array of byte values.
        found = bytes(found).decode("utf-8", "replace")
    if depth <= 0:
        return
    if isinstance(found, str):
        yield from _in_json_text(found, stamp, depth, by_kernel=by_kernel)
    elif isinstance(found, dict):
        yield from _in_record(found, stamp, depth, by_kernel=by_kernel)
    elif isinstance(found, list):
        # Loki's pairs of time and line.
        stamp = (_json_time(found[0]) if len(found) == 2 else "") or stamp  # noqa: PLR2004 - a pair
        for each in found:
            yield from _in_json(each, stamp, depth - 1, by_kernel=by_kernel)


def _in_record(found: dict[str, object], stamp: str, depth: int, *, by_kernel: bool) -> Iterator[KernelMessage]:
    writers = {str(found[key]) for key in _JSON_WRITERS if key in found} - {"syslog", "journal"}
    stamp = next(filter(None, (_json_time(found[key]) for key in _JSON_TIMES if key in found)), stamp)
    seen: set[str] = set()
    for each in found.values():
        for said in _in_json(each, stamp, depth - 1, by_kernel=by_kernel and writers <= {"kernel"}):
            # Shippers keep the original line beside the message that they parsed from it.
            if isinstance(each, list) or said.text not in seen:
                seen.add(said.text)
                yield said


def _in_json_text(found: str, stamp: str, depth: int, *, by_kernel: bool) -> Iterator[KernelMessage]:
    whole = by_kernel and _MESSAGE.match(found) is not None
    inner = (said for line in found.splitlines() for said in kernel_messages_in(line, depth - 1))
    for said in [KernelMessage("", found[:_LONGEST_TEXT])] if whole else inner:
        is_booted = not said.prefix or _SECONDS_ALONE.fullmatch(said.prefix) is not None
        prefix = stamp + said.prefix if is_booted or log_time(said.prefix).wall is None else said.prefix
        if by_kernel or said.text.startswith(_QUOTABLE):
            yield KernelMessage(prefix, said.text, said.quoted or not by_kernel)


def _json_time(value: object) -> str:
    """A time in ISO format, or as a number of seconds, milliseconds, microseconds or nanoseconds; "" otherwise."""
    text = str(value)[:40]
    with suppress(ValueError):
        number = float(text)
        for scale in (1.0, 1e3, 1e6, 1e9):
            if _EARLIEST <= number / scale < _LATEST:
                return f"{written(number / scale)} "
    return "" if date_time(text) is None else f"{text} "
