from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage import catalogue
from gpu_triage.catalogue import Kind, MetricSpec, Sample, Tier

GAUGE = MetricSpec("gpu_thing_watts", Kind.GAUGE, Tier.FAST, "A thing.", "nowhere", ("gpu", "uuid"))
COUNTER = MetricSpec("gpu_thing_joules_total", Kind.COUNTER, Tier.FAST, "A thing.", "nowhere", ())
INFO = MetricSpec("gpu_thing_info", Kind.INFO, Tier.SLOW, "A thing.", "nowhere", ("name",))


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


def test_a_label_that_utf8_cannot_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        INFO.sample(1, "\udcff")


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(st.characters(codec="utf-8")))
def test_any_finite_value_and_any_text_make_a_sample(value: float, text: str) -> None:
    assert GAUGE.sample(value, text, text) == Sample(GAUGE, (text, text), value)


def test_every_metric_of_a_gpu_starts_with_its_index_and_uuid() -> None:
    specs = [spec for spec in vars(catalogue).values() if isinstance(spec, MetricSpec)]
    of_gpus = [spec for spec in specs if "uuid" in spec.labels]
    assert len(of_gpus) > 40
    assert [spec.name for spec in of_gpus if spec.labels[:2] != ("gpu", "uuid")] == []
