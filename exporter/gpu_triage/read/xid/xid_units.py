"""Xids 13 and 31 with a location on the chip: if they occur in one place whatever runs, the board is at fault.

A faulty program fails wherever its blocks run, usually in many places at once; one that fails in its first block always
does so in the same place, on any GPU. So a place is only suspected after several processes failed there and nowhere
else, of different programs or on different days, and none of these programs failed in the same place of another GPU.
Locations as the driver prints them:
- ``13, pid=…, name=…, Graphics SM Warp Exception on (GPC 10, TPC 1, SM 1): Out Of Range Address``
- ``31, pid=…, name=…, … MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_7 faulted @ 0x…``; drivers that omit the GPC
  provide no location
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

ENOUGH_PROCESSES: Final = 3  # minimum number of processes that failed in one place
_ENOUGH_PROGRAMS: Final = 2
_APART_SECONDS: Final = 86_400.0
_MOSTLY: Final = 0.75
_TOGETHER_SECONDS: Final = 10.0
"""Maximum time between the log lines of one failure."""

_MOST_FAILURES: Final = 64
_MOST_GPUS: Final = 256
_UNKNOWN: Final = "<unknown>"
_PROCESS: Final = re.compile(r", pid='?([^,']{1,20})'?(?:, name=([^,]{1,64}))?,")
_SM: Final = re.compile(r"Graphics SM (?:Warp|Global) Exception on \(GPC (\d{1,3}), TPC (\d{1,3}), SM \d{1,3}\)")
_MMU: Final = re.compile(r"MMU Fault: ENGINE GRAPHICS GPC(\d{1,3}) GPCCLIENT_T1_(\d{1,3}) faulted")


class XidSite(NamedTuple):
    """Location of an Xid on the chip, and the process that caused it.

    The unit is ``GPC 10 TPC 1`` or ``GPC 2 L1 7``; PID and program are as printed by the driver, "" if not printed.
    """

    unit: str
    pid: str
    program: str


@dataclass(slots=True)
class _Failure:
    pid: str
    program: str
    at: float
    units: set[str] = field(default_factory=set)


class UnitFailures:
    def __init__(self) -> None:
        self._failures: dict[str, deque[_Failure]] = {}

    def see(self, gpu: str, site: XidSite, at: float) -> None:
        """Record a line of the kernel log about the GPU with this bus ID, at this monotonic second."""
        if gpu not in self._failures and len(self._failures) >= _MOST_GPUS:
            return
        failures = self._failures.setdefault(gpu, deque(maxlen=_MOST_FAILURES))
        last = failures[-1] if failures else None
        if last is None or last.pid != site.pid or at - last.at > _TOGETHER_SECONDS:
            last = _Failure(site.pid, site.program, at)
            failures.append(last)
        last.at = at
        last.units.add(site.unit)

    def forget(self, gpu: str) -> None:
        """Discard an address's failures, since there may now be another card."""
        self._failures.pop(gpu, None)

    def suspects(self) -> Mapping[str, tuple[str, int]]:
        """The suspected location and how many processes failed there, by bus ID of GPUs that have one."""
        return {gpu: suspect for gpu in self._failures if (suspect := self._suspect(gpu)) is not None}

    def _suspect(self, gpu: str) -> tuple[str, int] | None:
        failures = self._failures[gpu]
        places = Counter(next(iter(failure.units)) for failure in failures if len(failure.units) == 1)
        if not places:
            return None
        (unit, count), *_ = places.most_common(1)
        if count < _MOSTLY * len(failures):
            return None
        here = [failure for failure in failures if failure.units == {unit}]
        here = [failure for failure in here if not self._fails_elsewhere(gpu, unit, failure.program)]
        # Without a PID from the driver, each failure counts as one process.
        processes = {failure.pid or f"at {failure.at}" for failure in here}
        programs = {failure.program for failure in here if failure.program}
        if len(processes) < ENOUGH_PROCESSES:
            return None
        span_seconds = here[-1].at - here[0].at
        if len(programs) < _ENOUGH_PROGRAMS and span_seconds < _APART_SECONDS:
            return None
        return unit, len(processes)

    def _fails_elsewhere(self, gpu: str, unit: str, program: str) -> bool:
        """Whether a program also fails in the same place of another GPU, which means the program is at fault."""
        others = (failure for other, failures in self._failures.items() if other != gpu for failure in failures)
        return any(failure.program == program and unit in failure.units for failure in others)


def parse_site(text: str) -> XidSite | None:
    """Parse the location in the message of an Xid 13 or 31; None if it contains none."""
    if (sm := _SM.search(text)) is not None:
        unit = f"GPC {int(sm[1])} TPC {int(sm[2])}"
    elif (mmu := _MMU.search(text)) is not None:
        unit = f"GPC {int(mmu[1])} L1 {int(mmu[2])}"
    else:
        return None
    return XidSite(unit, *parse_process(text))


def parse_process(text: str) -> tuple[str, str]:
    """PID and program in the message of an Xid; "" if the driver does not print them."""
    process = _PROCESS.search(text)
    pid, program = ("", "") if process is None else (process[1], process[2] or "")
    return "" if pid == _UNKNOWN else pid, "" if program == _UNKNOWN else program
