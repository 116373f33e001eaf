"""Parses the table that ``nvidia-smi`` prints without arguments: less than ``-q``, but often all that is attached."""

from __future__ import annotations

import re
from typing import Final

from gpu_triage.cli.offline.lines import About
from gpu_triage.cli.offline.log_lines import date_time
from gpu_triage.cli.offline.smi_facts import RawGpu, RawProcess, SmiReport

_HEAD: Final = re.compile(
    r"\|\s*NVIDIA-SMI (\S+)\s+(?:KMD Version|Driver Version): (\S+)(?:\s+CUDA (?:UMD )?Version: (\S+))?"
)
_TITLE: Final = "| NVIDIA-SMI "
_FIRST: Final = re.compile(
    r"\|\s+(\d{1,3})\s+(\S.*?)\s+(On|Off|N/A|ERR!|WDDM|TCC|MCDM)\s*"
    r"\|\s+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s+\S+\s+\|\s+(\S+)\s+\|"
)
_SECOND: Final = re.compile(
    r"\|\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*/\s*(\S+)\s+\|\s+(\S+?)\s*/\s*(\S+)\s+\|\s+(\S+)\s+(\S.*?)\s+\|"
)
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


class SmiTableParser:
    """Parses one table, even if the header is missing or a terminal or mail client wrapped the lines."""

    ABOUT: Final = About(
        "nvidia-smi",
        "the table, also without its head or with broken lines",
        "driver, lost GPUs, temperature, power, uncorrected ECC errors, memory, processes, persistence",
    )

    def __init__(self, timestamp: str = "") -> None:
        self.report = SmiReport(self.ABOUT.kind, timestamp=timestamp)
        self._gpu: RawGpu | None = None
        self._by_index: dict[str, RawGpu] = {}
        self._pieces: list[str] = []
        self._has_head = False
        self._lists_processes = False

    @classmethod
    def starting(cls, line: str, before: str) -> SmiTableParser | None:
        """A parser that has consumed this line, if a table starts with it; `before`: the line above its border."""
        text = line.lstrip()
        if not text.startswith(_TITLE) and _FIRST.match(text) is None:
            return None
        parser = cls(before.strip() if date_time(before[:60]) is not None else "")
        parser.feed(line)
        return parser

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
        head = _HEAD.match(line)
        if head is not None:
            self._has_head = True
            self.report.note("driver version", head[2])
            self.report.note("cuda version", head[3] or "")
            return line.endswith("|")
        first = _FIRST.match(line)
        if first is not None:
            self._note_first(first)
            return True
        if self._gpu is not None and (lost := _LOST.match(line)) is not None:
            self._gpu.note("state", lost[1])
            return True
        second = _SECOND.match(line) if self._gpu is not None else None
        if second is not None and self._gpu is not None:
            self._note_second(self._gpu, second)
            self._gpu = None
            return True
        return self._take_process(line)

    def _note_first(self, line: re.Match[str]) -> None:
        index, name, persistence, bus_id, errors = line.groups()
        self._gpu = self._by_index[index] = self.report.add_gpu(bus_id, index)
        # A name too long for its column is truncated with dots.
        self._gpu.note("product name", name)
        if persistence in _PERSISTENCE:
            self._gpu.note("persistence mode", persistence)
        if errors.isdecimal():
            self._gpu.note("ecc errors/volatile/dram uncorrectable", errors)
            self._gpu.note("ecc mode/current", "Enabled")

    def _note_second(self, gpu: RawGpu, line: re.Match[str]) -> None:
        fan, heat, state, power, limit, used, total, busy, mode = line.groups()
        gpu.note("fan speed", fan)
        gpu.note("temperature/gpu current temp", heat)
        gpu.note("performance state", state)
        gpu.note("gpu power readings/instantaneous power draw", power)
        gpu.note("gpu power readings/current power limit", limit)
        gpu.note("fb memory usage/used", used)
        gpu.note("fb memory usage/total", total)
        gpu.note("utilization/gpu", busy)
        gpu.note("compute mode", {"E. Process": "Exclusive_Process", "E. Thread": "Exclusive_Thread"}.get(mode, mode))

    def _take_process(self, line: str) -> bool:
        if line.startswith(_PROCESSES):
            # The GPU list is complete.
            self.report.is_whole = self._has_head
        process = _PROCESS.match(line)
        self._lists_processes = self._lists_processes or process is not None or _NO_PROCESSES in line
        if process is None:
            return False
        gpu = self._by_index.get(process[1])
        if gpu is not None:
            gpu.add_process(RawProcess(process[2], process[3], process[4], process[5]))
        return True
