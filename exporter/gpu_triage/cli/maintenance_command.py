"""`gpu-triage maintenance`: keep a host quiet during planned work, or many hosts by Alertmanager's silences."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from gpu_triage.cli.fleet.fleet_command import http_options
from gpu_triage.cli.fleet.prometheus import HttpConfig
from gpu_triage.cli.fleet.silences import EXAMPLE, Matcher, Silences, parse_matcher
from gpu_triage.cli.one_shot import host_options
from gpu_triage.documents import printable, quoted, write_file
from gpu_triage.errors import ConfigError, StateError
from gpu_triage.judge.report.report import PlannedWork
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import OneOf, TextType, parse_datetime
from gpu_triage.read.host import maintenance
from gpu_triage.sampler.state_directory import UNIT_STATE_DIRECTORY

_LENGTH: Final = re.compile(r"([0-9]{1,5})([mhd])")
_CLOCK: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}


def parse_until(text: str, now: datetime) -> datetime:
    """Parse ``18:00``, ``2h`` or ``2026-12-01T08:00``, by the host's time zone. Raises ValueError."""
    if found := _LENGTH.fullmatch(text):
        until = now + timedelta(**{_UNITS[found[2]]: int(found[1])})
    elif found := _CLOCK.fullmatch(text):
        # Without a zone until the day is known: the offset may change in the night.
        today = now.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0, tzinfo=None)
        until = today.astimezone()
        if until <= now:
            until = (today + timedelta(days=1)).astimezone()
    else:
        try:
            until = parse_datetime(text).astimezone()
        except (ValueError, OverflowError) as error:
            wrong = f"{quoted(text)} is no time; write one such as 18:00, 2h, 3d or 2026-12-01T08:00"
            raise ValueError(wrong) from error
    if not now < until <= now + timedelta(seconds=maintenance.LONGEST_SECONDS):
        most = f"the longest maintenance is {maintenance.LONGEST_SECONDS / 86_400:.0f}d"
        raise ValueError(f"{quoted(text)} is over or too far; {most}")
    return until


def _parse_reason(text: str) -> str:
    reason = " ".join(printable(" ".join(text.split())).split())
    if not 0 < len(reason) <= maintenance.LONGEST_REASON:
        most = f"at most {maintenance.LONGEST_REASON} characters"
        raise ValueError(f"{quoted(text)} is no reason; write a line of {most}")
    return reason


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
        step = as_whom if isinstance(error, PermissionError) else "name the exporter's --state.directory"
        raise ConfigError(f"{path}: cannot be written: {error.strerror}; {step}") from error


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
@click.option("--until", required=True, metavar="TIME", help="When it ends: 18:00, 2h, 3d or 2026-12-01T08:00.")
@click.option("--reason", required=True, type=TextType("TEXT", _parse_reason), help="What is done, for those who look.")
@_options
def on(target: _Host | Silences, *, until: str, reason: str) -> int:
    """Begin a maintenance, or change its end and reason. It ends by itself.

    Run it on the host as root or as the exporter's user. Exit code 0: begun. 2: not, with the cause.
    """
    try:
        ends = parse_until(until, datetime.now().astimezone())
    except ValueError as error:
        raise ConfigError(f"--until: {error}") from error
    click.echo(target.begin(ends, reason))
    return 0


@maintenance_command.command("off", cls=OptionsCommand)
@_options
def off(target: _Host | Silences) -> int:
    """End the maintenance, or the silences with exactly these matchers. Exit code 0: there is none any more."""
    click.echo(target.end())
    return 0


@maintenance_command.command("status", cls=OptionsCommand)
@_options
def status(target: _Host | Silences) -> int:
    """List what is in force. Exit code 0: something. 1: nothing. 2: it cannot be read."""
    lines = target.listed()
    click.echo("\n".join(lines) or "no maintenance")
    return 0 if lines else 1
