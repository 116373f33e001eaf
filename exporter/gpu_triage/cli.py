"""The command line: parse, wire, signals. The only file that knows all the others."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gpu_triage import __version__
from gpu_triage.allocator import keep_memory_flat
from gpu_triage.diagnosis.judge import DaemonJudge
from gpu_triage.interpreter import answer_promptly
from gpu_triage.log import configure, fields
from gpu_triage.machine import real_machine
from gpu_triage.nvml.probe import ProbeProcess
from gpu_triage.options import OptionsCommand, run_cli, serve_options, version_option
from gpu_triage.processes.pods import PodDirectory, kubelet
from gpu_triage.registry import COLLECTOR_SWITCHES, GPU_COLLECTORS, HOST_COLLECTORS, METRICS
from gpu_triage.sampler.runner import Runner
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.selection import refuse_unknown_metrics
from gpu_triage.web.crowd import Limits
from gpu_triage.web.front import Front
from gpu_triage.web.security import SecuritySource
from gpu_triage.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_triage.config import Config, Setting
    from gpu_triage.diagnosis.report.report import Report
    from gpu_triage.machine import Machine, PodNames
    from gpu_triage.simulator import Scenario
    from gpu_triage.subjects.exporter import WebConfigHealth

log = logging.getLogger(__name__)

EXIT_RESTART_ME = 4
"""Exit code of a daemon that must be restarted because the driver was replaced underneath it."""


ONE_SHOT = ("advise", "baseline", "check", "record")
"""Commands that look at a host once."""
OFFLINE = ("explain", "rules", "web-password")
"""Commands that look at no host."""


class Commands(click.Group):
    """The commands. Those that the daemon does not need are loaded when called for, so that it takes less memory."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*super().list_commands(ctx), *ONE_SHOT, *OFFLINE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None without one."""
        if cmd_name in ONE_SHOT and cmd_name not in self.commands:
            from gpu_triage.diagnosis.advise.command import advise_command  # noqa: PLC0415 - see the class
            from gpu_triage.diagnosis.baseline_command import baseline_command  # noqa: PLC0415 - likewise
            from gpu_triage.diagnosis.check_command import check_command  # noqa: PLC0415 - likewise
            from gpu_triage.options.one_shot import CommandWiring  # noqa: PLC0415 - likewise
            from gpu_triage.recording.command import record_command  # noqa: PLC0415 - likewise

            stepped = CommandWiring(COLLECTOR_SWITCHES, _scenario_options, _stepped_machine)
            live = CommandWiring(COLLECTOR_SWITCHES, _scenario_options, _machine)
            self.add_command(advise_command(stepped))
            self.add_command(baseline_command(live))
            self.add_command(check_command(stepped, _check_files))
            self.add_command(record_command(live))
        if cmd_name in OFFLINE and cmd_name not in self.commands:
            from gpu_triage.alerting.command import rules_command  # noqa: PLC0415 - likewise
            from gpu_triage.handbook.explain_command import explain_command  # noqa: PLC0415 - likewise
            from gpu_triage.web.passwords import password_command  # noqa: PLC0415 - likewise

            self.add_command(explain_command)
            self.add_command(password_command)
            self.add_command(rules_command)
        return super().get_command(ctx, cmd_name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@version_option()
def group() -> None:
    """Tell why a GPU job is slow or sick: Prometheus metrics of NVIDIA GPUs and of what feeds them."""


def _scenario_options(name: str) -> Mapping[str, Setting]:
    from gpu_triage.simulator import load_scenario  # noqa: PLC0415 - as in `simulate`

    return load_scenario(name).exporter_options


@group.command(cls=OptionsCommand)
@serve_options(COLLECTOR_SWITCHES, _scenario_options)
def serve(config: Config) -> int:
    """Run the exporter until it is told to stop (SIGTERM, SIGINT).

    It stays up without a driver, without GPUs and while the driver hangs, and says so in its metrics.
    """
    refuse_unknown_metrics(config, METRICS)
    keep_memory_flat()
    configure(config.log_level, config.log_format)
    with ExitStack() as stack:
        machine = _machine(config, stack)
        return _Daemon(machine, config).run()


@group.command(
    context_settings={"max_content_width": 100}, short_help="Describe simulated hosts, or write their history."
)
@click.argument("name", required=False)
@click.option("--list", "list_all", is_flag=True, help="Describe every scenario that ships with the exporter.")
@click.option("--history", metavar="DURATION", help="Write what a Prometheus would hold after so long: 6h, 7d.")
@click.option("--step", metavar="DURATION", help="How often it scrapes.  [default: 15s]")
@click.option("--output", metavar="FILE", help="Where the history goes.  [default: standard output]")
@click.option(
    "--start",
    metavar="TIME",
    help="When it starts: Unix seconds, or 2026-01-15T00:00:00Z.  [default: so that it ends now]",
)
@click.option("--instance", metavar="NAME", help="The target's label instance.  [default: the scenario's name]")
@click.option("--job", metavar="NAME", help="The target's label job.  [default: gpu-triage]")
@click.option("--label", "labels", metavar="NAME=VALUE", multiple=True, help="Another label of it; can be repeated.")
def simulate(name: str | None, list_all: bool, **history: Any) -> int:  # noqa: FBT001 - click's way
    """Describe simulated hosts, or write their history for a Prometheus.

    NAME is a scenario that --list shows, or the path of a TOML file. To run one live, give it to the exporter:

    \b
      gpu-triage serve --simulate NAME

    With --history, hours of it are played on a virtual clock in seconds, and written as OpenMetrics with timestamps,
    which promtool turns into blocks that any Prometheus 2.24 or later serves:

    \b
      gpu-triage simulate h100-8-bad-night --history 6h --step 15s --output night.om
      promtool tsdb create-blocks-from openmetrics night.om data
      prometheus --storage.tsdb.path=data --storage.tsdb.retention.time=10y --query.lookback-delta=20s

    Blocks older than the retention time are deleted, so raise it for a history of long ago. OpenMetrics cannot say
    that a series has ended, as a scrape does, so queries see it for the lookback time longer: a little more than the
    step is right. What rules record of the past, promtool tsdb create-blocks-from rules adds; alerts are evaluated
    for the present only.
    """  # noqa: D301 - click reads the backspaces: as it stands
    # Here and not above: the simulator is no part of a daemon on a real host, nor of its memory.
    from gpu_triage.simulator import describe_scenario, list_scenarios, load_scenario  # noqa: PLC0415

    if (name is None) == (not list_all):
        raise click.UsageError("give either --list or the NAME of one scenario")
    if history["history"] is not None:
        if name is None:
            raise click.UsageError("--history needs the NAME of one scenario")
        from gpu_triage.simulator.history_command import HistoryRequest, write_history  # noqa: PLC0415

        write_history(HistoryRequest(name, **{**history, "step": history["step"] or "15s"}), time.time())
        return 0
    if idle := [flag for flag, value in history.items() if value]:
        raise click.UsageError(f"--{idle[0].removesuffix('s')} says nothing without --history")
    if name is not None:
        click.echo(describe_scenario(load_scenario(name)))
        return 0
    scenarios = list_scenarios()
    width = max(len(scenario.name) for scenario in scenarios)
    for scenario in scenarios:
        click.echo(f"{scenario.name:<{width}}  {scenario.description}")
    return 0


def _stepped_machine(config: Config, stack: ExitStack, scenario_seconds: float) -> Machine:
    """The machine to look at once; a simulated one on a virtual clock, so that nobody waits for it."""
    if config.simulate is None:
        return _machine(config, stack)
    from gpu_triage.simulator import VirtualClock, simulated_machine  # noqa: PLC0415 - as in Commands

    simulated = simulated_machine(_scenario(config), clock=VirtualClock(), starting_at=scenario_seconds)
    return stack.enter_context(simulated).machine


def _check_files(paths: tuple[str, ...], config: Config, *, redact: bool) -> Report:
    """The report on files."""
    from gpu_triage.offline import FilesRequest, check_files  # noqa: PLC0415 - as in Commands

    return check_files(FilesRequest(paths, redact=redact, shows_progress=sys.stderr.isatty()), config)


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run_cli(group, sys.argv[1:]))


def _machine(config: Config, stack: ExitStack, starting_at: float = 0.0) -> Machine:
    if config.replay is not None:
        from gpu_triage.recording import replayed_machine  # noqa: PLC0415 - as in `simulate`

        log.warning("this host is a RECORDING", extra=fields(path=str(config.replay)))
        return stack.enter_context(replayed_machine(config.replay))
    if config.simulate is None:
        visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
        machine = real_machine(config.path_sysfs, config.path_procfs, config.path_kmsg, visible)
        return replace(machine, pods=_pods(config), probe=ProbeProcess())
    from gpu_triage.simulator import simulated_machine  # noqa: PLC0415 - as in `simulate`

    scenario = _scenario(config)
    log.warning(
        "this host is SIMULATED: every metric is made up",
        extra=fields(scenario=scenario.name, description=scenario.description),
    )
    return stack.enter_context(simulated_machine(scenario, starting_at=starting_at)).machine


def _scenario(config: Config) -> Scenario:
    """The scenario of a configuration that names one, at its pace."""
    from gpu_triage.simulator import at_pace, load_scenario  # noqa: PLC0415 - as in `simulate`

    assert config.simulate is not None  # noqa: S101 - the callers looked
    return at_pace(load_scenario(config.simulate), config.simulate_pace)


def _pods(config: Config) -> PodNames | None:
    socket = config.kubernetes_pod_resources_socket
    if socket is None:
        return None
    return PodDirectory(kubelet(socket), config.stale_after * config.sample_medium_seconds)


class _Daemon:
    """The exporter at work: a sampler on its thread, the web server on the main one."""

    def __init__(self, machine: Machine, config: Config) -> None:
        self._config = config
        self._runner = Runner(machine.clock, config)
        judge = DaemonJudge(config)
        self._sampler = Sampler(
            machine, config, self._runner.lane, GPU_COLLECTORS, HOST_COLLECTORS, judge=judge, writes_state=True
        )
        self._front = Front(self._sampler, judge, config, self._runner.alive)
        self._server = WebServer(
            self._front.application(),
            None if config.web_systemd_socket else config.web_listen_addresses,
            security=SecuritySource(config.web_config_file, self._web_config_loaded),
            limits=Limits(unread=config.web_max_requests),
        )
        self._fatal: str | None = None

    def run(self) -> int:
        """Serve until a signal; returns the exit code."""
        # First: it is sent to reload, and would end the process.
        signal.signal(signal.SIGHUP, lambda _received, _frame: self._reload())
        for url in self._server.bind():
            metrics = url.rstrip("/") + self._config.web_telemetry_path
            log.info("listening", extra=fields(url=metrics, version=__version__))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _frame: self._stop(signal.Signals(received).name))
        signal.signal(signal.SIGUSR1, lambda _received, _frame: self._front.release())
        signal.signal(signal.SIGUSR2, lambda _received, _frame: self._front.acquire())
        answer_promptly()
        self._runner.start(self._sampler, self._front.published, self._end)
        self._server.run()
        self._runner.stop()
        return 0 if self._fatal is None else EXIT_RESTART_ME

    def _web_config_loaded(self, health: WebConfigHealth) -> None:
        self._sampler.status.web_config = health

    def _stop(self, cause: str) -> None:
        log.info("stopping", extra=fields(cause=cause))
        self._runner.request_stop()
        self._server.stop()

    def _reload(self) -> None:
        log.info("reading the web configuration and the baseline again", extra=fields(cause="SIGHUP"))
        self._server.reload()
        self._sampler.reload()

    def _end(self, cause: str) -> None:
        self._fatal = cause
        log.error("this process must be restarted", extra=fields(cause=cause))
        self._server.stop()


if __name__ == "__main__":
    main()
