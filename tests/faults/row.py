"""What a row of the fault matrix is, and what is seen of it."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.faults.hosts import USUAL
from tests.faults.stage import Stage

from gpu_triage.options.config import Config
from gpu_triage_simulator.scenario import Event

HOST = "host"
DRIVER = "driver"
OTHERS = "others"
"""Subjects of series that belong to no GPU. GPUs are called by their index before the fault, as text; those that the
healthy twin does not have, others."""


@dataclass(frozen=True, slots=True)
class Says:
    """What the page says of the exporter's health while the fault lasts. Exactly this, and nothing else."""

    gpus: Mapping[str, str] = field(default_factory=dict)  # error by GPU index, of those whose gpu_up is 0
    driver: str = ""  # error, where gpu_driver_up is 0; "" where it is 1, "unknown yet" where neither is published
    errors: frozenset[str] = frozenset()  # what gpu_exporter_errors_total counts, as "collector: error"
    failing: frozenset[str] = frozenset()  # collectors whose gpu_exporter_collector_success is 0
    # what gpu_exporter_call_inflight_seconds names, as "collector: function", "files" for no function of NVML
    calls: frozenset[str] = frozenset()
    restart: bool = False  # whether the process asks its supervisor for a restart


ALL_WELL = Says()


def counts(*errors: str) -> Says:
    """What the page says where nothing is wrong but that these errors are counted, as ``collector: error``."""
    return Says(errors=frozenset(errors))


def call_in_flight(collector: str, function: str) -> str:
    """How `Says` names a call: pynvml's names of functions have no version where the library's have one."""
    return f"{collector}: {re.sub(r'_v[0-9]$', '', function) or 'files'}"


@dataclass(frozen=True, slots=True)
class Within:
    """What the page may say, where many words are right: every GPU and the driver are up."""

    collectors: frozenset[str]  # that may count errors, or fail
    errors: frozenset[str]  # names they may count
    slow: bool = False  # whether a call may be under way, whichever it is at that moment


def agrees(says: Says, expected: Says | Within) -> bool:
    if isinstance(expected, Says):
        return says == expected
    allowed = {f"{collector}: {error}" for collector in expected.collectors for error in expected.errors}
    calls = frozenset[str]() if expected.slow else says.calls
    rest = dataclasses.replace(says, errors=frozenset(), failing=frozenset(), calls=calls)
    return rest == ALL_WELL and says.errors <= allowed and says.failing <= expected.collectors


@dataclass(frozen=True, slots=True)
class Row:
    """A fault at a moment."""

    group: str  # heading it stands under
    fault: str  # what is injected
    moment: str = "while it runs"  # when, in words
    says: Says | Within = ALL_WELL  # what the page must say then
    reach: frozenset[str] = frozenset({"0"})  # subjects whose series may differ from the healthy twin's; no others may
    begin: Callable[[Stage], None] = lambda _stage: None  # injects it; called before the second it begins with
    end: Callable[[Stage], None] = Stage.cure  # takes it back; called before the first second without it
    events: tuple[Event, ...] = ()  # of the scenario, where the fault is one of those; at `at` until `at` + `lasts`
    host: str = "two"  # key of HOSTS
    twin: str = "two"  # key of HOSTS, of the healthy host to compare with
    config: Config = USUAL  # the exporter's
    at: int = 20  # second of its beginning
    lasts: int = 20  # seconds
    recovers_within: int = 1  # seconds after its end by which the page is a healthy one
    ends: bool = True  # whether it ends; what stays has nothing to recover from
    leaves: frozenset[str] = frozenset()  # metrics with series that stay when it is over, for what happened is history
    # how often each Xid is counted of GPUs that are known, where that is what the row is about
    xids: Mapping[str, int] | None = None
    inflates: bool = False  # whether counters may be ahead afterwards, because what was counted was made up
    shared: bool = False  # whether other rows may be played before and after on the same stage; it then begins any time

    @property
    def key(self) -> str:
        return f"{self.group} / {self.fault} / {self.moment}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a row."""

    says: Says  # as the page said it
    strayed: tuple[str, ...]  # series that differ outside the row's reach
    # seconds after the fault's end; None where the page was not healthy in time, or a restart is due
    recovered: int | None
    went_back: tuple[str, ...]  # counters that fell
    left: tuple[str, ...]  # in what the page still differed when time was up
    # subject and code of findings whose conditions still held when nothing of the fault was in the evidence
    lasting: tuple[str, ...]
