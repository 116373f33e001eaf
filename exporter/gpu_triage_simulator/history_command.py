"""``gpu-triage simulate NAME --history``: from command-line flags to a file that promtool can import."""

import io
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Final, TextIO

from gpu_triage.documents import Place, read_value
from gpu_triage.documents.files import replacing
from gpu_triage.errors import ConfigError, OutputNotWritten
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.options.progress import ProgressLine
from gpu_triage.options.values import LATEST_SECONDS, parse_datetime
from gpu_triage_simulator.history import record_history, write_openmetrics
from gpu_triage_simulator.scenario import Scenario
from gpu_triage_simulator.scenario_file import load_scenario
from gpu_triage_simulator.schema import Seconds
from gpu_triage_simulator.series import MOST_VALUES

_LABEL: Final = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)=(.*)", re.DOTALL)
"""Splits ``name=value``."""
_SAMPLE_STEPS: Final = 8
"""Number of scrapes used to estimate the size and duration of the whole history."""
_FEWEST_STEPS: Final = 10 * _SAMPLE_STEPS
"""Shorter histories are written without an estimate, because estimating would take longer."""


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """The command's flags, as text; None if not given."""

    scenario: str  # name or path
    # history, step: durations
    history: str
    step: str
    output: str | None = None  # file to write; standard output if None
    start: str | None = None  # Unix seconds, or a date and time with time zone; if None, the history ends now
    # instance, job: target labels
    instance: str | None = None
    job: str | None = None
    labels: tuple[str, ...] = ()  # further target labels, each ``name=value``


def write_history(request: HistoryRequest, now_seconds: float) -> None:
    """Record the requested history and write it; prints the next steps to stderr.

    Raises:
        GpuTriageError: a flag or the scenario is invalid, or the output cannot be written.
    """
    seconds = read_value(Seconds, request.history, Place("--history"))
    step_seconds = read_value(Seconds, request.step, Place("--step"))
    start = _start(request.start, now_seconds - seconds, step_seconds)
    target = _target(request)
    if request.output is None and sys.stdout.isatty():
        raise ConfigError("a history is far too long for a terminal; name a file with --output, or pipe it on")
    scenario = load_scenario(request.scenario)
    # Incidents of the simulated host belong in the history; in this command's log they would be mistaken for real ones.
    logging.disable(logging.CRITICAL)
    try:
        # Opened first, so that an unwritable file is reported before the work, not after.
        with _output(request.output) as stream:
            if (estimated := estimate(scenario, seconds, step_seconds, target)) is not None:
                _say(estimated)
            with ProgressLine() as line:
                history = record_history(
                    scenario,
                    seconds=seconds,
                    step_seconds=step_seconds,
                    target=target,
                    start_seconds=start,
                    on_progress=progress_on(line),
                )
                line.show("writing")
                write_openmetrics(history, stream)
    finally:
        logging.disable(logging.NOTSET)
    if request.output is not None:
        first = datetime.fromtimestamp(start, timezone.utc).isoformat()
        _say(
            f"{len(history.series)} series of {history.steps} scrapes from {first} are in {request.output}; next:\n"
            f"  promtool tsdb create-blocks-from openmetrics {request.output} DATA-DIRECTORY-OF-PROMETHEUS"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - output for the user


def _start(text: str | None, default: float, step_seconds: int) -> float:
    """Unix seconds; the default is a multiple of the step, so that two runs within one step give the same result."""
    if text is None:
        return float(int(default) // max(1, step_seconds) * step_seconds)
    wrong = ConfigError(
        f"--start: {text[:60]!r} is invalid; write Unix seconds, or a time such as 2026-01-15T00:00:00Z"
    )
    if re.fullmatch(r"[0-9]{1,12}", text) and int(text) <= LATEST_SECONDS:
        return float(text)
    try:
        moment = parse_datetime(text)
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
            raise ConfigError(f"--label: {text[:60]!r} is invalid; write name=value, such as workload=serving")
        yield match[1], match[2]


@contextmanager
def _output(name: str | None) -> Iterator[TextIO]:
    """A stream to write to; the file appears under its name only when it is complete."""
    if name is None:
        yield sys.stdout
        return
    try:
        with replacing(Path(name)) as file:
            stream = io.TextIOWrapper(file, encoding="utf-8")
            yield stream
            stream.detach()
    except OSError as error:
        cause = error.strerror or str(error)
        raise OutputNotWritten(f"{name}: cannot be written: {cause}; name another file with --output") from error


def estimate(scenario: Scenario, seconds: float, step_seconds: float, target: Mapping[str, str]) -> str | None:
    """Size and duration of the history, estimated from its first scrapes; None for a short, wrong or too long one."""
    steps = int(seconds / step_seconds) if step_seconds > 0 else 0
    if not _FEWEST_STEPS <= steps <= MOST_VALUES:
        return None
    ends: list[float] = []
    sample = record_history(
        scenario,
        seconds=_SAMPLE_STEPS * step_seconds,
        step_seconds=step_seconds,
        target=target,
        on_progress=lambda _done, _of: ends.append(time.monotonic()),
    )
    text = io.StringIO()
    began = time.monotonic()
    write_openmetrics(sample, text)
    writing_seconds = (time.monotonic() - began) / sample.steps * steps
    recording_seconds = (ends[-1] - ends[0]) / (sample.steps - 1) * steps
    size = len(text.getvalue()) / sample.steps * steps
    series = len(sample.series)
    if series * steps > MOST_VALUES:
        return None
    return (
        f"{steps + 1:,} scrapes of about {series:,} series: about {size / 1e6:,.0f} MB, "
        f"and about {length_of_time(recording_seconds + writing_seconds)}"
    )


def progress_on(line: ProgressLine) -> Callable[[int, int], None] | None:
    """A callback that shows progress on a terminal; None elsewhere, because checking the time has a cost."""
    return partial(line.show_share, "recording") if line.shown else None
