"""A page is what prometheus_client would write, whatever was kept of the one before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric

from gpu_triage.encoding import Encoder, Format, encode, families_of
from gpu_triage.machine import Moment
from gpu_triage.processes.on_gpu import GPU_PROCESS_MEMORY_BYTES
from gpu_triage.sampler.outcomes import HOST, Outcome
from gpu_triage.subjects.metric import Sample
from gpu_triage.xid.metrics import GPU_XID_ERRORS_TOTAL

LABEL = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUE = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


def outcome(*samples: Sample, subject: str = HOST) -> Outcome:
    return Outcome("c", subject, samples, success=True, errors=(), duration_seconds=0.0, finished_at=Moment(0.0, 0.0))


def memory(pid: str, name: str, value: float) -> Sample:
    return GPU_PROCESS_MEMORY_BYTES.sample(value, "0", "GPU-a", pid, name)


@pytest.mark.parametrize("form", Format)
@given(rounds=st.lists(st.dictionaries(st.tuples(LABEL, LABEL), st.tuples(VALUE, VALUE), max_size=4), max_size=4))
def test_every_round_reads_as_if_encoded_from_nothing(
    form: Format, rounds: list[dict[tuple[str, str], tuple[float, float]]]
) -> None:
    encoder = Encoder(form)
    for processes in rounds:
        samples = [memory(*labels, value) for labels, (value, _) in processes.items()]
        xids = [GPU_XID_ERRORS_TOTAL.sample(value, "0", *labels, "") for labels, (_, value) in processes.items()]
        outcomes = (outcome(*samples), outcome(*samples[:1], *xids, subject="GPU-b"))
        assert encoder.encode(outcomes) == encode(form, families_of(outcomes))


@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize("text", ["a\nb", 'a"b', "a\\b", "a\\nb", "a\r\nb", "a\x85\u2028b", " 0.0", "", "é\U0001f600"])
def test_no_label_breaks_its_line(form: Format, text: str) -> None:
    outcomes = (outcome(memory("1", text, 0.0), memory("2", text, 1e300), memory(text, "3", 2.5)),)
    assert Encoder(form).encode(outcomes) == encode(form, families_of(outcomes))


def test_series_that_are_gone_are_not_kept_for_ever() -> None:
    encoder = Encoder(Format.TEXT)
    for pid in range(10_000):
        encoder.encode((outcome(memory(str(pid), "python", 1.0)),))
    assert len(encoder._metrics[GPU_PROCESS_MEMORY_BYTES].series) < 100
    encoder.encode(())
    assert encoder._metrics == {}


def test_a_counter_without_total_has_one_name_in_both_formats() -> None:
    counter, gauge = Metric("job_steps", "Steps.", "counter"), Metric("job_x", "y\n# TYPE job_steps untyped", "gauge")
    counter.add_sample("job_steps", {}, 5.0)
    gauge.add_sample("job_x", {}, 1.0)
    before = b"# HELP job_x y\\n# TYPE job_steps untyped\n# TYPE job_x gauge\njob_x 1.0\n# HELP job_steps Steps.\n"
    families = (gauge, counter)
    assert encode(Format.TEXT, families) == before + b"# TYPE job_steps counter\njob_steps 5.0\n"
    assert encode(Format.OPENMETRICS, families) == before + b"# TYPE job_steps unknown\njob_steps 5.0\n"
