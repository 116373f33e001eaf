"""Whether a busy GPU is compute- or memory-bound, and everything that shows it."""

import json
from pathlib import Path

import click
import pytest
from tests.evidence import evidence_of
from tests.judged import Judged, judged
from tests.rig import only, scenario_with
from tests.status_pages import body_of

from gpu_triage.judge.bottleneck.classes import Bound, bound_of
from gpu_triage.judge.evidence.thresholds import ARITHMETIC_BOUND_SHARE, MEMORY_BOUND_SHARE
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.judge.report.text import render_text
from gpu_triage.read.gpu import activity
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.metrics.metric import MetricSpec

LABELS = ("0", "GPU-1")
COLLECTORS = ("activity", "gpm", "identity", "memory", "modes", "power", "processes", "throttle")
LEAN = only(*COLLECTORS, sample_fast_seconds=5.0)
BELOW = 1e-6


@pytest.mark.parametrize(
    ("pipe", "memory", "name"),
    [
        (ARITHMETIC_BOUND_SHARE, MEMORY_BOUND_SHARE - BELOW, "compute"),
        (ARITHMETIC_BOUND_SHARE - BELOW, MEMORY_BOUND_SHARE, "memory"),
        (ARITHMETIC_BOUND_SHARE, MEMORY_BOUND_SHARE, "both"),
        (ARITHMETIC_BOUND_SHARE - BELOW, MEMORY_BOUND_SHARE - BELOW, "neither"),
    ],
)
def test_the_bound_at_its_thresholds_and_just_below(pipe: float, memory: float, name: str) -> None:
    assert Bound("tensor cores", pipe, memory).name == name


def bound(readings: dict[MetricSpec, float], *more: dict[MetricSpec, float]) -> Bound | None:
    rounds = (readings, *more)
    samples = [[GPU_UP.sample(1, *LABELS), *(spec.sample(v, *LABELS) for spec, v in each.items())] for each in rounds]
    host = evidence_of(*((10.0 * number, each) for number, each in enumerate(samples)))
    return bound_of(host.gpus[0])


TENSOR, DRAM = activity.GPU_TENSOR_ACTIVE_RATIO, activity.GPU_DRAM_ACTIVE_RATIO


def test_the_busiest_pipe_counts_on_average_over_the_window() -> None:
    others = {
        activity.GPU_FP64_ACTIVE_RATIO: 0.7,
        activity.GPU_FP32_ACTIVE_RATIO: 0.2,
        activity.GPU_FP16_ACTIVE_RATIO: 0.0,
    }
    assert bound({TENSOR: 0.1, DRAM: 0.3, **others}) == ("FP64 units", 0.7, 0.3)
    halves = bound({TENSOR: 0.8, DRAM: 0.0}, {TENSOR: 0.2, DRAM: 0.9}, {TENSOR: 0.2, DRAM: 0.9})
    assert halves is not None
    assert [halves.pipe_ratio, halves.memory_ratio] == pytest.approx([0.35, 0.675])


@pytest.mark.parametrize("readings", [{}, {TENSOR: 0.9}, {DRAM: 0.9}, {activity.GPU_FP32_ACTIVE_RATIO: 0.9, DRAM: 0.9}])
def test_half_of_the_readings_proves_nothing(readings: dict[MetricSpec, float]) -> None:
    assert bound(readings) is None


def load(fields: str, at: int = 0, until: int = 10_000, gpu: int = 0) -> str:
    return f'at = {at}\nuntil = {until}\ngpu = {gpu}\neffect = {{ kind = "load", {fields} }}'


def published(seen: Judged) -> dict[str, float]:
    return {labels["gpu"]: value for labels, value in seen.running.series("gpu_compute_bound")}


@pytest.mark.slow
def test_each_kind_of_job_is_named_everywhere(tmp_path: Path) -> None:
    decoding = load("memory_utilization = 0.95, bandwidth = 0.9, tensor = 0.1")
    small_kernels = load("memory_utilization = 0.3, bandwidth = 0.3, tensor = 0.1", gpu=1)
    hungry = load("memory_utilization = 0.95, bandwidth = 0.9, tensor = 0.7", gpu=2)
    idle = load("utilization = 0.0", gpu=3)
    with judged(scenario_with(tmp_path, "h100-8", decoding, small_kernels, hungry, idle), LEAN) as seen:
        seen.run_to(90)
        assert published(seen) == {"0": 2, "1": 0, "2": 3} | dict.fromkeys("4567", 1)
        assert seen.classes()["3"] != "compute"
        document = render_json(seen.report)
        text = click.unstyle(render_text(seen.report))
        page = body_of(seen.running.judge.latest)
    gpus = json.loads(document)["gpus"]
    assert [gpu["bound"] and gpu["bound"]["by"] for gpu in gpus[:5]] == ["memory", "neither", "both", None, "compute"]
    assert gpus[0]["bound"]["pipe"] == "tensor cores"
    assert gpus[0]["bound"]["memory_ratio"] == pytest.approx(0.83, abs=0.04)
    assert gpus[0]["bound"]["pipe_ratio"] == pytest.approx(0.1, abs=0.02)
    assert gpus[0]["because"].startswith("busy ")
    assert "of the time, memory-bound: 8" in gpus[0]["because"]
    for words in ("memory-bound: 8", "neither compute- nor memory-bound: tensor", "compute-bound: tensor cores 4"):
        assert words in " ".join(text.split())
        assert words in page
