"""The one table of verdicts: what a finding means for its GPU, for the host, for the exit code and for the colour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.diagnosis.codes import Severity


class Verdict(Enum):
    """Whether a GPU or the host should go on taking work; but for NOT_READ the states of gpu_verdict."""

    NOT_READ = "not_read"
    KEEP = "keep"
    WATCH = "watch"
    DRAIN = "drain"

    @property
    def rank(self) -> int:
        """Higher is worse; what was not read is worse than nothing."""
        return tuple(Verdict).index(self)

    @property
    def words(self) -> str:
        """As people read it."""
        return self.value.replace("_", " ")


class Colour(NamedTuple):
    """The colour of a verdict: its name in a terminal, and the tone on the page."""

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

OF_SEVERITY: Final[Mapping[Severity, Verdict]] = MappingProxyType(
    {Severity.CRITICAL: Verdict.DRAIN, Severity.WARNING: Verdict.WATCH, Severity.INFO: Verdict.KEEP}
)
"""The verdict on what has a finding this severe: on the GPU that the finding is about, and on the host."""

EXIT_SOUND: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_COULD_NOT_LOOK: Final = 2
"""With a report on the output. Options that cannot be used end with 2 too, and with none."""


def verdict_on(severities: Iterable[Severity], *, was_read: bool) -> Verdict:
    """The verdict on a GPU, or on the host, with findings this severe.

    Args:
        severities: of its findings; of a host, those of its GPUs as well.
        was_read: whether anything could be read: without that, it says nothing that nothing was found.
    """
    worst = max((OF_SEVERITY[severity] for severity in severities), key=lambda each: each.rank, default=Verdict.KEEP)
    return Verdict.NOT_READ if worst is Verdict.KEEP and not was_read else worst


def exit_code(severities: Iterable[Severity], fail_on: Severity, *, blocked: bool) -> int:
    """The exit code of a look with these findings: 1 where one is at least as severe as `fail_on`."""
    if blocked:
        return EXIT_COULD_NOT_LOOK
    return EXIT_FINDINGS if any(severity.rank >= fail_on.rank for severity in severities) else EXIT_SOUND
