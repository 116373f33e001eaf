"""Parses ``nvidia-smi -q -x``. It handles only this dialect, and tolerates truncated or malformed documents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from types import MappingProxyType
from typing import Final

from gpu_triage.cli.offline.about import About
from gpu_triage.cli.offline.smi_report import LONGEST_VALUE, MOST_PROCESSES, RawGpu, RawProcess, SmiReport

_TOKEN: Final = re.compile(r"<(/?)([A-Za-z_][\w.]*)([^<>]*)>|([^<]+)|<")
_ID: Final = re.compile(r'\bid="([^"]{1,40})"')
_DEEPEST: Final = 12
_SKIPPED: Final = frozenset({"supported_clocks", "accounted_processes", "mig_devices"})
_PROCESS: Final[Mapping[str, str]] = MappingProxyType(
    {"pid": "pid", "type": "kind", "process_name": "name", "used_memory": "memory"}
)


class SmiXmlParser:
    """Parses one document line by line; attributes as in SmiTextParser."""

    START: Final = "<nvidia_smi_log"
    ABOUT: Final = About("nvidia-smi -q -x", "with line breaks or without", "the same as `nvidia-smi -q`")

    def __init__(self) -> None:
        self.report = SmiReport(self.ABOUT.kind)
        self._gpu: RawGpu | None = None
        self._path: list[str] = []
        self._skips = False
        self._ended = False

    @classmethod
    def starting(cls, line: str) -> SmiXmlParser | None:
        """A parser that has consumed this line, if a document starts with it."""
        if cls.START not in line:
            return None
        parser = cls()
        parser.feed(line)
        return parser

    def feed(self, line: str) -> bool:
        """Parse a line; False if the document ended before it."""
        if self._ended:
            return False
        for token in _TOKEN.finditer(line):
            closes, tag, attributes, text = token.groups()
            if tag is None:
                if text is not None and not self._skips and self._path and not text.isspace():
                    self._text(unescape(text.strip()[:LONGEST_VALUE]))
            elif closes:
                if tag == "nvidia_smi_log":
                    self._ended = self.report.is_whole = True
                    return True
                self._close(tag)
            elif not attributes.endswith("/"):
                self._open(tag, attributes)
        return True

    def _open(self, tag: str, attributes: str) -> None:
        if tag == "nvidia_smi_log":
            return
        if tag == "gpu":
            bus_id = _ID.search(attributes)
            self._gpu = self.report.add_gpu("" if bus_id is None else bus_id[1])
            self._path, self._skips = [], False
            return
        if self._skips:
            return
        if tag in _SKIPPED:
            self._skips = True
        if len(self._path) < _DEEPEST:
            self._path.append(tag)
        if self._gpu is not None and tag == "process_info" and len(self._gpu.processes) < MOST_PROCESSES:
            self._gpu.processes.append(RawProcess())

    def _close(self, tag: str) -> None:
        if tag == "gpu":
            self._gpu, self._path, self._skips = None, [], False
        elif tag in self._path:
            if self._gpu is not None and tag in ("process_info", "processes"):
                # Only set here, because a truncated list may or may not be empty.
                self._gpu.lists_processes = True
            # Lines may be missing, so close any inner elements that are still open.
            while self._path.pop() != tag:
                pass
            self._skips = self._skips and tag not in _SKIPPED

    def _text(self, value: str) -> None:
        if self._gpu is None:
            if len(self._path) == 1:
                self.report.note(self._path[0], value)
        elif self._path[0] != "processes":
            self._gpu.note("/".join(self._path), value)
        elif self._gpu.processes and self._path[-1] in _PROCESS:
            setattr(self._gpu.processes[-1], _PROCESS[self._path[-1]], value)
