"""The same hosts' history as a single Prometheus has it, and as it is where two share the hosts."""

import json
import math
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.demo.processes import Server, free_port
from tests.dashboards.fleet import STEP_SECONDS, Fleet, joined, scraped, with_rules
from tests.dashboards.store import Store
from tests.jobs.histories import relabeled, with_series
from tests.rules.cases import load_any

from gpu_triage_simulator.history import History

MINUTES = 80.0  # long enough for the rules' hours, and through them for their days
SHARDS = (("dual-a10", "h100-8-bad-night"), ("idle-downshift", "allocated"))
"""Hosts by shard. There are A10 on both: busy ones on the first and idle ones, which leave early, on the second."""


@dataclass(frozen=True, slots=True)
class Sharded:
    """The histories."""

    single: Fleet  # a Prometheus that scraped every host
    together: History  # two Prometheus servers that shared them, with what tells them apart as the label ``shard``


def record(promtool: Path, directory: Path) -> Sharded:
    """All hosts, through the rules of one server and of two."""
    scenarios = {name: load_any(name) for shard in SHARDS for name in shard}
    raw = {
        name: scraped(each, 60 * (35.0 if name == "idle-downshift" else MINUTES)) for name, each in scenarios.items()
    }
    shards = [
        _labeled(with_rules(joined([raw[name] for name in names]), promtool, directory), str(number))
        for number, names in enumerate(SHARDS)
    ]
    single = with_rules(joined(list(raw.values())), promtool, directory)
    return Sharded(Fleet(single, scenarios), joined(shards))


def _labeled(history: History, shard: str) -> History:
    """The history with the external label of its server."""
    return relabeled(history, lambda _name, labels: {**labels, "shard": shard})


def only(history: History, names: Callable[[str], bool]) -> History:
    """The series of the wanted names."""
    return with_series(history, {key: column for key, column in history.series.items() if names(key[0])})


@contextmanager
def victoria_metrics(history: History, program: Path, directory: Path, fleet: Fleet) -> Iterator[Store]:
    """A VictoriaMetrics that holds a history; it is asked as a Prometheus is."""
    address = f"127.0.0.1:{free_port()}"
    command = [
        str(program),
        f"-storageDataPath={directory / 'victoria'}",
        f"-httpListenAddr={address}",
        "-retentionPeriod=100y",
        # As for Prometheus: imported series end without a marker of staleness.
        f"-search.maxLookback={STEP_SECONDS - 1:g}s",
    ]
    with Server("victoria", command, directory, f"http://{address}/health").running():
        put(address, history)
        yield Store(address, fleet)


def put(address: str, history: History) -> None:
    """Import a history into VictoriaMetrics; it can be asked for at once."""
    for path, data in (("api/v1/import", "".join(json_lines(history))), ("internal/force_flush", "")):
        with urllib.request.urlopen(f"http://{address}/{path}", data.encode(), timeout=60) as answer:
            answer.read()


def json_lines(history: History) -> Iterator[str]:
    """The history as VictoriaMetrics imports it."""
    for (name, labels), values in history.series.items():
        present = [(step, value) for step, value in enumerate(values) if not math.isnan(value)]
        line = {
            "metric": {"__name__": name, **dict(labels)},
            "values": [value for _, value in present],
            "timestamps": [round((history.start_seconds + step * history.step_seconds) * 1000) for step, _ in present],
        }
        yield json.dumps(line) + "\n"
