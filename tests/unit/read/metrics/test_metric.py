import math

import pytest

from gpu_triage.read.gpu.modes import GPU_COMPUTE_MODE_INFO
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_EXPECTED_GENERATION, GPU_PCIE_LINK_EXPECTED_WIDTH
from gpu_triage.read.gpu.presence import GPU_DEVICES, GPU_P2P_EXPECTED
from gpu_triage.read.gpu.topology import GPU_TOPOLOGY_INFO
from gpu_triage.read.metrics.metric import ANY, MetricSpec, Sample, gpu_gauge, host_counter, host_info
from gpu_triage.read.registry import METRICS

GAUGE = gpu_gauge("gpu_thing_watts", "A thing.", source="nowhere")
COUNTER = host_counter("gpu_thing_joules_total", "A thing.", source="nowhere")
INFO = host_info("gpu_thing_info", "A thing.", labels=("name",), source="nowhere")


def test_a_sample_carries_its_labels_as_they_are_and_its_value_as_a_float() -> None:
    assert GAUGE.sample(70, "0", 'GPU-"\n\\') == Sample(GAUGE, ("0", 'GPU-"\n\\'), 70.0)
    assert isinstance(GAUGE.sample(True, "0", "GPU-0").value, float)  # noqa: FBT003 - a flag is a value like any


@pytest.mark.parametrize("labels", [(), ("0",), ("0", "GPU-0", "more")])
def test_a_sample_with_too_few_or_too_many_labels_is_refused(labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="gpu_thing_watts has labels"):
        GAUGE.sample(1.0, *labels)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    for spec, labels in ((GAUGE, ("0", "GPU-0")), (COUNTER, ()), (INFO, ("x",))):
        with pytest.raises(ValueError, match="is not a reading"):
            spec.sample(value, *labels)


def test_a_gauge_may_be_negative_and_a_counter_may_not() -> None:
    assert GAUGE.sample(-1, "0", "GPU-0").value == -1.0
    assert COUNTER.sample(0).value == 0.0
    with pytest.raises(ValueError, match=r"a counter cannot be -0\.5"):
        COUNTER.sample(-0.5)


@pytest.mark.parametrize("value", [0, 2, -1, 0.999])
def test_an_info_is_always_one(value: float) -> None:
    assert INFO.sample(1, "x").value == 1.0
    with pytest.raises(ValueError, match="an info is always 1"):
        INFO.sample(value, "x")


def test_every_metric_of_a_gpu_starts_with_its_index_and_uuid() -> None:
    of_gpus = [spec for spec in METRICS if "uuid" in spec.labels]
    assert len(of_gpus) > 40
    assert [spec.name for spec in of_gpus if spec.labels[:2] != ("gpu", "uuid")] == []


@pytest.mark.parametrize(
    "spec",
    [GPU_DEVICES, GPU_PCIE_LINK_EXPECTED_GENERATION, GPU_PCIE_LINK_EXPECTED_WIDTH, GPU_P2P_EXPECTED],
    ids=lambda spec: spec.name,
)
def test_what_a_baseline_overrides_says_so_in_its_help_and_source(spec: MetricSpec) -> None:
    assert "baseline" in spec.help
    assert "else the baseline" in spec.source


@pytest.mark.parametrize("spec", [GPU_TOPOLOGY_INFO, GPU_COMPUTE_MODE_INFO], ids=lambda spec: spec.name)
def test_a_help_that_lists_words_lists_them_all(spec: MetricSpec) -> None:
    (listed,) = (", ".join(words[:-1]) + f" or {words[-1]}" for words in spec.label_values.values())
    assert listed in spec.help


def test_a_help_is_filled_with_states_and_words() -> None:
    spec = gpu_gauge(
        "gpu_x", "By end ({end}): {states}.", labels={"end": ("a", "b"), "name": ANY}, states={1: "on"}, source="x"
    )
    assert spec.help == "By end (a, b): 1 on."
    assert (spec.labels, spec.label_values) == (("gpu", "uuid", "end", "name"), {"end": ("a", "b")})
