"""``make demo``: a simulated bad night through real servers, and its pages on the terminal."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType

import click
from deploy.demo.pager import Notification, pager
from deploy.demo.processes import StackError
from deploy.demo.stack import Stack, find_programs, stack

from gpu_triage.errors import ScenarioError
from gpu_triage.simulator import Scenario, load_scenario

_COLOURS = {"critical": "red", "warning": "yellow", "info": "blue"}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("scenario", default="h100-8-bad-night")
@click.option("--pace", default=20, show_default=True, type=click.IntRange(1, 100), help="How many times faster.")
@click.option(
    "--for",
    "seconds",
    type=click.IntRange(min=1),
    help="End by itself after so many seconds.  [default: Ctrl-C ends it]",
)
def demo(scenario: str, pace: int, seconds: int | None) -> None:
    """Play SCENARIO fast: simulated exporter, Prometheus with the rules, Alertmanager, and a pager on this terminal.

    The rules' windows and Alertmanager's waits are shorter by the same pace; thresholds, routes and texts are those of
    production.
    Everything listens on 127.0.0.1, is made up, and is gone when the demonstration ends.
    """
    begun = time.monotonic()
    for number in _ENDINGS:
        signal.signal(number, _end_in_order)

    def show(notification: Notification) -> None:
        _print(notification, (time.monotonic() - begun) * pace)

    ended = threading.Event()
    try:
        told = load_scenario(scenario)
        with tempfile.TemporaryDirectory(prefix="gpu-triage-demo-") as folder, pager(show) as webhook:
            click.echo(f"starting {scenario} at {pace} times its pace ...", err=True)
            programs = find_programs()
            with stack(Path(folder), scenario, pace, webhook, programs, starting=_say_starting) as running:
                begun = time.monotonic()
                _introduce(told, running, pace)
                ended.wait(seconds)
    except (ScenarioError, StackError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("\nended", err=True)


def _say_starting(name: str) -> None:
    click.echo(f"  waiting for {name} to answer ...", err=True)


_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end_in_order(_number: int, _frame: FrameType | None) -> None:
    """End as Ctrl-C does; a closed terminal or an impatient second signal must leave no server running."""
    for number in _ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


_BOTTLENECK = "g0.tab=0&g0.range_input=10m&g0.expr=gpu_bottleneck"


def _introduce(told: Scenario, running: Stack, pace: int) -> None:
    """What is played, where to look, and how long it stays quiet."""
    click.echo(f"  metrics       {running.exporter}/metrics")
    click.echo(f"  alerts        {running.prometheus}/alerts")
    click.echo(f"  bottleneck    {running.prometheus}/graph?{_BOTTLENECK}")
    click.echo(f"  Alertmanager  {running.alertmanager}/#/alerts")
    click.echo(told.description)
    later = [event.at for event in told.events if event.at > 0]
    if later:
        first = min(later)
        click.echo(f"All is well until {_clock(first).strip()}, in {first / pace:.0f} s; an alert then waits its time.")
    click.echo("Pages and tickets follow, with the scenario's time. Ctrl-C ends everything.\n")


def _clock(scenario_seconds: float) -> str:
    minutes, seconds = divmod(int(scenario_seconds), 60)
    return f"{minutes:3d}:{seconds:02d}"


_RECEIVERS = {"gpu-pager": "PAGE", "gpu-tickets": "TICKET", "gpu-context": "CONTEXT"}
"""What a person is told by each receiver; the dead man's switch is told all the time, and prints nothing."""


def _print(notification: Notification, scenario_seconds: float) -> None:
    """One notification as it arrives: a line for each alert that fires, and one for an end."""
    kind = _RECEIVERS.get(notification.receiver)
    if kind is None:
        return
    click.echo(f"{_clock(scenario_seconds)}  {kind if notification.status == 'firing' else 'RESOLVED'}")
    for alert in notification.alerts:
        firing = alert.status == "firing"
        colour = _COLOURS.get(alert.labels.get("severity", "")) if firing else "green"
        head = alert.annotations.get("summary") or alert.labels["alertname"]
        click.echo(click.style(f"          {alert.labels['alertname']}: {head}", fg=colour, bold=firing))
        if firing:
            click.echo(f"          {alert.annotations['description'].strip()}")
            click.echo(f"          {alert.annotations['runbook_url']}")
    click.echo()
    sys.stdout.flush()


if __name__ == "__main__":
    demo(prog_name="make demo")
