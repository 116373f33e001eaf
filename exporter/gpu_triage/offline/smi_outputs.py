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
from gpu_triage.offline.smi_text import LONGEST_SECTION, SmiTextParser
from gpu_triage.offline.smi_topology import SmiTopologyParser
from gpu_triage.offline.smi_xml import SmiXmlParser

_WITHOUT_HEADINGS: Final = re.compile(r"(?:[^,]{0,80}, ){1,80}(?:\d+(?:\.\d+)? (?:MHz|MiB|W|%), ?){1,20}[^,]{1,80}$")


class SmiParser(Protocol):
    """Parses one output, line by line."""

    report: SmiReport

    def feed(self, line: str) -> bool:
        """Take in a line; False for the first one that is not of this output any more."""


_Starter = Callable[[str], SmiParser | None]


def begin(line: str, before: str) -> SmiParser | None:
    """A parser that has taken in this line, if an output begins with it; `before`: the line that stood before it.

    Most lines of most files begin nothing: their first character shows it.
    """
    text = line.lstrip() if line[0] in " \t" else line
    first = text[:1]
    if first == "|":
        return SmiTableParser.starting(line, before)
    starters: tuple[_Starter, ...] = ()
    if first == "<":
        starters = (SmiXmlParser.starting,)
    elif first == "#":
        starters = (SmiMonitorParser.starting, SmiCsvParser.starting)
    elif first == "G" and text.startswith("GPU"):
        starters = (SmiTextParser.starting, NvlinkParser.starting, SmiTopologyParser.starting)
    elif first == "=" or ((first.isupper() or text.startswith("vGPU")) and len(text) < LONGEST_SECTION):
        starters = (SmiTextParser.starting,)
    elif first.islower() or "--query-" in line:
        starters = (SmiCsvParser.starting,)
    for starting in starters:
        parser = starting(line)
        if parser is not None:
            return parser
    return None


def lacks_headings(line: str) -> bool:
    """Whether this may be a row of a query that was run without headings, so that nobody knows what is what."""
    return ", " in line and (" MiB" in line or " MHz" in line) and _WITHOUT_HEADINGS.match(line) is not None
