"""The command line: parse, wire, signals. The only file that knows all the others."""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gpu_triage import __version__
from gpu_triage.allocator import keep_memory_flat
from gpu_triage.diagnosis.judge import DaemonJudge
from gpu_triage.diagnosis.settings_source import SettingsSource
from gpu_triage.interpreter import answer_promptly
from gpu_triage.log import configure, fields
from gpu_triage.machine import real_machine
from gpu_triage.nvml.probe import ProbeProcess
from gpu_triage.nvml.versions import versions_in_words
from gpu_triage.options import OptionsCommand, all_options, run_cli, serve_options, version_option
from gpu_triage.processes.container_names import ContainerLinks
from gpu_triage.processes.pods import PodDirectory, kubelet
from gpu_triage.processes.slurm_jobs import JobDirectory
from gpu_triage.registry import COLLECTOR_SWITCHES, GPU_COLLECTORS, HOST_COLLECTORS, METRICS
from gpu_triage.sampler.runner import Runner
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.selection import refuse_unknown_metrics
from gpu_triage.web.crowd import Limits
from gpu_triage.web.front import Front
from gpu_triage.web.hosts import AllowedHosts
from gpu_triage.web.listen import browser_url
from gpu_triage.web.security import SecuritySource
from gpu_triage.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpu_triage.config import Config, Setting
    from gpu_triage.diagnosis.report.report import Report
    from gpu_triage.flight.recorder import FlightRecorder
    from gpu_triage.machine import Machine, PodNames, SlurmJobs
    from gpu_triage.simulator import Scenario
    from gpu_triage.subjects.exporter import JudgeSettingsHealth, WebConfigHealth

log = logging.getLogger(__name__)

EXIT_RESTART_ME = 4
"""Exit code of a daemon that must be restarted because the driver was replaced underneath it."""


ONE_SHOT = ("advise", "baseline", "check", "judge", "record")
"""Commands that look at a host once."""
WATCHING = ("top",)
"""Commands that draw in the terminal."""
FLEET = ("fleet", "report")
"""Commands that ask a Prometheus."""
OFFLINE = ("config", "explain", "rules", "simulate", "web-password")
"""Commands that look at no host."""


class Commands(click.Group):
    """The commands. Those that the daemon does not need are loaded when called for, so that it takes less memory."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*super().list_commands(ctx), *ONE_SHOT, *WATCHING, *FLEET, *OFFLINE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None without one."""
        if cmd_name in ONE_SHOT and cmd_name not in self.commands:
            from gpu_triage.diagnosis.advise.command import advise_command  # noqa: PLC0415 - see the class
            from gpu_triage.diagnosis.baseline_command import baseline_command  # noqa: PLC0415 - likewise
            from gpu_triage.diagnosis.check_command import check_command  # noqa: PLC0415 - likewise
            from gpu_triage.diagnosis.judge_command import judge_command  # noqa: PLC0415 - likewise
            from gpu_triage.options.one_shot import CommandWiring  # noqa: PLC0415 - likewise
            from gpu_triage.recording.command import record_command  # noqa: PLC0415 - likewise

            stepped = CommandWiring(COLLECTOR_SWITCHES, _scenario_options, _stepped_machine)
            live = CommandWiring(COLLECTOR_SWITCHES, _scenario_options, _machine)
            self.add_command(advise_command(stepped))
            self.add_command(baseline_command(live, stepped))
            self.add_command(check_command(stepped, _check_files))
            self.add_command(judge_command(stepped, _length_of))
            self.add_command(record_command(live))
        if cmd_name in WATCHING and cmd_name not in self.commands:
            from gpu_triage.diagnosis.top.command import top_command  # noqa: PLC0415 - likewise
            from gpu_triage.options.one_shot import CommandWiring  # noqa: PLC0415 - likewise

            live = CommandWiring(COLLECTOR_SWITCHES, _scenario_options, _machine)
            stepped = CommandWiring(COLLECTOR_SWITCHES, _scenario_options, _stepped_machine)
            self.add_command(top_command(live, stepped))
        if cmd_name in FLEET and cmd_name not in self.commands:
            from gpu_triage.fleet.command import fleet_command  # noqa: PLC0415 - likewise
            from gpu_triage.fleet.report_command import report_command  # noqa: PLC0415 - likewise

            self.add_command(fleet_command)
            self.add_command(report_command)
        if cmd_name in OFFLINE and cmd_name not in self.commands:
            from gpu_triage.alerting.command import rules_command  # noqa: PLC0415 - likewise
            from gpu_triage.handbook.explain_command import explain_command  # noqa: PLC0415 - likewise
            from gpu_triage.simulator.command import simulate_command  # noqa: PLC0415 - likewise
            from gpu_triage.web.config_command import config_command  # noqa: PLC0415 - likewise
            from gpu_triage.web.password_command import password_command  # noqa: PLC0415 - likewise

            self.add_command(config_command(COLLECTOR_SWITCHES, _scenario_options))
            self.add_command(explain_command)
            self.add_command(password_command)
            self.add_command(rules_command)
            self.add_command(simulate_command)
        return super().get_command(ctx, cmd_name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@version_option(versions_in_words)
def group() -> None:
    """Tell why a GPU job is slow or sick: Prometheus metrics of NVIDIA GPUs and of what feeds them."""


def _scenario_options(name: str) -> Mapping[str, Setting]:
    from gpu_triage.simulator import load_scenario  # noqa: PLC0415 - as in Commands

    return load_scenario(name).exporter_options


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
@serve_options(COLLECTOR_SWITCHES, _scenario_options)
def serve(config: Config) -> int:
    """Run the exporter until it is told to stop (SIGTERM, SIGINT).

    It stays up without a driver, without GPUs and while the driver hangs, and says so in its metrics.

    Exit code: 0 after a signal, 2 the options cannot be used, 4 the driver was replaced and the supervisor should
    restart the exporter, 70 a fault of this program.
    """
    refuse_unknown_metrics(config, METRICS)
    keep_memory_flat()
    configure(config.log_level, config.log_format)
    with ExitStack() as stack:
        machine = _machine(config, stack)
        return _Daemon(machine, config).run()


def _stepped_machine(config: Config, stack: ExitStack, seconds: float) -> Machine:
    """The machine to look at once; one of a scenario or a recording on a virtual clock, so that nobody waits for it.

    A scenario begins at this time of it, a recording so long before its end, or at its beginning if `seconds` is 0.
    """
    if config.simulate is None and config.replay is None:
        return _machine(config, stack)
    from gpu_triage.simulator import VirtualClock, simulated_machine  # noqa: PLC0415 - as in Commands

    if config.replay is not None:
        from gpu_triage.recording.replay import replayed_machine  # noqa: PLC0415 - likewise

        return stack.enter_context(replayed_machine(config.replay, clock=VirtualClock(), last_seconds=seconds or None))
    simulated = simulated_machine(_scenario(config), clock=VirtualClock(), starting_at=seconds, when_looked_at=True)
    return stack.enter_context(simulated).machine


def _check_files(paths: tuple[str, ...], config: Config, *, redact: bool) -> Report:
    """The report on files."""
    from gpu_triage.offline import FilesRequest, check_files  # noqa: PLC0415 - as in Commands

    return check_files(FilesRequest(paths, redact=redact, shows_progress=sys.stderr.isatty()), config)


def _length_of(recording: Path) -> float:
    """How many seconds it lasts."""
    from gpu_triage.recording.bundle import read_recording  # noqa: PLC0415 - as in Commands

    return read_recording(recording).seconds


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run_cli(group, sys.argv[1:]))


def _machine(config: Config, stack: ExitStack, starting_at: float = 0.0) -> Machine:
    if config.replay is not None:
        from gpu_triage.recording.replay import replayed_machine  # noqa: PLC0415 - as in Commands

        log.warning("this host is a RECORDING", extra=fields(path=str(config.replay)))
        return stack.enter_context(replayed_machine(config.replay))
    if config.simulate is None:
        visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
        machine = real_machine(config.path_sysfs, config.path_procfs, config.path_kmsg, visible)
        logs = config.kubernetes_container_logs
        containers = None if logs is None else ContainerLinks(logs)
        pods, slurm = _pods(config), _slurm(config)
        return replace(machine, pods=pods, containers=containers, slurm=slurm, probe=ProbeProcess())
    from gpu_triage.simulator import simulated_machine  # noqa: PLC0415 - as in Commands

    scenario = _scenario(config)
    log.warning(
        "this host is SIMULATED: every metric is made up",
        extra=fields(scenario=scenario.name, description=scenario.description),
    )
    return stack.enter_context(simulated_machine(scenario, starting_at=starting_at)).machine


def _scenario(config: Config) -> Scenario:
    """The scenario of a configuration that names one, at its pace."""
    from gpu_triage.simulator import at_pace, load_scenario  # noqa: PLC0415 - as in Commands

    assert config.simulate is not None  # noqa: S101 - the callers looked
    return at_pace(load_scenario(config.simulate), config.simulate_pace)


def _pods(config: Config) -> PodNames | None:
    socket = config.kubernetes_pod_resources_socket
    if socket is None:
        return None
    return PodDirectory(kubelet(socket), config.stale_after * config.sample_medium_seconds)


def _slurm(config: Config) -> SlurmJobs | None:
    if config.slurm_jobs_directory is None:
        return None
    fresh_for = config.stale_after * config.sample_medium_seconds
    return JobDirectory(config.slurm_jobs_directory, config.slurm_gpu_numbers, fresh_for)


def _flight_recorder(machine: Machine, config: Config) -> FlightRecorder | None:
    """The flight recorder, if there is to be one. Loaded only then, as in Commands."""
    if config.flight_recorder_directory is None:
        return None
    from gpu_triage.flight.process import WritingProcess  # noqa: PLC0415 - see above
    from gpu_triage.flight.recorder import FlightRecorder  # noqa: PLC0415 - likewise

    return FlightRecorder(machine, config.flight_recorder_directory, WritingProcess())


class _Daemon:
    """The exporter at work: a sampler on its thread, the web server on the main one."""

    def __init__(self, machine: Machine, config: Config) -> None:
        self._config = config
        self._flight = _flight_recorder(machine, config)
        if self._flight is not None:
            machine = self._flight.machine
        self._runner = Runner(machine.clock, config)
        judge = DaemonJudge(config)
        self._sampler = Sampler(
            machine,
            config,
            self._runner.lane,
            GPU_COLLECTORS,
            HOST_COLLECTORS,
            judge=judge,
            flight=self._flight,
            writes_state=True,
        )
        self._judge = judge
        self._settings = SettingsSource(config, all_options(COLLECTOR_SWITCHES), judge.use, self._judge_settings_read)
        self._front = Front(self._sampler, judge, config, self._runner.alive)
        self._server = WebServer(
            self._front.application(),
            None if config.web_systemd_socket else config.web_listen_addresses,
            security=SecuritySource(config.web_config_file, self._web_config_loaded),
            hosts=AllowedHosts(config.web_allowed_hosts),
            limits=Limits(unread=config.web_max_requests),
        )
        self._fatal: str | None = None
        self._stopping = False

    def run(self) -> int:
        """Serve until a signal; returns the exit code."""
        # First: it is sent to reload, and would end the process.
        signal.signal(signal.SIGHUP, lambda _received, _frame: self._reload())
        urls = self._server.bind()
        for url in urls:
            metrics = url.rstrip("/") + self._config.web_telemetry_path
            log.info("listening", extra=fields(url=metrics, version=__version__))
        if self._config.state_directory is None:
            log.warning("no state directory: findings and incidents are forgotten at a restart; set --state.directory")
        # For a person who starts it by hand; a service's log has the line above.
        if sys.stderr.isatty() and (page := browser_url(urls)) is not None:
            click.echo(f"\n  Status page: {page}   Ctrl-C ends the exporter.\n", err=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _frame: self._stop(signal.Signals(received).name))
        signal.signal(signal.SIGUSR1, lambda _received, _frame: self._front.release())
        signal.signal(signal.SIGUSR2, lambda _received, _frame: self._front.acquire())
        answer_promptly()
        if self._flight is not None:
            self._flight.start()
        self._runner.start(self._sampler, self._published, self._end)
        self._server.run()
        self._runner.stop()
        if self._flight is not None:
            # After the last round, which may have asked for a recording.
            self._flight.stop(self._runner.seconds_left)
        return 0 if self._fatal is None else EXIT_RESTART_ME

    def _published(self) -> None:
        self._front.published()
        if self._flight is not None:
            self._flight.observe(self._judge.latest)

    def _web_config_loaded(self, health: WebConfigHealth) -> None:
        self._sampler.status.web_config = health

    def _judge_settings_read(self, health: JudgeSettingsHealth) -> None:
        self._sampler.status.judge_settings = health

    def _stop(self, cause: str) -> None:
        if self._stopping:
            return
        self._stopping = True
        log.info("stopping", extra=fields(cause=cause))
        self._runner.request_stop()
        self._server.stop()

    def _reload(self) -> None:
        log.info(
            "reading the web configuration, the baseline and the judge's settings again", extra=fields(cause="SIGHUP")
        )
        self._server.reload()
        self._settings.reload_soon()
        self._sampler.reload()

    def _end(self, cause: str) -> None:
        self._fatal = cause
        log.error("this process must be restarted", extra=fields(cause=cause))
        self._server.stop()


if __name__ == "__main__":
    main()
