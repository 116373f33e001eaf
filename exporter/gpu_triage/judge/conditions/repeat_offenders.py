"""Faults that came back: on one board, or in one slot regardless of the board."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.series import Evidence, Series
from gpu_triage.judge.findings.finding import Finding, of_gpu, of_slot
from gpu_triage.read.incidents.incident_metrics import GPU_INCIDENT_BOARDS_RECENT, GPU_INCIDENTS_RECENT

_DAYS: Final = ((30, "in_30_days"), (7, "in_7_days"))
_NEVER_ALONE: Final = "reset"  # a reset is a response to a fault, not a fault itself
_CODE: Final = "gpu.repeat_offender"
_NAMES: Final = {"lost": "GPU lost", "uncorrected": "uncorrected memory errors"}


def kind_in_words(kind: str) -> str:
    """Return the display name of an incident kind (label of gpu_incidents_recent)."""
    return _NAMES.get(kind, f"Xid {kind}")


@dataclass(frozen=True, slots=True)
class Repetition:
    """A kind of incident that came back."""

    kind: str  # label value of gpu_incidents_recent
    by: str  # the suspect: ``board`` or ``slot``
    days: int  # length of the period
    count: int  # occurrences on the board or in the slot
    boards: int  # number of different boards affected in the slot
    elsewhere: int  # occurrences on the board in other slots

    @property
    def description(self) -> str:
        when = f"{kind_in_words(self.kind)}, {self.count} times in {self.days} days"
        if self.by == "slot":
            return f"{when} in this slot" + (f", on {self.boards} different boards" if self.boards > 1 else "")
        moved = f", {self.elsewhere} of them in another slot" if self.elsewhere else ""
        return f"{when} on this board{moved}"


def repetitions(gpu: GpuEvidence) -> tuple[Repetition, ...]:
    """Return the incident kinds that came back on a GPU or in its slot, most frequent first."""
    return _repetitions(gpu, gpu.series(GPU_INCIDENTS_RECENT), gpu.series(GPU_INCIDENT_BOARDS_RECENT))


def slots_without_gpu(host: HostEvidence) -> Mapping[str, tuple[Repetition, ...]]:
    """Return the same for slots with a GPU that the driver does not show, by PCI bus ID."""
    counts: dict[str, list[Series]] = {}
    for series in host.series(GPU_INCIDENTS_RECENT, gpu="", uuid=""):
        counts.setdefault(series.labels["pci_bus_id"], []).append(series)
    boards = host.series(GPU_INCIDENT_BOARDS_RECENT, gpu="", uuid="")
    return {
        slot: _repetitions(host, series, [each for each in boards if each.labels["pci_bus_id"] == slot])
        for slot, series in counts.items()
    }


def judge_repeat_offenders(host: HostEvidence) -> Iterator[Finding]:
    """Yield one finding per GPU, or slot without one, with incidents that came back."""
    for gpu in host.gpus:
        if came_back := repetitions(gpu):
            yield of_gpu(_CODE, gpu, _described(came_back), value=came_back[0].count)
    for slot, came_back in slots_without_gpu(host).items():
        if came_back:
            yield of_slot(_CODE, slot, _described(came_back), value=came_back[0].count)


def _described(came_back: Sequence[Repetition]) -> str:
    return f"{'; '.join(each.description for each in came_back)}: suspect the {came_back[0].by}"


def _repetitions(
    evidence: Evidence, incidents: Iterable[Series], boards_hit: Iterable[Series]
) -> tuple[Repetition, ...]:
    counts = {(t.labels["kind"], t.labels["by"], int(t.labels["days"])): int(t.last) for t in incidents}
    boards = {each.labels["kind"]: int(each.last) for each in boards_hit}
    kinds = dict.fromkeys(kind for kind, _, _ in counts if kind != _NEVER_ALONE)
    enough = tuple((days, evidence.limit(_CODE, name)) for days, name in _DAYS)
    found = (_repetition(kind, counts, boards.get(kind, 0), enough) for kind in kinds)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: -each.count))


def _repetition(
    kind: str, counts: dict[tuple[str, str, int], int], boards: int, limits: Sequence[tuple[int, float]]
) -> Repetition | None:
    # If different boards fail the same way in one slot, suspect the slot, whatever else the board did.
    for by in ("slot", "board") if boards > 1 else ("board", "slot"):
        for days, enough in limits:
            count = counts.get((kind, by, days), 0)
            if count >= enough:
                elsewhere = max(0, count - counts.get((kind, "slot", days), 0)) if by == "board" else 0
                return Repetition(kind, by, days, count, boards, elsewhere)
    return None
