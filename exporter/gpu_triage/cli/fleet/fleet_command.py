"""The commands `gpu-triage fleet` and `gpu-triage report`, and the options they share with `job`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final

import click

from gpu_triage.cli.fleet import review_page
from gpu_triage.cli.fleet.fleet_text import FleetReport, render_json, render_text
from gpu_triage.cli.fleet.fleet_view import Selection, ask, nothing_found
from gpu_triage.cli.fleet.job_pace import slow_jobs, slow_queries
from gpu_triage.cli.fleet.prometheus import HttpConfig, PrometheusClient, read_http_config
from gpu_triage.cli.fleet.review import Prices, Review, first_look, review
from gpu_triage.cli.one_shot import Command, duration_option, echo_text, fail_on_option, format_option, given
from gpu_triage.documents import quoted
from gpu_triage.documents.files import write_file
from gpu_triage.errors import ConfigError, PrometheusUnavailable
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import EXIT_FINDINGS, EXIT_SOUND
from gpu_triage.options.values import LATEST_SECONDS, TextType, duration, parse_datetime, whole_number

_UNIX: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


def parse_moment(text: str) -> float:
    """Parse a time such as ``2026-11-22T10:00:00Z``, or Unix seconds; raises ValueError without a UTC offset."""
    if _UNIX.fullmatch(text):
        return min(float(text), LATEST_SECONDS)
    try:
        found = parse_datetime(text)
    except ValueError as error:
        wrong = f"{quoted(text)} is no time; write one such as 2026-11-22T10:00:00Z, or Unix seconds"
        raise ValueError(wrong) from error
    if found.tzinfo is None:
        raise ValueError(f"{quoted(text)} has no offset; write {text}Z for UTC")
    return found.timestamp()


def at_option(meaning: str) -> Callable[[Command], Command]:
    return click.option("--at", type=TextType("TIME", parse_moment), help=f"{meaning}  [default: now]")


def limit_option(meaning: str) -> Callable[[Command], Command]:
    return click.option(
        "--limit", metavar="NUMBER", type=whole_number(1, 100_000), default="20", show_default=True, help=meaning
    )


def parse_price(text: str) -> float:
    if not _PRICE.fullmatch(text) or not float(text):
        raise ValueError(f"{quoted(text)} is no price; write a number above 0, such as 2.50")
    return float(text)


_PRICE: Final = re.compile(r"[0-9]{1,9}([.][0-9]{1,9})?")
_PRICE_TYPE: Final = TextType("PRICE", parse_price)
price_option: Final = click.option(
    "--gpu-hour-price",
    type=_PRICE_TYPE,
    help="Price of a GPU hour, in any currency: what is lost is also shown as money.",
)


def http_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options for requests to a server; the command gets ``http_config`` and ``timeout_seconds``."""
    credentials = click.option(
        "--http.config.file",
        "http_config",
        metavar="FILE",
        default=HttpConfig,
        type=TextType("FILE", read_http_config),
        help="Credentials, TLS and headers for the server, in the format of promtool's option of this name.",
    )
    limit = duration_option("--timeout", "timeout_seconds", duration("1s", "10m"), "30s", "Limit of each request.")
    return credentials(limit(command))


def server_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options for the server and host selection; the command gets ``client`` and ``selection``."""

    @click.option(
        "--prometheus",
        metavar="URL",
        required=True,
        help="Server to ask, such as http://prometheus:9090; its query API is below this URL.",
    )
    @http_options
    @click.option(
        "--cluster", metavar="REGEX", help="Only hosts whose label cluster matches this regular expression as a whole."
    )
    @click.option("--job", metavar="REGEX", help="Likewise for the label job, the scrape job of the exporters.")
    @click.option("--instance", metavar="REGEX", help="Likewise for the label instance, such as 'gpu-0[1-4]:9836'.")
    @wraps(command)
    def with_client(prometheus: str, http_config: HttpConfig, timeout_seconds: float, **parameters: Any) -> int:
        client = PrometheusClient(prometheus, http_config, timeout_seconds)
        selection = Selection(*(parameters.pop(label) for label in ("cluster", "job", "instance")))
        return command(client=client, selection=selection, **parameters)

    return with_client


@click.command("fleet", short_help="Say which hosts of a fleet to drain, from their Prometheus.")
@server_options
@at_option("Time to look at, such as 2026-11-22T10:00:00Z.")
@limit_option("Most hosts, and most slow jobs, to show, the worst first.")
@fail_on_option
@format_option(text="people", json="programs")
def fleet_command(
    *, client: PrometheusClient, selection: Selection, at: float | None, limit: int, fail_on: str, form: str
) -> int:
    """Show which hosts to drain and why, worst first, which jobs are affected, and which are slow.

    Queries the Prometheus that scrapes the exporters, or a server with the same query API, such as VictoriaMetrics.

    \b
      gpu-triage fleet --prometheus http://prometheus:9090
      gpu-triage fleet --prometheus http://prometheus:9090 --cluster east --format json
      gpu-triage fleet --prometheus http://prometheus:9090 --at 2026-11-22T03:00:00Z

    Exit code: 0 healthy, 1 one has a finding as severe as --fail-on (by default: there are hosts to drain), 2 the
    server does not answer, no host matches, or the options cannot be used, 70 a fault of this program. A host
    counts as a warning if its exporter does not answer.
    """  # noqa: D301 - click needs the backspace escape
    fleet = ask(client, selection, at)
    if not fleet.hosts:
        raise PrometheusUnavailable(f"{client.url}: {nothing_found(client, selection, fleet.at)}")
    jobs = slow_jobs({name: client.at(query, fleet.at) for name, query in slow_queries(selection).items()})
    shown = FleetReport(fleet, client.url, client.warnings, limit, jobs)
    if form == "json":
        click.echo(render_json(shown), nl=False)
    else:
        echo_text(partial(render_text, shown))
    worst = max(host.worst for host in fleet.hosts)
    return EXIT_FINDINGS if worst >= Severity(fail_on).rank else EXIT_SOUND


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


_FORMATS: Final[Mapping[str, Callable[[Review], bytes]]] = {
    ".html": review_page.render_html,
    ".htm": review_page.render_html,
    ".md": lambda review: review_page.render_markdown(review).encode(),
    ".csv": lambda review: review_page.render_csv(review).encode(),
    ".json": lambda review: review_page.render_json(review).encode(),
}


@click.command("report", short_help="Write a capacity review of a fleet, from their Prometheus.")
@server_options
@click.option(
    "--over",
    "days",
    type=TextType("PERIOD", parse_days),
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
@price_option
@click.option("--energy-price", type=_PRICE_TYPE, help="Price of a kWh, in the same currency.")
@click.option(
    "--pue",
    type=TextType("RATIO", parse_price),
    default="1",
    show_default=True,
    help="Energy of the data center per energy of its machines (PUE): a factor of the cost of energy.",
)
@click.option(
    "--output",
    metavar="FILE",
    default=_STANDARD_OUTPUT,
    help="File to write: .html for a page with plots, .md for Markdown, .csv or .json for programs.  "
    "[default: Markdown on standard output]",
)
def report_command(
    *,
    client: PrometheusClient,
    selection: Selection,
    days: int,
    since_seconds: float | None,
    at: float | None,
    gpu_hour_price: float | None,
    energy_price: float | None,
    pue: float,
    output: str,
) -> int:
    """Write a capacity review of a fleet: GPU hours allocated, used and lost, outages, energy, cost, trend.

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
    if output != _STANDARD_OUTPUT and suffix not in _FORMATS:
        raise ConfigError(f"--output: {quoted(output)} has another suffix; end the name in {', '.join(_FORMATS)}")
    now = client.now() if at is None else at
    if since_seconds is None:
        found = review(client, selection, now, days)
    elif given("days"):
        raise ConfigError("--over is for whole days, --since for the last hours; give one of them")
    else:
        found = first_look(client, selection, now, since_seconds)
    found = replace(found, prices=Prices(gpu_hour_price, energy_price, pue))
    if output == _STANDARD_OUTPUT:
        click.echo(review_page.render_markdown(found), nl=False)
        return 0
    try:
        write_file(Path(output), _FORMATS[suffix](found))
    except OSError as error:
        raise ConfigError(f"--output: {output} cannot be written: {error.strerror}; name another file") from error
    return 0
