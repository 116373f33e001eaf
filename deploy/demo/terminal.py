"""What a person sees of a stack: who starts, each notification as it arrives, and an orderly end."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import click
from deploy.demo.pager import Notification

_COLOURS = {"critical": "red", "warning": "yellow", "info": "blue"}
_RECEIVERS = {"gpu-pager": "PAGE", "gpu-tickets": "TICKET", "gpu-context": "CONTEXT"}
"""What a person is told by each receiver; the dead man's switch is told all the time, and prints nothing."""
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_as_ctrl_c_does() -> None:
    """Let every signal that ends a program end it in order: a closed terminal must leave no server running."""
    for number in _ENDINGS:
        signal.signal(number, _end_in_order)


def _end_in_order(_number: int, _frame: FrameType | None) -> None:
    for number in _ENDINGS:
        # An impatient second signal must not end the end.
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def say_starting(name: str) -> None:
    """Tell what is being waited for."""
    click.echo(f"  waiting for {name} to answer ...", err=True)


def clock(seconds: float) -> str:
    """Minutes and seconds, right-aligned."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:3d}:{rest:02d}"


def print_notification(notification: Notification, seconds: float) -> None:
    """One notification as it arrives, at a time of the scenario: its alerts, and for a resolved one that it is over."""
    kind = _RECEIVERS.get(notification.receiver)
    if kind is None:
        return
    click.echo(f"{clock(seconds)}  {kind if notification.status == 'firing' else 'RESOLVED'}")
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
