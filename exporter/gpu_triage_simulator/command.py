"""The command `gpu-triage simulate`: list and describe simulated hosts, or write their history."""

import time
from typing import Any

import click

from gpu_triage_simulator import describe_scenario, list_scenarios, load_scenario
from gpu_triage_simulator.history_command import HistoryRequest, write_history


@click.command(
    "simulate",
    context_settings={"max_content_width": 100},
    short_help="Describe simulated hosts, or write their history.",
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
def simulate_command(name: str | None, list_all: bool, **history: Any) -> int:  # noqa: FBT001 - click passes positional arguments
    """Describe simulated hosts, or write their history for a Prometheus.

    NAME is a scenario that --list shows, or the path of a TOML file. To run one live, give it to the exporter:

    \b
      gpu-triage serve --simulate NAME

    With --history, it is played on a virtual clock, an hour of eight GPUs in about half a minute, and written as
    OpenMetrics with timestamps, which promtool turns into blocks that any Prometheus 2.24 or later serves:

    \b
      gpu-triage simulate h100-8-bad-night --history 75m --step 15s --output night.om
      promtool tsdb create-blocks-from openmetrics night.om data
      prometheus --storage.tsdb.path=data --storage.tsdb.retention.time=10y --query.lookback-delta=20s

    Blocks older than the retention time are deleted, so raise it for an old history. OpenMetrics cannot mark
    the end of a series, as a scrape does, so queries see it for the lookback time longer: a little more than the
    step is right. What rules record of the past, promtool tsdb create-blocks-from rules adds; alerts are evaluated
    for the present only.
    """  # noqa: D301 - click needs the literal backspaces
    if (name is None) == (not list_all):
        raise click.UsageError("give either --list or the NAME of one scenario")
    if history["history"] is not None:
        if name is None:
            raise click.UsageError("--history needs the NAME of one scenario")
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
