"""Scans any text for recognized content: nvidia-smi output, lspci listings, kernel logs.

File names are ignored. Each part is recognized by how it starts, so files may be mixed, truncated or quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gpu_triage.cli.offline import outside
from gpu_triage.cli.offline.host_tools import WORDS, HostTools
from gpu_triage.cli.offline.lines import BROKEN_XID, Piece, cleaned, joined_xid, of_container
from gpu_triage.cli.offline.log_lines import MARKERS, date_time
from gpu_triage.cli.offline.logs import LogSection, MemoryBudget
from gpu_triage.cli.offline.lspci import LspciParser, PciDevice
from gpu_triage.cli.offline.smi_columns import SmiCsvParser, SmiMonitorParser, SmiTableParser
from gpu_triage.cli.offline.smi_facts import SmiParser, SmiReport
from gpu_triage.cli.offline.smi_links import NvlinkParser, SmiTopologyParser
from gpu_triage.cli.offline.smi_text import LONGEST_SECTION, SmiTextParser, SmiXmlParser
from gpu_triage.driver.kernel.pci_bus import normalize_bus_id

_HEADLESS: Final = re.compile(r"(?:[^,]{0,80}, ){1,80}(?:\d+(?:\.\d+)? (?:MHz|MiB|W|%), ?){1,20}[^,]{1,80}$")


def begin(line: str, before: str) -> SmiParser | None:
    """A parser that has consumed this line, if an output starts with it; mostly, the first character rules that out."""
    text = line.lstrip() if line[0] in " \t" else line
    first = text[:1]
    kinds: tuple[type[SmiParser], ...] = ()
    if first == "|":
        kinds = (SmiTableParser,)
    elif first == "<":
        kinds = (SmiXmlParser,)
    elif first == "#":
        kinds = (SmiMonitorParser, SmiCsvParser)
    elif first == "G" and text.startswith("GPU"):
        kinds = (SmiTextParser, NvlinkParser, SmiTopologyParser)
    elif first == "=" or ((first.isupper() or text.startswith("vGPU")) and len(text) < LONGEST_SECTION):
        kinds = (SmiTextParser,)
    elif first.islower() or "--query-" in line:
        kinds = (SmiCsvParser,)
    return next((parser for kind in kinds if (parser := kind(before)).starts(line)), None)


BUG_REPORT: Final = "NVIDIA bug report"

_MOST_REPORTS, _MOST_SECTIONS, _MOST_LOST = 64, 256, 256
_LONGEST: Final = 2000
_LONGEST_JSON: Final = 1 << 16
"""For JSON log records: one line holds all fields that the journal or a shipper stores with a message."""
_LONGEST_ROW: Final = 160
_BASE64_COLUMNS: Final = 76  # line length of base64, which makes up most of a bug report

_SEPARATOR: Final = "________________"
_BUG_REPORT: Final = "Start of NVIDIA bug report log file"
_OTHER_FILE: Final = re.compile(r"\*\*\* /(?!.*(?:messages|syslog|kern|dmesg))")
"""A file embedded in a bug report, except system logs: kernel messages in the installer's log are outdated."""
_LISTED: Final = re.compile(
    r"\*\*\* ls: \S+ +\d+ \S+ +\S+ +\d+ (\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})\S* \S+ (?:/proc|/sys)/"
)
_BUS_ID: Final = r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
_LOG_OF_SECTION: Final = re.compile(r" {2}(?:/\S+|journalctl -b -\d+):$")
_VERSION: Final = re.compile(r"NVRM version: NVIDIA UNIX .{0,60}?\s(\d{3}\.\d{1,3}(?:\.\d{1,3})?)\s")
_LOST_GPU: Final = re.compile(
    r"Unable to determine the device handle for GPU ?(?:(\d{1,3}): ?(?!\w\w:))?"
    rf"(?:{_BUS_ID}: |(?<=\d: )|(?=.{{0,20}}(?:is lost|Unknown Error)))(.{{1,80}})"
)
_BUS_IDS: Final = re.compile(_BUS_ID)
_DRIVER_ERRORS: Final = (
    ("Failed to initialize NVML: Driver/library version mismatch", "version_mismatch"),
    ("Failed to initialize NVML: Driver Not Loaded", "driver_not_loaded"),
    ("Failed to initialize NVML: ", "unknown"),
    ("NVIDIA-SMI has failed because", "driver_not_loaded"),
    ("couldn't find libnvidia-ml.so", "library_not_found"),
)


@dataclass(slots=True)
class HostFacts:
    """What the files of a host contain beside the outputs of nvidia-smi and the kernel logs."""

    room: MemoryBudget = field(default_factory=MemoryBudget)  # of the logs
    tools: HostTools = field(default_factory=HostTools)  # what other tools print
    outside: dict[outside.Outside, None] = field(default_factory=dict)  # causes outside the GPU
    devices: dict[str, PciDevice] = field(default_factory=dict)  # PCI devices listed by lspci, by bus id
    # errors of GPUs that nvidia-smi could not open, as values of gpu_error_info: by bus id in sysfs notation, and of
    # those without one by NVML index; "" if that was not legible either
    lost: dict[str, str] = field(default_factory=dict)
    unplaced: dict[str, str] = field(default_factory=dict)
    corrupted: set[str] = field(default_factory=set)  # bus ids of GPUs with a corrupted InfoROM
    driver_error: str | None = None  # why NVML could not be used, as a value of gpu_driver_error_info
    driver_version: str = ""  # version of the kernel module, from procfs
    no_devices: bool = False  # whether nvidia-smi found no devices


@dataclass(slots=True)
class Content:
    """What one file holds."""

    name: str  # display name of the file
    damage: str = ""  # what is wrong with the file; "" if it is intact
    lines: int = 0  # number of lines
    is_bug_report: bool = False
    written_at: float | None = None  # when it was collected, according to its content
    reports: list[SmiReport] = field(default_factory=list)
    logs: list[LogSection] = field(default_factory=list)
    others: dict[str, None] = field(default_factory=dict)  # other kinds of content, for display
    without_headings: str = ""  # a row of a CSV query without its header, so the columns are unknown; "" if none

    @property
    def kinds(self) -> tuple[str, ...]:
        found = [report.kind for report in self.reports if report.gpus or report.driver]
        return tuple(dict.fromkeys((*found, *self.others, *(LogSection.KIND for _ in self.logs))))


_JSON: Final = ("{", "[")


def _is_marked(line: str) -> bool:
    return any(marker in line for marker in MARKERS)


_LOOKED_AT: Final = frozenset("_*DGNU ")
"""First characters of lines that can start a section even without NVIDIA's name in them."""


def _may_be_device(line: str) -> bool:
    """Whether a line starts like a device in an lspci listing: ``41:00.0 `` or ``0000:41:00.0 ``."""
    return (line[2:3] == ":" and line[5:6] == ".") or (line[-1] != ":" and line[7:8] == ":" and line[10:11] == ".")


class Scanner:
    """Scans one file of a host line by line."""

    def __init__(self, name: str, host: HostFacts) -> None:
        self.content = Content(name)
        self._host = host
        self._host.tools.begin_file()
        self._outside = outside.OutsideCauses()
        self._parser: SmiParser | None = None
        self._lspci = LspciParser()
        self._in_listing = False
        self._log = LogSection(host.room)
        self._before = ""
        self._in_other_file = False
        self._has_markers = self._may_be_outside = self._has_tools = True
        self._broken = ""  # a line that ends within an Xid
        self._driver_error: str | None = None

    def read(self, pieces: Iterable[Piece]) -> Content:
        """Scan the lines; never raises, whatever they contain."""
        content = self.content
        for piece in pieces:
            content.lines += len(piece.lines)
            # Fast path: most chunks of most files contain no kernel messages.
            self._has_markers = any(marker in piece.text for marker in MARKERS)
            self._may_be_outside = any(marker in piece.text for marker in outside.MARKERS)
            self._has_tools = any(word in piece.text for word in WORDS)
            for line in piece.lines:
                self._read_line(line)
        if self._broken:
            self._read_whole(self._broken)
        self._end_log()
        self._drop_empty()
        self._host.devices |= self._lspci.devices
        # The first file's error counts: the others are mostly rotated, so older.
        self._host.driver_error = self._host.driver_error or self._driver_error
        if causes := dict.fromkeys(self._outside):
            self._host.outside |= causes
            content.others[outside.KIND] = None
        content.reports += [report for report in self._host.tools.reports if report.gpus]
        return content

    def _read_line(self, line: str) -> None:
        is_xml = isinstance(self._parser, SmiXmlParser) or SmiXmlParser.START in line
        if len(line) > _LONGEST and not is_xml:
            # Only XML output has longer lines.
            line = line[: _LONGEST_JSON if line.lstrip()[:1] in _JSON else _LONGEST]
        if line and (line[0] in ">\\" or line[:5] == "[pod/" or "\xa0" in line or ("&" in line and not is_xml)):
            line = cleaned(line)
        if broken := self._broken:
            self._broken = ""
            if joined := joined_xid(broken, line):
                line, self._has_markers = joined, True
            else:
                self._read_whole(broken)
        if self._has_markers and "NVRM:" in line and BROKEN_XID.search(line) is not None:
            self._broken = line
        else:
            self._read_whole(line)

    def _read_whole(self, line: str) -> None:
        if line and (" F " in line or line[0] == "{") and not (self._has_markers and _is_marked(line)):
            line = of_container(line) or line
        may_be_outside = self._may_be_outside and any(marker in line for marker in outside.MARKERS)
        if may_be_outside and not self._in_other_file and self._outside.note(line):
            return
        if line.startswith("WARNING: infoROM is corrupted") and len(self._host.corrupted) < _MOST_LOST:
            # The warning follows the output it belongs to.
            self._host.corrupted.update(map(normalize_bus_id, _BUS_IDS.findall(line)))
            self.content.others[SmiTableParser.KIND] = None
        elif self._has_tools and not self._in_other_file and (command := self._host.tools.feed(line)) is not None:
            if command:
                self.content.others[command] = None
            self._parser = None
        elif not (self._parser is not None and self._continues(self._parser, line)) and line:
            self._take(line)

    def _take(self, line: str) -> None:
        first = line[0]
        if len(line) == _BASE64_COLUMNS and first != "<" and " " not in line:
            return
        if self._in_listing and first in "\t ":
            self._lspci.feed(line)
            return
        if not (self._has_markers and _is_marked(line)) or "NVRM version:" in line:
            self._pass_by(line)
        elif not self._in_other_file:
            self._log.feed(line)
        if line.lstrip()[:1] != "+":
            self._before = line

    def _pass_by(self, line: str) -> None:
        """Process a line without a kernel message; most lines match nothing, so the checks are few and cheap."""
        if (parser := begin(line, self._before)) is not None:
            self._begin(parser)
        elif line[0].isalnum() and ", " in line and (" MiB" in line or " MHz" in line) and _HEADLESS.match(line):
            self.content.without_headings = self.content.without_headings or line[:_LONGEST_ROW]
        elif line[0] in _LOOKED_AT or "NV" in line or "nv" in line or _may_be_device(line):
            self._look(line)
        else:
            self._in_listing = False
        self._log.pass_by(line)

    def _continues(self, parser: SmiParser, line: str) -> bool:
        if self._has_markers and ("NVRM: Xid (" in line or (line and line[0] not in " <|" and _is_marked(line))):
            return False
        if line and line[0] != " " and not isinstance(parser, SmiXmlParser):
            other = begin(line, self._before)
            if other is not None and type(other) is not type(parser):
                self._begin(other)
                return True
        if parser.feed(line):
            return True
        self._parser = None
        return False

    def _look(self, line: str) -> None:
        if line.startswith(_SEPARATOR):
            self._end_log()
            self._in_listing = self._in_other_file = False
            return
        if self.content.is_bug_report and _OTHER_FILE.match(line) is not None:
            self._in_other_file = True
        if _may_be_device(line) and self._lspci.start(line):
            self.content.others[LspciParser.KIND] = None
            self._in_listing = True
            return
        if line[0] != " ":
            self._in_listing = False
        self._note(line)

    def _begin(self, parser: SmiParser) -> None:
        reports = self.content.reports
        self._drop_empty()
        if len(reports) >= _MOST_REPORTS:
            # In a file appended to for months, keep the latest outputs.
            del reports[0]
        reports.append(parser.report)
        self._parser, self._in_listing = parser, False

    def _drop_empty(self) -> None:
        """Drop the last output if it only looked like one: nothing that could be read followed."""
        reports = self.content.reports
        gpus = reports[-1].gpus if reports else ()
        said = any(gpu.bus_id or gpu.index or gpu.facts or gpu.lists_processes for gpu in gpus)
        if reports and not reports[-1].driver and not said:
            del reports[-1]

    def _note(self, line: str) -> None:
        content = self.content
        if _BUG_REPORT in line:
            content.is_bug_report = True
        elif line.startswith("Date: ") and content.is_bug_report and content.written_at is None:
            content.written_at = date_time(line[6:100])
        elif content.written_at is None and content.is_bug_report and (listed := _LISTED.match(line)):
            # The date above is in a language that date_time does not read.
            content.written_at = date_time(listed[1])
        elif line[0] == " " and line[-1] == ":" and _LOG_OF_SECTION.match(line):
            self._end_log()
        elif version := _VERSION.search(line):
            self._host.driver_version = self._host.driver_version or version[1]
        else:
            self._note_failure(line.strip(" \t`*'\"-"))

    def _note_failure(self, line: str) -> None:
        host = self._host
        if (driver_error := next((error for words, error in _DRIVER_ERRORS if words in line), None)) is not None:
            self._driver_error = driver_error
        elif line.startswith("No devices were found"):
            host.no_devices = True
        elif "Unable to determine the device handle for GPU" in line and (lost := _LOST_GPU.search(line)):
            error = "lost" if "lost" in lost[3].lower() else "unknown"
            known, key = (host.lost, normalize_bus_id(lost[2])) if lost[2] else (host.unplaced, lost[1] or "")
            if len(known) < _MOST_LOST:
                known[key] = error
        else:
            return
        self.content.others[SmiTableParser.KIND] = None

    def _end_log(self) -> None:
        is_kernels = self._log.is_kernels()
        self._log.end()
        if len(self.content.logs) < _MOST_SECTIONS and is_kernels:
            self.content.logs.append(self._log)
        self._log = LogSection(self._host.room)
