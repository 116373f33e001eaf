"""The command `gpu-triage fleet`: its options and its exit code."""

from __future__ import annotations

from functools import partial

import click

from gpu_triage.cli.fleet.client import PrometheusClient
from gpu_triage.cli.fleet.options import at_option, limit_option, server_options
from gpu_triage.cli.fleet.query import Selection, ask
from gpu_triage.cli.fleet.render import FleetReport, render_json, render_text
from gpu_triage.cli.fleet.view import fleet_of
from gpu_triage.cli.one_shot import echo_text, fail_on_option, format_option
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import EXIT_FINDINGS, EXIT_SOUND


@click.command("fleet", short_help="Say which hosts of a fleet to drain, from their Prometheus.")
@server_options
@at_option("Time to look at, such as 2026-11-22T10:00:00Z.")
@limit_option("Most hosts to show, the worst first.")
@fail_on_option
@format_option(text="people", json="programs")
def fleet_command(
    *, client: PrometheusClient, selection: Selection, at: float | None, limit: int, fail_on: str, form: str
) -> int:
    """Show which hosts to drain and why, worst first, and which jobs are affected.

    Queries the Prometheus that scrapes the exporters, or a server with the same query API, such as VictoriaMetrics.

    \b
      gpu-triage fleet --prometheus http://prometheus:9090
      gpu-triage fleet --prometheus http://prometheus:9090 --cluster east --format json
      gpu-triage fleet --prometheus http://prometheus:9090 --at 2026-11-22T03:00:00Z

    Exit code: 0 healthy, 1 one has a finding as severe as --fail-on (by default: there are hosts to drain), 2 the
    server does not answer, no host matches, or the options cannot be used, 70 a fault of this program. A host
    counts as a warning if its exporter does not answer.
    """  # noqa: D301 - click needs the backspace escape
    fleet = fleet_of(ask(client, selection, at))
    if not fleet.hosts:
        which = (
            f"no exporter of gpu-triage matches {selection}" if str(selection) else "there is no exporter of gpu-triage"
        )
        raise PrometheusUnavailable(f"{client.url}: {which} at that time; ask for gpu_exporter_build_info there")
    shown = FleetReport(fleet, client.url, client.warnings, limit)
    if form == "json":
        click.echo(render_json(shown), nl=False)
    else:
        echo_text(partial(render_text, shown))
    worst = max(host.worst for host in fleet.hosts)
    return EXIT_FINDINGS if worst >= Severity(fail_on).rank else EXIT_SOUND
