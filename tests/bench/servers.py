"""Real servers that a benchmark of a fleet starts on 127.0.0.1, and what their HTTP interfaces answer."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import psutil
import yaml
from deploy.demo.processes import answers, free_port, wait
from prometheus_client.parser import text_string_to_metric_families

END_WITHIN_SECONDS = 120.0
"""A Prometheus of a large fleet writes its last samples before it exits."""
LOG_CHARACTERS = 2000

Counters = Mapping[tuple[str, frozenset[tuple[str, str]]], float]
"""Values of a server's own /metrics by name and labels."""


@contextmanager
def server(name: str, command: Sequence[str], directory: Path, ready: str) -> Iterator[psutil.Process]:
    """A program that serves HTTP, for the length of a ``with`` block.

    Args:
        directory: where its log goes.

    Raises:
        ClickException: it does not start; the message has the end of its log.
    """
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        # Ctrl-C is for the benchmark, which ends its servers itself.
        process = psutil.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        wait(lambda: answers(ready) or process.poll() is not None)
        if not answers(ready):
            text = log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARACTERS:]
            raise click.ClickException(f"{name} does not start; the end of its log:\n{text}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_WITHIN_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def prometheus(
    directory: Path, config: Mapping[str, object], *flags: str, retention: str = "30d"
) -> Iterator[tuple[str, psutil.Process]]:
    """A Prometheus with this configuration and its data in ``data``; yields its URL and process."""
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--storage.tsdb.retention.time={retention}",
        f"--web.listen-address={address}",
        # By default it goes on for a minute trying to send to a receiver that has ended.
        "--storage.remote.flush-deadline=5s",
        *flags,
    ]
    with server("prometheus", command, directory, f"http://{address}/-/ready") as process:
        yield f"http://{address}", process


@contextmanager
def victoria_metrics(directory: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A single-node VictoriaMetrics with its data in ``victoria``; yields its URL and process."""
    address = f"127.0.0.1:{free_port()}"
    command = [
        "victoria-metrics",
        f"-storageDataPath={directory / 'victoria'}",
        f"-httpListenAddr={address}",
        "-retentionPeriod=1y",
    ]
    with server("victoria-metrics", command, directory, f"http://{address}/health") as process:
        yield f"http://{address}", process


def ask(url: str, path: str) -> Any:
    """The data of an answer of Prometheus's API; None while it is not there yet."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}", timeout=60) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def number(url: str, query: str) -> float:
    """The one value of a query; 0 where there is none."""
    answer = ask(url, f"query?{urllib.parse.urlencode({'query': query})}")
    return float(answer["result"][0]["value"][1]) if answer and answer["result"] else 0.0


def own_metrics(url: str) -> Counters:
    """What a server exposes about itself, read without a scrape so that it adds no series to what is measured."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def summed(counters: Counters, name: str, **labels: str) -> float:
    wanted = frozenset(labels.items())
    return sum(value for (found, had), value in counters.items() if found == name and wanted <= had)
