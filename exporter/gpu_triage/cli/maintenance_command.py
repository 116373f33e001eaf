"""`gpu-triage maintenance`: keep a host quiet while somebody works on it, or many hosts by Alertmanager's silences."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from gpu_triage.cli.fleet.prometheus import HttpConfig, read_http_config
from gpu_triage.cli.fleet.silences import Matcher, Silences, parse_matcher
from gpu_triage.cli.one_shot import duration_option, host_options
from gpu_triage.documents import printable, quoted, unwritable, write_file
from gpu_triage.documents.process_lock import ProcessLock
from gpu_triage.errors import ConfigError, StateError
from gpu_triage.judge.report.report import PlannedWork
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import OneOf, TextType, duration, parse_datetime
from gpu_triage.read.host.maintenance import (
    COMMAND,
    FILE_NAME,
    LONGEST_REASON,
    LONGEST_SECONDS,
    MAINTENANCE_FILE,
    SLURM,
    Maintenance,
    maintenance_in,
)
from gpu_triage.sampler.state_directory import UNIT_STATE_DIRECTORY

_LENGTH: Final = re.compile(r"([0-9]{1,5})([mhd])")
_CLOCK: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}
_NONE: Final = 1  # exit code of `status`


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
        except ValueError as error:
            wrong = f"{quoted(text)} is no time; write one such as 18:00, 2h, 3d or 2026-12-01T08:00"
            raise ValueError(wrong) from error
    if not now < until <= now + timedelta(seconds=LONGEST_SECONDS):
        most = f"the longest maintenance is {LONGEST_SECONDS / 86_400:.0f}d"
        raise ValueError(f"{quoted(text)} is over or too far; {most}")
    return until


def _parse_reason(text: str) -> str:
    reason = " ".join(printable(" ".join(text.split())).split())
    if not 0 < len(reason) <= LONGEST_REASON:
        raise ValueError(f"{quoted(text)} is no reason; write a line of at most {LONGEST_REASON} characters")
    return reason


@click.group("maintenance", short_help="Keep a host quiet while somebody works on it.")
def maintenance_command() -> None:
    """Keep a host quiet while somebody works on it: no pages, no tickets, no drains until a given time.

    Findings stay visible in check, top, fleet, the status page and the dashboards, marked. With --alertmanager and
    --match, it silences the alerts of many hosts instead, and nothing but notifications.
    """


def _options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a host and of an Alertmanager; the command gets ``path`` and ``silences``."""

    @host_options(lambda option: option.key in ("state.directory", "config.file"))
    @click.option("--alertmanager", metavar="URL", help="Silence alerts there, such as http://alertmanager:9093.")
    @click.option(
        "--match",
        "matchers",
        metavar="MATCHER",
        multiple=True,
        type=TextType("MATCHER", parse_matcher),
        help="With --alertmanager: labels of the hosts' alerts, such as 'instance=~\"gpu-0[1-4].*\"'; repeatable.",
    )
    @click.option(
        "--http.config.file",
        "http_config_file",
        metavar="FILE",
        help="Credentials, TLS and headers for Alertmanager, in the format of promtool's option of this name.",
    )
    @duration_option("--timeout", "timeout_seconds", duration("1s", "10m"), "30s", "How long Alertmanager may take.")
    @wraps(command)
    def with_target(
        config: Config, alertmanager: str | None, http_config_file: str | None, timeout_seconds: float, **given: Any
    ) -> int:
        silences = None
        if alertmanager is not None:
            http_config = HttpConfig() if http_config_file is None else read_http_config(http_config_file)
            silences = Silences(alertmanager, http_config, timeout_seconds, "--alertmanager")
        elif given["matchers"]:
            raise ConfigError("--match selects alerts; name their Alertmanager with --alertmanager")
        path = (config.state_directory or UNIT_STATE_DIRECTORY) / FILE_NAME
        matchers = tuple(sorted(given.pop("matchers")))
        return command(path=path, silences=silences, matchers=matchers, **given)

    return with_target


_source_option: Final = click.option(
    "--source", type=OneOf([COMMAND, SLURM]), default=COMMAND, hidden=True, help="For the health check of Slurm."
)


@maintenance_command.command("on", cls=OptionsCommand)
@click.option("--until", required=True, metavar="TIME", help="When it ends: 18:00, 2h, 3d or 2026-12-01T08:00.")
@click.option("--reason", required=True, type=TextType("TEXT", _parse_reason), help="What is done, for those who look.")
@_source_option
@_options
def on(
    *, path: Path, silences: Silences | None, matchers: tuple[Matcher, ...], until: str, reason: str, source: str
) -> int:
    """Begin a maintenance, or change its end and reason. It ends by itself.

    Run it on the host as root or as the exporter's user. Exit code 0: begun. 2: not, with the cause.
    """
    try:
        ends = parse_until(until, datetime.now().astimezone())
    except ValueError as error:
        raise ConfigError(f"--until: {error}") from error
    planned = PlannedWork(ends.timestamp(), source, reason)
    if silences is not None:
        _refuse_all(matchers)
        made = silences.make(matchers, ends, reason)
        click.echo(f"silence {printable(made)} of {', '.join(map(str, matchers))} {planned}")
        return 0
    now = datetime.now(timezone.utc).timestamp()
    with _changing(path, now) as entries:
        began = next((each.began for each in entries if each.source == source), now)
        entries[:] = [each for each in entries if each.source != source]
        entries.append(Maintenance(source, planned.until, began, reason))  # type: ignore[arg-type]  # a choice
    click.echo(f"in maintenance {planned}")
    if source == COMMAND:
        click.echo("Wait a minute before you stop the exporter or the host: then Prometheus has scraped it.")
    return 0


@maintenance_command.command("off", cls=OptionsCommand)
@_source_option
@_options
def off(*, path: Path, silences: Silences | None, matchers: tuple[Matcher, ...], source: str) -> int:
    """End the maintenance, or the silences with exactly these matchers. Exit code 0: there is none any more."""
    if silences is not None:
        _refuse_all(matchers)
        ended = [each for each in silences.listed() if each.matchers == matchers]
        for each in ended:
            silences.end(each)
        click.echo(f"ended: {len(ended)} silence{'s' * (len(ended) != 1)}")
        return 0
    with _changing(path, datetime.now(timezone.utc).timestamp()) as entries:
        left = [each for each in entries if each.source != source]
        click.echo("maintenance ended" if len(left) < len(entries) else "no maintenance to end")
        entries[:] = left
    return 0


@maintenance_command.command("status", cls=OptionsCommand)
@_options
def status(*, path: Path, silences: Silences | None, matchers: tuple[Matcher, ...]) -> int:
    """List what is in force. Exit code 0: something. 1: nothing. 2: it cannot be read."""
    if silences is not None:
        lines = [
            f"{PlannedWork(each.until, COMMAND, each.reason)} ({each.by}): {', '.join(map(str, each.matchers))}"
            for each in silences.listed()
            if not matchers or each.matchers == matchers
        ]
    else:
        with _explained(path):
            found = maintenance_in(path, datetime.now(timezone.utc).timestamp())
        lines = [str(PlannedWork(each.until, each.source, each.reason)) for each in found]
    click.echo("\n".join(f"in maintenance {line}" for line in lines) or "no maintenance")
    return 0 if lines else _NONE


def _refuse_all(matchers: tuple[Matcher, ...]) -> None:
    if not any(each.is_equal for each in matchers):
        raise ConfigError(
            "--alertmanager would silence every host; select some with --match 'instance=~\"gpu-0[1-4].*\"'"
        )


@contextmanager
def _changing(path: Path, now: float) -> Iterator[list[Maintenance]]:
    """The entries in force at `now`, which are written after the block. Raises ConfigError."""
    lock = ProcessLock(path.with_name(f".{path.stem}.lock"))
    with _explained(path):
        lock.acquire(wait=True)
        try:
            try:
                entries = list(maintenance_in(path, now))
            except StateError as error:
                click.echo(f"replaced, as it cannot be used: {printable(error.detail)}", err=True)
                entries = []
            before = tuple(entries)
            yield entries
            if tuple(entries) != before:
                # The exporter reads it as its own user, whatever root's umask is.
                write_file(path, MAINTENANCE_FILE.encode(tuple(entries)), 0o644)
        finally:
            lock.release()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an unusable file or directory into a ConfigError with the next step."""
    try:
        yield
    except StateError as error:
        raise ConfigError(f"{error.detail}; run this as root or as the exporter's user") from error
    except PermissionError as error:
        raise ConfigError(f"{path}: {error.strerror}; run this as root or as the exporter's user") from error
    except OSError as error:
        what = unwritable(path, error, "--state.directory")[1]
        raise ConfigError(f"{what}, or name the exporter's directory with --state.directory") from error
