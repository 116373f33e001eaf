"""The faults that came back, and whether the board or the slot is the suspect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.repeat_offenders import Repetition, repetitions, slots_without_gpu
from gpu_triage.diagnosis.view import GpuView, HostView
from gpu_triage.web.page.markup import UNKNOWN, chip, safe, section, table

_HEADS: Final = ("GPU", "Slot", "What came back", "Suspect")


def repeat_offenders_section(host: HostView) -> str:
    """A row for each kind of incident that came back; "" where there is none."""
    rows = [row for gpu in host.gpus for row in _rows(f"GPU {gpu.gpu}", _slot(gpu), repetitions(gpu))]
    for slot, came_back in slots_without_gpu(host).items():
        rows += _rows("not seen", slot, came_back)
    if not rows:
        return ""
    return section("repeat-offenders", "Repeat offenders", table("Repeat offenders", _HEADS, rows, "repeat-offenders"))


def _slot(gpu: GpuView) -> str:
    return next((track.labels["pci_bus_id"] for track in gpu.series(catalogue.INCIDENTS_RECENT)), "")


def _rows(subject: str, slot: str, came_back: Sequence[Repetition]) -> Iterator[str]:
    for each in came_back:
        yield (
            f'<tr data-slot="{safe(slot)}" data-kind="{safe(each.kind)}" data-suspect="{safe(each.by)}">'
            f'<th scope="row">{safe(subject)}</th><td>{safe(slot) or UNKNOWN}</td>'
            f"<td>{safe(each.told)}</td><td>{chip(each.by, 'held')}</td></tr>"
        )
