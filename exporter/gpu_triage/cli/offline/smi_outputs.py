"""The nvidia-smi outputs that can be parsed, and how each begins."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol

from gpu_triage.cli.offline.nvlink import NvlinkParser
from gpu_triage.cli.offline.smi_csv import SmiCsvParser
from gpu_triage.cli.offline.smi_monitors import SmiMonitorParser
from gpu_triage.cli.offline.smi_report import SmiReport
from gpu_triage.cli.offline.smi_table import SmiTableParser
from gpu_triage.cli.offline.smi_text import LONGEST_SECTION, SmiTextParser
from gpu_triage.cli.offline.smi_topology import SmiTopologyParser
from gpu_triage.cli.offline.smi_xml import SmiXmlParser

_WITHOUT_HEADINGS: Final = re.compile(r"(?:[^,]{0,80}, ){1,80}(?:\d+(?:\.\d+)? (?:MHz|MiB|W|%), ?){1,20}[^,]{1,80}$")


class SmiParser(Protocol):
    """Parses one output line by line."""

    report: SmiReport

    def feed(self, line: str) -> bool:
        """Parse a line; False if the output ended before it."""


_Starter = Callable[[str], SmiParser | None]


def begin(line: str, before: str) -> SmiParser | None:
    """A parser that has consumed this line, if an output starts with it; `before`: the previous line.

    Fast path: for most lines, the first character already rules it out.
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
    """Whether this may be a row of a query that was run with noheader, so that the columns are unknown."""
    return ", " in line and (" MiB" in line or " MHz" in line) and _WITHOUT_HEADINGS.match(line) is not None
