"""The command `gpu-triage top`: where the verdict comes from, and whether to show one frame or many."""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from gpu_triage.cli.machines import is_made_up, live_host, stepped_host
from gpu_triage.cli.measure import measure
from gpu_triage.cli.one_shot import duration_option, host_options
from gpu_triage.cli.top.exporter_client import ExporterClient, NothingListens, NotJudgedYet, local_url
from gpu_triage.cli.top.frame import Frame, render
from gpu_triage.cli.top.own_sampler import own_sampler
from gpu_triage.cli.top.screen import Watch, first, show
from gpu_triage.cli.top.view import view_of
from gpu_triage.errors import ConfigError
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.log import configure
from gpu_triage.options.command import OptionsCommand
from gpu_triage.options.config import Config
from gpu_triage.options.values import duration

_OPTIONS: Final = frozenset(
    {
        *("sample.deadline", "path.procfs", "path.sysfs", "path.kmsg", "expect.gpu-count"),
        *("replay", "simulate", "simulate-at", "simulate-pace", "config.file"),
    }
)
_THIS_HOST: Final = "this host"
_ONCE_SECONDS: Final = 3.0  # measuring time on a host without an exporter
_PATIENCE_SECONDS: Final = 30.0
_PIPED_COLUMNS: Final = 160


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
    with ExitStack() as stack:
        if once:
            _print(_once(client, config, stack))
            return 0
        if client is not None:
            show(Watch(client.look, client.url, interval_seconds))
        else:
            look = stack.enter_context(own_sampler(live_host(config, stack), config.sample_fast_seconds))
            show(Watch(look, _THIS_HOST, interval_seconds))
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


def _once(client: ExporterClient | None, config: Config, stack: ExitStack) -> Frame:
    if client is not None:
        return Frame(first(client.look, _PATIENCE_SECONDS), client.url)
    host = stepped_host(config, stack, last_seconds=_ONCE_SECONDS)
    report = measure(host.machine, host.config, _ONCE_SECONDS, _PATIENCE_SECONDS).report
    return Frame(view_of(render_json(report)), _THIS_HOST)


def _print(frame: Frame) -> None:
    # A pipe gets the output for a wide terminal.
    columns = shutil.get_terminal_size((_PIPED_COLUMNS, 0)).columns
    console = Console(width=columns, highlight=False)
    with console.capture() as captured:
        console.print(render(frame, (columns, None)))
    click.echo("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()), nl=False)
