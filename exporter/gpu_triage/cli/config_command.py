"""The commands `gpu-triage config check`, which reads what the exporter would at startup, and `web-password`."""

import sys
from collections.abc import Iterator

import click

from gpu_triage.cli.one_shot import host_options
from gpu_triage.errors import ConfigError, DocumentError
from gpu_triage.judge.findings.settings import judge_settings
from gpu_triage.options.config import Config
from gpu_triage.options.option_sources import FILE
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import whole_number
from gpu_triage.read.baseline.host_facts import read_baseline, timestamp
from gpu_triage.read.registry import METRICS
from gpu_triage.read.selection import refuse_unknown_metrics
from gpu_triage.serve.config_file import HIGHEST_COST
from gpu_triage.serve.passwords import LONGEST_PASSWORD, hashed
from gpu_triage.serve.security import SecuritySource


def _use_file(ctx: click.Context, _argument: click.Parameter, path: str | None) -> None:
    if path is not None:
        ctx.meta[FILE] = path


@click.group("config", short_help="Check the exporter's configuration.")
def config_command() -> None:
    """Check the exporter's configuration."""


@config_command.command(
    "check",
    cls=OptionsCommand,
    short_help="Say what is wrong with the configuration, or that it is OK.",
    examples=(
        ("gpu-triage config check /etc/gpu-triage/config.yml", "a file, before the exporter is restarted with it"),
        ("gpu-triage config check --web.config.file web.yml", "TLS, passwords and headers"),
        ("env $(grep -v '^#' /etc/default/gpu-triage-exporter) gpu-triage config check", "variables of the unit"),
    ),
    essential=("web.config.file", "baseline.file", "config.file"),
)
@click.argument("file", required=False, expose_value=False, callback=_use_file)
@host_options()
@click.pass_context
def check(ctx: click.Context, config: Config) -> int:
    """Read the options from FILE, the environment and the flags, the web configuration with its certificates, and
    the baseline, as gpu-triage serve would, and say what is wrong with them, or OK.

    Nothing is started, and no GPU is queried.

    Exit code: 0 all of it can be used, 2 something cannot; each mistake is a line on stderr.
    """  # noqa: D205 - the help shows it as a paragraph
    by_flag = ctx.get_parameter_source("gpu_triage_config_file") is click.core.ParameterSource.COMMANDLINE
    if by_flag and FILE in ctx.meta:
        raise click.UsageError("the configuration file is named twice; leave out --config.file")
    lines: list[str] = []
    problems: list[str] = []
    for look in (_metrics, _judge, _web, _baseline):
        try:
            lines += look(config)
        except DocumentError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    for line in lines:
        click.echo(line)
    click.echo("OK")
    return 0


def _metrics(config: Config) -> tuple[()]:
    refuse_unknown_metrics(config, METRICS)
    return ()


def _judge(config: Config) -> Iterator[str]:
    if changed := judge_settings(config.judge).changed:
        yield f"judge: {'; '.join(each.text for each in changed)}"


def _web(config: Config) -> Iterator[str]:
    if config.web_config_file is not None:
        security = SecuritySource(config.web_config_file).current.config
        tls = "HTTPS" if security.tls is not None else "plain HTTP"
        users = f"{len(security.users)} user{'s' * (len(security.users) != 1)}" if security.users else "no password"
        yield f"{config.web_config_file}: {tls}, {users}"


def _baseline(config: Config) -> Iterator[str]:
    if config.baseline_file is not None:
        facts = read_baseline(config.baseline_file).facts
        yield f"{config.baseline_file}: {facts.host.gpu_count} GPUs, recorded {timestamp(facts.at)}"


@click.command("web-password", short_help="Ask for a password and print its bcrypt hash.")
@click.option("--cost", type=whole_number(4, HIGHEST_COST), default=10, show_default=True, help="Work a check takes.")
def web_password_command(cost: int) -> int:
    """Ask for a password and print its bcrypt hash, for basic_auth_users in the file of --web.config.file.

    If standard input is not a terminal, its first line is the password.
    """
    if sys.stdin.isatty():
        typed: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        password = typed.encode()
    else:
        password = sys.stdin.buffer.readline(LONGEST_PASSWORD + len(b"\r\n") + 1).rstrip(b"\r\n")
        if not password:
            raise click.UsageError("no password on standard input; type one at a terminal, or pipe one in")
    if len(password) > LONGEST_PASSWORD:
        raise click.UsageError(
            f"bcrypt looks at {LONGEST_PASSWORD} bytes of a password and no further; choose a shorter one"
        )
    click.echo(hashed(password, cost))
    return 0
