"""The command line: its commands. Those that the daemon does not need are imported lazily."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from gpu_triage.cli.daemon import Daemon
from gpu_triage.cli.machines import live_machine, stepped_machine
from gpu_triage.cli.simulation import scenario_options, simulate_command
from gpu_triage.driver.nvml.versions import versions_in_words
from gpu_triage.log import configure
from gpu_triage.options.command import OptionsCommand, serve_options, version_option
from gpu_triage.options.run import run_cli
from gpu_triage.read.registry import COLLECTOR_SWITCHES, METRICS
from gpu_triage.read.selection import refuse_unknown_metrics
from gpu_triage.serve.process_settings import keep_memory_flat

if TYPE_CHECKING:
    from gpu_triage.options.config import Config

ONE_SHOT = ("advise", "baseline", "check", "judge", "record")
"""Commands that examine a host once."""
WATCHING = ("top",)
"""Commands with a full-screen terminal display."""
FLEET = ("fleet", "report")
"""Commands that query a Prometheus server."""
OFFLINE = ("config", "explain", "rules", "simulate", "web-password")
"""Commands that don't access a host."""


class Commands(click.Group):
    """The command group. Commands that the daemon doesn't need are imported on use, to save memory."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*super().list_commands(ctx), *ONE_SHOT, *WATCHING, *FLEET, *OFFLINE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command with this name; None if there is none."""
        if cmd_name in ONE_SHOT and cmd_name not in self.commands:
            from gpu_triage.cli.advise.command import advise_command  # noqa: PLC0415 - lazy, see the class
            from gpu_triage.cli.baseline_command import baseline_command  # noqa: PLC0415 - as above
            from gpu_triage.cli.check_command import check_command  # noqa: PLC0415 - as above
            from gpu_triage.cli.judge_command import judge_command  # noqa: PLC0415 - as above
            from gpu_triage.cli.one_shot import CommandWiring  # noqa: PLC0415 - as above
            from gpu_triage.cli.record_command import record_command  # noqa: PLC0415 - as above

            stepped = CommandWiring(COLLECTOR_SWITCHES, scenario_options, stepped_machine)
            live = CommandWiring(COLLECTOR_SWITCHES, scenario_options, live_machine)
            self.add_command(advise_command(stepped))
            self.add_command(baseline_command(live, stepped))
            self.add_command(check_command(stepped))
            self.add_command(judge_command(stepped))
            self.add_command(record_command(live))
        if cmd_name in WATCHING and cmd_name not in self.commands:
            from gpu_triage.cli.one_shot import CommandWiring  # noqa: PLC0415 - as above
            from gpu_triage.cli.top.command import top_command  # noqa: PLC0415 - as above

            live = CommandWiring(COLLECTOR_SWITCHES, scenario_options, live_machine)
            stepped = CommandWiring(COLLECTOR_SWITCHES, scenario_options, stepped_machine)
            self.add_command(top_command(live, stepped))
        if cmd_name in FLEET and cmd_name not in self.commands:
            from gpu_triage.cli.fleet.command import fleet_command  # noqa: PLC0415 - as above
            from gpu_triage.cli.fleet.report_command import report_command  # noqa: PLC0415 - as above

            self.add_command(fleet_command)
            self.add_command(report_command)
        if cmd_name in OFFLINE and cmd_name not in self.commands:
            from gpu_triage.alerting.command import rules_command  # noqa: PLC0415 - as above
            from gpu_triage.cli.config_command import config_command  # noqa: PLC0415 - as above
            from gpu_triage.cli.explain_command import explain_command  # noqa: PLC0415 - as above
            from gpu_triage.cli.password_command import password_command  # noqa: PLC0415 - as above

            self.add_command(config_command(COLLECTOR_SWITCHES, scenario_options))
            self.add_command(explain_command)
            self.add_command(password_command)
            self.add_command(rules_command)
            self.add_command(simulate_command())
        return super().get_command(ctx, cmd_name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@version_option(versions_in_words)
def group() -> None:
    """Show why a GPU job is slow or failing: Prometheus metrics of NVIDIA GPUs and of what feeds them."""


@group.command(
    cls=OptionsCommand,
    essential=(
        *("web.listen-address", "web.config.file", "expect.gpu-count", "metrics.profile"),
        *("kubernetes.pod-resources-socket", "slurm.jobs-directory", "state.directory", "log.level"),
        *("simulate", "config.file"),
    ),
    examples=(
        ("gpu-triage serve", "every default: metrics and status page on port 9836 of all interfaces"),
        ("gpu-triage serve --simulate h100-8-bad-night", "try it on a host without GPUs"),
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

    It stays up without a driver, without GPUs and while the driver hangs, and says so in its metrics.

    Exit code: 0 after a signal, 2 the options cannot be used, 4 the driver was replaced and the supervisor should
    restart the exporter, 70 a fault of this program.
    """
    refuse_unknown_metrics(config, METRICS)
    keep_memory_flat()
    configure(config.log_level, config.log_format)
    with ExitStack() as stack:
        return Daemon(live_machine(config, stack), config).run()


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run_cli(group, sys.argv[1:]))


if __name__ == "__main__":
    main()
