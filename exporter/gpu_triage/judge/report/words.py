"""How a report speaks of verdicts: to users with a scheduler, or with one machine and none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.findings.verdicts import Verdict

_DRAIN: Final = re.compile(r"\b([Dd])rain (the host|the GPU|it)\b")
_STOP: Final = {"D": "Stop using", "d": "stop using"}


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one kind of report."""

    verdicts: Mapping[Verdict, str]
    drains: bool  # whether there is something that can be drained

    def advice(self, text: str) -> str:
        """Return advice in these words.

        Example:
            >>> DESK.advice("Drain the GPU and reset it.")
            'Stop using the GPU and reset it.'
        """
        if self.drains:
            return text
        told = _DRAIN.sub(lambda found: f"{_STOP[found[1]]} {found[2]}", text)
        return told.replace("to be drained", "to be taken out of use")


CLUSTER: Final = Words(MappingProxyType({verdict: verdict.text for verdict in Verdict}), drains=True)
DESK: Final = Words(
    MappingProxyType(
        {
            Verdict.DRAIN: "take it out of use",
            Verdict.WATCH: "use it, but look",
            Verdict.KEEP: "fine",
            Verdict.NOT_READ: Verdict.NOT_READ.text,
        }
    ),
    drains=False,
)


def words_for(*, scheduled: bool) -> Words:
    """Return the words for a host, by whether a scheduler is known there."""
    return CLUSTER if scheduled else DESK
