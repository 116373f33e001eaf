"""What is read of one output of nvidia-smi, in its own words: what every parser of such an output fills."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MOST_GPUS: Final = 256
MOST_FACTS: Final = 2000  # of one GPU; the newest drivers print some 250
MOST_PROCESSES: Final = 4096  # of one GPU
LONGEST_VALUE: Final = 200
_MOST_UNREAD: Final = 32


@dataclass(slots=True)
class RawProcess:
    """One process as nvidia-smi lists it; "" where it does not say."""

    pid: str = ""
    kind: str = ""  # C, G, C+G, M, M+C
    name: str = ""
    memory: str = ""


@dataclass(slots=True)
class RawGpu:
    """One GPU as nvidia-smi shows it.

    Attributes:
        bus_id: as printed; "" where it is not shown.
        index: as NVML counts; "" where it is not shown.
        facts: value by path: labels in lower case, joined by slashes. The first one of a path stands.
        lists_processes: whether there is a list of processes, be it empty.
    """

    bus_id: str
    index: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    processes: list[RawProcess] = field(default_factory=list)
    lists_processes: bool = False

    def note(self, path: str, value: str) -> None:
        """Take in a fact."""
        if len(self.facts) < MOST_FACTS:
            self.facts.setdefault(path, value[:LONGEST_VALUE])

    def add_process(self, process: RawProcess) -> None:
        """Take in a process; what is beyond any GPU's number is left out."""
        if len(self.processes) < MOST_PROCESSES:
            self.processes.append(process)


@dataclass(slots=True)
class SmiReport:
    """One output of nvidia-smi; "" for what it does not say.

    Attributes:
        kind: what printed it, for people.
        is_whole: whether it came to its end, so that a GPU that is not in it is not there.
        unread: lines that could be read neither as a GPU nor as a fact, as far as they had to be one.
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
        """Take in what is said of the host, before the first GPU."""
        match label.replace("_", " "):
            case "timestamp":
                self.timestamp = self.timestamp or value
            case "driver version":
                self.driver = self.driver or value
            case "kmd version":
                self.driver = value  # from driver 610 on, beside the older label
            case "cuda version":
                self.cuda = self.cuda or value
            case "cuda umd version":
                self.cuda = value
            case "attached gpus":
                self.attached = self.attached or value

    def add_gpu(self, bus_id: str = "", index: str = "") -> RawGpu:
        """A further GPU; beyond the most that a host has, what is said of it is dropped."""
        gpu = RawGpu(bus_id, index)
        if len(self.gpus) < MOST_GPUS:
            self.gpus.append(gpu)
        return gpu

    def miss(self, line: str) -> None:
        """Take in a line that could not be read."""
        if len(self.unread) < _MOST_UNREAD:
            self.unread.append(line.strip()[:LONGEST_VALUE])
