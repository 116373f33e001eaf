"""Judges this host for `top` if no exporter runs, with the daemon's sampler and judge in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from gpu_triage.cli.machines import Host, judged_host
from gpu_triage.cli.top.exporter_client import NotJudgedYet
from gpu_triage.cli.top.screen import Look
from gpu_triage.cli.top.view import HostView, view_of
from gpu_triage.errors import ExporterUnreachable
from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.runner import Runner
from gpu_triage.sampler.sampler import Sampler

_MEDIUM_SECONDS: Final = 2.0  # shorter than usual, for a live display


@contextmanager
def own_sampler(host: Host, interval_seconds: float) -> Iterator[Look]:
    """Sample this host within the context, once per interval of real time.

    Yields a function that returns the latest verdict.
    """
    machine, config = host.machine, host.config
    medium = min(config.sample_medium_seconds, max(_MEDIUM_SECONDS, config.sample_fast_seconds))
    config = replace(config, sample_medium_seconds=medium)
    judge = DaemonJudge(config, judged_host(config, continuous=True))
    runner = Runner(machine.clock, interval_seconds)
    sampler = Sampler(machine, config, runner.lane, GPU_COLLECTORS, HOST_COLLECTORS, judge=judge)
    ended: list[str] = []

    def look() -> HostView:
        if ended:
            raise ExporterUnreachable(f"the driver was replaced ({ended[0]}); start gpu-triage top again")
        if (silence := runner.alive()) is not None:
            raise ExporterUnreachable(silence)
        presence, waiting_for = sampler.presence, sampler.waiting_for()
        unavailable = presence is not None and presence.driver_error is not None
        if judge.latest is None or (waiting_for is not None and not unavailable):
            raise NotJudgedYet(f"waiting for {waiting_for or 'the first verdict'}")
        return view_of(render_json(judge.latest.report))

    runner.start(sampler, lambda: None, ended.append)
    try:
        yield look
    finally:
        runner.stop()
