"""Many scrape targets behind one port, which answer or fail as a script says."""

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.listening import PAGE_TYPE
from tests.rules.rulefile import rule_files

from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_TIME_SECONDS
from gpu_triage_simulator.history import History, history_config, record_history
from gpu_triage_simulator.scenario_file import read_scenario
from gpu_triage_simulator.schema import read_toml

PLAYS = Path(__file__).parent / "plays"
STEP_SECONDS = 30.0
EARLIER_SECONDS = 9 * 60

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True)
class Line:
    """A series: its name and labels as text, and a value for each step."""

    start: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """Pages of one host."""

    lines: tuple[Line, ...]  # the series that rules and their texts ask for
    steps: int  # number of pages; the last one stays
    pages: dict[int, str] = field(default_factory=dict)  # those that were asked for: dozens of hosts replay the same

    def page(self, step: int) -> str | None:
        """What a scrape finds; None where the exporter did not run."""
        last = min(step, self.steps - 1)
        if last not in self.pages:
            # NaN is what a scrape lacks.
            rows = [f"{line.start} {value!r}\n" for line in self.lines if (value := line.values[last]) == value]
            self.pages[last] = "".join(rows)
        return self.pages[last] or None


def record(name: str, seconds: float) -> History:
    """The first `seconds` of a play, a page every half minute; "early-NAME" is NAME from its ninth minute on."""
    play = name.removeprefix("early-")
    table = {**read_toml(PLAYS / "base.toml"), **read_toml(PLAYS / f"{play}.toml"), "name": name}
    scenario = read_scenario(table, f"{play}.toml")
    if play != name:
        early = (
            replace(each, at=each.at - EARLIER_SECONDS, until=each.until and each.until - EARLIER_SECONDS)
            for each in scenario.events
        )
        scenario = replace(scenario, events=tuple(early))
    usual = history_config(scenario, STEP_SECONDS)
    # Half as many rounds take half as long; what the driver's ring of samples then misses is only busy time.
    config = replace(usual, sample_fast_seconds=STEP_SECONDS, sample_medium_seconds=STEP_SECONDS)
    return record_history(scenario, seconds=seconds, step_seconds=STEP_SECONDS, config=config)


def record_all(names: Collection[str], seconds: float) -> dict[str, History]:
    with ProcessPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(record, names, [seconds] * len(names)), strict=True))


def replayed(history: History, origin: float, pace: float) -> Replay:
    """A history whose step 0 is at `origin`, `pace` times faster.

    Unix times move with it; counters keep their counts.

    Args:
        history: with ``job`` and ``instance`` of its own, which the scrape sets anew.
        origin: Unix time of step 0.
    """
    asked = set(re.findall(r"[a-z][a-z0-9_]+", "".join(path.read_text(encoding="utf-8") for path in rule_files())))

    def scale(name: str) -> Callable[[float], float]:
        if name.endswith("_timestamp_seconds") or name == GPU_EXPORTER_TIME_SECONDS.name:
            return lambda value: origin + (value - history.start_seconds) / pace
        return lambda value: value

    lines = []
    for (name, labels), values in history.series.items():
        if name in {"up", "gpu_exporter_simulated"} or name not in asked:
            continue
        kept = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels if key not in {"job", "instance"})
        lines.append(Line(f"{name}{{{kept}}}", tuple(map(scale(name), values))))
    return Replay(tuple(lines), history.steps)


Minutes = float
QUIET = 'gpu_exporter_build_info{version="1"} 1\n'
"""All that a host publishes that only counts as one of many."""


@dataclass(frozen=True, slots=True)
class Host:
    """A target."""

    labels: Mapping[str, str]  # of the target, `instance` among them
    play: str = ""  # what it replays; "" for a host that is well and says little
    late: Minutes = 0.0  # how much later its replay begins
    down: Sequence[tuple[Minutes, Minutes]] = ()  # from minute to minute, when nobody answers
    # from minute to minute, when the exporter crashes soon after each start
    loops: tuple[Minutes, Minutes] | None = None

    def answers(self, minute: Minutes) -> bool:
        if any(begin <= minute < end for begin, end in self.down):
            return False
        if self.loops is None or not self.loops[0] <= minute < self.loops[1]:
            return True
        return _runs_between_crashes(minute - self.loops[0])


def _runs_between_crashes(minute: Minutes) -> bool:
    """A container that runs for half a minute; Kubernetes waits 10 s, 20 s, … 5 minutes before it starts it again."""
    at, wait = 0.0, 1 / 6
    while at <= minute:
        if minute < at + 0.5:
            return True
        at += 0.5 + wait
        wait = min(5.0, 2 * wait)
    return False


@dataclass(frozen=True, slots=True)
class Script:
    """What every host answers, and when."""

    hosts: Sequence[Host]  # each at the path of its number
    pace: float  # how many times faster
    origin: float  # Unix time of minute 0
    replays: Mapping[tuple[str, Minutes], Replay]  # pages by play and how late it begins

    def minute(self) -> Minutes:
        return max(0.0, (time.time() - self.origin) * self.pace / 60)

    def answer(self, path: str, _: bytes) -> tuple[int, bytes, str]:
        """What a scrape of a host gets now."""
        text = self.page(int(path.strip("/")))
        return 200 if text else 503, (text or "").encode(), PAGE_TYPE

    def page(self, number: int) -> str | None:
        """What a scrape of a host finds now; None if nobody answers."""
        minute = self.minute()
        host = self.hosts[number]
        if not host.answers(minute):
            return None
        if not host.play:
            return QUIET
        step = int((minute - host.late) * 60 / STEP_SECONDS)
        return self.replays[host.play, host.late].page(max(0, step))

    def job(self, address: str) -> dict[str, Any]:
        configs = [
            {"targets": [address], "labels": {**host.labels, "__metrics_path__": f"/{number}"}}
            for number, host in enumerate(self.hosts)
        ]
        return {"job_name": "gpu-triage", "static_configs": configs}
