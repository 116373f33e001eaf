"""A real Prometheus over a fleet, what its HTTP interface answers, and where it sends its remote write."""

import json
import re
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import psutil
import yaml
from deploy.demo.processes import Server, free_port
from tests.bench.hosts import JOB, host_name
from tests.listening import listening
from tests.rules.rulefile import rule_files


@contextmanager
def prometheus(
    directory: Path, address: str, hosts: int, scrape_seconds: int, remote_write: Iterable[object] = ()
) -> Iterator[tuple[str, psutil.Process]]:
    """A Prometheus that evaluates the rules over the hosts served at an address; yields its URL and process.

    Its data is in ``data`` of the directory.
    """
    targets = [
        {"targets": [address], "labels": {"__metrics_path__": f"/{number}", "instance": host_name(number)}}
        for number in range(hosts)
    ]
    config = {
        "global": {"scrape_interval": f"{scrape_seconds}s", "scrape_timeout": f"{min(10, scrape_seconds)}s"},
        "rule_files": [str(path) for path in rule_files()],
        "scrape_configs": [{"job_name": JOB, "static_configs": targets}],
        "remote_write": list(remote_write),
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    own = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        "--storage.tsdb.retention.time=30d",
        f"--web.listen-address={own}",
    ]
    server = Server("prometheus", command, directory, f"http://{own}/-/ready")
    with server.running():
        yield f"http://{own}", psutil.Process(server.pid)


def ask(url: str, path: str) -> Any:
    """The data of an answer of Prometheus's API."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}", timeout=60) as answer:
            return json.load(answer)["data"]
    except OSError as error:
        raise click.ClickException(f"Prometheus does not answer {path}: {error}") from error


def number(url: str, query: str) -> float:
    """The one value of a query; 0 where there is none."""
    result = ask(url, f"query?{urllib.parse.urlencode({'query': query})}")["result"]
    return float(result[0]["value"][1]) if result else 0.0


def own_page(url: str) -> str:
    """What a server exposes about itself, read without a scrape so that it adds no series to what is measured."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def summed(page: str, name: str, label: str = "") -> float:
    """The sum of a metric on a page, of its series with this label if one is given."""
    lines = (line.rpartition(" ") for line in page.splitlines() if re.match(rf"{name}[ {{]", line) and label in line)
    return sum(float(value) for _, _, value in lines)


@contextmanager
def sink() -> Iterator[tuple[str, Counter[str]]]:
    """Takes every POST for the length of a ``with`` block, and keeps nothing.

    Yields its ``host:port``, and the bytes that arrived by path: bodies as sent, which is after compression.
    """
    arrived: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            arrived[self.path] += len(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing: thousands of requests arrive per minute."""

    with listening(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address, arrived
