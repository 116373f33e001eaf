"""Rules about the code as a whole: how metrics are named, how long a file may be."""

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.gathered import every

from gpu_triage.read.metrics.metric import Kind, MetricSpec
from gpu_triage.read.registry import METRICS

LONGEST_FILE = 600

# What a name may say about its unit, right before `_total` or at its end.
UNITS = ("seconds", "bytes", "bytes_per_second", "watts", "joules", "celsius", "hertz", "ratio")
SCALED_UNITS = re.compile(
    r"_(milliseconds|ms|microseconds|us|nanoseconds|ns|minutes|hours|kilobytes|kib|kb|megabytes|mib|mb|gib|gb"
    r"|milliwatts|mw|millijoules|mj|mhz|megahertz|percent|pct|fahrenheit|bits)(_|$)"
)


def _named(specs: list[MetricSpec]) -> list[str]:
    return [spec.name for spec in specs]


def test_metric_names_are_unique() -> None:
    assert [name for name, count in every(Counter(spec.name for spec in METRICS).items()) if count > 1] == []


def test_metric_names_are_snake_case_and_start_with_gpu() -> None:
    assert [spec.name for spec in METRICS if not re.fullmatch(r"gpu(_[a-z0-9]+)+", spec.name)] == []


def test_counters_and_nothing_else_end_in_total() -> None:
    assert [s.name for s in METRICS if (s.kind is Kind.COUNTER) != s.name.endswith("_total")] == []


def test_nothing_but_infos_ends_in_info() -> None:
    assert _named([s for s in METRICS if s.name.endswith("_info") and s.kind is not Kind.INFO]) == []


def test_an_info_carries_facts_in_labels() -> None:
    assert _named([s for s in METRICS if s.kind is Kind.INFO and not s.labels]) == []


def test_units_are_base_units() -> None:
    assert _named([s for s in METRICS if SCALED_UNITS.search(s.name)]) == []


def test_a_unit_stands_at_the_end_of_the_name() -> None:
    unit_inside = re.compile(rf"_({'|'.join(UNITS)})_(?!total$|per_second$|per_second_total$)")
    assert _named([s for s in METRICS if unit_inside.search(s.name)]) == []


def test_help_is_sentences() -> None:
    malformed = [s for s in METRICS if not re.match(r"[A-Z0-9]", s.help) or not s.help.endswith(".") or "\n" in s.help]
    assert _named(malformed) == []


def test_every_metric_says_where_it_is_read_from() -> None:
    assert _named([s for s in METRICS if not s.source.strip()]) == []


def test_labels_are_snake_case_and_distinct() -> None:
    malformed = [
        s
        for s in METRICS
        if len(set(s.labels)) != len(s.labels)
        or not all(re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", label) for label in s.labels)
    ]
    assert _named(malformed) == []


def test_labels_do_not_collide_with_those_prometheus_adds() -> None:
    assert _named([s for s in METRICS if {"job", "instance", "le", "quantile"} & set(s.labels)]) == []


def test_a_gpu_is_always_named_by_index_and_uuid() -> None:
    halves = [s for s in METRICS if ("gpu" in s.labels or "uuid" in s.labels) and s.labels[:2] != ("gpu", "uuid")]
    assert _named(halves) == []


@pytest.mark.parametrize("root", ["exporter", "tests", "dashboards"])
def test_files_stay_short_enough_to_read(repository: Path, root: str) -> None:
    lengths = {
        path.relative_to(repository).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in (repository / root).rglob("*.py")
        if ".venv" not in path.parts
    }
    too_long = {name: n for name, n in every(lengths.items()) if n > LONGEST_FILE}
    assert too_long == {}
