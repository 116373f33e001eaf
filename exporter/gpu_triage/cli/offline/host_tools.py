"""Parses what other tools print about a host and its jobs: free, numactl, lscpu, lsmod, ps, and NCCL's log."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from gpu_triage.cli.offline.host_tables import TABLE_WORDS, HostTables
from gpu_triage.cli.offline.smi_facts import SmiReport
from gpu_triage.judge.evidence.wording import first_few, ranges
from gpu_triage.judge.findings.finding import Finding, of_host
from gpu_triage.judge.findings.table import Area

WORDS: Final = (
    *TABLE_WORDS,
    *("total", "bind: ", "cpus: ", "NUMA node", "nvidia", "nouveau", "Used by", "PID", "NCCL", "ersistence mode"),
    "MIG mode is in pending",
    *("Mem: ", "Swap: "),
)
"""Text without any of these has nothing to be read here."""

_MOST_PROCESSES, _MOST_RANKS, _MOST_FACTS = 20_000, 4096, 64
_MOST_SHOWN: Final = 4
_FEW_PROCESSES: Final = 3  # in a list of so few, all are shown
_STATES: Final = {"R": "running", "S": "sleeping", "T": "stopped", "Z": "a zombie", "D": "waiting in the kernel"}
_STUCK: Final = ("D", "Z", "T")
_CORE, _UVM = "nvidia", "nvidia_uvm"

_LINES: Final[Mapping[str, re.Pattern[str]]] = {
    "free header": re.compile(r"total +used +free\b.*?(available)?$"),
    "free": re.compile(r"(Mem|Swap): +(\S+) +(\S+) +\S+(?:.* (\S+))?$"),
    "numactl": re.compile(r"(physcpubind|cpubind|nodebind|membind): *([\d ,-]*)$"),
    "lscpu": re.compile(r"(?:node|NUMA node) ?(\d{1,4}) (?:cpus|CPU\(s\)): *([\d ,-]+)$"),
    "lsmod": re.compile(r"(?:(nvidia(?:_\w+)?|nouveau|nova_core) +\d{3,9} +-?\d+( +\S+)?|Module +Size +Used by)$"),
    "nvidia-smi -mig": re.compile(r"Warning: MIG mode is in pending (\w+) state for GPU ([0-9A-F:]+\.\d):?(.{0,80})"),
    "nvidia-smi -pm": re.compile(
        r"(?:Persistence mode is already )?(Enabled|Disabled)(?: persistence mode)? for GPU ([0-9A-Fa-f:]+\.\d)"
    ),
}
_NCCL: Final = (
    (Area.PEERS, "channels by {}", re.compile(r"(?:Channel|Ring) .* via (P2P|SHM|direct shared memory|NET)\b")),
    (Area.PCIE, "GPU {1} reached at {0} GB/s", re.compile(r"\+ PCI\[([\d.]+)\] - GPU/(?:\d+-)?([0-9A-F]{4,8}) ")),
    (Area.HOST, "network {} over {}", re.compile(r"NET/(\w+) ?: Using \[0\]([\w.-]+)")),
    (Area.HOST, "no InfiniBand or RoCE adapter found", re.compile(r"NET/IB ?: No device found")),
    (Area.WORK, "connections to other ranks lost", re.compile(r"closed by remote peer|Connection (?:refused|reset)")),
)
"""What NCCL logs: the area, the words of the report, and the form of the line."""
_LINK: Final = re.compile(r"CUDA Dev (\d{1,3})(?: ?\[(\d{1,3})\])? PCIe/Gen(\d) x(\d{1,2})$")
_TIMEOUT: Final = re.compile(
    r"(?:[Rr]ank ?(\d{1,6})\])?[^\[\]]{0,40}Watchdog caught collective operation timeout: WorkNCCL\("
    r".*?OpType=(\w{1,40}).*?ran for (\d{1,12}) milliseconds"
)
_UNACKNOWLEDGED: Final = re.compile(r"NCCL WARN NET/IB.*Got completion .*(?:error|status=?) ?12\b")


class HostTools:
    """What these tools print in one file, or in all files of a host (see `update`)."""

    def __init__(self) -> None:
        self.tables = HostTables()
        self.links = SmiReport("NCCL's log")  # PCIe links, as NCCL found them
        self.settings = SmiReport("nvidia-smi -pm")
        self._commands: dict[str, None] = {}
        self._facts: dict[Area, Counter[str]] = defaultdict(Counter)
        self._bound: dict[str, str] = {}
        self._modules: dict[str, None] = {}  # "" if all modules are listed
        self._processes: dict[str, tuple[str, str]] = {}  # name, and state with elapsed time, by PID
        self._timeouts: dict[str, tuple[int, str]] = {}  # milliseconds and operation, by rank
        self._unacknowledged: Counter[str] = Counter()  # RDMA requests, by ""
        self._columns: list[str] = []
        self._shows_available = False

    @property
    def commands(self) -> tuple[str, ...]:
        return (*self.tables.commands, *self._commands)

    def update(self, later: HostTools) -> None:
        """Add what is in another file of this host."""
        self.tables.update(later.tables)
        for name in ("_bound", "_modules", "_processes", "_timeouts", "_unacknowledged"):
            getattr(self, name).update(getattr(later, name))
        for area, facts in later._facts.items():
            self._facts[area].update(facts)

    def feed(self, line: str) -> bool:
        """Parse a line; whether it is one of these tools'."""
        if self._columns and self._process(line):
            return True
        self._columns = []
        if not self.tables.is_open and not any(word in line for word in WORDS):
            return False  # as nearly all lines of a log
        if self.tables.feed(line):
            return True
        if "NCCL" in line:
            return self._nccl(line)
        text = line.strip()
        for command, pattern in _LINES.items():
            if found := pattern.match(text):
                self._take(command, found)
                return True
        if text.endswith(("CMD", "COMMAND")) and "PID" in (words := text.split()):
            self._columns = words
        return bool(self._columns)

    def _take(self, command: str, found: re.Match[str]) -> None:
        first, second = found[1], found[2] if found.re.groups > 1 else ""
        if command == "free header":
            self._shows_available = first is not None
            return
        if command == "nvidia-smi -pm":
            self.settings.gpu_at(second, second).note("persistence mode", first)
            return
        self._commands["numactl" if found[0].startswith("node") else command] = None
        if command == "free" and first == "Swap":
            used = f"{found[3]} of {second} of" if found[3].strip("0.,B") else "no"
            self._note(Area.HOST, f"{used} swap in use")
        elif command == "free" and self._shows_available:
            self._note(Area.HOST, f"{found[4]} of {second} of memory available")
        elif command == "numactl":
            self._bound[first] = ranges(second.replace(",", " ").split()) or "none"
        elif command == "lscpu":
            self._note(Area.WORK, f"NUMA node {first} has CPUs {ranges(second.split())}")
        elif command == "nvidia-smi -mig":
            self._note(Area.SETTINGS, f"MIG mode pending, to {first}, on the GPU at {second.lower()}: {found[3]}")
        elif command == "lsmod" and len(self._modules) < _MOST_FACTS:
            self._modules[first or ""] = None

    def _note(self, area: Area, fact: str) -> None:
        if len(self._facts[area]) < _MOST_FACTS:
            self._facts[area][fact] += 1

    def _process(self, line: str) -> bool:
        cells = line.split(None, len(self._columns) - 1)
        named = dict(zip(self._columns, cells, strict=False))
        if len(cells) < len(self._columns) or not named["PID"].isdecimal():
            return False
        if len(self._processes) < _MOST_PROCESSES:
            # The command line may be private: keep only the program's name.
            name = PurePosixPath(cells[-1].split()[0]).name.strip("[]")
            elapsed = f", started {named['ELAPSED']} before" if "ELAPSED" in named else ""
            self._processes[named["PID"]] = name, named.get("STAT", named.get("S", "")) + elapsed
        self._commands["ps"] = None
        return True

    def _nccl(self, line: str) -> bool:
        if timeout := _TIMEOUT.search(line):
            if len(self._timeouts) < _MOST_RANKS:
                self._timeouts[timeout[1] or "?"] = int(timeout[3]), timeout[2]
        elif link := _LINK.search(line.rstrip()):
            gpu = self.links.gpu_at(link[2] or link[1], index=link[2] or link[1])
            gpu.note("pcie generation/current", link[3])
            gpu.note("link width/current", link[4])
        elif _UNACKNOWLEDGED.search(line):
            self._unacknowledged[""] += 1
        else:
            for area, words, pattern in _NCCL:
                if found := pattern.search(line):
                    self._note(area, f"NCCL: {words.format(*found.groups())}")
        is_log = timeout is not None or "NCCL INFO" in line or "NCCL WARN" in line
        if is_log:
            self._commands["NCCL's log"] = None
        return is_log

    def facts(
        self, gpu_nodes: Mapping[str, str], pids: Collection[str], *, with_names: bool
    ) -> Iterator[tuple[Area, str]]:
        """What these outputs show, by area; `gpu_nodes`: NUMA node by GPU, `pids`: the processes on GPUs."""
        if self._modules:
            loaded = sorted(filter(None, self._modules))
            lacks = _CORE in loaded and _UVM not in loaded
            more = f"; {_UVM} is not among them: CUDA cannot use the GPUs without it" if lacks else ""
            yield Area.DRIVER, f"kernel modules of GPU drivers: {', '.join(loaded) or 'none is listed'}{more}"
        yield from ((Area.HOST, fact) for fact in self.tables.facts())
        for area, facts in self._facts.items():
            yield from ((area, f"{fact} ({count} times)" if count > 1 else fact) for fact, count in facts.items())
        if self._bound:
            yield Area.WORK, self._placement(gpu_nodes)
        told = [
            f"{name if with_names else 'process'} ({pid}) {_STATES.get(state[:1], 'is there')} ({state})"
            for pid, (name, state) in self._processes.items()
            if len(self._processes) <= _FEW_PROCESSES or pid in pids or state.startswith(_STUCK)
        ]
        if told:
            yield Area.WORK, first_few(told, _MOST_SHOWN)

    def _placement(self, gpu_nodes: Mapping[str, str]) -> str:
        nodes = {self._bound[name] for name in ("membind", "nodebind", "cpubind") if name in self._bound}
        far = [gpu for gpu, node in gpu_nodes.items() if node not in nodes] if all(map(str.isdecimal, nodes)) else ()
        remote = f"; GPU {ranges(far)} is on another node" if far else ""
        cpus, memory = (self._bound.get(name, "?") for name in ("physcpubind", "membind"))
        return f"the process that ran numactl is bound to CPUs {cpus} and the memory of node {memory}{remote}"

    def findings(self) -> Iterator[Finding]:
        """What NCCL's log proves."""
        if self._timeouts:
            milliseconds, operation = max(self._timeouts.values())
            ranks = f"ranks {ranges(self._timeouts)}" if "?" not in self._timeouts else "a rank"
            measured = f"NCCL's watchdog: {operation} of {ranks} timed out after {milliseconds / 1000:.0f} s"
            yield of_host("work.collective_hang", measured, len(self._timeouts))
        if count := self._unacknowledged[""]:
            yield of_host("network.timeouts", f"NCCL: {count} RDMA requests not acknowledged by their peer", count)

    def missing(self) -> Iterator[str]:
        """What these outputs leave open, with the command that shows it."""
        yield from self.tables.missing()
        if any("swap in use" in fact and not fact.startswith("no") for fact in self._facts[Area.HOST]):
            yield "whether swap is read back now: attach vmstat 1 5"
