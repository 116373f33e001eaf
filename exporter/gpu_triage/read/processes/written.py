"""How much the jobs on a GPU write: a job that saves a checkpoint stops its GPUs, and so does one that hangs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import parse_file
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.metrics.metric import gpu_counter, no_sample

_MOST_PROCESSES: Final = 64
"""Per GPU and round, at about 20 µs each; those on the GPU come first. When a process ends, what it wrote passes to its
parent, so short-lived writers need not be looked at."""
_MOST_BYTES: Final = 4096
_LAYERS: Final = {"write_bytes": "storage", "wchar": "calls"}
_COUNT: Final = re.compile(rf"^({'|'.join(_LAYERS)}): ([0-9]{{1,20}})$", re.MULTILINE)

GPU_PROCESSES_WRITTEN_BYTES_TOTAL = gpu_counter(
    "gpu_processes_written_bytes_total",
    "Bytes that the processes on the GPU and their children wrote since the exporter saw them, by {layer}: storage is "
    "what they put into the page cache or sent to a disk, of NFS and Lustre too; calls is what they passed to write(), "
    "also for sockets, pipes and file systems that bypass the page cache, such as GPFS and FUSE. Absent without the "
    "right to read it: CAP_SYS_PTRACE, or the same user.",
    labels={"layer": tuple(_LAYERS.values())},
    source="/proc/PID/io write_bytes, wchar",
    default_samples=no_sample,
)


@dataclass(frozen=True, slots=True)
class WrittenReading:
    written_bytes: Annotated[Mapping[str, int], GPU_PROCESSES_WRITTEN_BYTES_TOTAL]


class WrittenReader:
    """Adds up what processes write; remembers what each had written before."""

    def __init__(self) -> None:
        self._known: dict[int, Counter[str]] = {}
        self._written = Counter[str]()

    def read(self, procfs: Path, pids: Sequence[int]) -> WrittenReading | None:
        """Return what they wrote; None if the kernel does not tell, or not for all of these processes.

        What a process had written when it was first seen does not count. A process that ended took its bytes to its
        parent, so the sum over all of them shows what was written since.
        """
        known, self._known = self._known, {}
        try:
            for pid in pids[:_MOST_PROCESSES]:
                found = parse_file(f"{procfs}/{pid}/io", _COUNT.findall, _MOST_BYTES)
                if found:
                    self._known[pid] = Counter({_LAYERS[name]: int(count) for name, count in found})
        except HostReadFailed:
            self._known = {}
        if not self._known:
            return None
        for layer in _LAYERS.values():
            before = sum(counts[layer] for counts in known.values())
            now = sum(counts[layer] for pid, counts in self._known.items() if pid in known)
            self._written[layer] += max(0, now - before)
        return WrittenReading(dict(self._written))
