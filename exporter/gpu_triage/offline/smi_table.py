"""The table that ``nvidia-smi`` prints without arguments: less than ``-q`` says, and all that some people attach."""

from __future__ import annotations

import re
from typing import Final

from gpu_triage.offline.about import About
from gpu_triage.offline.smi_text import RawGpu, RawProcess, SmiReport

_HEAD: Final = re.compile(
    r"\| NVIDIA-SMI (\S+)\s+(?:KMD Version|Driver Version): (\S+)(?:\s+CUDA (?:UMD )?Version: (\S+))?"
)
_FIRST: Final = re.compile(
    r"\|\s+(\d{1,3})\s+(\S.*?)\s+(On|Off|N/A|ERR!|WDDM|TCC|MCDM)\s+"
    r"\|\s+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s+\S+\s+\|\s+(\S+)\s+\|"
)
_SECOND: Final = re.compile(
    r"\|\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*/\s*(\S+)\s+\|\s+(\S+?)\s*/\s*(\S+)\s+\|\s+(\S+)\s+(\S.*?)\s+\|"
)
_PROCESS: Final = re.compile(
    r"\|\s+(\d{1,3})\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(\d{1,10})\s+(C\+G|M\+C|C|G|M)\s+(\S.*?)\s+(\d+MiB|N/A)\s+\|"
)
_LONGEST: Final = 200
_NO_PROCESSES: Final = "No running processes found"


class SmiTableParser:
    """Parses one table, line by line; attributes as SmiTextParser's."""

    START: Final = "| NVIDIA-SMI "
    ABOUT: Final = About(
        "nvidia-smi",
        "the table",
        "driver, temperature, power, uncorrected ECC errors, memory, processes, persistence",
    )

    def __init__(self, timestamp: str = "") -> None:
        self.report = SmiReport(self.ABOUT.kind, timestamp=timestamp)
        self._gpu: RawGpu | None = None
        self._by_index: dict[str, RawGpu] = {}

    def feed(self, line: str) -> bool:
        """Take in a line; False for the first one that is not of this table any more."""
        if line.startswith("+") or not line or line.isspace() or len(line) > _LONGEST:
            return True
        if not line.startswith("|"):
            return False
        head = _HEAD.match(line)
        if head is not None:
            self.report.note("driver version", head[2])
            self.report.note("cuda version", head[3] or "")
            return True
        first = _FIRST.match(line)
        if first is not None:
            index, name, persistence, bus_id, errors = first.groups()
            self._gpu = self._by_index[index] = self.report.add_gpu(bus_id)
            # A name that is too long for its column ends in dots.
            self._gpu.note("product name", name)
            self._gpu.note("persistence mode", persistence)
            if errors.isdecimal():
                self._gpu.note("ecc errors/volatile/dram uncorrectable", errors)
                self._gpu.note("ecc mode/current", "Enabled")
            return True
        second = _SECOND.match(line) if self._gpu is not None else None
        if second is not None and self._gpu is not None:
            self._note_second(self._gpu, second)
            self._gpu = None
            return True
        self._note_process(line)
        return True

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
        gpu.note("compute mode", {"E. Process": "Exclusive_Process"}.get(mode, mode))

    def _note_process(self, line: str) -> None:
        if _NO_PROCESSES in line:
            for gpu in self.report.gpus:
                gpu.lists_processes = True
        process = _PROCESS.match(line)
        gpu_of_it = None if process is None else self._by_index.get(process[1])
        if process is not None and gpu_of_it is not None:
            for gpu in self.report.gpus:
                gpu.lists_processes = True
            gpu_of_it.processes.append(RawProcess(process[2], process[3], process[4], process[5]))
