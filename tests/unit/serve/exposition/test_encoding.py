"""A page is what prometheus_client would write, the exporter's own process included."""

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric, ProcessCollector
from prometheus_client.samples import Sample as WireSample
from prometheus_client.utils import floatToGoString
from tests.rig import rig

from gpu_triage.machine import Moment
from gpu_triage.options.config import Config
from gpu_triage.read.gpu.nvlink import GPU_NVLINK_LINK_ERRORS_TOTAL
from gpu_triage.read.metrics.metric import Kind, MetricSpec, Sample, host_gauge
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_MEMORY_BYTES
from gpu_triage.read.selection import Selection
from gpu_triage.read.xid.xid_metrics import GPU_XID_ERRORS_TOTAL
from gpu_triage.sampler.outcomes import HOST, Outcome
from gpu_triage.serve.exposition.encoding import Encoder, Format, encode_families, go_float, label_value
from gpu_triage.serve.exposition.page import Exposition
from gpu_triage.serve.exposition.process import Process, process_samples
from gpu_triage_simulator import load_scenario

LABEL = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUE = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


def outcome(*samples: Sample, subject: str = HOST) -> Outcome:
    return Outcome("c", subject, samples, Moment(0.0, 0.0))


def memory(pid: str, name: str, value: float) -> Sample:
    return GPU_PROCESS_MEMORY_BYTES.sample(value, "0", "GPU-a", pid, name)


def errors(link: str, count: int) -> Sample:
    return GPU_NVLINK_LINK_ERRORS_TOTAL.sample(count, "0", "GPU-a", link, "crc")


def expected(form: Format, outcomes: tuple[Outcome, ...]) -> bytes:
    """What prometheus_client writes: each series once, of two subjects that claim one the first has it."""
    series: dict[MetricSpec, dict[tuple[str, ...], float]] = {}
    for sample in (sample for each in outcomes for sample in each.samples):
        series.setdefault(sample.spec, {}).setdefault(tuple(map(label_value, sample.labels)), sample.value)
    families = []
    for spec, values in series.items():
        kind = "counter" if spec.kind is Kind.COUNTER else "gauge"
        families.append(Metric(spec.name.removesuffix("_total") if kind == "counter" else spec.name, spec.help, kind))
        for labels, value in values.items():
            families[-1].samples.append(WireSample(spec.name, dict(zip(spec.labels, labels, strict=True)), value))
    return encode_families(tuple(families), form)


@given(st.floats())
def test_numbers_are_written_as_prometheus_client_does(value: float) -> None:
    assert go_float(value) == floatToGoString(value)  # type: ignore[no-untyped-call] # not annotated there


@pytest.mark.slow
@pytest.mark.parametrize("form", Format)
@given(rounds=st.lists(st.dictionaries(st.tuples(LABEL, LABEL), st.tuples(VALUE, VALUE), max_size=4), max_size=4))
def test_every_round_is_encoded_afresh(form: Format, rounds: list[dict[tuple[str, str], tuple[float, float]]]) -> None:
    encoder = Encoder(form)
    for processes in rounds:
        samples = [memory(*labels, value) for labels, (value, _) in processes.items()]
        xids = [GPU_XID_ERRORS_TOTAL.sample(value, "0", *labels, "") for labels, (_, value) in processes.items()]
        outcomes = (outcome(*samples), outcome(*samples[:1], *xids, subject="GPU-b"))
        assert encoder.encode(outcomes) == expected(form, outcomes)


@given(st.text(st.characters(codec=None) | st.characters(categories=["Cc", "Cf", "Cs", "Zs"]), max_size=300))
def test_a_label_is_at_most_200_bytes_of_printable_text(text: str) -> None:
    shown = label_value(text)
    assert shown.isprintable()
    assert len(shown.encode()) <= 200
    assert label_value(shown) == shown
    fits = text.isprintable() and len(text.encode()) <= 200
    assert (shown == text) is fits


def test_labels_that_begin_alike_remain_two_series_and_labels_that_read_alike_are_one() -> None:
    start = "é" * 1000
    escaped = label_value("\x1b[31m")
    samples = [memory("1", name, 1.0) for name in (f"{start}1", f"{start}2", "\x1b[31m", escaped, "\\x1b[31m")]
    names = [line.split('"')[5] for line in Encoder(Format.TEXT).encode((outcome(*samples),)).decode().splitlines()[2:]]
    assert [name[:10] for name in names] == ["é" * 10, "é" * 10, r"\\x1b[31m~", r"\\x1b[31m"]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("form", Format)
def test_a_family_from_elsewhere_is_bounded_as_well(form: Format) -> None:
    family = Metric("gpu_job_x", "a\nb\x1b", "gauge")
    family.samples = [WireSample("gpu_job_x", {"a": text}, 1.0) for text in ("\x1b", label_value("\x1b"), "v" * 201)]
    page = Encoder(form).encode((replace(outcome(), foreign=(family,)),)).decode()
    assert page.splitlines()[0] == r"# HELP gpu_job_x a\nb\\x1b"
    assert [line.isprintable() for line in page.splitlines()] == [True] * 4
    assert family.samples[0].labels == {"a": "\x1b"}


SAYS = host_gauge('Says "a\\b"\nand more.', source="here")


@pytest.mark.parametrize("form", Format)
def test_help_texts_read_as_prometheus_client_writes_them(form: Format) -> None:
    assert Encoder(form).encode((outcome(SAYS.sample(1.0)),)) == expected(form, (outcome(SAYS.sample(1.0)),))


@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize("text", ["a\nb", 'a"b', "a\\b", "a\\nb", "a\r\nb", "a\x85\u2028b", " 0.0", "", "é\U0001f600"])
def test_no_label_breaks_its_line(form: Format, text: str) -> None:
    outcomes = (outcome(memory("1", text, 0.0), memory("2", text, 1e300), memory(text, "3", 2.5)),)
    assert Encoder(form).encode(outcomes) == expected(form, outcomes)


@pytest.mark.parametrize("form", Format)
@given(rounds=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=6))
def test_a_detail_that_comes_and_goes_reads_as_if_encoded_from_nothing(form: Format, rounds: list[list[int]]) -> None:
    selection = Selection(Config())
    encoder = Encoder(form, selection)
    for counts in rounds:
        samples = [errors(str(link % 3), count) for link, count in enumerate(counts)]
        shown = outcome(*selection.of(samples))
        assert encoder.encode((outcome(*samples),)) == expected(form, (shown,))


def test_series_that_are_gone_are_not_kept() -> None:
    encoder = Encoder(Format.TEXT)
    for pid in range(1000):
        encoder.encode((outcome(memory(str(pid), "python", 1.0)),))
    assert len(encoder._parts) == 2
    assert encoder.encode(()) == b""
    assert encoder._parts == []


def test_names_helps_and_values_are_those_of_prometheus_client() -> None:
    theirs = {family.name: family for family in ProcessCollector(registry=None).collect()}
    ours = {sample.spec.name.removesuffix("_total"): sample for sample in process_samples(Process)}
    assert list(ours) == list(theirs)
    assert [each.spec.help for each in ours.values()] == [family.documentation for family in theirs.values()]
    for name in ("process_start_time_seconds", "process_max_fds", "process_open_fds"):
        assert abs(ours[name].value - theirs[name].samples[0].value) <= 1
    for name in ("process_virtual_memory_bytes", "process_resident_memory_bytes", "process_cpu_seconds"):
        assert 0.8 < ours[name].value / theirs[name].samples[0].value < 1.25


def test_setting_the_clock_does_not_look_like_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    began = [sample for sample in process_samples(lambda: process) if sample.spec.name == "process_start_time_seconds"]
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: 1.0)
    assert began[0] in process_samples(lambda: process)


def test_a_process_that_cannot_be_read_costs_these_series_only() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    process = Process(child)
    os.waitpid(child, 0)
    assert list(process_samples(lambda: process)) == []


def test_a_host_without_procfs_costs_these_series_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with rig(load_scenario("dual-a10")) as running:
        running.run(1)
        monkeypatch.setattr("psutil.PROCFS_PATH", "/nowhere")
        page = Exposition(running.sampler, Selection(running.config)).page("", (), gzipped=False).body
    assert b"\ngpu_up{" in page
    assert b"\nprocess_" not in page
