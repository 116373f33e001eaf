"""Settings for judging findings on this host: wait times, hold times and thresholds; defaults, changes, and as text."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from gpu_triage.documents import quoted
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.check import Unit, length_in_words
from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Area, Check
from gpu_triage.options.config import JudgeOption
from gpu_triage.options.values import parse_duration, show_duration
from gpu_triage.read.xid.codes import XID_CODES, XidKind


@dataclass(frozen=True, slots=True)
class Limit:
    """One threshold."""

    value: float  # default
    about: str  # its meaning, a sentence without a period
    low: float  # lowest allowed value
    high: float  # highest allowed value
    unit: Unit  # unit of these values; a ratio may exceed 1


_share = partial(Limit, low=0.01, high=1.0, unit=Unit.RATIO)
_count = partial(Limit, low=1, high=1_000_000, unit=Unit.COUNT)
_celsius = partial(Limit, unit=Unit.CELSIUS)
_rate = partial(Limit, low=1, high=1024.0**4, unit=Unit.BYTES_PER_SECOND)
_seconds = partial(Limit, unit=Unit.SECONDS)


def _throttled(value: float, reason: str) -> Limit:
    return _share(value, f"Held back by {reason} for more than this share of the time")


_APPLICATION_XID: Final = _count(3, "More Xids of programs than this, of any code, in 10 minutes")

LIMITS: Final[Mapping[str, Mapping[str, Limit]]] = {
    **{f"xid.{xid.code}": {"count": _APPLICATION_XID} for xid in XID_CODES.values() if xid.kind is XidKind.APPLICATION},
    "gpu.slow": {
        "corrected_per_second": _count(100, "At least this many corrected memory errors per second before it stalled"),
        "seconds": _seconds(120, "and stalled for no longer than this: then it counts as lost", low=10, high=3600),
    },
    "gpu.repeat_offender": {
        "in_7_days": _count(2, "Incidents of one kind within 7 days", low=2, high=100),
        "in_30_days": _count(3, "Incidents of one kind within 30 days", low=2, high=100),
    },
    "thermal.hw": {"share": _throttled(0.1, "hw_thermal")},
    "thermal.sw": {"share": _throttled(0.25, "sw_thermal")},
    "thermal.margin": {
        "margin": _celsius(5, "Fewer degrees than this left before the GPU slows down", low=1, high=40),
        "memory_margin": _celsius(2, "or before its memory does, which runs hotter by design", low=1, high=40),
    },
    "thermal.at_rest": {
        "gap": _celsius(30, "Idle, and hotter than idle siblings by this (a house value)", low=10, high=60)
    },
    "thermal.low_limit": {
        "gap": _celsius(25, "Highest operating temperature at least this many degrees below slowdown", low=5, high=60)
    },
    "power.brake": {"share": _throttled(0.05, "hw_power_brake")},
    "power.hw_slowdown": {"share": _throttled(0.05, "hw_slowdown, without heat or brake,")},
    "power.reading": {
        "ratio": _share(1.2, "Reads at least this share of the highest power limit, at a low clock", low=1.01, high=10)
    },
    "power.cap": {"share": _throttled(0.9, "a lowered power limit")},
    "power.limit": {
        "ratio": _share(0.99, "A power limit below this share of the default counts as lowered", low=0.1, high=1.0)
    },
    "clock.straggler": {
        "drop": _share(0.1, "SM clock lower than the median of its busy peers by more than this share", high=0.9),
        "peers": _count(3, "Busy GPUs of one model that are needed for a comparison", low=3, high=64),
    },
    "pcie.flapping": {
        "retrainings": _count(5, "The link changed its width or generation, and back, more often in 15 minutes")
    },
    "pcie.replays": {
        "count": _count(30, "More replays in 15 minutes than this, and than one per 10^12 bits of the link")
    },
    "pcie.aer": {"count": _count(100, "More correctable AER errors than this in 15 minutes")},
    "nvlink.errors": {
        "replays": _count(10, "More replays and recoveries than this in 15 minutes"),
        "crc": _count(100, "More CRC errors than this in 15 minutes"),
    },
    "nvlink.recovering": {"count": _count(2, "One link of NVLink 5 recovered at least so often within an hour")},
    "nvlink.flapping": {"downs": _count(2, "Links went down at least so often in 30 minutes")},
    "ecc.corrected_rising": {"a_day": _count(100, "More corrected memory errors than this in a day")},
    "host.memory_errors_rising": {"a_day": _count(100, "More corrected errors of the host's memory in a day")},
    "host.hung_task": {"tasks": _count(2, "Tasks that hang at the same time", high=1000)},
    "cpu.slow_clock": {
        "ratio": _share(0.45, "The busiest CPU runs below this share of its clock"),
        "busy": _share(0.9, "while it is busy for this share of the time"),
    },
    "memory.swapping": {"rate": _rate(65536, "Reads back more than this a second from swap")},
    "memory.limited": {
        "pressure": _share(0.1, "At its own memory limit, a job's tasks are stalled for this share of the time")
    },
    "memory.starved": {
        "rate": _rate(1024.0**2, "GPUs wait, and at least this is read back from swap a second"),
        "pressure": _share(0.1, "or tasks are stalled for memory for this share of the time"),
    },
    "storage.starved": {
        "iowait": _share(0.1, "GPUs wait, and iowait is at least this share of the CPU time"),
        "pressure": _share(0.2, "or tasks are stalled for I/O for this share of the time"),
        "blocked": _share(0.3, "or this share of the job's threads that do not sleep wait for it in the kernel"),
        "disk": _share(0.9, "or a disk is busy for this share of the time, and slow"),
        "nfs": _seconds(
            0.05,
            "or reads, writes or lookups of NFS, or reads of Lustre, take this long on average",
            low=0.001,
            high=60,
        ),
    },
    "cpu.starved": {
        "node": _share(0.9, "GPUs wait, and the CPUs of their NUMA node are busy for this share of the time"),
        "busiest": _share(0.98, "or the busiest CPU of the node is busy for this share of the time"),
    },
    "cpu.limited": {
        "share": _share(0.25, "GPUs wait, and the job's CPU limit stops it in this share of the periods, or more")
    },
    "network.starved": {
        "line_rate": _share(0.85, "GPUs wait, and an adapter is at this share of its line rate, or more")
    },
    "network.port_flapping": {"downs": _count(3, "A port lost its link more often than this in an hour")},
    "network.link_degraded": {"downs": _count(3, "An interface lost its link more often than this in an hour")},
    "network.port_errors": {"count": _count(30, "More link errors of a port than this in 15 minutes")},
    "network.interface_errors": {"count": _count(30, "More bad packets than this in 15 minutes")},
    "network.timeouts": {"count": _count(10, "More requests without acknowledgment than this in 15 minutes")},
    "work.blocked": {"stuck": _seconds(60, "A process has not run once for so long", low=10, high=3600)},
    "work.memory_full": {
        "full": _share(0.97, "Device memory filled beyond this share", low=0.5),
        "growth": _share(0.001, "and grown by more than this share of it in 15 minutes", low=0.0),
    },
    "work.memory_imbalance": {
        "full": _share(0.9, "One GPU's memory filled beyond this share"),
        "empty": _share(0.1, "while an idle sibling's is filled below this share"),
    },
}
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
        **LIMITS.get(check.code, {}),
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
        row = checks[change.code]
        if change.name == WAIT:
            checks[change.code] = replace(row, wait_seconds=change.value)
        elif change.name == HOLD:
            checks[change.code] = replace(row, hold_seconds=change.value)
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
        if name in LIMITS.get(check.code, {}):
            yield f"    # {limit.about} ({shown(limit.low, limit.unit)} to {shown(limit.high, limit.unit)})"
        yield f"    {name}: {shown(limit.value, limit.unit)}"


def settings_markdown() -> str:
    """Return a Markdown list of all thresholds with default and range; ends with a newline."""
    return "".join(dict.fromkeys(line for check in CHECKS for line in _lines(check)))


def _lines(check: Check) -> Iterator[str]:
    # All Xids have the same settings.
    code = "xid.CODE" if check.code.removeprefix("xid.").isdecimal() else check.code
    for name, each in LIMITS.get(check.code, {}).items():
        value, low, high = (shown(number, each.unit) for number in (each.value, each.low, each.high))
        yield f"- `{code}.{name}` ({value}, {low}-{high}): {each.about}\n"
