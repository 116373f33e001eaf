"""The command `gpu-triage report`: a capacity review from recorded series."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from gpu_triage.cli.fleet.client import PrometheusClient
from gpu_triage.cli.fleet.first_look import first_look
from gpu_triage.cli.fleet.options import at_option, server_options
from gpu_triage.cli.fleet.query import Selection
from gpu_triage.cli.fleet.review import review
from gpu_triage.cli.fleet.review_page import render_html, render_markdown
from gpu_triage.cli.one_shot import given
from gpu_triage.documents import quoted, write_file
from gpu_triage.errors import ConfigError
from gpu_triage.options.values import TextType, duration

_DAYS: Final = re.compile(r"([0-9]{1,3})([dw])")
_MOST_DAYS: Final = 366
_STANDARD_OUTPUT: Final = "-"


def parse_days(text: str) -> int:
    """Parse a period such as ``30d`` or ``4w`` to days; raises ValueError if it is invalid or too long."""
    match = _DAYS.fullmatch(text)
    days = int(match[1]) * (7 if match[2] == "w" else 1) if match else 0
    if not 1 <= days <= _MOST_DAYS:
        raise ValueError(f"{quoted(text)} is no period; write one such as 30d or 4w, at most {_MOST_DAYS}d")
    return days


@click.command("report", short_help="Write a capacity review of a fleet, from their Prometheus.")
@server_options
@click.option(
    "--over",
    "days",
    metavar="PERIOD",
    type=TextType("PERIOD", parse_days, lambda days: f"{days}d"),
    default="30d",
    show_default=True,
    help="How many whole days to review.",
)
@click.option(
    "--since",
    "since_seconds",
    metavar="DURATION",
    type=duration("30m", "24h"),
    help="Instead of whole days, a first look at the last hours, such as 6h; needs no recorded series.",
)
@at_option("The review ends at the last midnight of UTC before, or with --since then.")
@click.option(
    "--output",
    metavar="FILE",
    default=_STANDARD_OUTPUT,
    help="File to write: .html for a page with plots, .md for Markdown.  [default: Markdown on standard output]",
)
def report_command(
    *,
    client: PrometheusClient,
    selection: Selection,
    days: int,
    since_seconds: float | None,
    at: float | None,
    output: str,
) -> int:
    """Write a capacity review of a fleet: GPU hours used, lost and left idle, energy, headroom, failing hardware.

    Needs the series of rules/recording.yml in the Prometheus, or a server with the same query API, that it queries. The
    page needs no other file and no network, and is script-free, so you can email it. With --since, it works from the
    exporters' own series, for a first look before the first day is complete.

    \b
      gpu-triage report --prometheus http://prometheus:9090 --over 30d --output report.html
      gpu-triage report --prometheus http://prometheus:9090 --cluster east > report.md
      gpu-triage report --prometheus http://prometheus:9090 --since 6h

    Exit code: 0 written, 2 the server does not answer or has no recorded series, or the options cannot be used, 70 a
    fault of this program.
    """  # noqa: D301 - click needs the backspace escape
    suffix = Path(output).suffix.lower()
    if output != _STANDARD_OUTPUT and suffix not in (".html", ".htm", ".md"):
        raise ConfigError(f"--output: {quoted(output)} has another suffix; write a name that ends in .html or .md")
    now = client.now() if at is None else at
    if since_seconds is None:
        found = review(client, selection, now, days)
    elif given("days"):
        raise ConfigError("--over is for whole days, --since for the last hours; give one of them")
    else:
        found = first_look(client, selection, now, since_seconds)
    if output == _STANDARD_OUTPUT:
        click.echo(render_markdown(found), nl=False)
        return 0
    content = render_markdown(found).encode() if suffix == ".md" else render_html(found)
    try:
        write_file(Path(output), content)
    except OSError as error:
        raise ConfigError(f"--output: {output} cannot be written: {error.strerror}; name another file") from error
    return 0
