"""The raw content of one nvidia-smi output, in its own words; filled by every parser of such output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MOST_GPUS: Final = 256
MOST_FACTS: Final = 2000  # per GPU; the newest drivers print about 250
MOST_PROCESSES: Final = 4096  # per GPU
LONGEST_VALUE: Final = 200
_MOST_UNREAD: Final = 32


@dataclass(slots=True)
class RawProcess:
    """One process as listed by nvidia-smi; "" for what isn't printed."""

    pid: str = ""
    kind: str = ""  # C, G, C+G, M, M+C
    name: str = ""
    memory: str = ""


@dataclass(slots=True)
class RawGpu:
    """One GPU as printed by nvidia-smi.

    Attributes:
        bus_id: as printed; "" if not printed.
        index: NVML index; "" if not printed.
        facts: value by path: labels in lower case, joined by slashes. The first value of a path wins.
        lists_processes: whether there is a process list, even an empty one.
    """

    bus_id: str
    index: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    processes: list[RawProcess] = field(default_factory=list)
    lists_processes: bool = False

    def note(self, path: str, value: str) -> None:
        """Add a fact."""
        if len(self.facts) < MOST_FACTS:
            self.facts.setdefault(path, value[:LONGEST_VALUE])

    def add_process(self, process: RawProcess) -> None:
        """Add a process; those above MOST_PROCESSES are dropped."""
        if len(self.processes) < MOST_PROCESSES:
            self.processes.append(process)


@dataclass(slots=True)
class SmiReport:
    """One output of nvidia-smi; "" for what isn't printed.

    Attributes:
        kind: the command that printed it, for display.
        is_whole: whether it is complete, so that a GPU missing from it is missing from the host.
        unread: lines that should be a GPU or a fact but could not be parsed.
    """

    kind: str
    timestamp: str = ""
    driver: str = ""
    cuda: str = ""
    attached: str = ""
    gpus: list[RawGpu] = field(default_factory=list)
    is_whole: bool = False
    unread: list[str] = field(default_factory=list)

    def note(self, label: str, value: str) -> None:
        """Add a host-level fact, printed before the first GPU."""
        match label.replace("_", " "):
            case "timestamp":
                self.timestamp = self.timestamp or value
            case "driver version":
                self.driver = self.driver or value
            case "kmd version":
                self.driver = value  # driver 610 and later, next to the older label
            case "cuda version":
                self.cuda = self.cuda or value
            case "cuda umd version":
                self.cuda = value
            case "attached gpus":
                self.attached = self.attached or value

    def add_gpu(self, bus_id: str = "", index: str = "") -> RawGpu:
        """Add a GPU; those above MOST_GPUS are dropped."""
        gpu = RawGpu(bus_id, index)
        if len(self.gpus) < MOST_GPUS:
            self.gpus.append(gpu)
        return gpu

    def miss(self, line: str) -> None:
        """Record a line that could not be parsed."""
        if len(self.unread) < _MOST_UNREAD:
            self.unread.append(line.strip()[:LONGEST_VALUE])
