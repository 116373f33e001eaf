"""The command `gpu-triage top`: draws reports of a running exporter, or of this host, sampled here, on the terminal."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import click

from gpu_triage.cli.exporter_client import ExporterClient, NothingListens, NotJudgedYet, local_url
from gpu_triage.cli.machines import is_made_up, judged_host, live_host
from gpu_triage.cli.measure import judge_recording, measure_configured
from gpu_triage.cli.one_shot import colors_wanted, duration_option, echo_text, host_options
from gpu_triage.documents import printable
from gpu_triage.errors import ConfigError, ExporterUnreachable
from gpu_triage.judge.evidence.owners import owners_text
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.verdicts import COLORS
from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.judge.report.report import GpuVerdict, Report
from gpu_triage.judge.report.text import Line, render_text
from gpu_triage.log import configure
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import duration
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.runner import Runner
from gpu_triage.sampler.sampler import Sampler

_OPTIONS: Final = (
    *("sample.deadline", "path.procfs", "path.sysfs", "path.kmsg", "expect.gpu-count"),
    *("replay", "simulate", "simulate-at", "simulate-pace", "config.file"),
)
_ONCE_SECONDS: Final = 3.0  # measuring time on a host without an exporter
_PATIENCE_SECONDS: Final = 30.0
_MEDIUM_SECONDS: Final = 2.0  # shorter than usual, for a live display
_GIB: Final = 1024.0**3
_UNKNOWN: Final = "-"
_ON_IT: Final = "ON IT"
_HEADINGS: Final = ("GPU", "CLASS", "FOR", "BUSY", "POWER", "TEMP", "MEMORY", "PCIE", _ON_IT)
_LEFT: Final = frozenset({"CLASS", "PCIE"})
_LEAVE_OUT: Final = ("MEMORY", "POWER", "TEMP", _ON_IT, "FOR", "PCIE", "BUSY")
"""Columns that a narrow terminal lacks, the first one first."""
_LEAST_ON_IT: Final = 10


@click.command(
    "top",
    cls=OptionsCommand,
    short_help="Watch the GPUs of this host, or of another, in the terminal.",
    examples=(
        ("gpu-triage top", "this host, from its exporter if one runs"),
        ("gpu-triage top --url http://gpu-07:9836", "another host, from its exporter"),
        ("gpu-triage top --once", "one frame, to paste into a ticket"),
        ("gpu-triage top --simulate h100-8-bad-night", "see it without a GPU"),
    ),
)
@click.option(
    "--url",
    metavar="URL",
    help="Exporter to ask, such as http://gpu-07:9836.  [default: that of this host, if it runs]",
)
@duration_option("--every", "interval_seconds", duration("1s", "1m"), "2s", "How often to look.")
@click.option("--once", is_flag=True, help="Print what there is to see now, and end.")
@host_options(lambda option: option.key in _OPTIONS)
def top_command(*, config: Config, url: str | None, interval_seconds: float, once: bool) -> int:
    """Watch the GPUs of this host, or of another: what limits each, since when, and who uses it.

    Queries the exporter that runs on this host, else samples by itself, as gpu-triage check does. q, Escape or
    Ctrl-C ends it.

    Exit code: 0, or 1 if the exporter at --url does not answer, or has no verdict.
    """
    configure("critical", config.log_format)
    made_up = is_made_up(config)
    if url is not None and made_up:
        raise ConfigError("--url asks an exporter, --simulate and --replay make up a host; give one of them")
    if not once and not sys.stdout.isatty():
        raise ConfigError("top needs a terminal; give --once to print what there is to see now")
    client = None if made_up else _client(url, config)
    source = "this host" if client is None else client.url
    with ExitStack() as stack:
        if once:
            report = _measured(config) if client is None else first(client.look)
            echo_text(partial(frame_of, report, source))
        else:
            look = _own_sampler(config, stack) if client is None else client.look
            Watch(look, source, interval_seconds).show()
    return 0


def _client(url: str | None, config: Config) -> ExporterClient | None:
    """A client for the exporter at the URL, which must respond, else for this host's; None if nothing listens there."""
    file, https = config.web_config_file, False
    with suppress(OSError):
        https = file is not None and "tls_server_config" in Path(file).read_text(encoding="utf-8", errors="replace")
    client = ExporterClient(url or local_url(config.web_listen_addresses[0], https=https))
    try:
        client.look()
    except NothingListens:
        if url is not None:
            raise
        return None
    except NotJudgedYet:
        pass
    return client


def _measured(config: Config) -> Report:
    if config.replay is not None:
        return judge_recording(config)
    return measure_configured(config, _ONCE_SECONDS, _PATIENCE_SECONDS).report


def _own_sampler(config: Config, stack: ExitStack) -> Look:
    """Sample and judge this host in real time until the stack closes; returns what returns the report."""
    interval_seconds = config.sample_fast_seconds
    machine, config, _ = live_host(config, stack)
    medium = min(config.sample_medium_seconds, max(_MEDIUM_SECONDS, config.sample_fast_seconds))
    config = replace(config, sample_medium_seconds=medium)
    judge = DaemonJudge(config, judged_host(config, continuous=True))
    runner = Runner(machine.clock, interval_seconds)
    sampler = Sampler(machine, config, runner.lane, GPU_COLLECTORS, HOST_COLLECTORS, judge=judge)

    def look() -> Report:
        if sampler.fatal is not None:
            raise ExporterUnreachable(f"the driver was replaced ({sampler.fatal}); start gpu-triage top again")
        if (silence := runner.alive()) is not None:
            raise ExporterUnreachable(silence)
        presence, waiting_for = sampler.presence, sampler.waiting_for()
        unavailable = presence is not None and presence.driver_error is not None
        if judge.latest is None or (waiting_for is not None and not unavailable):
            raise NotJudgedYet(f"waiting for {waiting_for or 'the first verdict'}")
        return judge.latest.report

    runner.start(sampler, lambda: None, lambda _cause: None)
    stack.callback(runner.stop)
    return look


def table_of(report: Report, columns: int | None) -> Iterator[Line]:
    """Yield the heading and the rows, with the columns that fit side by side; all if `columns` is None."""
    if not report.gpus:
        return
    rows = [tuple(_cells(gpu, report.judged_at)) for gpu in report.gpus]
    table = dict(zip(_HEADINGS, zip(_HEADINGS, *rows, strict=True), strict=True))
    widths = {heading: max(map(len, cells)) for heading, cells in table.items()}
    for heading in _LEAVE_OUT:
        used = sum(widths[each] + 1 for each in table if each != _ON_IT)
        if columns is None or used + _LEAST_ON_IT * (_ON_IT in table) <= columns:
            break
        del table[heading]
    if columns is not None:
        widths[_ON_IT] = columns - used
    aligned = ([_aligned(heading, text, widths[heading]) for text in cells] for heading, cells in table.items())
    heads, *lines = zip(*aligned, strict=True)
    yield Line("")
    yield Line(click.style(" ".join(heads), dim=True))
    for gpu, (index, name, *others) in zip(report.gpus, lines, strict=True):
        yield Line(" ".join((click.style(f"{index} {name}", fg=COLORS[gpu.verdict].terminal), *others)))


def _aligned(heading: str, text: str, width: int) -> str:
    cut = text if len(text) <= width else f"{text[: width - 1]}…"
    return cut if heading == _ON_IT else f"{cut:{'<' if heading in _LEFT else '>'}{width}}"


def _cells(gpu: GpuVerdict, now: float) -> Iterator[str]:
    readings = gpu.readings
    yield from (gpu.gpu, gpu.bottleneck.name)
    yield _UNKNOWN if gpu.since is None else length_of_time(max(0.0, now - gpu.since))
    yield _UNKNOWN if readings.busy_ratio is None else f"{readings.busy_ratio:.0%}"
    yield _of(readings.power_watts, readings.power_limit_watts, "W")
    yield _UNKNOWN if readings.temperature_celsius is None else f"{readings.temperature_celsius:.0f}°C"
    yield _of(readings.memory_used_bytes, readings.memory_total_bytes, "GiB", _GIB)
    generation = _below(readings.pcie_generation, readings.pcie_expected_generation)
    width = _below(readings.pcie_width, readings.pcie_expected_width)
    yield f"gen{generation} x{width}" if generation and width else _UNKNOWN
    processes = readings.compute_processes
    count = f"{processes:.0f} process{'es' * (processes != 1)}" if processes else ""
    yield printable(", ".join(filter(None, (owners_text(gpu.owners), count)))) or _UNKNOWN


def _of(value: float | None, most: float | None, unit: str, scale: float = 1.0) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value / scale:.0f}{'' if most is None else f'/{most / scale:.0f}'} {unit}"


def _below(value: float | None, expected: float | None) -> str:
    of = "" if expected is None or value == expected else f"/{expected:.0f}"
    return "" if value is None else f"{value:.0f}{of}"


Look = Callable[[], Report]
"""Returns the latest report; raises ExporterUnreachable if there is none, or if the exporter does not answer."""

_LOOK_AGAIN_SECONDS: Final = 0.25
_MOST_KEYS: Final = 64
_QUIT: Final = frozenset(b"qQ\x03\x04")
_ESCAPE: Final = b"\x1b"  # only on its own: arrow keys etc. send sequences that begin with it
_TAKE_OVER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # alternate screen, no cursor, long lines are cut
_GIVE_BACK: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_FROM_THE_TOP: Final = "\x1b[H"
_END_OF_LINE: Final = "\x1b[K"  # erases what was there before
_END_OF_SCREEN: Final = "\x1b[J"
_show: Final = partial(click.echo, nl=False, color=True)


def frame_of(report: Report, source: str, columns: int | None) -> str:
    """Return the report as `check` prints it, with its source and the readings of the GPUs below its title."""
    below_title = (Line(click.style(f"from {source}", dim=True)), *table_of(report, columns))
    return render_text(report, columns, below_title)


class Watch:
    """Polls on a separate thread, so that an exporter that hangs cannot block `q`."""

    def __init__(self, look: Look, source: str, interval_seconds: float) -> None:
        self._look = look
        self._source = source
        self._interval_seconds = interval_seconds
        self._seen: tuple[Report, float] | None = None  # the last report, and the monotonic second of its arrival
        self._trouble = f"waiting for {source}"  # why there is no newer report; "" if there is

    def look(self) -> None:
        """Poll once; an error is shown above the last report."""
        try:
            self._seen, self._trouble = (self._look(), time.monotonic()), ""
        except ExporterUnreachable as error:
            self._trouble = printable(str(error))

    def screen(self, columns: int, lines: int) -> list[str]:
        seen, trouble = self._seen, self._trouble
        if seen is not None and trouble:
            trouble += f"; what follows is {length_of_time(time.monotonic() - seen[1])} old"
        above = [click.style(trouble, fg="red", bold=True)] if trouble else []
        drawn = [] if seen is None else frame_of(seen[0], self._source, columns).splitlines()
        room = max(0, lines - len(above) - 1)
        left = len(drawn) - room
        hint = f"q quits; {left} more lines: --once prints all" if left > 0 else "q quits"
        return [*above, *drawn[:room], click.style(hint, dim=True)]

    def show(self) -> None:
        """Show the report until `q`, Escape, Ctrl-C or Ctrl-D."""
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
        threading.Thread(target=self._run, name="top", daemon=True).start()
        shown: list[str] = []
        with suppress(KeyboardInterrupt), ExitStack() as undo:
            # Take over the terminal: its other screen, and its keys unbuffered and not shown.
            undo.callback(_show, _GIVE_BACK)
            _show(_TAKE_OVER)
            if sys.stdin.isatty():
                undo.callback(termios.tcsetattr, sys.stdin, termios.TCSADRAIN, termios.tcgetattr(sys.stdin))
                tty.setcbreak(sys.stdin)
            while True:
                new = self.screen(*shutil.get_terminal_size())
                if new != shown:
                    drawn = new if colors_wanted() else map(click.unstyle, new)
                    _show(_FROM_THE_TOP + f"{_END_OF_LINE}\n".join(drawn) + _END_OF_LINE + _END_OF_SCREEN)
                    shown = new
                if select.select([sys.stdin], [], [], _LOOK_AGAIN_SECONDS)[0]:
                    keys = os.read(sys.stdin.fileno(), _MOST_KEYS)
                    if keys in (b"", _ESCAPE) or not _QUIT.isdisjoint(keys):
                        return

    def _run(self) -> None:
        while True:
            self.look()
            time.sleep(self._interval_seconds)


def first(look: Look) -> Report:
    """Wait for the first report and return it; raises ExporterUnreachable if none arrives."""
    ends_at = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return look()
        except NotJudgedYet:
            if time.monotonic() > ends_at:
                raise
            time.sleep(_LOOK_AGAIN_SECONDS)
