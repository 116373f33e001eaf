"""Faults that came back: on one board, or in one slot whichever board is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.codes import BY_CODE
from gpu_triage.diagnosis.evidence import Track
from gpu_triage.diagnosis.findings import Finding, of_gpu
from gpu_triage.diagnosis.view import GpuView, HostView

_ENOUGH: Final = ((30, thresholds.REPEATED_IN_30_DAYS), (7, thresholds.REPEATED_IN_7_DAYS))
_NEVER_ALONE: Final = "reset"
"""Resets are what people do about faults; they are no fault by themselves."""

_CODE: Final = "gpu.repeat_offender"
_WORDS: Final = {"lost": "GPU lost", "uncorrected": "uncorrected memory errors", "reset": "reset"}


@dataclass(frozen=True, slots=True)
class Repetition:
    """A kind of incident that came back.

    Attributes:
        kind: as the label of gpu_incidents_recent.
        by: ``board`` or ``slot``: which of them is the suspect.
        days: within how many.
        count: how often on the board or in the slot.
        boards: different boards that had it in the slot.
        elsewhere: how often the board had it in other slots.
    """

    kind: str
    by: str
    days: int
    count: int
    boards: int
    elsewhere: int

    @property
    def name(self) -> str:
        """What happened: ``Xid 79``, ``GPU lost``."""
        return _WORDS.get(self.kind, f"Xid {self.kind}")

    @property
    def told(self) -> str:
        """What happened how often, and where."""
        when = f"{self.name}, {self.count} times in {self.days} days"
        if self.by == "slot":
            return f"{when} in this slot" + (f", on {self.boards} different boards" if self.boards > 1 else "")
        moved = f", {self.elsewhere} of them in another slot" if self.elsewhere else ""
        return f"{when} on this board{moved}"


def repetitions(gpu: GpuView) -> tuple[Repetition, ...]:
    """The kinds of incidents that came back on a GPU or in its slot, the most frequent first."""
    return _repetitions(gpu.series(catalogue.INCIDENTS_RECENT), gpu.series(catalogue.INCIDENT_BOARDS_RECENT))


def slots_without_gpu(host: HostView) -> Mapping[str, tuple[Repetition, ...]]:
    """The same of slots whose GPU the driver does not show, by PCI bus id."""
    counts: dict[str, list[Track]] = {}
    for track in host.evidence.series(catalogue.INCIDENTS_RECENT, gpu="", uuid=""):
        counts.setdefault(track.labels["pci_bus_id"], []).append(track)
    boards = host.evidence.series(catalogue.INCIDENT_BOARDS_RECENT, gpu="", uuid="")
    return {
        slot: _repetitions(tracks, [each for each in boards if each.labels["pci_bus_id"] == slot])
        for slot, tracks in counts.items()
    }


def judge_repeat_offenders(host: HostView) -> Iterator[Finding]:
    """One finding a GPU, or a slot without one, that has kinds of incidents that came back."""
    for gpu in host.gpus:
        came_back = repetitions(gpu)
        if came_back:
            yield of_gpu(_CODE, gpu, _told(came_back))
    for slot, came_back in slots_without_gpu(host).items():
        if came_back:
            yield Finding(BY_CODE[_CODE], _told(came_back), pci_bus_id=slot)


def _told(came_back: Sequence[Repetition]) -> str:
    return f"{'; '.join(each.told for each in came_back)}: suspect the {came_back[0].by}"


def _repetitions(tracks: Iterable[Track], board_tracks: Iterable[Track]) -> tuple[Repetition, ...]:
    counts = {(t.labels["kind"], t.labels["by"], int(t.labels["days"])): int(t.last) for t in tracks}
    boards = {track.labels["kind"]: int(track.last) for track in board_tracks}
    kinds = dict.fromkeys(kind for kind, _, _ in counts if kind != _NEVER_ALONE)
    found = (_repetition(kind, counts, boards.get(kind, 0)) for kind in kinds)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: -each.count))


def _repetition(kind: str, counts: dict[tuple[str, str, int], int], boards: int) -> Repetition | None:
    # Different boards that fail alike in one slot speak against the slot, whatever else the board did.
    for by in ("slot", "board") if boards > 1 else ("board", "slot"):
        for days, enough in _ENOUGH:
            count = counts.get((kind, by, days), 0)
            if count >= enough:
                elsewhere = max(0, count - counts.get((kind, "slot", days), 0)) if by == "board" else 0
                return Repetition(kind, by, days, count, boards, elsewhere)
    return None
