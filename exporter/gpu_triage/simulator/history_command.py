"""``gpu-triage simulate NAME --history``: from its flags to a file that promtool takes in."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, TextIO

from gpu_triage.documents import Place, read_value
from gpu_triage.errors import ConfigError, HistoryNotWritten
from gpu_triage.simulator.history import record_history, write_openmetrics
from gpu_triage.simulator.scenario_file import load_scenario
from gpu_triage.simulator.schema import Seconds

_LABEL: Final = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)=(.*)", re.DOTALL)
_LATEST: Final = 253_402_300_799
"""The end of the year 9999."""
_QUIET_SECONDS: Final = 2.0
"""What takes no longer needs no word on how far it is."""


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """What the flags of the command say, as text; None where one was not given.

    Attributes:
        scenario: name or path.
        history, step: durations.
        output: file to write; standard output if None.
        start: Unix seconds, or a date and time with its zone; if None, so that the history ends now.
        instance, job: target labels.
        labels: more of them, each ``name=value``.
    """

    scenario: str
    history: str
    step: str
    output: str | None = None
    start: str | None = None
    instance: str | None = None
    job: str | None = None
    labels: tuple[str, ...] = ()


def write_history(request: HistoryRequest, now_seconds: float) -> None:
    """Record the history that is asked for and write it; what comes next is said on stderr.

    Raises:
        GpuTriageError: a flag or the scenario cannot be used, or the output cannot be written.
    """
    seconds = read_value(Seconds, request.history, Place("--history"))
    step_seconds = read_value(Seconds, request.step, Place("--step"))
    start = _start(request.start, now_seconds - seconds, step_seconds)
    target = _target(request)
    if request.output is None and sys.stdout.isatty():
        raise ConfigError("a history is far too long for a terminal; name a file with --output, or pipe it on")
    scenario = load_scenario(request.scenario)
    # What befalls the simulated host is in the history; in the log of this command it would be an alarm.
    logging.disable(logging.CRITICAL)
    try:
        # OpenedMachine first: that a file cannot be written is known before the work, not after.
        with _output(request.output) as stream:
            history = record_history(
                scenario,
                seconds=seconds,
                step_seconds=step_seconds,
                target=target,
                start_seconds=start,
                on_progress=progress_on(sys.stderr),
            )
            write_openmetrics(history, stream)
    finally:
        logging.disable(logging.NOTSET)
    if request.output is not None:
        first = datetime.fromtimestamp(start, timezone.utc).isoformat()
        print(  # noqa: T201 - a command's word to its user
            f"{len(history.series)} series of {history.steps} scrapes from {first} are in {request.output}; next:\n"
            f"  promtool tsdb create-blocks-from openmetrics {request.output} DATA-DIRECTORY-OF-PROMETHEUS",
            file=sys.stderr,
        )


def _start(text: str | None, default: float, step_seconds: int) -> float:
    """Unix seconds; the default lies on a whole step, so that two runs within one give the same."""
    if text is None:
        return float(int(default) // max(1, step_seconds) * step_seconds)
    wrong = ConfigError(
        f"--start: {text[:60]!r} will not do; write Unix seconds, or a time such as 2026-01-15T00:00:00Z"
    )
    if re.fullmatch(r"[0-9]{1,12}", text) and int(text) <= _LATEST:
        return float(text)
    try:
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError as error:
        raise wrong from error
    if moment.tzinfo is None or moment.timestamp() < 0:
        raise wrong
    return moment.timestamp()


def _target(request: HistoryRequest) -> dict[str, str]:
    named = {"job": request.job, "instance": request.instance}
    return dict(_labels(request.labels)) | {name: value for name, value in named.items() if value is not None}


def _labels(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        match = _LABEL.fullmatch(text)
        if match is None or match[1].startswith("__"):
            raise ConfigError(f"--label: {text[:60]!r} will not do; write name=value, such as workload=serving")
        yield match[1], match[2]


@contextmanager
def _output(name: str | None) -> Iterator[TextIO]:
    """A stream to write to; a file appears under its name when it is whole, and not at all otherwise."""
    if name is None:
        yield sys.stdout
        return
    partial = Path(f"{name}.partial")
    try:
        try:
            with partial.open("w", encoding="utf-8") as stream:
                yield stream
            partial.replace(name)
        except OSError as error:
            cause = error.strerror or str(error)
            raise HistoryNotWritten(f"{name}: cannot be written: {cause}; name another file with --output") from error
    finally:
        partial.unlink(missing_ok=True)


def progress_on(stream: TextIO, clock: Callable[[], float] = time.monotonic) -> Callable[[int, int], None] | None:
    """Shows how far it is, on a terminal and once it takes long; None elsewhere."""
    if not stream.isatty():
        return None
    began = shown_at = clock()

    def show(done: int, steps: int) -> None:
        nonlocal shown_at
        now = clock()
        if done == steps:
            if shown_at > began:
                stream.write("\r\033[K")
        elif now - shown_at >= _QUIET_SECONDS:
            shown_at = now
            left_seconds = (now - began) / done * (steps - done)
            stream.write(f"\r\033[K{done * 100 // steps} % recorded, about {left_seconds:.0f} s left")
        stream.flush()

    return show
