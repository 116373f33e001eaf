"""A real Prometheus that holds a fleet's history."""

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.dashboards.fleet import STEP_SECONDS, Fleet
from tests.e2e.processes import WAIT_SECONDS, prometheus

from gpu_triage_simulator.history import write_openmetrics

ATTEMPTS = 3
"""promtool was seen to end well and to write nothing."""


class QueryError(Exception):
    """Prometheus did not take a query."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer."""

    labels: dict[str, str]  # its labels, ``__name__`` included
    values: dict[float, float]  # by Unix time


@dataclass(frozen=True, slots=True)
class Store:
    address: str
    fleet: Fleet

    @property
    def start(self) -> float:
        """Scenario time 0, in Unix seconds."""
        return self.fleet.history.start_seconds

    @property
    def end(self) -> float:
        """The last scrape, in Unix seconds."""
        return self.start + (self.fleet.history.steps - 1) * STEP_SECONDS

    def at(self, expr: str, seconds: float) -> list[Series]:
        found = self._ask("query", query=expr, time=self.start + seconds)
        if found["resultType"] == "scalar":
            return [Series({}, {float(found["result"][0]): float(found["result"][1])})]
        return [Series(one["metric"], {float(one["value"][0]): float(one["value"][1])}) for one in found["result"]]

    def over_time(self, expr: str, until_seconds: float | None = None) -> list[Series]:
        """What an expression yields from the start of the history until a scenario time; None: until its end."""
        end = self.end if until_seconds is None else self.start + until_seconds
        found = self._ask("query_range", query=expr, start=self.start, end=end, step=STEP_SECONDS)
        return [
            Series(one["metric"], {float(at): float(value) for at, value in one["values"]}) for one in found["result"]
        ]

    def _ask(self, path: str, **parameters: object) -> dict[str, Any]:
        url = f"http://{self.address}/api/v1/{path}"
        data = urllib.parse.urlencode(parameters).encode()
        try:
            with urllib.request.urlopen(url, data, timeout=WAIT_SECONDS) as answer:
                found: dict[str, Any] = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(f"{error.read().decode()}: {parameters['query']}") from error
        return found


@contextmanager
def serving(fleet: Fleet, program: Path, promtool: Path, directory: Path) -> Iterator[Store]:
    """The fleet's history in a Prometheus, for the length of a ``with`` block."""
    _backfill(fleet, promtool, directory / "history.om", directory / "tsdb")
    # Backfilled series end without a marker of staleness: the short look back stands for it.
    flags = ("--storage.tsdb.retention.time=100y", f"--query.lookback-delta={STEP_SECONDS - 1:g}s")
    with prometheus(program, directory, "global: {scrape_interval: 1m}\n", *flags) as running:
        store = Store(running.address, fleet)
        (count,) = store.at("count(up)", 0)
        hosts = sum(name == "up" for name, _ in fleet.history.series)
        assert list(count.values.values()) == [hosts], "not every host is in the database"
        yield store


def _backfill(fleet: Fleet, promtool: Path, text: Path, data: Path) -> None:
    with text.open("w", encoding="utf-8") as stream:
        write_openmetrics(fleet.history, stream)
    command = [str(promtool), "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(data)]
    for _ in range(ATTEMPTS):
        subprocess.run(command, check=True, capture_output=True)
        if data.is_dir() and any((block / "meta.json").is_file() for block in data.iterdir()):
            return
    raise AssertionError("promtool wrote no block")
