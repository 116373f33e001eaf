"""Parsers for nvidia-smi's output in columns: the table, ``--query-gpu`` and ``--query-compute-apps``, dmon, pmon."""

import re
from collections.abc import Mapping
from typing import Final

from gpu_triage.cli.offline.lines import command_of
from gpu_triage.cli.offline.log_lines import date_time
from gpu_triage.cli.offline.smi_facts import RATIO, WATTS, WORDS, RawGpu, RawProcess, SmiParser, number
from gpu_triage.cli.offline.smi_gpu import REASONS_OF_CLOCKS
from gpu_triage.read.gpu.throttle import REASONS, UNKNOWN_BITS

_HEAD: Final = re.compile(
    r"\|\s*NVIDIA-SMI (\S+)\s+(?:KMD Version|Driver Version): (\S+)(?:\s+CUDA (?:UMD )?Version: (\S+))?"
)
_TITLE: Final = "| NVIDIA-SMI "
_FIRST: Final = re.compile(
    r"\|\s+(\d{1,3})\s+(\S.*?)\s+(On|Off|N/A|ERR!|WDDM|TCC|MCDM)\s*"
    r"\|\s+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d|N/A)\s+\S+\s+\|\s+(\S+)\s+\|"
)
_SECOND: Final = re.compile(
    r"\|\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*/\s*(\S+?)\s*\|\s+(?:(\S+?)\s*/\s*(\S+?)|Not Supported)\s*\|"
    r"\s+(\S+)\s+(\S.*?)\s+\|"
)
_MIG: Final = re.compile(r"\|\s+(\d{1,3})(?:\s+\d+){3}\s+\|\s+\S+\s*/\s*\S+\s+\|\s+\d+\s+([1-9]\d*)\s+\|")
"""A MIG instance with uncorrected errors: its GPU, and their number."""
_LOST: Final = re.compile(r"\|.*\|\s*(GPU is lost|GPU requires reset)\b.*\|")
_PROCESS: Final = re.compile(
    r"\|\s+(\d{1,3})\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(\d{1,10})\s+(C\+G|M\+C|C|G|M|O)\s+(\S.*?)\s+(\d+MiB|N/A)\s+\|"
)
_BORDER: Final = frozenset("+-=|")
_LONGEST: Final = 300
_MOST_PIECES: Final = 3
_NO_PROCESSES: Final = "No running processes found"
_PROCESSES: Final = "| Processes:"
_PERSISTENCE: Final = frozenset({"On", "Off", "N/A", "ERR!"})
"""Values of the third column on Linux; on Windows it holds the driver model."""


class SmiTableParser(SmiParser):
    """Parses one table, even if the header is missing or a terminal or mail client wrapped the lines."""

    KIND = "nvidia-smi"

    def __init__(self, before: str) -> None:
        super().__init__(before)
        self._pieces: list[str] = []
        self._lists_processes = False

    def starts(self, line: str) -> bool:
        text = line.lstrip()
        if not text.startswith(_TITLE) and _FIRST.match(text) is None:
            return False
        self.report.timestamp = self.before.strip() if date_time(self.before[:60]) is not None else ""
        self.feed(line)
        return True

    def feed(self, line: str) -> bool:
        text = line.strip()
        if not text or len(line) > _LONGEST:
            return True
        if _BORDER.issuperset(text):
            self._pieces = []
            if self._lists_processes and text.startswith("+"):
                # The process list is complete: a GPU not in it has no processes.
                for gpu in self.report.gpus:
                    gpu.lists_processes = True
            return True
        if text.startswith(("|", "+")):
            self._pieces = [text]
        elif "|" in text and self._pieces and len(self._pieces) < _MOST_PIECES:
            self._pieces.append(text)
        else:
            return False
        if self._take(" ".join(self._pieces)):
            self._pieces = []
        return True

    def _take(self, line: str) -> bool:
        """Parse a reassembled line; False if its end may still be missing."""
        if (head := _HEAD.match(line)) is not None:
            self.report.note("driver version", head[2])
            self.report.note("cuda version", head[3] or "")
            return line.endswith("|")
        if (first := _FIRST.match(line)) is not None:
            self._note_first(first)
            return True
        if self.gpu is not None and (lost := _LOST.match(line)) is not None:
            self.gpu.note("state", lost[1])
            return True
        if self.gpu is not None and (second := _SECOND.match(line)) is not None:
            *values, mode = second.groups()
            mode = {"E. Process": "Exclusive_Process", "E. Thread": "Exclusive_Thread"}.get(mode, mode)
            for path, value in zip(WORDS["second-line"], (*values, mode), strict=True):
                self.gpu.note(path, value or "")
            self.gpu = None
            return True
        if (mig := _MIG.match(line)) is not None and mig[1] in self.report.by_key:
            self.report.by_key[mig[1]].note("ecc errors/volatile/dram uncorrectable", mig[2])
        return self._take_process(line)

    def _note_first(self, line: re.Match[str]) -> None:
        index, name, persistence, bus_id, errors = line.groups()
        self.gpu = self.report.gpu_at(index, bus_id, index)
        self.gpu.note("product name", name)
        if persistence in _PERSISTENCE:
            self.gpu.note("persistence mode", persistence)
        if errors.isdecimal() or errors == "ERR!":
            self.gpu.note("ecc errors/volatile/dram uncorrectable", errors)
            self.gpu.note("ecc mode/current", "Enabled" if errors.isdecimal() else errors)

    def _take_process(self, line: str) -> bool:
        if line.startswith(_PROCESSES):
            # The GPU list is complete.
            self.report.is_whole = bool(self.report.driver)
        process = _PROCESS.match(line)
        self._lists_processes = self._lists_processes or process is not None or _NO_PROCESSES in line
        if process is None:
            return False
        index, *described = process.groups()
        if index in self.report.by_key:
            self.report.by_key[index].add_process(RawProcess(*described))
        return True


QUERY: Final = "nvidia-smi --query-gpu"
APPS: Final = "nvidia-smi --query-compute-apps"

_REASONS: Final = {tag: label.rpartition("/")[2] for label, tag in REASONS_OF_CLOCKS.values()}
_CLOCKS: Final = {"graphics": "graphics", "gr": "graphics", "sm": "sm", "memory": "memory", "mem": "memory"}
_FACTS_OF_FIELDS: Final[Mapping[str, str]] = {
    **WORDS["query-gpu"],
    **{
        f"clocks_{kind}.{tag}": f"clocks {kind.replace('_', ' ')}/{label}"
        for kind in ("event_reasons", "throttle_reasons", "event_reasons_counters")
        for tag, label in _REASONS.items()
    },
    **{
        f"{field}.{name}": f"{section}/{clock}"
        for field, section in WORDS["query-gpu-clocks"].items()
        for name, clock in _CLOCKS.items()
    },
}
"""Field of ``--query-gpu``, and the name of the same fact in ``-q``."""

_OF_GPU: Final = frozenset({"index", "pci.bus_id", "gpu_bus_id", "gpu_uuid", "uuid"})
_OF_HOST: Final = {"driver_version": "driver version", "kmd_version": "kmd version", "count": "attached gpus"}
_OF_PROCESS: Final = frozenset({"pid", "process_name", "used_gpu_memory", "used_memory"})
_BITS: Final = frozenset({"clocks_event_reasons.active", "clocks_throttle_reasons.active"})
_MASK: Final = re.compile("0x[0-9A-Fa-f]{1,16}")
FIELDS: Final = frozenset({*_FACTS_OF_FIELDS, *_BITS, *_OF_HOST, *_OF_GPU, *_OF_PROCESS, "timestamp"})
_SAME_PASS_SECONDS: Final = 0.5
"""GPUs in one pass are read within milliseconds of each other; passes are a second apart by default."""

_HEADING: Final = re.compile(r"\s*([A-Za-z][\w.]{1,80})(?:\s*\[[^\]]{1,12}\])?\s*")
_VALUE: Final = re.compile(
    r"-?\d+(?:\.\d+)?(?: \S{1,3})?|0x[0-9A-Fa-f]+|P\d+|\[.{1,60}\]|N/A|(?:Not )?Active|Enabled|Disabled|Yes|No"
)
"""A valid cell of a single-column row; any other line isn't from nvidia-smi."""

_QUERY: Final = re.compile(r"--query-(gpu|compute-apps)[= ]([\w.,]{1,8000})")


def _fields_of(heading: str) -> list[str]:
    """The fields in a header line; empty for any other line."""
    # Fast path: most lines with a comma are prose, which the first word shows.
    first = _HEADING.match(heading)
    if first is None or first[1].lower() not in FIELDS:
        return []
    found = [_HEADING.fullmatch(cell) for cell in heading.split(",")]
    names = [each[1].lower() for each in found if each is not None]
    known = sum(name in FIELDS for name in names)
    # A single known word may occur in any text, but with a dot in it, it is a field.
    return names if len(names) == len(found) and (known > 1 or "." in first[1]) else []


class SmiCsvParser(SmiParser):
    """Parses one run of a query; the last sample of each GPU wins."""

    KIND = QUERY

    def __init__(self, before: str) -> None:
        super().__init__(before)
        self._fields: list[str] = []
        self._place = -1
        self._read_at: float | None = None

    def starts(self, line: str) -> bool:
        query = _QUERY.search(line) if "--query-" in line else None
        if query is not None and command_of(line):
            self._fields = [name.lower() for name in query[2].split(",") if name]
            of_processes = query[1] != "gpu"
        else:
            self._fields = _fields_of(line)
            of_processes = "pid" in self._fields
        self.report.kind = APPS if of_processes else QUERY
        return bool(self._fields)

    def feed(self, line: str) -> bool:
        if not line or line.isspace():
            return True
        cells = [cell.strip() for cell in line.split(",")]
        if not self.report.gpus and (headings := _fields_of(line)):
            # The header after a command line that has been parsed already.
            self._fields = headings
            return True
        if len(cells) != len(self._fields) or (len(cells) == 1 and _VALUE.fullmatch(cells[0]) is None):
            # One with missing cells still belongs to the run.
            if not self.report.gpus or command_of(line) or "," not in line or len(self._fields) == 1:
                return False
            self.report.miss(line)
            return True
        named = dict(zip(self._fields, cells, strict=True))
        # For example 2026/06/24 10:26:34.977; the last sample's.
        self.report.timestamp = named.get("timestamp", "").replace("/", "-")
        note = self._note_process if self.report.kind == APPS else self._note_sample
        note(named)
        return True

    def _gpu_of(self, named: Mapping[str, str]) -> RawGpu:
        index = named.get("index", "")
        bus_id = named.get("pci.bus_id") or named.get("gpu_bus_id") or ""
        uuid = named.get("uuid") or named.get("gpu_uuid") or ""
        key = index or bus_id or uuid or self._next_place()
        return self.report.gpu_at(key, bus_id, index if index.isdecimal() else "")

    def _next_place(self) -> str:
        """The row number within its pass, which identifies a GPU without a name."""
        at = date_time(self.report.timestamp)
        before, self._read_at = self._read_at, at
        is_new_pass = at is not None and before is not None and at - before > _SAME_PASS_SECONDS
        self._place = 0 if is_new_pass else self._place + 1
        return f"row {self._place}"

    def _note_sample(self, named: Mapping[str, str]) -> None:
        gpu = self._gpu_of(named)
        gpu.facts = {}
        for name in _CLOCKS:
            # Both are the present clock. Where they differ, the former is meant as what it should be.
            usual, now = named.get(f"clocks.{name}"), named.get(f"clocks.current.{name}")
            if usual != now and usual and now:
                gpu.note(f"max clocks/{_CLOCKS[name]}", usual)
                gpu.note(f"clocks/{_CLOCKS[name]}", now)
        for name, value in named.items():
            if name in _OF_HOST:
                self.report.note(_OF_HOST[name], value)
            elif name in _FACTS_OF_FIELDS:
                gpu.note(_FACTS_OF_FIELDS[name], value)
            elif name in _BITS and _MASK.fullmatch(value):
                for reason, (label, _) in REASONS_OF_CLOCKS.items():
                    held = int(value, 16) & REASONS.get(reason, UNKNOWN_BITS)
                    gpu.note(f"clocks event reasons/{label}", "Active" if held else "Not Active")

    def _note_process(self, named: Mapping[str, str]) -> None:
        gpu = self._gpu_of(named)
        for name in ("gpu_name", "gpu_uuid"):
            if name in named:
                gpu.note(_FACTS_OF_FIELDS[name], named[name])
        memory = named.get("used_gpu_memory", named.get("used_memory", ""))
        gpu.lists_processes = True
        gpu.add_process(RawProcess(named.get("pid", ""), "C", named.get("process_name", ""), memory))


DMON: Final = "nvidia-smi dmon"
PMON: Final = "nvidia-smi pmon"

_NOT_REPORTED: Final = "-"
_FACTS_OF_COLUMNS: Final[Mapping[str, str]] = WORDS["dmon"]
_VIOLATIONS: Final = {"pviol": "clocks event reasons/sw power cap", "tviol": "clocks event reasons/sw thermal slowdown"}
"""Columns that are nonzero while a power or thermal limit holds the clocks below the requested ones."""

_MOST_SAMPLES: Final = 59  # before the last one: a window of the judge
_UNITS: Final = frozenset({"idx", "yyyymmdd"})  # first words of the second header line


class SmiMonitorParser(SmiParser):
    """Parses one run of dmon or pmon; the last sample of each GPU wins."""

    KIND = DMON

    def __init__(self, before: str) -> None:
        super().__init__(before)
        self._columns: list[str] = []

    def starts(self, line: str) -> bool:
        self._columns = columns = _headings(line)
        is_pmon = "pid" in columns
        self.report.kind = PMON if is_pmon else DMON
        return "gpu" in columns and (is_pmon or not _FACTS_OF_COLUMNS.keys().isdisjoint(columns))

    def feed(self, line: str) -> bool:
        if not line or line.isspace():
            return True
        if line.lstrip().startswith("#"):
            headings = _headings(line)
            # The header is repeated once per terminal page.
            return headings == self._columns or headings[:1] == ["idx"] or not _UNITS.isdisjoint(headings)
        values, is_pmon = line.split(), self.report.kind == PMON
        named = dict(zip(self._columns, values, strict=False))
        if not named.get("gpu", "").isdecimal() or len(values) < len(self._columns) - is_pmon:
            return False
        date = named.get("date", "")
        if len(date) == len("20260131") and date.isdecimal():
            self.report.timestamp = f"{date[:4]}-{date[4:6]}-{date[6:]} {named.get('time', '')}"
        if is_pmon:
            name = " ".join(values[len(self._columns) - 1 :])
            self._note_process(named, "" if name == _NOT_REPORTED else name)
        else:
            self._note_sample(named)
        return True

    def _note_sample(self, named: Mapping[str, str]) -> None:
        gpu = self.report.gpu_at(named["gpu"], index=named["gpu"])
        gpu.facts = {}
        for column, value in named.items():
            if column in _FACTS_OF_COLUMNS and value != _NOT_REPORTED:
                gpu.note(_FACTS_OF_COLUMNS[column], value)
            elif column in _VIOLATIONS and value.isdecimal():
                gpu.note(_VIOLATIONS[column], "Active" if int(value) else "Not Active")
        utilization, watts = number(named.get("sm", ""), RATIO), number(named.get("pwr", ""), WATTS)
        if utilization is not None:
            gpu.samples = [*gpu.samples[-_MOST_SAMPLES:], (utilization, watts)]

    def _note_process(self, named: Mapping[str, str], name: str) -> None:
        index, pid = named["gpu"], named["pid"]
        gpu = self.report.gpu_at(index, index=index)
        gpu.lists_processes = True
        if pid == _NOT_REPORTED or pid in (known.pid for known in gpu.processes):
            # A new sample starts; it replaces the process list.
            gpu.processes = []
        if pid != _NOT_REPORTED:
            memory = named.get("fb", "").removeprefix(_NOT_REPORTED)
            gpu.add_process(RawProcess(pid, named.get("type", ""), name, memory, named.get("sm", "")))


def _headings(line: str) -> list[str]:
    text = line.strip()
    return text.lstrip("# ").lower().split() if text.startswith("#") else []
