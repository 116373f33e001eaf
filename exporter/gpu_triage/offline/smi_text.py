"""What ``nvidia-smi -q`` prints, as it stands there: the parser of its text, and what it and that of the XML fill."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from gpu_triage.offline.about import About

MOST_GPUS: Final = 256
MOST_FACTS: Final = 2000  # of one GPU; the newest drivers print some 250
MOST_PROCESSES: Final = 4096  # of one GPU
LONGEST_VALUE: Final = 200
_LONGEST_LINE: Final = 300
_MOST_FOREIGN: Final = 400
"""Lines of somebody else in a row that end the output: less are taken for a kernel log that was written into it."""

_GPU: Final = re.compile(r"GPU\s?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_ENDS: Final = ("____", "####", "+---", "<?xml", "<nvidia_smi_log", "*** ")
_OWN: Final = frozenset({"timestamp", "driver version", "cuda version", "attached gpus"})


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
        bus_id: as printed.
        facts: value by path: labels in lower case, joined by slashes. The first one of a path stands.
        lists_processes: whether there is a list of processes, be it empty.
    """

    bus_id: str
    facts: dict[str, str] = field(default_factory=dict)
    processes: list[RawProcess] = field(default_factory=list)
    lists_processes: bool = False

    def note(self, path: str, value: str) -> None:
        """Take in a fact."""
        if len(self.facts) < MOST_FACTS:
            self.facts.setdefault(path, value[:LONGEST_VALUE])


@dataclass(slots=True)
class SmiReport:
    """One output of ``nvidia-smi -q``; "" for what it does not say.

    Attributes:
        kind: what printed it, for people.
        complete: whether it came to its last GPU's end.
    """

    kind: str
    timestamp: str = ""
    driver: str = ""
    cuda: str = ""
    attached: str = ""
    gpus: list[RawGpu] = field(default_factory=list)

    def note(self, label: str, value: str) -> None:
        """Take in what is said of the host, before the first GPU."""
        match label:
            case "timestamp":
                self.timestamp = self.timestamp or value
            case "driver version" | "driver_version":
                self.driver = self.driver or value
            case "cuda version" | "cuda_version":
                self.cuda = self.cuda or value
            case "attached gpus" | "attached_gpus":
                self.attached = self.attached or value

    def add_gpu(self, bus_id: str) -> RawGpu:
        """A further GPU; what is said of one beyond any host's number is said in vain."""
        gpu = RawGpu(bus_id)
        if len(self.gpus) < MOST_GPUS:
            self.gpus.append(gpu)
        return gpu


class SmiTextParser:
    """Parses one output, line by line.

    Attributes:
        report: what was read so far.
    """

    START: Final = "==============NVSMI LOG=============="
    ABOUT: Final = About(
        "nvidia-smi -q",
        "drivers 390 to 610, also parts of it (`-d`)",
        "driver, memory errors and repairs, recovery action, fabric, temperatures, limits, throttle reasons, clocks, "
        "PCIe link and replays, processes, settings; two of them, a minute or more apart, also rates",
    )

    def __init__(self) -> None:
        self.report = SmiReport(self.ABOUT.kind)
        self._gpu: RawGpu | None = None
        self._stack: list[tuple[int, str]] = []
        self._foreign = 0

    def feed(self, line: str) -> bool:
        """Take in a line; False for the first one that is not of this output any more."""
        if not line or line.isspace():
            return True
        line = line[:_LONGEST_LINE]
        if line[0] != " ":
            return self._feed_at_margin(line)
        if self._gpu is None:
            return True
        name, colon, value = line.partition(":")
        label = name.strip().lower()
        if not label:
            return True
        self._foreign = 0
        self._enter(len(line) - len(line.lstrip(" ")), label)
        if colon:
            self._note(value.strip())
        elif label == "processes":
            self._gpu.lists_processes = True
        return True

    def _feed_at_margin(self, line: str) -> bool:
        gpu = _GPU.match(line)
        if gpu is not None:
            self._gpu, self._stack, self._foreign = self.report.add_gpu(gpu[1]), [], 0
            return True
        name, colon, value = line.partition(":")
        label = name.strip().lower()
        if self._gpu is None and colon:
            self.report.note(label, value.strip()[:LONGEST_VALUE])
        if label in _OWN:
            return True
        self._foreign += 1
        return not line.startswith(_ENDS) and self._foreign <= _MOST_FOREIGN

    def _enter(self, indent: int, label: str) -> None:
        while self._stack and self._stack[-1][0] >= indent:
            self._stack.pop()
        if len(self._stack) < 8:  # noqa: PLR2004 - deeper than any output
            self._stack.append((indent, label))

    def _note(self, value: str) -> None:
        assert self._gpu is not None  # noqa: S101 - the caller looked
        labels = [label for _, label in self._stack]
        if labels[0] != "processes":
            self._gpu.note("/".join(labels), value)
            return
        self._gpu.lists_processes = self._gpu.lists_processes or value.lower() != "n/a"
        if labels[-1] == "process id" and len(self._gpu.processes) < MOST_PROCESSES:
            self._gpu.processes.append(RawProcess(pid=value))
        elif self._gpu.processes:
            _describe(self._gpu.processes[-1], labels[-1], value[:LONGEST_VALUE])


def _describe(process: RawProcess, label: str, value: str) -> None:
    match label:
        case "type":
            process.kind = value
        case "name":
            process.name = value
        case "used gpu memory":
            process.memory = value
