"""Findings that operators accept: quiet until a date, unless the board is replaced or they become clearly worse."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpu_triage.documents import quoted
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.saved import saved_in
from gpu_triage.judge.findings.states import Life
from gpu_triage.judge.findings.table import Severity
from gpu_triage.read.incidents.decisions import MOST_SECONDS, Acceptance, Decisions, change_decisions

Key = tuple[str, str]  # of a finding: the identity of its GPU, and its code
_LEAST_SECONDS: Final = 60.0
"""How long a finding has to be worse at least: a value that is measured over a minute has peaks."""
_NAMED: Final = re.compile(r"(?:link |GPU )?([^\s,]+(?:, [^\s,]+)*)")
_RANGE: Final = re.compile(r"(\d{1,3})-(\d{1,3})")


def accept(folder: Path, wish: Acceptance, boot: str, *, even_critical: bool) -> None:
    """Accept a finding as it is in an exporter's state directory; raises ConfigError, or StateError.

    The `wish` has the GPU's index, UUID or PCI address in place of the UUID.
    """
    code, gpu = wish.code, wish.uuid
    saved = saved_in(folder, wish.at)
    if saved.boot != boot:
        raise ConfigError(f"{folder}: no findings since boot; does the exporter run, with this state directory?")
    active = [life.finding for life in saved.lives if life.state is not State.ENDED]
    there = {each.check.code: each for each in active if gpu in (each.gpu, each.uuid, each.pci_bus_id)}
    if (found := there.get(code)) is None:
        raise ConfigError(f"GPU {gpu} has no finding {quoted(code)}; it has {', '.join(there) or 'none'}")
    if found.check.is_sickness:
        raise ConfigError(f"{code} cannot be accepted: jobs on GPU {gpu} fail or compute wrong results; drain it")
    if found.severity is Severity.CRITICAL and not even_critical:
        raise ConfigError(f"{code} is critical; to accept it nevertheless, add --even-critical")
    if not found.uuid:
        why = "has no UUID, so the acceptance would pass to the next board in its slot; silence its alert instead"
        raise ConfigError(f"{code} cannot be accepted: GPU {gpu} {why}")
    found_as = replace(wish, uuid=found.uuid, pci_bus_id=found.pci_bus_id)
    detail = found.detail if found.check.measure and found.check.measure.parts else ""
    accepted = replace(found_as, severity=found.severity.value, value=found.value, detail=detail)

    def add(present: Decisions) -> Decisions:
        others = (each for each in present.accepted if each.key != accepted.key and each.until > wish.at)
        return replace(present, accepted=(*others, accepted))

    change_decisions(folder, add)


def valid(decisions: Decisions | None, wall: float) -> Mapping[Key, Acceptance]:
    """Return the acceptances in their time, by the key of their finding; none of what could not be read."""
    accepted = () if decisions is None else decisions.accepted
    return {each.key: each for each in accepted if each.at <= wall < each.until <= wall + MOST_SECONDS}


def in_force(life: Life, decided: Mapping[Key, Acceptance]) -> Acceptance | None:
    accepted = decided.get(life.key)
    return None if accepted is None or life.outgrown_at == accepted.at else accepted


def compared(life: Life, accepted: Acceptance | None, now: float | None) -> Life:
    """Return a life that notes if it has outgrown its acceptance: then it stays loud, even if it gets better again.

    It has to be worse for its wait time up to the monotonic second `now`; None: in a single look.
    """
    if accepted is None or life.outgrown_at == accepted.at or life.holds is None:
        return life
    if not _is_worse(life.finding, accepted):
        return replace(life, worse_at=None)
    since = now if life.worse_at is None else life.worse_at
    if now is None or since is None or now - since >= max(_LEAST_SECONDS, life.finding.check.wait_seconds):
        return replace(life, outgrown_at=accepted.at, outgrown_value=life.finding.value)
    return replace(life, worse_at=since)


def outgrown_text(life: Life, decided: Mapping[Key, Acceptance]) -> str:
    """Return ``accepted as x8, now x4``; "" if its finding has not become worse."""
    accepted = decided.get(life.key)
    if accepted is None or life.outgrown_at != accepted.at:
        return ""
    measure, then, now = life.finding.check.measure, accepted.value, life.outgrown_value
    if measure is None or then is None or now is None:
        return f"accepted as {accepted.severity}, now {life.finding.severity.value}"
    if accepted.detail and now <= then:
        return f"accepted for {accepted.detail}"
    return f"accepted as {measure.said(then)}, now {measure.said(now)}"


def _is_worse(finding: Finding, accepted: Acceptance) -> bool:
    named = _named(accepted.detail)
    if finding.severity.rank > Severity(accepted.severity).rank or (named and _named(finding.detail) - named):
        return True
    measure, then, now = finding.check.measure, accepted.value, finding.value
    return measure is not None and then is not None and now is not None and measure.is_clearly_worse(now, then)


def _named(detail: str) -> frozenset[str]:
    """The parts in ``link 3, 6-8``; none if it does not name all: ``a, b, c and 2 more``, ``1 of 2 links are up``."""
    listed = _NAMED.fullmatch(detail)
    names = set[str]()
    for name in listed[1].split(", ") if listed else ():
        run = _RANGE.fullmatch(name)
        names |= {str(each) for each in range(int(run[1]), int(run[2]) + 1)} if run else {name}
    return frozenset(names)
