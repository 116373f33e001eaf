"""``python -m deploy.fleet``: runs a topology on this machine, with simulated hosts and pages on the terminal."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from deploy.demo.pager import Notification, pager
from deploy.demo.processes import StackError
from deploy.demo.terminal import end_as_ctrl_c_does, print_notification, say_starting
from deploy.fleet.stack import Fleet, Host, addresses_of, fleet
from deploy.fleet.topologies import TOPOLOGIES, Topology

from gpu_triage.errors import ScenarioError
from gpu_triage_simulator import load_scenario

HOSTS = (
    "gpu-host-1=idle-downshift",
    "gpu-host-2=idle-downshift",
    "gpu-host-3=idle-downshift",
    "gpu-host-4=lost-before-start",
)
_ABOUT = "\n".join(f"      {each.name:9} {each.about}" for each in TOPOLOGIES.values())


def _pairs(_context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found = []
    for value in values:
        name, equals, what = value.partition("=")
        if not (name and equals and what):
            raise click.BadParameter(f"{value!r} is not {option.metavar}")
        found.append((name, what))
    return tuple(found)


def _ports(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    ports = {}
    for name, port in _pairs(context, option, values):
        if not (port.isascii() and port.isdigit() and 0 < int(port) <= 0xFFFF):  # noqa: PLR2004 - 16 bits
            raise click.BadParameter(f"{port!r} is no port, 1 to 65535")
        ports[name] = int(port)
    return ports


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    help=f"""Run TOPOLOGY on this machine, with real servers and simulated GPU hosts, until Ctrl-C.

    \b
{_ABOUT}

    The servers are Debian's prometheus, prometheus-alertmanager and victoria-metrics, with the configurations of
    deploy/fleet. Notifications are printed as they arrive.
    """,
)
@click.argument("topology", type=click.Choice(tuple(TOPOLOGIES)))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=HOSTS,
    show_default=True,
    metavar="NAME=SCENARIO",
    callback=_pairs,
    help="A GPU host: its name and what happens there, a scenario's name or file. Repeat it for each host.",
)
@click.option("--listen", default="127.0.0.1", show_default=True, help="Address that all servers and hosts listen on.")
@click.option(
    "--port",
    "ports",
    multiple=True,
    metavar="NAME=PORT",
    callback=_ports,
    help="Port of a server or host, such as above=9090. Repeat it for each; a free one is taken for the others.",
)
@click.option(
    "--pace",
    default=10,
    show_default=True,
    type=click.IntRange(1, 100),
    help="How many times faster than real time; all intervals and waits are as much shorter.",
)
@click.option(
    "--for",
    "seconds",
    type=click.IntRange(min=1),
    help="End by itself after so many seconds.  [default: Ctrl-C ends it]",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep configurations, data and logs in this new directory.  [default: a temporary one, deleted at the end]",
)
def main(
    *,
    topology: str,
    hosts: tuple[tuple[str, str], ...],
    listen: str,
    ports: dict[str, int],
    pace: int,
    seconds: int | None,
    directory: Path | None,
) -> None:
    """Run a topology. The help text is passed to the decorator, because it lists the topologies."""
    end_as_ctrl_c_does()
    chosen = TOPOLOGIES[topology]
    begun = time.monotonic()

    def show(notification: Notification) -> None:
        print_notification(notification, (time.monotonic() - begun) * pace)

    try:
        named = [Host(name, scenario) for name, scenario in hosts]
        for host in named:
            load_scenario(host.scenario)
        addresses = addresses_of(chosen, named, listen, ports)
        with _folder(directory) as folder, pager(show) as webhook:
            click.echo(f"starting {chosen.name}: {chosen.about} ...", err=True)
            with fleet(chosen, named, folder, webhook, addresses, pace=pace, starting=say_starting) as running:
                _introduce(chosen, running, folder)
                threading.Event().wait(seconds)
    except (ScenarioError, StackError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("\nended", err=True)


@contextmanager
def _folder(directory: Path | None) -> Iterator[Path]:
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="gpu-triage-fleet-") as folder:
            yield Path(folder)
        return
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise StackError(f"--directory {directory}: {error.strerror}; name one that does not exist yet") from error
    yield directory.resolve()


def _introduce(topology: Topology, running: Fleet, folder: Path) -> None:
    """Print where to look, and what to try."""
    widest = max(map(len, running.urls))
    for name, url in running.urls.items():
        click.echo(f"  {name:{widest}}  {url}  (process {running.servers[name].pid})")
    click.echo(f"  configurations and logs are in {folder}")
    click.echo(f"Dashboards: use {running.urls[topology.asked]} as Grafana's Prometheus data source.")
    for try_this in topology.see:
        click.echo(f"Try: {try_this}")
    click.echo("Notifications follow. Ctrl-C ends everything.\n")


if __name__ == "__main__":
    main(prog_name="make fleet")
