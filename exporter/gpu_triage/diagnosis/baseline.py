"""Record what this host is like, and say what changed since.

Both run the sampler for as long as it takes to read everything once: there is no second way of reading hardware.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_triage.baseline.document import encode, timestamp
from gpu_triage.baseline.facts import HostFacts
from gpu_triage.baseline.file import Recorded, read_baseline, write_baseline
from gpu_triage.baseline.gather import GPU_SOURCES, HOST_SOURCES
from gpu_triage.baseline.words import Change, changes
from gpu_triage.config import Config
from gpu_triage.errors import BaselineError
from gpu_triage.machine import Machine
from gpu_triage.sampler.runner import Runner
from gpu_triage.sampler.sampler import Sampler

_STEP_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the host found.

    Attributes:
        facts: of the GPUs that answered.
        lacks: what was still missing when time was up; None when nothing was.
    """

    facts: HostFacts
    lacks: str | None


def record(machine: Machine, config: Config, path: Path | None, within_seconds: float) -> str:
    """What to print after recording the host into a file: the whole baseline where there is no path.

    Raises:
        BaselineError: the host is not whole and well, or the file cannot be written.
    """
    look = look_at(machine, config, well=True, within_seconds=within_seconds)
    if look.lacks is not None:
        raise BaselineError(
            "not_whole", f"no baseline of a host that lacks {look.lacks}; mend that first, then record it"
        )
    if path is None:
        return encode(look.facts)
    write_baseline(path, look.facts)
    return f"{path}: {look.facts.gpu_count} GPUs, driver {look.facts.driver_version}\n"


def differences(
    machine: Machine, config: Config, path: Path, within_seconds: float
) -> tuple[Recorded, Look, tuple[Change, ...]]:
    """The baseline in a file, the host as it is, and what changed in between.

    Raises:
        BaselineError: the file cannot be used, or the driver does not answer, so that nothing can be compared.
    """
    recorded = read_baseline(path)
    look = look_at(machine, config, well=False, within_seconds=within_seconds)
    if look.facts.gpu_count is None:
        raise BaselineError("no_driver", f"nothing to compare: this host lacks {look.lacks}; see gpu-triage check")
    return recorded, look, changes(recorded.facts, look.facts)


def look_at(machine: Machine, config: Config, *, well: bool, within_seconds: float) -> Look:
    """The host's facts as soon as all were read, or when time is up.

    Args:
        machine: the seams.
        config: where they are; its intervals are not used.
        well: whether to wait also for everything to be well.
        within_seconds: real time.
    """
    quick = Config(
        sample_fast_seconds=_STEP_SECONDS,
        sample_medium_seconds=1.0,
        sample_deadline_seconds=config.sample_deadline_seconds,
        collectors={"xid": False},
    )
    runner = Runner(machine.clock, quick)
    sampler = Sampler(machine, quick, runner.lane, GPU_SOURCES, HOST_SOURCES)
    looks: list[Look] = []
    complete = threading.Event()

    def take() -> None:
        if not complete.is_set():
            lacks = sampler.view.lacks(well=well)
            looks.append(Look(sampler.view.facts(machine.clock.now().wall), lacks))
            del looks[:-1]
            if lacks is None:
                complete.set()

    runner.start(sampler, take, lambda _cause: complete.set())
    complete.wait(within_seconds)
    runner.stop()
    if not looks:
        raise BaselineError("no_answer", f"the host did not answer within {within_seconds:g} s; see gpu-triage check")
    return looks[0]


def as_text(recorded: Recorded, look: Look, found: tuple[Change, ...]) -> str:
    """The differences for people; ends with a newline."""
    since = f"the baseline of {timestamp(recorded.facts.at)}"
    lines = [f"not all could be read: it lacks {look.lacks}"] if look.lacks is not None else []
    if not found:
        return "\n".join([*lines, f"this host is as in {since}", ""])
    lines.append(f"{len(found)} {'difference' if len(found) == 1 else 'differences'} from {since}")
    subject: str | None = None
    explained: set[str] = set()
    for change in found:
        its_subject = _subject(change)
        if its_subject != subject:
            lines += ["", its_subject]
            subject = its_subject
        lines.append(f"  {change.field}: {change.was} -> {change.now}")
        if change.meaning not in explained:
            # Once: the eighth GPU's slot means what the first one's does.
            lines.append(f"    {change.meaning}")
            explained.add(change.meaning)
    return "\n".join([*lines, ""])


def as_json(recorded: Recorded, look: Look, found: tuple[Change, ...]) -> str:
    """The differences for programs; ends with a newline."""
    document = {
        "format": "gpu-triage-baseline-diff",
        "version": 1,
        "equal": not found,
        "baseline": {"recorded": timestamp(recorded.facts.at), "sha256": recorded.sha256},
        "lacks": look.lacks,
        "changes": [_as_object(change) for change in found],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _subject(change: Change) -> str:
    if change.gpu is None:
        return "host"
    gpu = change.gpu.known
    return f"GPU {gpu.pci_bus_id or 'without address'} {gpu.uuid} {gpu.name}".rstrip()


def _as_object(change: Change) -> dict[str, str]:
    whose = {}
    if change.gpu is not None:
        whose = {"uuid": change.gpu.known.uuid, "pci_bus_id": change.gpu.known.pci_bus_id}
    return {"field": change.field, **whose, "was": change.was, "now": change.now, "meaning": change.meaning}
