"""What the rules cost a Prometheus of a fleet: ``python -m tests.bench.rules`` writes docs/benchmarks-rules.md."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import click
import psutil
import yaml
from tests.bench.environment import surroundings
from tests.bench.fleet import JOB, host_name, host_series, served
from tests.bench.fleet_past import DAY, backfill, past_of
from tests.rules.examine import mentioned

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks-rules.md"
RULES = tuple(path for path in sorted((ROOT / "rules").glob("*.yml")) if path.name != "alertmanager-inhibit.yml")
SCENARIO = "h100-8"
ALLOWED_SHARE = 0.2


@dataclass
class Seen:
    """Evaluation times in seconds of one group or rule, as Prometheus reports them at each look.

    Attributes:
        times: of those that count.
        first: of the first one, which does not: it reads its windows from disk, as once after a restart.
        began: when the first one was.
        interval: between evaluations.
        rules: how many a group has.
    """

    times: list[float] = field(default_factory=list)
    first: float = 0.0
    began: str = ""
    interval: float = 0.0
    rules: int = 0

    def note(self, at: str, seconds: float, *, counts: bool) -> None:
        """Take in the last evaluation, which was at this time."""
        if seconds and not self.began:
            self.began, self.first = at, seconds
        if seconds and counts and at != self.began:
            self.times.append(seconds)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What ran.

    Attributes:
        hosts: simulated hosts of eight GPUs.
        scrape_seconds: between two scrapes of one.
        series: that Prometheus held, recorded ones included.
        scraped: series a host, of those that rules read.
        memory_bytes: resident memory of Prometheus at the end.
        past_samples: of history that it began with.
        minutes: that rules were watched.
        groups, rules: evaluation times by name.
        review: seconds of each query of the capacity review, longest first.
    """

    hosts: int
    scrape_seconds: int
    series: int
    scraped: int
    memory_bytes: int
    past_samples: int
    minutes: float
    groups: Mapping[str, Seen]
    rules: Mapping[str, Seen]
    review: list[tuple[float, str]]


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


@contextmanager
def prometheus(directory: Path, address: str, hosts: int, scrape_seconds: int) -> Iterator[tuple[str, psutil.Process]]:
    """A Prometheus that scrapes the fleet and evaluates the rules; yields its URL and process."""
    config = {
        "global": {"scrape_interval": f"{scrape_seconds}s", "scrape_timeout": f"{min(10, scrape_seconds)}s"},
        "rule_files": [str(path) for path in RULES],
        "scrape_configs": [
            {
                "job_name": JOB,
                "static_configs": [
                    {"targets": [address], "labels": {"__metrics_path__": f"/{number}", "instance": host_name(number)}}
                    for number in range(hosts)
                ],
            }
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    port = int(address.split(":")[1]) + 1
    with (directory / "prometheus.log").open("wb") as log:
        process = psutil.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                "--storage.tsdb.retention.time=30d",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(120)


def ask(url: str, path: str) -> Any:
    """The data of an answer of Prometheus's API; None while it is not there yet."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}", timeout=60) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def look(url: str, groups: dict[str, Seen], rules: dict[str, Seen], *, counts: bool) -> None:
    """Adds what the last evaluation of every group and rule took, if it `counts`."""
    for group in (ask(url, "rules") or {"groups": []})["groups"]:
        seen = groups.setdefault(group["name"], Seen())
        seen.interval, seen.rules = group["interval"], len(group["rules"])
        seen.note(group["lastEvaluation"], group["evaluationTime"], counts=counts)
        for rule in group["rules"]:
            one = rules.setdefault(f"{group['name']}: {rule['name']}{_label(rule)}", Seen(interval=group["interval"]))
            one.note(rule["lastEvaluation"], rule["evaluationTime"], counts=counts)


def _label(rule: Mapping[str, Any]) -> str:
    return "".join(f"{{{value}}}" for key, value in rule.get("labels", {}).items() if key in {"class", "attribute"})


def watch(hosts: int, scrape_seconds: int, minutes: float, directory: Path) -> Fleet:
    """Runs the fleet and watches its rules."""
    series = host_series(SCENARIO, mentioned(RULES))
    click.echo(f"{len(series)} series a host are read by rules", err=True)
    start = int(time.time())
    samples = backfill(past_of(series), hosts, directory / "data", start)
    clock = {"start": float(start), "now": time.time()}
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(1.0):
            clock["now"] = time.time()

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    groups: dict[str, Seen] = {}
    rules: dict[str, Seen] = {}
    try:
        with served(series, clock) as address, prometheus(directory, address, hosts, scrape_seconds) as (url, process):
            limit = time.monotonic() + minutes * 60
            while time.monotonic() < limit:
                time.sleep(min(15.0, minutes * 6))
                # At first not all hosts are scraped yet: that costs less.
                look(url, groups, rules, counts=time.monotonic() > limit - minutes * 60 * 2 / 3)
                click.echo(f"  {max(0.0, limit - time.monotonic()):.0f} s to go", err=True)
            head = ask(url, "status/tsdb")["headStats"]["numSeries"]
            return Fleet(
                hosts,
                scrape_seconds,
                head,
                len(series),
                process.memory_info().rss,
                samples,
                minutes * 2 / 3,
                groups,
                rules,
                review(url),
            )
    finally:
        ended.set()
        ticker.join()


def document(fleet: Fleet, head: list[str]) -> str:
    """The page."""
    slowest = sorted(((max(seen.times), name) for name, seen in fleet.rules.items() if seen.times), reverse=True)[:8]
    cold_name, cold = max(fleet.groups.items(), key=lambda item: item[1].first)
    each, kib = fleet.series / fleet.hosts, fleet.memory_bytes / max(1, fleet.series) / 1024
    lines = [
        "# Benchmarks: the rules over a fleet",
        "",
        f"{fleet.hosts:,} simulated hosts of eight H100 in a real Prometheus: what each group of rules takes,",
        f"as a share of its interval. The aim is less than {ALLOWED_SHARE:.0%}.",
        "`make bench-rules` writes this page; do not edit it.",
        "",
        *head,
        f"- Every host is scraped each {fleet.scrape_seconds} s and serves the {fleet.scraped} series that rules read.",
        f"- Prometheus began with {fleet.past_samples:,} samples of their past, as far back as the rules' windows",
        "  reach (raw series of a day at one sample in 5 minutes),",
        f"  and was watched for {fleet.minutes:.0f} minutes.",
        f"- It held {fleet.series:,} series in memory, recorded ones included ({each:.0f} a host),",
        f"  in {fleet.memory_bytes / 2**30:.1f} GiB resident: {kib:.1f} KiB a series.",
        "",
        "| group | rules | interval | mean | longest | share of the interval |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| {name} | {seen.rules} | {seen.interval:.0f} s | {mean(seen.times):.2f} s | {max(seen.times):.2f} s | "
            f"{max(seen.times) / seen.interval:.1%} |"
            for name, seen in fleet.groups.items()
            if seen.times
        ),
        "",
        "Left out is the first evaluation of each group, which reads its windows from disk, as once after a restart:",
        f"at most {cold.first:.1f} s, of {cold_name}, {cold.first / cold.interval:.0%} of its interval.",
        "",
        "The slowest rules, by their longest evaluation:",
        "",
        "| rule | longest |",
        "|---|---:|",
        *(f"| {name} | {seconds:.2f} s |" for seconds, name in slowest),
        "",
        "The dashboard GPU capacity review over 30 days, all hosts: its longest queries, one after the other. The",
        "aim is 2 s. What is told by GPU or host is of the last day; the lines over a month are sums that the rules",
        "recorded.",
        "",
        "| panel | time |",
        "|---|---:|",
        *(f"| {name} | {seconds:.2f} s |" for seconds, name in fleet.review[:6]),
        f"| all {len(fleet.review)} queries together | {sum(seconds for seconds, _ in fleet.review):.2f} s |",
        "",
    ]
    return "\n".join(lines)


@click.command()
@click.option("--hosts", default=1000, show_default=True, help="Hosts of eight GPUs.")
@click.option(
    "--scrape", "scrape_seconds", default=60, show_default=True, help="Seconds between two scrapes of a host."
)
@click.option("--minutes", default=16.0, show_default=True, help="How long to watch, the first third not counted.")
@click.option("--note", default="", help="A line for the page about what else ran.")
@click.option("--output", type=click.Path(path_type=Path), default=PAGE, help="Where the page goes.")
def main(hosts: int, scrape_seconds: int, minutes: float, note: str, output: Path) -> None:
    """Measure what the rules cost and write the page; exit code 1 when a group takes too much of its interval."""
    if shutil.which("prometheus") is None:
        raise click.ClickException("Prometheus is not installed; `make servers` installs Debian's")
    with tempfile.TemporaryDirectory(prefix="gpu-triage-fleet-") as folder:
        fleet = watch(hosts, scrape_seconds, minutes, Path(folder))
    at = surroundings([], 0.0)
    output.write_text(
        document(fleet, [f"- {at.machine}", f"- {at.date}", *([f"- {note}"] if note else [])]), encoding="utf-8"
    )
    click.echo(f"wrote {output}", err=True)
    late = [
        name for name, seen in fleet.groups.items() if seen.times and max(seen.times) > ALLOWED_SHARE * seen.interval
    ]
    if late:
        click.echo(f"more than {ALLOWED_SHARE:.0%} of the interval: {', '.join(late)}", err=True)
    sys.exit(1 if late else 0)


if __name__ == "__main__":
    main()
