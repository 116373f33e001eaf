"""Settings for judging findings on this host: wait times, hold times and thresholds; defaults, changes, and as text."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from gpu_triage.documents import quoted
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Area, Check, Limit, Unit, length_in_words
from gpu_triage.options.config import JudgeOption
from gpu_triage.options.values import parse_duration, show_duration

LIMITS: Final = {check.code: check.limits for check in CHECKS if check.limits}
"""Thresholds by finding and name. Those of `memory.starved` etc. also decide the class and `memory.saturated` etc."""

WAIT, HOLD = "wait", "hold"
_LONGEST_SECONDS: Final = 86_400.0
_LISTING: Final = "gpu-triage judge --print-config lists them all"
_MOST_NEAR: Final = 3

_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+")
_SUFFIXES: Final[Mapping[Unit, Mapping[str, float]]] = {
    Unit.RATIO: {"": 1.0, "%": 0.01},
    Unit.CELSIUS: {"": 1.0, "c": 1.0, "°c": 1.0},
    Unit.COUNT: {"": 1.0},
    Unit.BYTES_PER_SECOND: {"": 1.0, "kib": 1024.0, "mib": 1024.0**2, "gib": 1024.0**3},
}
"""Accepted unit suffixes in lower case, and their factors."""


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that differs from its default."""

    code: str  # code of the finding
    name: str  # name of the setting
    value: float  # in its unit
    default: float  # in the same unit
    unit: Unit  # seconds, bytes per second, degrees Celsius, a count, or a share of 1

    @property
    def text(self) -> str:
        """As text: ``thermal.hw waits 5 minutes instead of 10 minutes``."""
        what = {WAIT: "waits", HOLD: "is held for"}.get(self.name, self.name)
        now, before = (_in_words(each, self.unit) for each in (self.value, self.default))
        return f"{self.code} {what} {now} instead of {before}"


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """The effective settings for judging findings; immutable."""

    checks: Mapping[str, Check]  # the table of findings with the effective wait and hold times, by code
    limits: Mapping[tuple[str, str], float]  # the effective thresholds by code and name, in the units of `LIMITS`
    changed: tuple[Change, ...] = ()  # differences from the defaults, in the table's order


_time = partial(Limit, low=0, high=_LONGEST_SECONDS, unit=Unit.SECONDS)


def settable(check: Check) -> dict[str, Limit]:
    """Return all settings of a finding by name: wait, hold, then its thresholds."""
    return {
        WAIT: _time(check.wait_seconds, "How long its condition must last before the finding is confirmed"),
        HOLD: _time(check.hold_seconds, "How long it stays confirmed after its condition has ended"),
        **check.limits,
    }


def judge_settings(options: Iterable[JudgeOption] = ()) -> JudgeSettings:
    """Return the defaults with these options, of which the last wins. Raises ConfigError that lists all mistakes."""
    chosen: dict[tuple[str, str], float] = {}
    problems = []
    for option in options:
        try:
            chosen[option.code, option.name] = _value(option)
        except ValueError as error:
            problems.append(f"{option.place}: {error}")
    if problems:
        raise ConfigError(*problems)
    changed = tuple(_changes(chosen))
    checks = dict(BY_CODE)
    for change in changed:
        if change.name in (WAIT, HOLD):
            time: dict[str, Any] = {f"{change.name}_seconds": change.value}
            checks[change.code] = replace(checks[change.code], **time)
    thresholds = {(code, name): each.value for code, limits in LIMITS.items() for name, each in limits.items()}
    limits = {key: chosen.get(key, default) for key, default in thresholds.items()}
    return JudgeSettings(MappingProxyType(checks), MappingProxyType(limits), changed)


def _changes(chosen: Mapping[tuple[str, str], float]) -> Iterator[Change]:
    for check in CHECKS if chosen else ():
        for name, limit in settable(check).items():
            value = chosen.get((check.code, name), limit.value)
            if value != limit.value:
                yield Change(check.code, name, value, limit.value, limit.unit)


def _value(option: JudgeOption) -> float:
    """Return an option's value. Raises ValueError: an unknown finding or setting, or a value that is invalid."""
    check = BY_CODE.get(option.code)
    if check is None:
        raise ValueError(f"there is no finding {quoted(option.code)}; {_near(option.code, BY_CODE)}")
    limits = settable(check)
    if option.name not in limits:
        raise ValueError(f"{check.code} has no setting {quoted(option.name)}; it has {_listed(tuple(limits), 'and')}")
    limit = limits[option.name]
    value = _parsed(option.text, limit.unit)
    if value is None or not limit.low <= value <= limit.high:
        wrong = "is invalid" if value is None else "is out of range"
        low, high = (shown(each, limit.unit) for each in (limit.low, limit.high))
        raise ValueError(
            f"{check.code}.{option.name}: {quoted(option.text)} {wrong}; write {_NOUNS[limit.unit]} from {low} to "
            f"{high}, such as {shown(limit.value, limit.unit)}"
        )
    return value


_UNITS_IN_WORDS: Final = MappingProxyType({Unit.CELSIUS: " °C", Unit.BYTES_PER_SECOND: "/s"})
_NOUNS: Final = {
    Unit.RATIO: "a share",
    Unit.SECONDS: "a duration with its unit",
    Unit.CELSIUS: "degrees Celsius",
    Unit.COUNT: "a whole number",
    Unit.BYTES_PER_SECOND: "bytes per second",
}


def _parsed(text: str, unit: Unit) -> float | None:
    if unit is Unit.SECONDS:
        try:
            return 0.0 if text == "0" else parse_duration(text.replace(" ", ""))
        except ValueError:
            return None
    match = _NUMBER.match(text)
    factor = None if match is None else _SUFFIXES[unit].get(text[match.end() :].strip().lower().removesuffix("/s"))
    if match is None or factor is None or (unit is Unit.COUNT and "." in match[0]):
        return None
    number = float(match[0])
    # Not number * factor: 7 * 0.01 is not 0.07.
    return number / 100 if factor == 0.01 else number * factor  # noqa: PLR2004 - percent


def shown(value: float, unit: Unit) -> str:
    """Format a value so that it can be parsed again."""
    if unit is Unit.SECONDS:
        return show_duration(value) if value else "0s"
    if unit is Unit.RATIO:
        return f"{value * 100:.10g}%"
    if unit is Unit.BYTES_PER_SECOND:
        for suffix, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
            if value >= size and value % size == 0:
                return f"{value / size:.0f}{suffix}"
    return f"{value:.10g}"


def _in_words(value: float, unit: Unit) -> str:
    if unit is Unit.SECONDS:
        return length_in_words(value)
    text = shown(value, unit)
    return f"{text}{_UNITS_IN_WORDS.get(unit, '')}"


def _near(code: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for error messages; saves memory in the daemon

    close = get_close_matches(code, known, n=_MOST_NEAR)
    return f"did you mean {_listed(close, 'or')}?" if close else _LISTING


def _listed(words: Iterable[str], last: str) -> str:
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end


DEFAULT_SETTINGS: Final = judge_settings()

_HEAD: Final = """\
# How findings are judged, with the defaults: a section of the exporter's configuration file. Keep what you change and
# delete the rest: what is not here keeps its default, also in later versions.
#
#   gpu-triage config check /etc/gpu-triage/config.yml
#   systemctl reload gpu-triage-exporter   # or send SIGHUP
#
# wait: how long the condition of a finding must last before the finding is confirmed: the alert fires, and the verdict
# is that of its severity. Until then it is pending, and the verdict is watch.
# hold: how long it stays confirmed after its condition has ended, so that a flapping condition is one incident.
# Both are durations from 0s to 24h.
judge:"""


def settings_document() -> str:
    """Return the section `judge` with every default, each threshold explained by a comment; ends with a newline."""
    lines = [_HEAD]
    for area in Area:
        lines.append(f"\n  # {area.value}")
        for check in CHECKS:
            if check.area is area:
                lines += _entry(check)
    return "\n".join(lines) + "\n"


def _entry(check: Check) -> Iterator[str]:
    yield f"  {check.code}:"
    for name, limit in settable(check).items():
        if name in check.limits:
            yield f"    # {limit.about} ({shown(limit.low, limit.unit)} to {shown(limit.high, limit.unit)})"
        yield f"    {name}: {shown(limit.value, limit.unit)}"


def settings_markdown() -> str:
    """Return a Markdown list of all thresholds with default and range; ends with a newline."""
    return "".join(dict.fromkeys(line for check in CHECKS for line in _lines(check)))


def _lines(check: Check) -> Iterator[str]:
    # All Xids have the same settings.
    code = "xid.CODE" if check.code.removeprefix("xid.").isdecimal() else check.code
    for name, each in check.limits.items():
        value, low, high = (shown(number, each.unit) for number in (each.value, each.low, each.high))
        yield f"- `{code}.{name}` ({value}, {low}-{high}): {each.about}\n"
