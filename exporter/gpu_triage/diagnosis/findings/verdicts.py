"""What a finding means for its GPU, for the host, for the exit code and for the colour; and colours of classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.diagnosis.findings.table import Severity
from gpu_triage.subjects.judgement import GPU_VERDICT


class Verdict(Enum):
    """Whether a GPU or the host should go on taking work; but for NOT_READ the states of gpu_verdict."""

    NOT_READ = "not_read"
    KEEP = GPU_VERDICT.states[0]
    WATCH = GPU_VERDICT.states[1]
    DRAIN = GPU_VERDICT.states[2]

    @property
    def rank(self) -> int:
        """Higher is worse; what was not read is worse than nothing."""
        return tuple(Verdict).index(self)

    @property
    def words(self) -> str:
        """As people read it."""
        return self.value.replace("_", " ")


WORST_FIRST: Final = (Verdict.DRAIN, Verdict.WATCH, Verdict.NOT_READ, Verdict.KEEP)
"""The order of subjects to look at: of one that was not read nobody knows that it is well."""


class Colour(NamedTuple):
    """The colour of a verdict: its name, that in a terminal, and the tone on the page."""

    name: str
    terminal: str
    tone: str


COLOURS: Final[Mapping[Verdict, Colour]] = MappingProxyType(
    {
        Verdict.DRAIN: Colour("red", "red", "sick"),
        Verdict.WATCH: Colour("amber", "yellow", "held"),
        Verdict.KEEP: Colour("green", "green", "well"),
        Verdict.NOT_READ: Colour("grey", "bright_black", "idle"),
    }
)

CLASS_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Red: the GPU is sick.
        "sick": "#c92a2a",
        # Amber: something holds it back.
        "thermal": "#e8590c",
        "power_brake": "#f08c00",
        # Magenta: the path to it is broken.
        "pcie_link": "#c2259d",
        "power_cap": "#f5b82e",
        "clock_cap": "#c9a227",
        # Violet: the software is in the way.
        "hung": "#5f3dc4",
        # Blue: the host starves it.
        "memory": "#1c4fa0",
        "storage": "#1c7ed6",
        "cpu": "#4dabf7",
        "network": "#0c8599",
        "numa": "#66c5d6",
        "communication": "#845ef7",
        # Green: the GPU itself is the limit, as it should be.
        "compute": "#2f9e44",
        "unattributed": "#b39ddb",
        "idle": "#8a94a3",
    }
)
"""Fill colour of each class, in the order of their ranks; legible on a light and on a dark ground."""

TONE_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sick": CLASS_COLOURS["sick"],
        "held": CLASS_COLOURS["power_brake"],
        "starved": CLASS_COLOURS["storage"],
        "well": CLASS_COLOURS["compute"],
        "idle": CLASS_COLOURS["idle"],
    }
)
"""One colour of each tone for both grounds, light and dark: the page's icon, and everything in the dashboards."""

OF_SEVERITY: Final[Mapping[Severity, Verdict]] = MappingProxyType(
    {Severity.CRITICAL: Verdict.DRAIN, Severity.WARNING: Verdict.WATCH, Severity.INFO: Verdict.KEEP}
)
"""The verdict on what has a finding this severe: on the GPU that the finding is about, and on the host."""

EXIT_SOUND: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_COULD_NOT_LOOK: Final = 2
"""With a report on the output. Options that cannot be used end with 2 too, and with none."""


def verdict_on(severities: Iterable[Severity], *, was_read: bool) -> Verdict:
    """The verdict on a GPU, or on the host with its GPUs, with findings this severe.

    Without anything read (`was_read`), it says nothing that nothing was found.
    """
    worst = max((OF_SEVERITY[severity] for severity in severities), key=lambda each: each.rank, default=Verdict.KEEP)
    return Verdict.NOT_READ if worst is Verdict.KEEP and not was_read else worst


def exit_code(severities: Iterable[Severity], fail_on: Severity, *, blocked: bool) -> int:
    """The exit code of a look with these findings: 1 where one is at least as severe as `fail_on`."""
    if blocked:
        return EXIT_COULD_NOT_LOOK
    return EXIT_FINDINGS if any(severity.rank >= fail_on.rank for severity in severities) else EXIT_SOUND
