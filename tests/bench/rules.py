"""What the rules cost a Prometheus of a fleet: ``python -m tests.bench.rules``, for docs/benchmarks.md."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from tests.bench.environment import wiring
from tests.bench.fleet import FleetSeries, LinearPages, host_series, of_host, scrape_configs, served
from tests.bench.fleet_past import DAY, backfill, past_of
from tests.bench.page import write_section
from tests.bench.rules_page import SCALED_HOSTS, Fleet, Phase, Scrapes, Seen, document, too_slow
from tests.bench.servers import ask, number, prometheus
from tests.rules.rulefile import rule_files

from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.exporter.judgment import (
    GPU_FINDING,
    GPU_FINDING_LASTED_SECONDS,
    GPU_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_FINDING_VALUE,
)
from gpu_triage.read.gpu.presence import GPU_UP

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = "h100-8"
NOT_COUNTED = 0.4
"""Share of the time, from the start, that is not counted: windows of 10 minutes are not full yet."""
HOT_SHARE = 0.1
"""Share of the hosts that get too hot, all eight GPUs of each, in the second half of what counts."""
LOOK_SECONDS = 15.0


class HotPages:
    """The pages of a fleet in which some hosts overheat at once, with a confirmed finding for each of their GPUs.

    Args:
        pages: of hosts that are well.
        series: of one host.
        hosts: how many overheat, those with the lowest numbers.
    """

    def __init__(self, pages: LinearPages, series: list[FleetSeries], hosts: int) -> None:
        row = BY_CODE["thermal.hw"]
        kind = f'action="{row.action}",code="{row.code}",severity="{row.severity}"'
        gpus = [one.labels for one in series if one.name == GPU_UP.name]
        self._pages = pages
        self._hosts = hosts
        self._findings = "".join(
            f"{GPU_FINDING.name}{{{kind},{labels}}} 2\n"
            f'{GPU_FINDING_VALUE.name}{{code="{row.code}",{labels}}} 0.4\n'
            f'{GPU_FINDING_LASTED_SECONDS.name}{{code="{row.code}",{labels}}} 900\n'
            f"{GPU_FINDING_SINCE_TIMESTAMP_SECONDS.name}{{{kind},{labels}}} {time.time():.0f}\n"
            for labels in gpus
        )
        self.hot = False

    def __call__(self, host: int) -> bytes:
        """The page of a host now."""
        page = self._pages(host)
        if not self.hot or host >= self._hosts:
            return page
        return page + of_host(self._findings, host).encode()


def review(url: str) -> list[tuple[float, str]]:
    """Seconds that each query of the capacity review takes over 30 days, longest first."""
    now = time.time()
    taken = []
    for panel in json.loads((ROOT / "dashboards" / "capacity.json").read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", []):
            query = {"query": re.sub(r"\$(job|instance|gpu)\b", ".+", target["expr"]), "time": str(now)}
            if not target.get("instant"):
                query = {"query": query["query"], "start": str(now - 30 * DAY), "end": str(now), "step": "21600"}
            begun = time.monotonic()
            kind = "query" if target.get("instant") else "query_range"
            answer = ask(url, f"{kind}?{urllib.parse.urlencode(query)}")
            if answer is None:
                raise click.ClickException(f"Prometheus does not answer {query['query']}")
            taken.append((time.monotonic() - begun, f"{panel['title']}: {len(answer['result'])} series"))
    return sorted(taken, reverse=True)


def configuration(address: str, hosts: int, scrape_seconds: int) -> dict[str, object]:
    """Of a Prometheus that scrapes the fleet and evaluates the rules."""
    return {
        "global": {"scrape_interval": f"{scrape_seconds}s", "scrape_timeout": f"{min(10, scrape_seconds)}s"},
        "rule_files": [str(path) for path in rule_files()],
        "scrape_configs": scrape_configs(address, hosts),
    }


def look(url: str, groups: dict[str, Seen], rules: dict[str, Seen], phase: Phase) -> None:
    """Adds what the last evaluation of every group and rule took."""
    for group in (ask(url, "rules") or {"groups": []})["groups"]:
        seen = groups.setdefault(group["name"], Seen())
        seen.interval, seen.rules = group["interval"], len(group["rules"])
        seen.note(group["lastEvaluation"], group["evaluationTime"], phase)
        for rule in group["rules"]:
            one = rules.setdefault(f"{group['name']}: {rule['name']}", Seen(interval=group["interval"]))
            one.note(rule["lastEvaluation"], rule["evaluationTime"], phase)


def scrapes(url: str, seconds: float, scrape_seconds: int) -> Scrapes:
    """How the scrapes of the last so many seconds went."""
    window = f"{int(seconds)}s"
    return Scrapes(
        hosts=round(number(url, "count(up)")),
        due=int(seconds // scrape_seconds),
        fewest=round(number(url, f"min(count_over_time(up[{window}]))")),
        failed=round(number(url, f"sum(count_over_time(up[{window}]) - sum_over_time(up[{window}]))")),
        longest_seconds=number(url, f"max(max_over_time(scrape_duration_seconds[{window}]))"),
    )


def phase_of(left: float, counted: float) -> Phase:
    """What counts is the last `counted` of the seconds: half of it calm, half of it hot."""
    if left > counted:
        return Phase.SETTLING
    return Phase.CALM if left > counted / 2 else Phase.HOT


@contextmanager
def ticking(clock: dict[str, float]) -> Iterator[None]:
    """Lets the fleet's clock go on by the second for the length of a ``with`` block."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(1.0):
            clock["now"] = time.time()

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        ended.set()
        ticker.join()


def watch(hosts: int, scrape_seconds: int, minutes: float, directory: Path) -> Fleet:
    """Runs the fleet and watches its rules."""
    series = host_series(SCENARIO)
    click.echo(f"{len(series)} series a host", err=True)
    start = int(time.time())
    begun = time.monotonic()
    samples = backfill(past_of(series, scrape_seconds), hosts, directory / "data", start)
    click.echo(f"{hosts} hosts have a past after {time.monotonic() - begun:.0f} s", err=True)
    clock = {"start": float(start), "now": time.time()}
    groups: dict[str, Seen] = {}
    rules: dict[str, Seen] = {}
    pages = HotPages(LinearPages(series, clock), series, round(hosts * HOT_SHARE))
    with (
        ticking(clock),
        served(pages) as address,
        prometheus(directory, configuration(address, hosts, scrape_seconds)) as (url, process),
    ):
        counted = minutes * 60 * (1 - NOT_COUNTED)
        limit = time.monotonic() + minutes * 60
        while (left := limit - time.monotonic()) > 0:
            time.sleep(min(LOOK_SECONDS, left))
            look(url, groups, rules, phase_of(left, counted))
            pages.hot = left <= counted / 2
        used = process.cpu_times()
        return Fleet(
            hosts=hosts,
            scrape_seconds=scrape_seconds,
            series=ask(url, "status/tsdb")["headStats"]["numSeries"],
            scraped=len(series),
            recorded=round(number(url, 'count({__name__=~".+:.+"})') / hosts),
            memory_bytes=process.memory_info().rss,
            cores=(used.user + used.system) / (minutes * 60),
            past_samples=samples,
            minutes=counted / 60,
            alerts=round(number(url, 'count(ALERTS{alertname="GpuHwThermalThrottling",alertstate="firing"})')),
            scrapes=scrapes(url, counted, scrape_seconds),
            groups=groups,
            rules=rules,
            review=review(url),
        )


@click.command()
@click.option("--hosts", default=500, show_default=True, help="Hosts of eight GPUs; as many as the machine sustains.")
@click.option(
    "--scrape", "scrape_seconds", default=15, show_default=True, help="Seconds between two scrapes of a host."
)
@click.option("--minutes", default=25.0, show_default=True, help="How long to watch; the first part does not count.")
@click.option("--note", default="", help="A note about what else ran.")
def main(hosts: int, scrape_seconds: int, minutes: float, note: str) -> None:
    """Measure what the rules cost and write the section.

    Exit code 1 when a scrape was missed, or when a group takes too much of its interval.
    """
    if shutil.which("prometheus") is None:
        raise click.ClickException("Prometheus is not installed; run tests/environment/install-servers.sh")
    with tempfile.TemporaryDirectory(prefix="gpu-triage-fleet-") as folder:
        fleet = watch(hosts, scrape_seconds, minutes, Path(folder))
    at = wiring([], 0.0)
    write_section("rules", document(fleet, [f"- {', '.join(each for each in (at.machine, at.date, note) if each)}"]))
    late = [name for name, seen in fleet.groups.items() if too_slow(seen, hosts)]
    if late:
        click.echo(f"over the allowed share of the interval at {SCALED_HOSTS:,} hosts: {', '.join(late)}", err=True)
    if not fleet.scrapes.complete:
        click.echo("scrapes were missed: the machine does not sustain as many hosts; ask for fewer", err=True)
    sys.exit(1 if late or not fleet.scrapes.complete else 0)


if __name__ == "__main__":
    main()
