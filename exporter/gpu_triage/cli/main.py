"""The command line: its commands. Those that the daemon does not need are imported lazily."""

import sys
from contextlib import ExitStack
from importlib import import_module

import click

from gpu_triage.cli.daemon import Daemon
from gpu_triage.cli.machines import live_host
from gpu_triage.cli.run import run_cli
from gpu_triage.cli.simulation import scenario_options
from gpu_triage.driver.nvml.probe import versions_in_words
from gpu_triage.driver.own_code import keep_code
from gpu_triage.errors import ConfigError
from gpu_triage.log import configure
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand, serve_options, version_option
from gpu_triage.read.registry import COLLECTOR_SWITCHES, METRICS
from gpu_triage.read.selection import refuse_unknown_metrics
from gpu_triage.serve.process_settings import keep_memory_flat

LAZY = {
    "accept": "gpu_triage.cli.accept_command",
    "advise": "gpu_triage.cli.advise.command",
    "baseline": "gpu_triage.cli.baseline_command",
    "check": "gpu_triage.cli.check_command",
    "config": "gpu_triage.cli.config_command",
    "explain": "gpu_triage.cli.explain_command",
    "fleet": "gpu_triage.cli.fleet.fleet_command",
    "job": "gpu_triage.cli.job.job_command",
    "judge": "gpu_triage.cli.judge_command",
    "maintenance": "gpu_triage.cli.maintenance_command",
    "record": "gpu_triage.cli.record_command",
    "repaired": "gpu_triage.cli.accept_command",
    "report": "gpu_triage.cli.fleet.fleet_command",
    "rules": "gpu_triage.alerting.rules_command",
    "simulate": "gpu_triage_simulator.command",
    "top": "gpu_triage.cli.top_command",
    "web-password": "gpu_triage.cli.config_command",
}
"""The module of each command that the daemon doesn't need; it defines ``NAME_command``."""


class Commands(click.Group):
    """The command group. Commands that the daemon doesn't need are imported on use, to save memory."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *LAZY})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in LAZY:
            command: click.Command = getattr(import_module(LAZY[cmd_name]), f"{cmd_name.replace('-', '_')}_command")
            return command
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=Commands, params=[version_option(versions_in_words)], context_settings={"help_option_names": ["-h", "--help"]}
)
def group() -> None:
    """Show why a GPU job is slow or failing: Prometheus metrics of NVIDIA GPUs and of what feeds them."""


@group.command("help", short_help="Show the help of a command, as --help does.")
@click.argument("command", nargs=-1)
@click.pass_context
def help_command(ctx: click.Context, command: tuple[str, ...]) -> None:
    """Show the help of COMMAND, such as check or baseline write, as --help does; without one, list the commands."""
    about = ctx.find_root()
    for name in command:
        if not isinstance(about.command, click.Group):
            raise ConfigError(f"{about.command_path} has no commands; leave out {name}")
        _, found, _ = about.command.resolve_command(about, [name])
        assert found is not None  # noqa: S101 - an unknown name has raised a usage error
        about = click.Context(found, parent=about, info_name=name, **found.context_settings)
    click.echo(about.get_help())


@group.command(
    cls=OptionsCommand,
    essential=(
        *("web.listen-address", "web.config.file", "expect.gpu-count", "metrics.profile"),
        *("kubernetes.pod-resources-socket", "slurm.jobs-directory", "state.directory", "log.level"),
        *("simulate", "config.file"),
    ),
    examples=(
        ("gpu-triage serve", "every default: metrics and status page on port 9836 of all interfaces"),
        ("gpu-triage serve --simulate h100-8-bad-night --simulate-at 30m", "try it on a host without GPUs"),
        (
            "gpu-triage serve --web.listen-address 127.0.0.1:9836 --expect.gpu-count 8",
            "this host only; 8 GPUs are right",
        ),
        ("gpu-triage serve --config.file /etc/gpu-triage/config.yml", "options from a file"),
    ),
)
@serve_options(COLLECTOR_SWITCHES, scenario_options)
def serve(config: Config) -> int:
    """Run the exporter until SIGTERM or SIGINT.

    It stays up without a driver, without GPUs and while the driver hangs, and reports it in its metrics.

    Exit code: 0 after a signal; 2 an option or a file that it names is invalid, and a restart does not help. Restart it
    after the others: 1 the address is in use or not there yet, 4 the driver was replaced, 70 a bug.
    """
    refuse_unknown_metrics(config, METRICS)
    keep_memory_flat()
    configure(config.log_level, config.log_format)
    keep_code()
    with ExitStack() as stack:
        return Daemon(live_host(config, stack), config.sample_fast_seconds).run()


def main() -> None:
    sys.exit(run_cli(group, sys.argv[1:]))


if __name__ == "__main__":
    main()
