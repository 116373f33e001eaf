"""``make demo``: plays a simulated bad night through real servers, and shows its pages on the terminal."""

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
from gpu_triage.options.values import whole_number
from gpu_triage_simulator import Scenario, load_scenario

_COLORS = {"critical": "red", "warning": "yellow", "info": "blue"}
_RECEIVERS = {"gpu-pager": "PAGE", "gpu-tickets": "TICKET", "gpu-context": "CONTEXT"}
"""Label shown for each receiver; the dead man's switch notifies all the time, so it isn't shown."""
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_as_ctrl_c_does() -> None:
    """Shut down in order on every terminating signal, so that closing the terminal leaves no server running."""
    for number in _ENDINGS:
        signal.signal(number, _end_in_order)


def _end_in_order(_number: int, _frame: FrameType | None) -> None:
    for number in _ENDINGS:
        # A second signal must not interrupt the shutdown.
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def say_starting(name: str) -> None:
    click.echo(f"  waiting for {name} to answer ...", err=True)


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:3d}:{rest:02d}"


def print_notification(notification: Notification, seconds: float) -> None:
    """Print a notification with the scenario time: its alerts, or that they are resolved."""
    kind = _RECEIVERS.get(notification.receiver)
    if kind is None:
        return
    click.echo(f"{clock(seconds)}  {kind if notification.status == 'firing' else 'RESOLVED'}")
    for alert in notification.alerts:
        firing = alert.status == "firing"
        color = _COLORS.get(alert.labels.get("severity", "")) if firing else "green"
        head = alert.annotations.get("summary") or alert.labels["alertname"]
        click.echo(click.style(f"          {alert.labels['alertname']}: {head}", fg=color, bold=firing))
        if firing:
            click.echo(f"          {alert.annotations['description'].strip()}")
            click.echo(f"          {alert.annotations['runbook_url']}")
    click.echo()
    sys.stdout.flush()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("scenario", default="h100-8-bad-night")
@click.option("--pace", default=20, show_default=True, type=whole_number(1, 100), help="How many times faster.")
@click.option(
    "--for",
    "seconds",
    type=whole_number(1, 86_400),
    help="End by itself after so many seconds.  [default: Ctrl-C ends it]",
)
def demo(scenario: str, pace: int, seconds: int | None) -> None:
    """Play SCENARIO fast: simulated exporter, Prometheus with the rules, Alertmanager, and a pager on this terminal.

    The rules' windows and Alertmanager's waits are shorter by the same pace; thresholds, routes and texts are those of
    production.
    Everything listens on 127.0.0.1, is made up, and is gone when the demonstration ends.
    """
    begun = time.monotonic()
    end_as_ctrl_c_does()

    def show(notification: Notification) -> None:
        print_notification(notification, (time.monotonic() - begun) * pace)

    ended = threading.Event()
    try:
        told = load_scenario(scenario)
        with tempfile.TemporaryDirectory(prefix="gpu-triage-demo-") as folder, pager(show) as webhook:
            click.echo(f"starting {scenario} at {pace} times its pace ...", err=True)
            programs = find_programs()
            with stack(Path(folder), scenario, pace, webhook, programs, starting=say_starting) as running:
                begun = time.monotonic()
                _introduce(told, running, pace)
                ended.wait(seconds)
    except (ScenarioError, StackError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("\nended", err=True)


_BOTTLENECK = "g0.tab=0&g0.range_input=10m&g0.expr=gpu_bottleneck"


def _introduce(told: Scenario, running: Stack, pace: int) -> None:
    click.echo(f"  metrics       {running.exporter}/metrics")
    click.echo(f"  alerts        {running.prometheus}/alerts")
    click.echo(f"  bottleneck    {running.prometheus}/graph?{_BOTTLENECK}")
    click.echo(f"  Alertmanager  {running.alertmanager}/#/alerts")
    click.echo(told.description)
    later = [event.at for event in told.events if event.at > 0]
    if later:
        first = min(later)
        click.echo(f"All is well until {clock(first).strip()}, in {first / pace:.0f} s; an alert then waits its time.")
    click.echo("Pages and tickets follow, with the scenario's time. Ctrl-C ends everything.\n")


if __name__ == "__main__":
    demo(prog_name="make demo")
