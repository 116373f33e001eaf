"""`gpu-triage maintenance`: keep a host quiet during planned work, or many hosts by Alertmanager's silences."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any

import click

from gpu_triage.cli.fleet.fleet_command import http_options
from gpu_triage.cli.fleet.prometheus import HttpConfig
from gpu_triage.cli.fleet.silences import EXAMPLE, Matcher, Silences, parse_matcher
from gpu_triage.cli.one_shot import host_options
from gpu_triage.cli.operator_options import REASON, until_type
from gpu_triage.documents.files import write_file
from gpu_triage.errors import ConfigError, StateError
from gpu_triage.judge.report.report import PlannedWork
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import OneOf, TextType
from gpu_triage.read.host import maintenance
from gpu_triage.sampler.state_directory import LOCK, UNIT_STATE_DIRECTORY


@click.group("maintenance", short_help="Keep a host quiet during planned work.")
def maintenance_command() -> None:
    """Keep a host quiet during planned work: no pages, no tickets, no drains until a given time.

    Findings stay visible in check, top, fleet, the status page and the dashboards, marked. With --alertmanager and
    --match, it silences the alerts of many hosts instead, and nothing but notifications.
    """


class _Host:
    """The maintenance of this host by one source, in the exporter's file. Raises ConfigError if that is unusable."""

    def __init__(self, directory: Path, source: str) -> None:
        self._directory = directory
        self._source = source
        self._path = maintenance.path_of(source, directory)

    def begin(self, until: datetime, reason: str) -> str:
        planned = PlannedWork(until.timestamp(), self._source, reason)
        with _explained(self._path):
            if not (self._directory / LOCK).exists():
                raise ConfigError(f"{self._directory}: no exporter uses it; name the exporter's --state.directory")
            # The exporter reads it as its own user, whatever root's umask is.
            write_file(self._path, maintenance.FILE.encode(maintenance.Maintenance(planned.until, reason)), 0o644)
        scraped = "Wait a minute before you stop the exporter or the host: then Prometheus has scraped it."
        return f"in maintenance {planned}" + f"\n{scraped}" * (self._source == maintenance.COMMAND)

    def end(self) -> str:
        with _explained(self._path):
            ended = self._path.exists()
            self._path.unlink(missing_ok=True)
        return "maintenance ended" if ended else "no maintenance to end"

    def listed(self) -> list[str]:
        with _explained(self._path):
            found = maintenance.in_force(self._directory, time.time())
        return [f"in maintenance {PlannedWork(each.until, source, each.reason)}" for source, each in found.items()]


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an unusable file or directory into a ConfigError with the next step."""
    as_whom = "run this as root or as the exporter's user"
    try:
        yield
    except StateError as error:
        raise ConfigError(f"{error.detail}; {as_whom}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}; {as_whom}") from error


def _options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a host and of an Alertmanager; the command gets the ``target`` of both."""

    @click.option("--source", type=OneOf(maintenance.SOURCES), default=maintenance.COMMAND, hidden=True)
    @host_options(lambda option: option.key in ("state.directory", "config.file"))
    @click.option("--alertmanager", metavar="URL", help="Silence alerts there, such as http://alertmanager:9093.")
    @click.option(
        "--match",
        "matchers",
        metavar="MATCHER",
        multiple=True,
        type=TextType("MATCHER", parse_matcher),
        help=f"With --alertmanager: labels of the hosts' alerts, such as {EXAMPLE}; repeatable.",
    )
    @http_options
    @wraps(command)
    def with_target(
        *,
        config: Config,
        source: str,
        alertmanager: str | None,
        matchers: tuple[Matcher, ...],
        http_config: HttpConfig,
        timeout_seconds: float,
        **given: Any,
    ) -> int:
        if alertmanager is not None:
            return command(Silences(alertmanager, http_config, timeout_seconds, matchers), **given)
        if matchers:
            raise ConfigError("--match selects alerts; name their Alertmanager with --alertmanager")
        return command(_Host(config.state_directory or UNIT_STATE_DIRECTORY, source), **given)

    return with_target


@maintenance_command.command("on", cls=OptionsCommand)
@click.option(
    "--until",
    required=True,
    metavar="TIME",
    type=until_type(maintenance.LONGEST_DAYS),
    help=f"When it ends, at most {maintenance.LONGEST_DAYS} days ahead: 18:00, 2h, 3d or 2026-12-24T08:00.",
)
@click.option("--reason", required=True, metavar="TEXT", type=REASON, help="What is done, for those who look.")
@_options
def on(target: _Host | Silences, *, until: datetime, reason: str) -> int:
    """Start planned work, or change when it ends and why. It ends on its own at that time.

    Run it on the host as root or as the exporter's user. Exit code 0: started. 2: not, with the cause.
    """
    click.echo(target.begin(until, reason))
    return 0


@maintenance_command.command("off", cls=OptionsCommand)
@_options
def off(target: _Host | Silences) -> int:
    """End the maintenance, or the silences with exactly these matchers. Exit code 0: nothing is left in force."""
    click.echo(target.end())
    return 0


@maintenance_command.command("status", cls=OptionsCommand)
@_options
def status(target: _Host | Silences) -> int:
    """List what is in force. Exit code 0: something. 1: nothing. 2: it cannot be read."""
    lines = target.listed()
    click.echo("\n".join(lines) or "no maintenance")
    return 0 if lines else 1
