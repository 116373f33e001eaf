"""Xids in kernel logs, with the additional information in their messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpu_triage.cli.offline.events import EventKey, EventKind, cause_of
from gpu_triage.cli.offline.logs import Events, LogReading
from gpu_triage.read.xid.events import OFF_THE_BUS
from gpu_triage.read.xid.ledger import FATAL_LABELS, XidName

_RECOVERY: Final = "154"
_ACTION: Final = re.compile(r"GPU recovery action changed from 0x\w{1,4} \(.{1,40}?\) to 0x\w{1,4} \((.{1,40}?)\)")
_NO_ACTION: Final = "None"


class LoggedXids(NamedTuple):
    """All events of one Xid on one GPU.

    Attributes:
        what: the event group.
        name: the Xid.
        text: text to append to the time: the Xid's cause, or the recovery action requested by the driver; "" if none.
        events: the occurrences.
    """

    what: EventKey
    name: XidName
    text: str
    events: Events


def logged_xids(log: LogReading) -> Iterator[LoggedXids]:
    """The Xids that were logged, and those only named as the cause of another Xid."""
    logged = {(what.address, what.code) for what, _ in log.of_kind(EventKind.XID)}
    for what, events in log.of_kind(EventKind.XID):
        if not what.code and (what.address, str(OFF_THE_BUS)) in logged:
            continue  # the "fallen off the bus" message that accompanies this GPU's Xid
        action = _action(what, events)
        if action == _NO_ACTION:
            continue  # the driver withdrew its request
        cause = "" if events.last is None else cause_of(events.last.text)
        words = f"; the driver asks for: {action}" if action else f"; caused by Xid {cause}" if cause else ""
        yield LoggedXids(what, XidName(what.code or str(OFF_THE_BUS), FATAL_LABELS[what.fatal]), words, events)
    for what, events in log.of_kind(EventKind.XID_CAUSE):
        if (what.address, what.code) not in logged:
            yield LoggedXids(what, XidName(what.code), "; named as the cause of another Xid", events)


def _action(what: EventKey, events: Events) -> str:
    last = events.last if what.code == _RECOVERY else None
    found = None if last is None else _ACTION.search(last.text)
    return "" if found is None else found[1]
