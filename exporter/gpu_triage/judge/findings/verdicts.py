"""Verdicts on GPUs and hosts that follow from findings: exit codes, colors, and the words that people get."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from gpu_triage.documents import packaged_toml
from gpu_triage.judge.findings.table import Advice, Severity
from gpu_triage.read.exporter.judgment import GPU_VERDICT


class Verdict(Enum):
    """Whether a GPU or host should keep taking work; the states of gpu_verdict, plus NOT_READ."""

    NOT_READ = "not_read"
    KEEP = GPU_VERDICT.states[0]
    WATCH = GPU_VERDICT.states[1]
    DRAIN = GPU_VERDICT.states[2]

    @property
    def rank(self) -> int:
        """Higher is worse; NOT_READ ranks lowest."""
        return tuple(Verdict).index(self)

    @property
    def text(self) -> str:
        """As shown to people."""
        return self.value.replace("_", " ")


WORST_FIRST: Final = (Verdict.DRAIN, Verdict.WATCH, Verdict.NOT_READ, Verdict.KEEP)
"""Display order, most urgent first; NOT_READ precedes KEEP because its health is unknown."""


class Color(NamedTuple):
    """Color of a verdict: its name, its terminal color, and its tone on the web page."""

    name: str
    terminal: str
    tone: str


COLORS: Final[Mapping[Verdict, Color]] = {
    Verdict.DRAIN: Color("red", "red", "sick"),
    Verdict.WATCH: Color("amber", "yellow", "held"),
    Verdict.KEEP: Color("green", "green", "well"),
    Verdict.NOT_READ: Color("gray", "bright_black", "idle"),
}

CLASSES: Final = packaged_toml(__package__, "classes.toml")
"""Description of the GPUs in each class, and its color; in order of rank."""

CLASS_COLORS: Final[Mapping[str, str]] = {name: each["color"] for name, each in CLASSES.items()}

TONE_COLORS: Final[Mapping[str, str]] = {
    "sick": CLASS_COLORS["sick"],
    "held": CLASS_COLORS["power_brake"],
    "starved": CLASS_COLORS["storage"],
    "well": CLASS_COLORS["compute"],
    "idle": CLASS_COLORS["idle"],
}
"""One color per tone for light and dark backgrounds: for the page's icon, and for all dashboards."""

OF_SEVERITY: Final[Mapping[Severity, Verdict]] = {
    Severity.CRITICAL: Verdict.DRAIN,
    Severity.WARNING: Verdict.WATCH,
    Severity.INFO: Verdict.KEEP,
}
"""Verdict on a GPU or host with a finding of this severity."""

EXIT_SOUND: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_COULD_NOT_LOOK: Final = 2
"""Used when a report was printed. Invalid options also exit with 2, but without a report."""


def verdict_on(severities: Iterable[Severity], *, was_read: bool) -> Verdict:
    """Return the verdict by the severities of findings; NOT_READ, and not KEEP, without readings and serious ones."""
    worst = max((OF_SEVERITY[severity] for severity in severities), key=lambda each: each.rank, default=Verdict.KEEP)
    return Verdict.NOT_READ if worst is Verdict.KEEP and not was_read else worst


@dataclass(frozen=True, slots=True)
class Words:
    verdicts: Mapping[Verdict, str]
    drains: bool  # whether there is something that can be drained

    def decision(self, advice: Advice) -> str:
        return advice.decision if self.drains else advice.at_a_desk


CLUSTER: Final = Words({verdict: verdict.text for verdict in Verdict}, drains=True)
_AT_A_DESK: Final = {Verdict.DRAIN: "take it out of use", Verdict.WATCH: "use it, but look", Verdict.KEEP: "fine"}
DESK: Final = Words({**CLUSTER.verdicts, **_AT_A_DESK}, drains=False)
