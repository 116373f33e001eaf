"""Every kind of input that `check --from` reads, as declared by its reader, in documentation order."""

from __future__ import annotations

from typing import Final

from gpu_triage.cli.offline import nvlink, replayed, scan, smi_csv, smi_monitors, sources
from gpu_triage.cli.offline.about import About
from gpu_triage.cli.offline.kernel import LogSection
from gpu_triage.cli.offline.lspci import LspciParser
from gpu_triage.cli.offline.smi_table import SmiTableParser
from gpu_triage.cli.offline.smi_text import SmiTextParser
from gpu_triage.cli.offline.smi_topology import SmiTopologyParser
from gpu_triage.cli.offline.smi_xml import SmiXmlParser

READERS: Final[tuple[About, ...]] = (
    scan.BUG_REPORT,
    SmiTextParser.ABOUT,
    SmiXmlParser.ABOUT,
    SmiTableParser.ABOUT,
    scan.FAILURES,
    smi_csv.QUERY,
    smi_csv.APPS,
    smi_monitors.DMON,
    smi_monitors.PMON,
    nvlink.LIST,
    nvlink.NvlinkParser.ABOUT,
    SmiTopologyParser.ABOUT,
    LogSection.ABOUT,
    LspciParser.ABOUT,
    sources.ARCHIVES,
    replayed.RECORDING,
)
