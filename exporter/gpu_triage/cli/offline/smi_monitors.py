"""Parses ``nvidia-smi dmon`` and ``nvidia-smi pmon``: columns depend on the options, one line per sample."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.cli.offline.about import About
from gpu_triage.cli.offline.smi_report import RawGpu, RawProcess, SmiReport

DMON: Final = About(
    "nvidia-smi dmon",
    "any columns (`-s`), also with times (`-o DT`)",
    "power, temperature, utilization, clocks, memory, ECC errors, limits that hold the clocks, as of the last sample",
)
PMON: Final = About("nvidia-smi pmon", DMON.forms, "processes on the GPUs, as of the last sample")

_NOT_REPORTED: Final = "-"
_FACTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "pwr": ("gpu power readings/power draw", " W"),
        "temp": ("temperature/gpu current temp", " C"),
        "gtemp": ("temperature/gpu current temp", " C"),
        "mtemp": ("temperature/memory current temp", " C"),
        "sm": ("utilization/gpu", " %"),
        "mem": ("utilization/memory", " %"),
        "enc": ("utilization/encoder", " %"),
        "dec": ("utilization/decoder", " %"),
        "mclk": ("clocks/memory", " MHz"),
        "pclk": ("clocks/sm", " MHz"),
        "fb": ("fb memory usage/used", " MiB"),
        "bar1": ("bar1 memory usage/used", " MiB"),
        "sbecc": ("ecc errors/aggregate/single bit/total", ""),
        "dbecc": ("ecc errors/aggregate/double bit/total", ""),
    }
)
"""Column of dmon, the name of the same fact in ``-q``, and the unit printed in the second header line."""

_VIOLATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {"pviol": "clocks event reasons/sw power cap", "tviol": "clocks event reasons/sw thermal slowdown"}
)
"""Columns that are nonzero while a power or thermal limit holds the clocks below the requested ones."""

_UNITS: Final = frozenset({"idx", "yyyymmdd"})
"""First words of the second header line."""


class SmiMonitorParser:
    """Parses one run of dmon or pmon; the last sample of each GPU wins."""

    def __init__(self, columns: list[str]) -> None:
        self._columns = columns
        self._is_pmon = "pid" in columns
        self.report = SmiReport((PMON if self._is_pmon else DMON).kind)
        self._gpus: dict[str, RawGpu] = {}
        self._sampled: set[str] = set()

    @classmethod
    def starting(cls, line: str) -> SmiMonitorParser | None:
        """A parser that has consumed this line, if it is the column header."""
        columns = _headings(line)
        return cls(columns) if "gpu" in columns and ("pid" in columns or any(c in _FACTS for c in columns)) else None

    def feed(self, line: str) -> bool:
        """Parse a line; False if the run ended before it."""
        if not line or line.isspace():
            return True
        if line.lstrip().startswith("#"):
            headings = _headings(line)
            # The header is repeated once per terminal page.
            return headings == self._columns or headings[:1] == ["idx"] or not _UNITS.isdisjoint(headings)
        values = line.split()
        named = dict(zip(self._columns, values, strict=False))
        if not named.get("gpu", "").isdecimal() or len(values) < len(self._columns) - self._is_pmon:
            return False
        self._note_time(named)
        if self._is_pmon:
            name = " ".join(values[len(self._columns) - 1 :])
            self._note_process(named, "" if name == _NOT_REPORTED else name)
        else:
            self._note_sample(named)
        return True

    def _note_time(self, named: Mapping[str, str]) -> None:
        date, time = named.get("date", ""), named.get("time", "")
        if len(date) == len("20260131") and date.isdecimal():
            self.report.timestamp = f"{date[:4]}-{date[4:6]}-{date[6:]} {time}"

    def _gpu(self, index: str) -> RawGpu:
        if index not in self._gpus:
            self._gpus[index] = self.report.add_gpu(index=index)
        return self._gpus[index]

    def _note_sample(self, named: Mapping[str, str]) -> None:
        facts: dict[str, str] = {}
        for column, value in named.items():
            if value == _NOT_REPORTED:
                continue
            if column in _FACTS:
                path, unit = _FACTS[column]
                facts[path] = f"{value}{unit}"
            elif column in _VIOLATIONS and value.isdecimal():
                facts[_VIOLATIONS[column]] = "Active" if int(value) else "Not Active"
        self._gpu(named["gpu"]).facts = facts

    def _note_process(self, named: Mapping[str, str], name: str) -> None:
        index, pid = named["gpu"], named["pid"]
        gpu = self._gpu(index)
        gpu.lists_processes = True
        if index not in self._sampled:
            self._sampled.add(index)
        elif pid in (known.pid for known in gpu.processes) or not gpu.processes:
            # A new sample starts; it replaces the process list.
            gpu.processes = []
        if pid != _NOT_REPORTED:
            memory = named.get("fb", _NOT_REPORTED)
            gpu.add_process(
                RawProcess(pid, named.get("type", ""), name, "" if memory == _NOT_REPORTED else f"{memory} MiB")
            )


def _headings(line: str) -> list[str]:
    text = line.strip()
    if not text.startswith("#"):
        return []
    return text.lstrip("# ").lower().split()
