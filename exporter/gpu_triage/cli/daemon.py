"""The exporter as a daemon: its parts and its signal handlers."""

from __future__ import annotations

import logging
import signal
import sys
from typing import TYPE_CHECKING

import click

from gpu_triage import __version__
from gpu_triage.cli.machines import Host, constants, judged_host
from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.log import fields
from gpu_triage.machine import Machine
from gpu_triage.options.config import Config
from gpu_triage.options.option_table import all_options
from gpu_triage.read.exporter.exporter_health import WebConfigHealth
from gpu_triage.read.registry import COLLECTOR_SWITCHES, GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.runner import Runner
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.serve import app, listen, process_settings, security, server

if TYPE_CHECKING:
    from gpu_triage.record.flight.recorder import FlightRecorder

log = logging.getLogger(__name__)

EXIT_RESTART_ME = 4
"""Exit code of a daemon that must be restarted because the driver was replaced while it was running."""


class Daemon:
    """The running exporter: a sampler on its own thread, the web server on the main thread."""

    def __init__(self, host: Host, interval_seconds: float) -> None:
        """`interval_seconds` is the real time from one round of samples to the next."""
        machine, config = host.machine, host.config
        self._config = config
        self._flight = _flight_recorder(machine, config)
        if self._flight is not None:
            machine = self._flight.machine
        self._runner = Runner(machine.clock, interval_seconds)
        judge = DaemonJudge(config, judged_host(config, continuous=True))
        self._sampler = Sampler(
            machine,
            config,
            self._runner.lane,
            GPU_COLLECTORS,
            HOST_COLLECTORS,
            judge=judge,
            flight=self._flight,
            writes_state=True,
            constants=constants(config),
        )
        self._judge = judge
        if config.config_file is not None:
            self._sampler.status.judge_settings = judge.settings_health
        self._front = app.ExporterBackend(self._sampler, judge, config, self._runner.alive, host.progress)
        self._security = security.SecuritySource(
            config.web_config_file,
            self._web_config_loaded,
            also=None if config.config_file is None else self._reload_judge,
        )
        self._server = server.WebServer(self._front, config, security=self._security)
        self._fatal: str | None = None
        self._stopping = False

    def run(self) -> int:
        # Set first, because an unhandled SIGHUP, which requests a reload, would kill the process.
        signal.signal(signal.SIGHUP, lambda _received, _frame: self._reload())
        urls = self._server.bind()
        for url in urls:
            metrics = url.rstrip("/") + self._config.web_telemetry_path
            log.info("listening", extra=fields(url=metrics, version=__version__))
        if self._config.web_config_file is None and any(map(listen.on_every_interface, urls)):
            log.info(
                "open to the network, with names of users and processes",
                extra=fields(this_host_only="--web.listen-address 127.0.0.1:9836"),
            )
        if self._config.state_directory is None:
            log.warning("no state directory: findings and incidents are forgotten at a restart; set --state.directory")
        # Interactive use only; a service has the URL in its log.
        if sys.stderr.isatty() and (page := listen.browser_url(urls)) is not None:
            click.echo(f"\n  Status page: {page}   Ctrl-C ends the exporter.\n", err=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _frame: self._stop(signal.Signals(received).name))
        signal.signal(signal.SIGUSR1, lambda _received, _frame: self._front.release())
        signal.signal(signal.SIGUSR2, lambda _received, _frame: self._front.acquire())
        process_settings.answer_promptly()
        if self._flight is not None:
            self._flight.start()
        self._runner.start(self._sampler, self._published, self._end)
        self._server.run()
        self._runner.stop()
        if self._flight is not None:
            # After the last round, which may have requested a recording.
            self._flight.stop(self._runner.seconds_left)
        return 0 if self._fatal is None else EXIT_RESTART_ME

    def _published(self) -> None:
        self._front.published()
        if self._flight is not None:
            self._flight.observe(self._judge.latest)

    def _web_config_loaded(self, health: WebConfigHealth) -> None:
        self._sampler.status.web_config = health

    def _reload_judge(self) -> None:
        self._sampler.status.judge_settings = self._judge.reload(all_options(COLLECTOR_SWITCHES))

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
        self._security.look_now()
        self._sampler.baseline.reload()

    def _end(self, cause: str) -> None:
        self._fatal = cause
        log.error("this process must be restarted", extra=fields(cause=cause))
        self._server.stop()


def _flight_recorder(machine: Machine, config: Config) -> FlightRecorder | None:
    """The flight recorder, if enabled. Imported lazily, as it takes memory."""
    if config.flight_recorder_directory is None:
        return None
    from gpu_triage.record.flight.process import WritingProcess  # noqa: PLC0415 - lazy, as above
    from gpu_triage.record.flight.recorder import FlightRecorder  # noqa: PLC0415 - as above

    return FlightRecorder(machine, config.flight_recorder_directory, WritingProcess())
