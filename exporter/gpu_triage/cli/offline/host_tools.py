"""Parses what tools other than nvidia-smi print about a host and its jobs.

The tables of mpstat, iostat, sar and vmstat become metrics that the judge reads of a live host; free, numactl, lscpu,
lsmod, ps and NCCL's log become facts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from gpu_triage.cli.offline.smi_facts import SmiReport
from gpu_triage.judge.evidence.wording import first_few, ranges
from gpu_triage.judge.findings.finding import Finding, of_host
from gpu_triage.judge.findings.table import Area
from gpu_triage.read.host import cpu, disk, host_memory
from gpu_triage.read.host import network_interfaces as network
from gpu_triage.read.metrics.metric import Kind, Sample

_HEADINGS: Final = ("%idle", "%util", "rxkB/s", "pswpin/s", "swpd")  # each header line of a table has one of these

_MOST_SERIES, _MOST_ROWS, _MOST_COLUMNS = 1024, 10, 32  # CPUs, disks and interfaces, and the last rows of each
_LONGEST_PREFIX: Final = 3  # words before a row: ``09:52:12 AM CET``, ``Average:``
_PAGE_BYTES: Final = 4096  # of sar -W: that of x86
_COLUMNS: Final = {
    "user": ("%usr", "%user", "%guest", "us", "gu"),  # mpstat counts guests apart from user
    "nice": ("%nice", "%gnice"),
    "system": ("%sys", "%system", "sy"),
    "iowait": ("%iowait", "wa"),
    "irq": ("%irq",),
    "softirq": ("%soft",),
    "steal": ("%steal", "st"),
    "idle": ("%idle", "id"),
}
"""How the tools name the modes of /proc/stat."""
_MODES: Final = {column: mode for mode, columns in _COLUMNS.items() for column in columns}
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)?")  # some locales have a decimal comma
_BANNER: Final = re.compile(r"\s*Linux \d\S* \(.{0,80}\)\s.*_\s+\((\d{1,5}) CPU\)")
_MEASURE: Final = re.compile(r"^%|/s$|^tps$")
_NOT_DISKS: Final = ("loop", "ram", "zram", "sr", "fd")
_FULL_SHARE: Final = 0.98  # of the time: that of a busiest CPU that starves a job
_ONE_WAITS: Final = 0.9  # CPUs in iowait: a task that waits all the time keeps one there, however many there are
_MUCH_TRAFFIC: Final = 1e9 / 8 / 2  # bytes a second: half of what the slowest link of a server carries


class _Table(NamedTuple):
    command: str  # which prints it, for display
    keys: tuple[str, ...]  # possible names of the column that names a row; empty if there is none
    needs: str  # a column that it has
    first_since_boot: bool = False  # whether the first of several reports is the average since boot


_TABLES: Final = (
    _Table("mpstat", ("CPU",), "%usr"),
    _Table("sar", ("CPU",), "%user"),
    _Table("iostat", (), "avg-cpu:", first_since_boot=True),
    _Table("iostat -x", ("Device", "Device:"), "%util", first_since_boot=True),
    _Table("sar -d", ("DEV",), "%util"),
    _Table("sar -n DEV", ("IFACE",), "rxkB/s"),
    _Table("sar -W", (), "pswpin/s"),
    _Table("vmstat", (), "swpd", first_since_boot=True),
)


class HostTables:
    """Parses the tables of a file, line by line; the last run of each command wins."""

    def __init__(self) -> None:
        self.rows: dict[_Table, dict[str, list[dict[str, float]]]] = {}  # by name and column
        self.table: _Table | None = None  # the one with the next rows
        self._columns: list[str] = []
        self._cpus = 0
        self._ended: set[_Table] = set()

    def end_runs(self) -> None:
        """Whatever comes next is another run."""
        self._ended, self.table = set(self.rows), None

    def feed(self, line: str) -> str | None:
        """The command that prints this row; "" for a line that measures nothing, None for one of something else."""
        words = line.split()
        if banner := _BANNER.match(line):
            self.end_runs()
            self._cpus = int(banner[1])
            return ""
        if any(word in _HEADINGS for word in words) and self._begin(words):
            return ""
        if self.table is not None and words and not self._take(self.table, words):
            self.table = None
        return None if self.table is None else self.table.command.split()[0] if words else ""

    def _begin(self, words: list[str]) -> bool:
        fits = (each for each in _TABLES if each.needs in words and any(key in words for key in each.keys or words))
        table = next(fits, None)
        if table is None or len(words) > _MOST_COLUMNS:
            return False
        # Before the first column, there may be a time.
        start = (n for n, word in enumerate(words) if word in table.keys or _MEASURE.search(word))
        self.table, self._columns = table, words[next(start, 0) :]
        if table.command == "vmstat":
            # With -t, the header of the time is one word, and the time is two.
            self._columns = words[: 1 + max(n for n, word in enumerate(words) if word in _MODES)]
        return True

    def _take(self, table: _Table, words: list[str]) -> bool:
        if table.command == "vmstat":
            words = words[: len(self._columns)]
        extra = len(words) - len(self._columns)
        if not 0 <= extra <= _LONGEST_PREFIX:
            return False
        prefix, named = words[:extra], dict(zip(self._columns, words[extra:], strict=True))
        name = next((named.pop(key) for key in table.keys if key in named), "all")
        if not all(map(_NUMBER.fullmatch, named.values())):
            return False
        row = {column: float(cell.replace(",", ".")) for column, cell in named.items()}
        rows = self.rows.setdefault(table, {})
        if table in self._ended or any(own[0].keys() != row.keys() for own in islice(rows.values(), 1)):
            # Headings alone replace nothing. Of the commands that tell the same, the one that ran last comes last.
            self._ended.discard(table)
            del self.rows[table]
            rows = self.rows.setdefault(table, {})
        if name in rows or len(rows) < _MOST_SERIES:
            # The command's own average, over all of its run, replaces the rows.
            averages = bool(prefix) and not prefix[0][0].isdigit()
            rows[name] = [*([] if averages else rows.get(name, [])[-_MOST_ROWS:]), row]
        return True

    def _means(self, *commands: str) -> Iterator[tuple[str, dict[str, float]]]:
        """The mean of the last rows of each name, by column."""
        for table, rows in self.rows.items():
            for name, own in rows.items() if table.command in commands else ():
                counted = own[1:] if table.first_since_boot and len(own) > 1 else own
                yield name, {column: sum(row[column] for row in counted) / len(counted) for column in own[0]}

    def _cpu_shares(self) -> dict[str, dict[str, float]]:
        """Share of the time in each mode, 0-1, by CPU; "all" is the whole host."""
        found: dict[str, dict[str, float]] = {}
        for commands in (("mpstat", "sar"), ("iostat",), ("vmstat",)):
            for name, row in self._means(*commands) if not found else ():
                shares: dict[str, float] = defaultdict(float)
                for column, value in row.items():
                    if column in _MODES:
                        shares[_MODES[column]] += value
                # In percent of one CPU, those of all CPUs together are above 100.
                if total := sum(shares.values()):
                    found[name] = {mode: value / total for mode, value in shares.items()}
        return found

    def samples(self, seconds: float) -> Iterator[Sample]:
        """What was measured, with counters that began at 0 so many seconds before."""
        for sample in (*self._cpu_samples(), *self._disk_samples(), *self._other_samples()):
            is_counter = sample.spec.kind is Kind.COUNTER
            yield sample.spec.sample(sample.value * seconds, *sample.labels) if is_counter else sample

    def _cpu_samples(self) -> Iterator[Sample]:
        # These tables do not tell which CPUs are of which NUMA node.
        shares = self._cpu_shares()
        if modes := shares.pop("all", {}):
            count = self._cpus or len(shares) or 1
            yield cpu.GPU_HOST_CPUS.sample(count, "")
            yield from (cpu.GPU_HOST_CPU_SECONDS_TOTAL.sample(share * count, "", mode) for mode, share in modes.items())
        if shares:
            yield cpu.GPU_HOST_CPU_BUSIEST_RATIO.sample(max(map(_busy, shares.values())), "")

    def _disk_samples(self) -> Iterator[Sample]:
        for name, row in self._means("iostat -x", "sar -d"):
            if name.startswith(_NOT_DISKS):
                continue
            reads, writes, wait = row.get("r/s", row.get("tps", 0.0)), row.get("w/s", 0.0), row.get("await", 0.0)
            values = {
                disk.GPU_HOST_DISK_BUSY_SECONDS_TOTAL: row["%util"] / 100,
                disk.GPU_HOST_DISK_QUEUE_SECONDS_TOTAL: row.get("aqu-sz", row.get("avgqu-sz", 0.0)),
                disk.GPU_HOST_DISK_READS_TOTAL: reads,
                disk.GPU_HOST_DISK_WRITES_TOTAL: writes,
                disk.GPU_HOST_DISK_READ_SECONDS_TOTAL: reads * row.get("r_await", wait) / 1000,
                disk.GPU_HOST_DISK_WRITE_SECONDS_TOTAL: writes * row.get("w_await", wait) / 1000,
            }
            yield from (spec.sample(value, name) for spec, value in values.items())

    def _other_samples(self) -> Iterator[Sample]:
        for name, received, sent, rate in self._traffic():
            yield network.GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL.sample(received, name)
            yield network.GPU_HOST_NETWORK_TRANSMIT_BYTES_TOTAL.sample(sent, name)
            if rate:
                yield network.GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND.sample(rate, name)
        swapped = [row["pswpin/s"] * _PAGE_BYTES for _, row in self._means("sar -W")]
        for _, row in self._means("vmstat"):
            swapped.append(row["si"] * 1024)
            yield cpu.GPU_HOST_PROCESSES_BLOCKED.sample(row["b"])
        yield from (host_memory.GPU_HOST_SWAP_IN_BYTES_TOTAL.sample(each) for each in swapped[:1])

    def _traffic(self) -> Iterator[tuple[str, float, float, float]]:
        """Bytes per second received and sent by each interface, and its line rate; 0 if not shown."""
        for name, row in self._means("sar -n DEV"):
            received, sent, used = row["rxkB/s"] * 1024, row["txkB/s"] * 1024, row.get("%ifutil", 0.0)
            if name != "lo":
                yield name, received, sent, max(received, sent) / used * 100 if used else 0.0

    def facts(self) -> Iterator[str]:
        if full := [name for name, modes in self._cpu_shares().items() if _busy(modes) > _FULL_SHARE]:
            yield f"CPU {ranges(full)} always busy"
        if waiting := self.waiting_cpus:
            yield f"{waiting:.1f} of {self._cpus} CPUs idle while tasks wait for I/O"
        for name, received, sent, rate in self._traffic():
            if not rate and max(received, sent) >= _MUCH_TRAFFIC:
                yield f"{name} receives {received * 8 / 1e9:.1f} Gbit/s and sends {sent * 8 / 1e9:.1f} Gbit/s"

    @property
    def waiting_cpus(self) -> float:
        """How many CPUs are idle while tasks wait for I/O; 0 for less than one, or if a table shows the disks."""
        waiting = self._cpu_shares().get("all", {}).get("iowait", 0.0) * self._cpus
        shows_disks = any(table.needs == "%util" for table in self.rows)
        return 0.0 if waiting < _ONE_WAITS or shows_disks else waiting

    def missing(self) -> Iterator[str]:
        if self.waiting_cpus:
            yield "what tasks wait for: attach iostat -xz 1 5"
        if any(not rate for *_, rate in self._traffic()):
            yield "the line rate of each interface: attach sar -n DEV with %ifutil, or ethtool"
        if any(t.first_since_boot and len(own) == 1 for t, rows in self.rows.items() for own in rows.values()):
            yield "the load at that moment: the only report of iostat or vmstat may be the average since boot"


def _busy(modes: Mapping[str, float]) -> float:
    return 1.0 - modes.get("idle", 0.0) - modes.get("iowait", 0.0)


WORDS: Final = (
    *(*_HEADINGS, " CPU)", "total", "bind: ", "cpus: ", "NUMA node", "nvidia", "nouveau", "Used by", "PID", "NCCL"),
    *("ersistence mode", "Mem: ", "Swap: "),
)
"""Text without any of these has nothing to be read here."""

_MOST_PROCESSES, _MOST_RANKS, _MOST_FACTS = 20_000, 4096, 64
_MOST_SHOWN: Final = 4
_FEW_PROCESSES: Final = 3  # in a list of so few, all are shown
_STATES: Final = {"R": "running", "S": "sleeping", "T": "stopped", "Z": "a zombie", "D": "waiting in the kernel"}
_STUCK: Final = ("D", "Z", "T")
_CORE, _UVM = "nvidia", "nvidia_uvm"

_LINES: Final = (
    ("free", re.compile(r"(total) +used +free\b.*?(available)?$")),
    ("free", re.compile(r"(Mem|Swap): +(\S+) +(\S+) +\S+(?:.* (\S+))?$")),
    ("numactl", re.compile(r"(physcpubind|cpubind|nodebind|membind): *([\d ,-]*)$")),
    ("lscpu", re.compile(r"(?:node|NUMA node) ?(\d{1,4}) (?:cpus|CPU\(s\)): *([\d ,-]+)$")),
    ("lsmod", re.compile(r"(?:(nvidia(?:_\w+)?|nouveau|nova_core) +\d{3,9} +-?\d+( +\S+)?|Module +Size +Used by)$")),
    (
        "nvidia-smi -pm",
        re.compile(
            r"(?:Persistence mode is already )?(Enabled|Disabled)(?: persistence mode)? for GPU ([0-9A-Fa-f:]+\.\d)"
        ),
    ),
)
_NCCL: Final = (
    (Area.PEERS, "channels by {}", re.compile(r"(?:Channel|Ring) .* via (P2P|SHM|direct shared memory|NET)\b")),
    (Area.PCIE, "GPU {1} reached at {0} GB/s", re.compile(r"\+ PCI\[([\d.]+)\] - GPU/(?:\d+-)?([0-9A-F]{4,8}) ")),
    (Area.HOST, "network {} over {}", re.compile(r"NET/(\w+) ?: Using \[0\]([\w.-]+)")),
    (Area.HOST, "no InfiniBand or RoCE adapter found", re.compile(r"NET/IB ?: No device found")),
    (Area.HEALTH, "{}", re.compile(r"NCCL WARN (.{0,80}(?:uncorrectable ECC|GPU is lost|off the bus).{0,40})")),
    (Area.WORK, "{}", re.compile(r"NCCL WARN (Cuda failure (?!.*(?:ECC|is lost)).{1,80})")),
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
    """What these tools print in the files of a host."""

    def __init__(self) -> None:
        self.tables = HostTables()
        self._facts: dict[Area, Counter[str]] = defaultdict(Counter)
        self._bound: dict[str, str] = {}
        self._modules: dict[str, None] = {}  # "" if all modules are listed
        self._processes: dict[str, tuple[str, str]] = {}  # name, and state with elapsed time, by PID
        self._timeouts: dict[str, tuple[int, str]] = {}  # milliseconds and operation, by rank
        self._unacknowledged = 0  # RDMA requests
        self.begin_file()

    def begin_file(self) -> None:
        # What the file shows of GPUs: their PCIe links, as NCCL found them, and their persistence mode.
        self._links, self._settings = self.reports = SmiReport("NCCL's log"), SmiReport("nvidia-smi -pm")
        self._columns: list[str] = []
        self._shows_available = False
        self.tables.end_runs()

    def feed(self, line: str) -> str | None:
        """The command that prints this line; "" for a line that shows nothing, None for one of something else."""
        if self._columns and self._process(line):
            return "ps"
        self._columns = []
        if self.tables.table is None and not any(word in line for word in WORDS):
            return None  # as nearly all lines of a log
        if (command := self.tables.feed(line)) is not None:
            return command
        if "NCCL" in line:
            return "NCCL's log" if self._nccl(line) else None
        text = line.strip()
        for command, pattern in _LINES:
            if found := pattern.match(text):
                self._take(command, found)
                return "" if found[1] == "total" else "numactl" if text.startswith("node") else command
        if text.endswith(("CMD", "COMMAND")) and "PID" in (words := text.split()):
            self._columns = words
        return "" if self._columns else None

    def _take(self, command: str, found: re.Match[str]) -> None:
        first, second = found[1], found[2]
        if command == "free" and first == "total":
            self._shows_available = second is not None
        elif command == "nvidia-smi -pm":
            self._settings.gpu_at(second, second).note("persistence mode", first)
        elif command == "free" and first == "Swap":
            used = f"{found[3]} of {second} of" if found[3].strip("0.,B") else "no"
            self._note(Area.HOST, f"{used} swap in use")
        elif command == "free" and self._shows_available:
            self._note(Area.HOST, f"{found[4]} of {second} of memory available")
        elif command == "numactl":
            self._bound[first] = ranges(second.replace(",", " ").split()) or "none"
        elif command == "lscpu":
            self._note(Area.WORK, f"NUMA node {first} has CPUs {ranges(second.split())}")
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
        return True

    def _nccl(self, line: str) -> bool:
        if timeout := _TIMEOUT.search(line):
            if len(self._timeouts) < _MOST_RANKS:
                self._timeouts[timeout[1] or "?"] = int(timeout[3]), timeout[2]
        elif link := _LINK.search(line.rstrip()):
            gpu = self._links.gpu_at(link[2] or link[1], index=link[2] or link[1])
            gpu.note("pcie generation/current", link[3])
            gpu.note("link width/current", link[4])
        elif _UNACKNOWLEDGED.search(line):
            self._unacknowledged += 1
        else:
            for area, words, pattern in _NCCL:
                if found := pattern.search(line):
                    self._note(area, f"NCCL: {words.format(*found.groups())}")
        return timeout is not None or "NCCL INFO" in line or "NCCL WARN" in line

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
        if self._timeouts:
            milliseconds, operation = max(self._timeouts.values())
            ranks = f"ranks {ranges(self._timeouts)}" if "?" not in self._timeouts else "a rank"
            measured = f"NCCL's watchdog: {operation} of {ranks} timed out after {milliseconds / 1000:.0f} s"
            yield of_host("work.collective_hang", measured, len(self._timeouts))
        if count := self._unacknowledged:
            yield of_host("network.timeouts", f"NCCL: {count} RDMA requests not acknowledged by their peer", count)

    def missing(self) -> Iterator[str]:
        """What these outputs leave open, with the command that shows it."""
        yield from self.tables.missing()
        if any("swap in use" in fact and not fact.startswith("no") for fact in self._facts[Area.HOST]):
            yield "whether swap is read back now: attach vmstat 1 5"
        if not self.tables.rows:
            yield "CPU, memory, disk and network of the host while the job ran: run gpu-triage check on the host"
