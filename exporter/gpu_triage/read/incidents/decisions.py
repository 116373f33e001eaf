"""What operators decided about GPUs, in a file of the state directory: findings that they accept, and repairs."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Final

from gpu_triage.documents import AtMost, Pattern, Range, read_value
from gpu_triage.documents.files import write_file
from gpu_triage.documents.process_lock import ProcessLock
from gpu_triage.documents.saved_state import LoadedState, StateKind, failure, read_by_a_collector
from gpu_triage.errors import StateError
from gpu_triage.options.config import Config
from gpu_triage.read.incidents.ledger import DAY_SECONDS, Name, Time
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import Tier

MOST_DAYS: Final = 180  # for which a finding may be accepted
MOST_SECONDS: Final = (MOST_DAYS + 1) * DAY_SECONDS  # up to the end of the last day
MOST_DECISIONS: Final = 200  # of a kind
MOST_CHARACTERS: Final = 100  # of a text

Line = Annotated[str, Pattern(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,100}", "a line of at most 100 characters")]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A finding of one board, as it was when an operator accepted it; times are Unix seconds."""

    code: Name
    uuid: Name
    pci_bus_id: Name
    severity: Annotated[str, Pattern("info|warning|critical", "a severity")]
    value: Annotated[float, Range(-1e300, 1e300)] | None  # what was measured; None if nothing is
    at: Time
    until: Time
    by: Line
    reason: Line
    detail: Line = ""  # the parts that were at fault, if what is measured is their number

    @property
    def key(self) -> tuple[str, str]:
        """As that of a finding of a GPU with a UUID. Another board may come to an address: none is accepted by that."""
        return self.uuid, self.code


@dataclass(frozen=True, slots=True)
class Repair:
    """A board and its slot were repaired: what either had before no longer counts."""

    uuid: Name
    pci_bus_id: Name
    at: Time
    by: Line
    note: Line


@dataclass(frozen=True, slots=True)
class Decisions:
    """All of them, the oldest first."""

    accepted: Annotated[tuple[Acceptance, ...], AtMost(MOST_DECISIONS)] = ()
    repairs: Annotated[tuple[Repair, ...], AtMost(MOST_DECISIONS)] = ()


_FILE: Final = StateKind(
    name="decisions",
    things="decisions",
    history="the file of accepted findings and repairs",
    version=1,
    nothing=Decisions(),
    to_document=asdict,
    from_document=lambda document, where, _latest: LoadedState(read_value(Decisions, document, where)),
)


def _path(state_directory: Path) -> Path:
    return state_directory / f"{_FILE.name}.json"


def read_decisions(state_directory: Path) -> Decisions:
    """All decisions; raises StateError if the file is unreadable or has a mistake."""
    loaded = _FILE.read(_path(state_directory), 0.0)
    return Decisions() if loaded is None else loaded.memory


def change_decisions(state_directory: Path, change: Callable[[Decisions], Decisions]) -> None:
    """Write what `change` returns of the present decisions. Raises StateError."""
    path = _path(state_directory)
    if not os.access(state_directory, os.W_OK, effective_ids=True):
        how = f"run this as root, or as the exporter's user, the owner of {state_directory}"
        raise StateError("no_permission", f"{path}: cannot be written; {how}")
    lock = ProcessLock(path.with_name(f".{_FILE.name}.lock"))
    try:
        lock.acquire(wait=True)
        changed = change(read_decisions(state_directory))
        kept = Decisions(changed.accepted[-MOST_DECISIONS:], changed.repairs[-MOST_DECISIONS:])
        # Root may write it, and the exporter's user has to read it.
        write_file(path, _FILE.encode(kept), mode=0o644)
    except OSError as error:
        raise failure(path, error, "cannot be written") from error
    finally:
        lock.release()


def _reader(config: Config) -> Callable[[HostRound], Decisions]:
    directory = config.state_directory
    assert directory is not None  # noqa: S101 - the collector `needs` it

    def read(round_: HostRound) -> Decisions:
        with read_by_a_collector(directory):
            found = read_decisions(directory)
        # One recorded by a clock that was ahead would close all incidents up to then.
        return replace(found, repairs=tuple(each for each in found.repairs if each.at <= round_.at.wall))

    return read


DECISIONS: Final = HostCollector(
    about="findings that operators accepted, and repairs",
    tier=Tier.MEDIUM,
    reader=_reader,
    render=lambda _: iter(()),
    needs="state_directory",
    own_lane=True,  # the disk may hang
    kept_while_stalled=True,
)
