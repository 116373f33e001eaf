"""What judges see of published series, and that they ask for nothing that is left out."""

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.evidence import evidence_of

from gpu_triage.judge.evidence import history
from gpu_triage.judge.evidence.history import _NOT_JUDGED
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.series import Series
from gpu_triage.read.exporter.exporter_health import GPU_EXPORTER_SIMULATED
from gpu_triage.read.gpu.activity import GPU_BUSY_SECONDS_TOTAL
from gpu_triage.read.gpu.power import GPU_POWER_WATTS
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.registry import METRICS

GPU = ("0", "GPU-a")


def seen(spec: MetricSpec, *readings: tuple[float, float], window: float = 60.0) -> HostEvidence:
    """Evidence of one series, of second and value of each publication."""
    return evidence_of(*((at, [spec.sample(value, *GPU)]) for at, value in readings), window_seconds=window)


def one(evidence: HostEvidence, spec: MetricSpec) -> Series:
    (series,) = evidence.series(spec)
    return series


STILL = [(float(at), 7.0) for at in range(0, 600, 5)]
RISING = [(float(at), float(at)) for at in range(0, 205, 5)]
SERIES = {
    "what is still published counts once": (
        GPU_POWER_WATTS,
        [(100, 50), (100, 50), (100, 50), (105, 80)],
        {"mean": 65, "low": 50, "high": 80, "first": 50, "last": 80},
    ),
    "a counter has the rate of its readings": (GPU_BUSY_SECONDS_TOTAL, [(100, 5), (104, 8), (110, 10)], {"rate": 0.5}),
    "a counter read once has no rate": (GPU_BUSY_SECONDS_TOTAL, [(100, 5)], {"rate": None}),
    "a counter that was reset rises from zero": (
        GPU_BUSY_SECONDS_TOTAL,
        [(100, 50), (101, 52), (102, 1)],
        {"increase": 3},
    ),
    "a mean is over time however few readings differ": (
        GPU_POWER_WATTS,
        [*((float(at), 10.0) for at in range(0, 51, 5)), (60, 70.0)],
        {"mean": (50 * 10 + 10 * 40) / 60},
    ),
    "a counter that stood still rose within the window only": (
        GPU_BUSY_SECONDS_TOTAL,
        [*STILL, (600.0, 9.0)],
        {"increase": 2, "seconds": 60},
    ),
    "what was read before the host slept is not of now": (
        GPU_BUSY_SECONDS_TOTAL,
        [(0, 0), (5, 5), (3600, 6), (3605, 11)],
        {"rate": 1.0},
    ),
}


@pytest.mark.parametrize(("spec", "readings", "expected"), SERIES.values(), ids=SERIES.keys())
def test_a_series_says_what_it_was_over_the_window(
    spec: MetricSpec, readings: Iterable[tuple[float, float]], expected: dict[str, float | None]
) -> None:
    series = one(seen(spec, *readings), spec)
    assert {name: getattr(series, name) for name in expected} == pytest.approx(expected)


def test_only_the_window_counts_from_the_last_reading_before_it() -> None:
    series = one(seen(GPU_BUSY_SECONDS_TOTAL, *RISING, window=62.0), GPU_BUSY_SECONDS_TOTAL)
    assert (series.first, series.last, series.seconds) == (135, 200, 65)


def test_what_is_withdrawn_is_no_evidence_and_begins_anew_when_it_is_back() -> None:
    gone = evidence_of((100, [GPU_POWER_WATTS.sample(50, *GPU)]), (100, None))
    assert (gone.series(GPU_POWER_WATTS), gone.last(GPU_POWER_WATTS)) == ((), None)
    back = one(
        evidence_of((100, [GPU_POWER_WATTS.sample(50, *GPU)]), (100, None), (102, [GPU_POWER_WATTS.sample(70, *GPU)])),
        GPU_POWER_WATTS,
    )
    assert (back.first, back.mean) == (70, 70)


def test_series_are_found_by_their_labels() -> None:
    evidence = seen(GPU_POWER_WATTS, (1, 50))
    assert len(evidence.series(GPU_POWER_WATTS, gpu="0")) == 1
    assert evidence.series(GPU_POWER_WATTS, gpu="1") == evidence.series(GPU_EXPORTER_SIMULATED) == ()
    assert seen(GPU_BUSY_SECONDS_TOTAL, (100, 5), (110, 10)).rate(GPU_BUSY_SECONDS_TOTAL, gpu="0") == pytest.approx(0.5)


def test_a_part_of_the_window_can_be_asked_for() -> None:
    evidence = seen(GPU_POWER_WATTS, (0, 10), (30, 10), (50, 100), (60, 100))
    whole, last = one(evidence, GPU_POWER_WATTS), one(evidence.over(10), GPU_POWER_WATTS)
    assert (whole.low, last.low, last.mean) == (10, 100, 100)


def test_the_window_stays_small_however_long_it_runs() -> None:
    moving = [(float(at), float(at)) for at in range(0, 3600, 5)]
    ((_, points),) = seen(GPU_POWER_WATTS, *moving)._matching(GPU_POWER_WATTS, {})
    assert len(points) <= 2 * (60 // 5 + 2)


PACKAGE = Path(history.__file__).parents[2]
READERS_OF_EVIDENCE = ("judge", "cli", "serve")


@pytest.mark.slow
def test_what_is_left_out_of_the_evidence_nobody_asks_for() -> None:
    constants = {spec.name.upper() for spec in METRICS if spec in _NOT_JUDGED}
    assert len(constants) == len(_NOT_JUDGED)
    files = [path for folder in READERS_OF_EVIDENCE for path in (PACKAGE / folder).rglob("*.py")]
    asked = {
        (path.name, name)
        for path in files
        if path != Path(history.__file__)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (getattr(node, "id", ""), getattr(node, "attr", ""))
        if name in constants
    }
    assert asked == set()
