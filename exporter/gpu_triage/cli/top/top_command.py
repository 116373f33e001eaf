"""The command `gpu-triage top`: where the report comes from, and whether to show it once or live."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import click

from gpu_triage.cli.machines import Host, is_made_up, judged_host, live_host, stepped_host
from gpu_triage.cli.measure import measure
from gpu_triage.cli.one_shot import duration_option, echo_text, host_options
from gpu_triage.cli.top.exporter_client import ExporterClient, NothingListens, NotJudgedYet, local_url
from gpu_triage.cli.top.screen import Look, Watch, first, frame_of, show
from gpu_triage.errors import ConfigError, ExporterUnreachable
from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.judge.report.report import Report
from gpu_triage.log import configure
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import duration
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.runner import Runner
from gpu_triage.sampler.sampler import Sampler

_OPTIONS: Final = frozenset(
    {
        *("sample.deadline", "path.procfs", "path.sysfs", "path.kmsg", "expect.gpu-count"),
        *("replay", "simulate", "simulate-at", "simulate-pace", "config.file"),
    }
)
_ONCE_SECONDS: Final = 3.0  # measuring time on a host without an exporter
_PATIENCE_SECONDS: Final = 30.0
_MEDIUM_SECONDS: Final = 2.0  # shorter than usual, for a live display


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
            report = _once(config, stack) if client is None else first(client.look, _PATIENCE_SECONDS)
            echo_text(partial(frame_of, report, source))
            return 0
        look = (
            stack.enter_context(_own_sampler(live_host(config, stack), config.sample_fast_seconds))
            if client is None
            else client.look
        )
        show(Watch(look, source, interval_seconds))
    return 0


def _client(url: str | None, config: Config) -> ExporterClient | None:
    """Return a client for the exporter at the URL, else for this host's; None if nothing listens on this host.

    Raises:
        ExporterUnreachable: the exporter at the URL does not respond, or this host's responds incorrectly.
    """
    client = ExporterClient(url or local_url(config.web_listen_addresses[0], https=_serves_https(config)))
    try:
        client.look()
    except NothingListens:
        if url is not None:
            raise
        return None
    except NotJudgedYet:
        pass
    return client


def _serves_https(config: Config) -> bool:
    """Whether this host's exporter serves HTTPS; False if its web configuration file cannot be read."""
    if config.web_config_file is None:
        return False
    try:
        return "tls_server_config" in Path(config.web_config_file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _once(config: Config, stack: ExitStack) -> Report:
    host = stepped_host(config, stack, last_seconds=_ONCE_SECONDS)
    return measure(host.machine, host.config, _ONCE_SECONDS, _PATIENCE_SECONDS).report


@contextmanager
def _own_sampler(host: Host, interval_seconds: float) -> Iterator[Look]:
    """Sample and judge a host within the context, once per interval of real time; yields what returns the report."""
    machine, config = host.machine, host.config
    medium = min(config.sample_medium_seconds, max(_MEDIUM_SECONDS, config.sample_fast_seconds))
    config = replace(config, sample_medium_seconds=medium)
    judge = DaemonJudge(config, judged_host(config, continuous=True))
    runner = Runner(machine.clock, interval_seconds)
    sampler = Sampler(machine, config, runner.lane, GPU_COLLECTORS, HOST_COLLECTORS, judge=judge)
    ended: list[str] = []

    def look() -> Report:
        if ended:
            raise ExporterUnreachable(f"the driver was replaced ({ended[0]}); start gpu-triage top again")
        if (silence := runner.alive()) is not None:
            raise ExporterUnreachable(silence)
        presence, waiting_for = sampler.presence, sampler.waiting_for()
        unavailable = presence is not None and presence.driver_error is not None
        if judge.latest is None or (waiting_for is not None and not unavailable):
            raise NotJudgedYet(f"waiting for {waiting_for or 'the first verdict'}")
        return judge.latest.report

    runner.start(sampler, lambda: None, ended.append)
    try:
        yield look
    finally:
        runner.stop()
