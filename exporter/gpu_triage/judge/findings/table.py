"""The kinds of findings: what a row of their table has, and the rows from `kinds/`, in the playbook's order.

There is a file for each area. The keys of a row are fields of `Check`, with `wait` and `hold` as in the settings
(``5m``). What a row leaves out: its topic is the first part of the code, it is a warning, and it is about the host in
``host.toml``, about a GPU elsewhere. ``xid.page`` is the row of each Xid of that kind, without its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpu_triage.documents import packaged_toml
from gpu_triage.judge.evidence import thresholds
from gpu_triage.options.values import parse_duration
from gpu_triage.read.xid import codes


class Severity(Enum):
    """Urgency: critical pages a person, warning is a ticket, info is context."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Position from least to most urgent."""
        return tuple(Severity).index(self)


class Action(Enum):
    """The kind of response a finding needs; also the alerts' label `action`."""

    DRAIN = "drain"
    RESET = "reset"
    INSPECT_HARDWARE = "inspect_hardware"
    FIX_HOST = "fix_host"
    FIX_JOB = "fix_job"
    NONE = "none"


class Area(Enum):
    """Subject area of a finding, in the order in which the playbook rules out causes."""

    DRIVER = "driver and GPUs"
    HEALTH = "GPU health"
    CLOCKS = "clocks, heat, power"
    PCIE = "PCIe links"
    PEERS = "peers and NVLink"
    HOST = "host resources"
    WORK = "processes and work"
    SETTINGS = "settings"


class Unit(Enum):
    """Unit of a finding's value, with its format in Prometheus templates and in Python."""

    RATIO = "ratio", '{{ printf "%.2g" $value | humanizePercentage }}', "{:.0%}"
    SECONDS = "seconds", '{{ $value | humanizeDuration | reReplaceAll " 0s$" "" }}', "{:.0f} s"
    CELSIUS = "degrees Celsius", '{{ printf "%.0f" $value }} °C', "{:.0f} °C"
    WATTS = "watts", '{{ printf "%.0f" $value }} W', "{:.0f} W"
    HERTZ = "hertz", '{{ $value | humanize | reReplaceAll "([kMGT]?)$" " $1" }}Hz', "{:.0f} MHz", 1e6
    LANES = "lanes", '{{ printf "%.0f" $value }}', "{:.0f}"
    GENERATION = "generation", '{{ printf "%.0f" $value }}', "{:.0f}"
    COUNT = "count", '{{ printf "%.0f" $value }}', "{:.0f}"
    BYTES = "bytes", '{{ $value | humanize1024 | reReplaceAll "([KMGT]i)?$" " $1" }}B', "{:.1f} GiB", 1024.0**3
    BYTES_PER_SECOND = (
        "bytes per second",
        '{{ $value | humanize1024 | reReplaceAll "([KMGT]i)?$" " $1" }}B/s',
        "{:.1f} MiB/s",
        1024.0**2,
    )

    def __init__(self, words: str, template: str, form: str, scale: float = 1.0) -> None:
        self.text = words  # name of the unit
        self.template = template  # Prometheus template that formats an alert's value
        self.form = form  # Python format for the value divided by `scale`
        self.scale = scale


_LOW_IS_WORSE: Final = frozenset({Unit.LANES, Unit.GENERATION, Unit.HERTZ})
_CLEARLY: Final[Mapping[Unit, tuple[float, float]]] = {
    Unit.LANES: (0.0, 0.0),
    Unit.GENERATION: (0.0, 0.0),
    Unit.RATIO: (0.2, 0.0),
    Unit.CELSIUS: (5.0, 0.0),
    Unit.HERTZ: (0.0, 0.1),
    Unit.WATTS: (0.0, 0.1),
}
"""By how much a value has to change to be clearly worse: an amount, and a share of it. Others have to double."""
_PLURAL: Final = re.compile(r"\((e?s)\)")
_HANDS_ON: Final = re.compile(
    r"\b(reseat|seating|riser|slot|cable|BIOS|firmware|GPU's board|board replaced|replace the (board|card)|DIMM|"
    r"transceiver|cooling|fans|airflow|power (supplies|delivery|(it|the host) off)|power-cycle|bridges|BMC|"
    r"inspect the hardware)",
    re.IGNORECASE,
)
"""Words of decisions on parts that a virtual machine does not have, and its user cannot reach."""
_MOVE: Final = (
    "stop and start the virtual machine, which may move it to other hardware (save local disks first), or have the "
    "provider replace the part."
)


class Advice(NamedTuple):
    """The meaning of a problem, and the action to take."""

    meaning: str
    decision: str
    at_a_desk: str  # the action where no scheduler is known

    @property
    def in_a_virtual_machine(self) -> Advice:
        """The same where slots, cables and boards belong to a provider."""
        return Advice(self.meaning, _for_an_instance(self.decision), _for_an_instance(self.at_a_desk))

    @property
    def anywhere(self) -> str:
        """The decision, and that for a virtual machine if it is another: for readers who do not know the host."""
        same = self.in_a_virtual_machine.decision == self.decision
        return self.decision if same else f"{self.decision[:-1]}; if it is a virtual machine, have it moved."


def _for_an_instance(decision: str) -> str:
    """Replace what needs a hand on the hardware; what comes before it stays."""
    if not _HANDS_ON.search(decision):
        return decision
    kept = "; ".join(takewhile(lambda part: not _HANDS_ON.search(part), decision.split("; ")))
    return f"{kept}; if it goes on, {_MOVE}" if kept else f"Let its jobs end, then {_MOVE}"


def advice_on(meaning: str, decision: str) -> Advice:
    """Return advice; ``{drain}`` and ``{Drain}`` in the decision are verbs (see `codes.with_verb`)."""
    return Advice(meaning, codes.with_verb(decision), codes.with_verb(decision, "stop using"))


@dataclass(frozen=True, slots=True)
class Measure:
    unit: Unit  # unit of gpu_finding_value
    text: str  # a phrase with one ``{}`` for the formatted value; "(s)" and "(es)" mark the plural
    low: bool = False  # whether a lower value is worse; of some units, it always is
    parts: bool = False  # whether it counts parts that are at fault now, which the detail may name

    @property
    def low_is_worse(self) -> bool:
        return self.low or self.unit in _LOW_IS_WORSE

    def is_clearly_worse(self, now: float, than: float) -> bool:
        change = than - now if self.low_is_worse else now - than
        amount, share = (0.0, 0.0) if self.parts else _CLEARLY.get(self.unit, (0.0, 1.0))
        if self.unit is Unit.RATIO and (room := than if self.low_is_worse else 1 - than) > 0:
            amount = max(0.05, min(amount, 0.9 * room))  # almost all that is left; less is noise
        return change > 0 and change >= max(amount, share * abs(than))

    @property
    def template(self) -> str:
        """The phrase as used in alerts, with a Prometheus template in place of the value."""
        return _PLURAL.sub(r"{{ if ne $value 1.0 }}\1{{ end }}", self.text.format(self.unit.template))

    def said(self, *values: float) -> str:
        """Return the phrase with a value, or with the range of several.

        >>> Measure(Unit.RATIO, "throttled {} of the time").said(0.64, 0.31)
        'throttled 31% to 64% of the time'
        """
        low, high = (self.unit.form.format(each / self.unit.scale) for each in (min(values), max(values)))
        value = low if low == high else f"{low} to {high}"
        return _PLURAL.sub("" if value == "1" else r"\1", self.text.format(value))


@dataclass(frozen=True, slots=True)
class Limit:
    value: float  # default
    about: str  # its meaning, a sentence without a period
    low: float  # lowest allowed value
    high: float  # highest allowed value
    unit: Unit  # unit of these values; a ratio may exceed 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    code: str  # stable name, ``area.detail``; scripts may rely on it
    area: Area  # subject area
    topic: str  # short name of its cause, a bottleneck class if there is one; several codes may share it
    severity: Severity  # urgency once confirmed. A worse condition has a code of its own
    action: Action  # the response it needs
    title: str  # what is wrong, in a few words; follows host and GPU in an alert's summary: lower case, no period
    meaning: str  # what it means, a sentence
    decision: str  # what to do, a sentence as for `advice_on`
    measure: Measure | None = None  # meaning of gpu_finding_value; None if nothing is measured
    alert: str | None = None  # the alert that fires while it is confirmed, or None
    relayed: bool = True  # whether the alert rules include that alert by default
    page: str = ""  # alert with a relevant runbook, if it has no alert of its own, or ""
    wait_seconds: float = 0.0  # how long its condition must last before it is confirmed
    continuous: bool = False  # whether without a gap, which would disprove it, or which its evidence bridges itself
    hold_seconds: float = 900.0  # how long it outlasts its condition; a recurrence is the same finding
    under_load: bool = False  # whether its condition can only be observed under load
    of_host: bool = False  # whether it always concerns the host as a whole rather than one GPU
    limits: Mapping[str, Limit] = field(default_factory=dict, hash=False)  # its thresholds by name
    # Codes of its causes, about the same GPU, or both about the host. While one that alerts as urgently is pending or
    # confirmed, it stays pending: an alert fires for the cause, and none for a symptom that is known earlier.
    explained_by: tuple[str, ...] = ()
    reads: str = ""  # the metric it is based on, which healthy GPUs and hosts report too; "" for none or several

    @property
    def window_seconds(self) -> float:
        """Within how much observed time its condition must last for the wait."""
        return self.wait_seconds * (1.0 if self.continuous else thresholds.WAITS_IN_WINDOW)

    @property
    def is_sickness(self) -> bool:
        """Whether jobs on its GPU fail, or compute wrong results: that cannot be accepted."""
        return self.severity is Severity.CRITICAL and self.topic == "sick"

    @property
    def advice(self) -> Advice:
        return advice_on(self.meaning, self.decision)

    @property
    def runbook(self) -> str:
        """Name of its runbook page, or ""."""
        return self.page or self.alert or ""

    @property
    def life(self) -> str:
        """Its wait and hold times as text: ``confirmed after 10 minutes, ends 15 minutes after it is gone``."""
        begins = f"confirmed after {length_in_words(self.wait_seconds)}" if self.wait_seconds else "confirmed at once"
        after = f"{length_in_words(self.hold_seconds)} after" if self.hold_seconds else "as soon as"
        return f"{begins}, ends {after} it is gone"


def length_in_words(seconds: float) -> str:
    """Format a configured duration in the largest unit that divides it: ``90 seconds``, ``1 hour``."""
    for unit, size in (("hour", 3600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            return _counted(seconds / size, unit)
    return _counted(seconds, "second")


def _counted(count: float, unit: str) -> str:
    return f"{count:g} {unit}{'' if count == 1 else 's'}"


_WORDS_OF_XIDS: Final = {
    "xid.unlisted": (codes.UNLISTED_MEANING, codes.UNLISTED_REMEDY),
    "xid.nonfatal": (codes.NONFATAL_MEANING, codes.NONFATAL_ACTION),
    "xid.gsp_slow": (codes.SLOW_GSP_MEANING, codes.SLOW_GSP_ACTION),
}


def _rows() -> Iterator[Check]:
    for area in Area:
        for code, row in packaged_toml(__package__, f"kinds/{area.name.lower()}.toml").items():
            usual = {"topic": code.partition(".")[0], "severity": "warning", "of_host": area is Area.HOST}
            facts = {**usual, "area": area.name, **row}
            if code in _WORDS_OF_XIDS:
                facts |= _words(*_WORDS_OF_XIDS[code])
            xids = [xid for xid in codes.XID_CODES.values() if f"xid.{xid.kind.value}" == code]
            for xid in xids:
                title = {"title": f"Xid {xid.code}, {xid.meaning}"}
                yield _check(f"xid.{xid.code}", facts | title | _words(xid.meaning, xid.remedy))
            if not xids:
                yield _check(code, facts)


def _words(meaning: str, decision: str) -> dict[str, str]:
    """Meanings in the table of Xids are fragments."""
    return {"meaning": f"{meaning[0].upper()}{meaning[1:]}.", "decision": decision}


def _check(code: str, facts: Mapping[str, Any]) -> Check:
    values = {
        **facts,
        "area": Area[facts["area"].upper()],
        "severity": Severity(facts["severity"]),
        "action": Action(facts["action"]),
        "measure": Measure(**_with_unit(facts["measure"])) if "measure" in facts else None,
        "limits": {name: Limit(**_with_unit(limit)) for name, limit in facts.get("limits", {}).items()},
        "explained_by": tuple(facts.get("explained_by", ())),
    }
    values |= {f"{name}_seconds": parse_duration(values.pop(name)) for name in ("wait", "hold") if name in facts}
    return Check(code=code, **values)


def _with_unit(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "unit": Unit[values["unit"].upper()]}


CHECKS: Final = tuple(_rows())
"""All rows, in the playbook's order."""

BY_CODE: Final = MappingProxyType({check.code: check for check in CHECKS})
_FATAL_IN_TEXT: Final = frozenset(str(xid.code) for xid in codes.XID_CODES.values() if xid.fatal_in_text)


def xid_check(xid: str, fatal: str = "") -> Check:
    """Return the check for an Xid, by code and severity in the kernel log (`fatal`: ``true``, ``false`` or empty)."""
    if xid in _FATAL_IN_TEXT and fatal != "true":
        return BY_CODE["xid.nonfatal"]
    return BY_CODE.get(f"xid.{xid}", BY_CODE["xid.unlisted"])
