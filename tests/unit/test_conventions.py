"""Rules about the code as a whole: how metrics are named, how long a file may be."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gathered import every

from gpu_triage.read.metrics.metric import Kind, MetricSpec
from gpu_triage.read.registry import METRICS

# What a name may say about its unit, right before `_total` or at its end.
UNITS = ("seconds", "bytes", "bytes_per_second", "watts", "joules", "celsius", "hertz", "ratio")
UNIT_INSIDE = re.compile(rf"_({'|'.join(UNITS)})_(?!total$|per_second$|per_second_total$)")
SCALED_UNITS = re.compile(
    r"_(milliseconds|ms|microseconds|us|nanoseconds|ns|minutes|hours|kilobytes|kib|kb|megabytes|mib|mb|gib|gb"
    r"|milliwatts|mw|millijoules|mj|mhz|megahertz|percent|pct|fahrenheit|bits)(_|$)"
)
LABEL = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

RULES: dict[str, Callable[[MetricSpec], object]] = {
    "names are snake case and start with gpu": lambda s: re.fullmatch(r"gpu(_[a-z0-9]+)+", s.name),
    "counters and nothing else end in total": lambda s: (s.kind is Kind.COUNTER) == s.name.endswith("_total"),
    "nothing but infos ends in info": lambda s: s.kind is Kind.INFO or not s.name.endswith("_info"),
    "an info carries facts in labels": lambda s: s.labels or s.kind is not Kind.INFO,
    "units are base units": lambda s: not SCALED_UNITS.search(s.name),
    "a unit stands at the end of the name": lambda s: not UNIT_INSIDE.search(s.name),
    "help is sentences": lambda s: re.fullmatch(r"[A-Z0-9].*\.", s.help),
    "the source is named": lambda s: s.source.strip(),
    "labels are snake case": lambda s: all(map(LABEL.fullmatch, s.labels)),
    "labels are distinct": lambda s: len(set(s.labels)) == len(s.labels),
    "no label has a name that Prometheus adds": lambda s: not {"job", "instance", "le", "quantile"} & {*s.labels},
    "a GPU is named by index and UUID": lambda s: s.labels[:2] == ("gpu", "uuid") or not {"gpu", "uuid"} & {*s.labels},
}


@pytest.mark.parametrize("rule", RULES)
def test_every_metric_obeys(rule: str) -> None:
    assert [spec.name for spec in every(METRICS) if not RULES[rule](spec)] == []


@pytest.mark.parametrize("root", ["exporter", "tests", "dashboards"])
def test_files_stay_short_enough_to_read(repository: Path, root: str) -> None:
    lengths = {
        path.relative_to(repository).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in (repository / root).rglob("*.py")
        if ".venv" not in path.parts
    }
    assert {name: n for name, n in every(lengths.items()) if n > 600} == {}
