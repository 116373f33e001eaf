"""A fleet of simulated hosts, each of which plays one recorded history from another moment on, and its Prometheus."""

import math
import random
import re
import threading
import urllib.request
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import yaml
from tests.e2e.processes import Prometheus
from tests.e2e.processes import prometheus as started
from tests.listening import PAGE_TYPE, serving
from tests.rules.rulefile import rule_files

from gpu_triage.options.config import DEFAULT
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK_SECONDS_TOTAL
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.history import History, history_config, record_history
from gpu_triage_simulator.series import UP, SeriesKey

JOB = "gpu-triage"
TARGET = ("instance", "job")
"""Labels that a scrape attaches, which a page does not have."""
HOST, WORK = "@host@", "@work@"
"""Stand in UUIDs for the number of the host and in names of pods for that of the job, so that no two share one."""
HOSTS_PER_JOB = 4
PHASES = 40
"""Moments that hosts begin at: neighbors in a request of remote write do not send the same values."""
MET = ("storage", "cpu", "unattributed")
"""Classes that every GPU of the fleet is in now and then: what a GPU never met costs the rules nothing."""
MET_SHARE, MET_SECONDS = 0.02, 5000.0

NOISE = 0.02
READING = re.compile(r"_(ratio|watts|celsius|hertz|bytes|bytes_per_second|seconds_total|bytes_total|joules_total)$")
CONSTANT = re.compile(
    r"limit|max|min_|threshold|expected|total_bytes|reserved|default|target|_rate_|_speed_|classified|bottleneck|up_seconds"
)
RESOLUTION = {"ratio": 0.01, "watts": 0.001, "celsius": 1.0, "hertz": 15e6, "bytes": 2.0**20, "second": 1024.0}
"""Of readings by the last word of the metric's name, as drivers report them."""


def history_of_host(seconds: float, step_seconds: float, start_seconds: float, profile: str = DEFAULT) -> History:
    """What a Prometheus holds of one healthy host with eight H100 whose exporter uses a metrics profile."""
    scenario = load_scenario("h100-8")
    config = replace(history_config(scenario, step_seconds), metrics_profile=profile)
    return record_history(
        scenario, seconds=seconds, step_seconds=step_seconds, config=config, start_seconds=start_seconds
    )


def with_noise(history: History, seed: int = 1) -> History:
    """The history with 2% of noise on every reading that is not 0, rounded as drivers report it.

    The simulated host's readings are calmer than a real one's, and what does not change costs almost no disk.
    """
    chance = random.Random(seed)
    return replace(history, series={key: _noisy(key, values, chance) for key, values in history.series.items()})


def _noisy(key: SeriesKey, values: Sequence[float], chance: random.Random) -> Sequence[float]:
    name = key[0]
    if not READING.search(name) or CONSTANT.search(name) or any(map(math.isnan, values)):
        return values
    if name.endswith("_total"):
        found = array("d", values[:1])
        for before, after in pairwise(values):
            found.append(found[-1] + max(0.0, after - before) * max(0.0, 1 + chance.gauss(0, NOISE)))
        return found
    step = RESOLUTION[name.rsplit("_", 1)[1]]
    noisy = (round(value * (1 + chance.gauss(0, NOISE)) / step) * step for value in values)
    return array("d", (min(each, 1.0) for each in noisy) if name.endswith("_ratio") else noisy)


class PlayedPages:
    """Pages of hosts that play a history.

    Attributes:
        series: metric, labels as `written`, and values of each series.
        start_seconds: Unix time at which host 0 plays its first moment.
    """

    def __init__(self, history: History, start_seconds: float) -> None:
        self._history = history
        self.start_seconds = start_seconds
        self._lock = threading.Lock()
        self._frames: dict[int, str] = {}
        self.series = [
            (name, written({key: value for key, value in labels if key not in TARGET}), values)
            for (name, labels), values in history.series.items()
            if name != UP
        ]

    @property
    def count(self) -> int:
        """Series on the page of one host at the history's end; rates need two readings and are absent at first."""
        return sum(not math.isnan(values[-1]) for _, _, values in self.series)

    def page(self, host: int, now_seconds: float) -> bytes:
        step = int((now_seconds - self.start_seconds) // self._history.step_seconds) + host % PHASES
        with self._lock:
            frame = self._frames.get(step)
            if frame is None:
                frame = self._frames[step] = self._rendered(step)
        return of_host(frame, host).encode()

    def _rendered(self, step: int) -> str:
        moment = step % self._history.steps
        # Times that the host reports are those of its history: moved to now, a Prometheus takes them for recent ones.
        moved = self.start_seconds - self._history.start_seconds
        lines = []
        for name, labels, values in self.series:
            value = values[moment]
            if math.isnan(value):
                continue
            if name.endswith("_timestamp_seconds"):
                value += moved
            elif name == GPU_BOTTLENECK_SECONDS_TOTAL.name and any(f'class="{each}"' in labels for each in MET):
                value = MET_SECONDS + MET_SHARE * step * self._history.step_seconds
            lines.append(f"{name}{{{labels}}} {value!r}\n")
        return "".join(lines)


def written(labels: Mapping[str, str]) -> str:
    """Labels as between the braces of a page, with HOST in the UUIDs and WORK in the names of pods."""
    return ",".join(f'{key}="{_token(key, value)}"' for key, value in sorted(labels.items()))


def _token(key: str, value: str) -> str:
    if key == "workload_pod":
        return re.sub(r"^train-", f"train-{WORK}-", value)
    return re.sub(r"^GPU-[0-9a-f]{4}", f"GPU-{HOST}", value) if key.endswith("uuid") else value


def of_host(text: str, number: int) -> str:
    """Labels, or a page, of one host of the fleet."""
    return text.replace(HOST, f"{number:04x}").replace(WORK, f"job{number // HOSTS_PER_JOB:04d}")


def host_name(number: int) -> str:
    return f"host-{number:04d}"


def served(page_of: Callable[[int], bytes]) -> AbstractContextManager[str]:
    """Serves the page of every host under ``/NUMBER`` for the length of a ``with`` block; yields ``host:port``."""
    return serving(lambda path, _: (200, page_of(int(path.strip("/"))), PAGE_TYPE))


@contextmanager
def prometheus(
    directory: Path, address: str, hosts: int, scrape_seconds: int, remote_write: Iterable[object] = ()
) -> Iterator[Prometheus]:
    """A Prometheus that evaluates the rules over the hosts served at an address."""
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
    flag = "--storage.tsdb.retention.time=30d"
    with started(Path("prometheus"), directory, yaml.safe_dump(config), flag) as running:
        yield running


def number(server: Prometheus, query: str) -> float:
    """The single value that a query returns; 0 if it returns none."""
    result = server(query)
    return float(result[0]["value"][1]) if result else 0.0


def own_page(server: Prometheus) -> str:
    """What a server exposes about itself, read without a scrape so that it adds no series to what is measured."""
    with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def summed(page: str, name: str, label: str = "") -> float:
    """The sum of a metric on a page, of its series with this label if one is given."""
    lines = (line.rpartition(" ") for line in page.splitlines() if re.match(rf"{name}[ {{]", line) and label in line)
    return sum(float(value) for _, _, value in lines)


@contextmanager
def sink() -> Iterator[tuple[str, Counter[str]]]:
    """Takes every request for the length of a ``with`` block, and keeps nothing.

    Yields its ``host:port``, and the bytes that arrived by path: bodies as sent, which is after compression.
    """
    arrived: Counter[str] = Counter()

    def take(path: str, body: bytes) -> tuple[int, bytes, str]:
        arrived[path] += len(body)
        return 200, b"", PAGE_TYPE

    with serving(take) as address:
        yield address, arrived
