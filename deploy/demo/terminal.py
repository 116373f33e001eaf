"""Terminal output of a stack: servers being started, notifications as they arrive, and orderly shutdown."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import click
from deploy.demo.pager import Notification

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
