"""Parses the GPU process list from nvidia-smi output."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from gpu_triage.cli.offline import smi_values as values
from gpu_triage.cli.offline.smi_report import RawGpu, RawProcess
from gpu_triage.cli.offline.smi_values import Unit
from gpu_triage.machine import Workload
from gpu_triage.read.processes.on_gpu import ProcessesReading, ProcessReading
from gpu_triage.read.processes.pids import Owner, ProcessFacts
from gpu_triage.read.processes.placement import Locality

_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"C": "compute", "G": "graphics", "C+G": "compute_graphics", "M": "mps", "M+C": "mps"}
)
_OTHER: Final = "O"
"""A process that holds memory without a compute or graphics context; driver 590 and later."""

_MOST_SHOWN: Final = 32


def read_processes(raw: RawGpu, *, with_names: bool) -> tuple[ProcessesReading, tuple[str, ...]]:
    """The processes, and those that could not be parsed; `with_names`: whether to keep process names.

    If one could not be parsed, the process count is unknown.
    """
    if not raw.lists_processes:
        return ProcessesReading({}, (), 0, locality_known=False), ()
    counts = dict.fromkeys(("compute", "graphics"), 0)
    shown, unread = [], []
    for process in raw.processes:
        kind = _KINDS.get(process.kind.strip().upper())
        if kind is not None and process.pid.isdecimal():
            counts[kind] = counts.get(kind, 0) + 1
            shown.append(_process(process, kind, with_names=with_names))
        elif process.kind.strip().upper() != _OTHER or not process.pid.isdecimal():
            unread.append(f"process {process.pid or '?'}, type : {process.kind or '?'}")
    shown.sort(key=lambda each: -(each.memory_bytes or 0.0))
    more = max(0, len(shown) - _MOST_SHOWN)
    return (
        ProcessesReading({} if unread else counts, tuple(shown[:_MOST_SHOWN]), more, locality_known=False),
        tuple(unread),
    )


def _process(process: RawProcess, kind: str, *, with_names: bool) -> ProcessReading:
    # nvidia-smi prints the full command line of some processes, which may be private: keep only the program's name.
    name = PurePosixPath(values.text(process.name).split(" ")[0].replace("\\", "/")).name if with_names else ""
    facts = ProcessFacts(name, "", None, Owner("", "", "")) if name else None
    return ProcessReading(
        pid=int(process.pid[:9]),
        is_compute=kind != "graphics",
        memory_bytes=values.number(process.memory, Unit.BYTES),
        sm_utilization_ratio=None,
        facts=facts,
        locality=Locality.UNKNOWN,
        workload=Workload("", "", ""),
    )
