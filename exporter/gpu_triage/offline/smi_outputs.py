"""The outputs of nvidia-smi that are read here, and how each begins."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol

from gpu_triage.offline.nvlink import NvlinkParser
from gpu_triage.offline.smi_csv import SmiCsvParser
from gpu_triage.offline.smi_monitors import SmiMonitorParser
from gpu_triage.offline.smi_report import SmiReport
from gpu_triage.offline.smi_table import SmiTableParser
from gpu_triage.offline.smi_text import SmiTextParser
from gpu_triage.offline.smi_topology import SmiTopologyParser
from gpu_triage.offline.smi_xml import SmiXmlParser

_LONGEST_HEADINGS: Final = 8000
_WITHOUT_HEADINGS: Final = re.compile(r"(?:[^,]{0,80}, ){1,80}(?:\d+(?:\.\d+)? (?:MHz|MiB|W|%), ?){1,20}[^,]{1,80}$")


class SmiParser(Protocol):
    """Parses one output, line by line."""

    report: SmiReport

    def feed(self, line: str) -> bool:
        """Take in a line; False for the first one that is not of this output any more."""


def begin(line: str, before: str) -> SmiParser | None:
    """A parser that has taken in this line, if an output begins with it; `before`: the line that stood before it.

    Most lines of most files begin nothing: as few looks at them as tell.
    """
    text = line.lstrip()
    starters: tuple[Callable[[str], SmiParser | None], ...]
    if text.startswith("|"):
        return SmiTableParser.starting(line, before)
    if text.startswith("#"):
        return SmiMonitorParser.starting(text) if "gpu" in text else None
    if text.startswith("<"):
        return SmiXmlParser.starting(line)
    if text.startswith("GPU") or "NVSMI LOG" in line:
        starters = (SmiTextParser.starting, NvlinkParser.starting, SmiTopologyParser.starting)
    else:
        starters = (SmiTextParser.starting, SmiCsvParser.starting)
    return next((parser for starting in starters if (parser := starting(line)) is not None), None)


def lacks_headings(line: str) -> bool:
    """Whether this may be a row of a query that was run without headings, so that nobody knows what is what."""
    return (" MiB" in line or " MHz" in line) and _WITHOUT_HEADINGS.match(line) is not None
