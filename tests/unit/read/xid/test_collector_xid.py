from __future__ import annotations

from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.xid.xid_ledger import XidCount, XidName
from gpu_triage.read.xid.xid_metrics import XidReading, render


def rendered(reading: XidReading) -> list[tuple[str, tuple[str, ...], float]]:
    return [(sample.spec.name, sample.labels, sample.value) for sample in render(reading)]


def test_every_xid_has_a_count_and_a_time() -> None:
    reading = XidReading(
        counted=(),
        gpus={
            GpuLabels("6", "GPU-a"): {
                XidName("149", "false"): XidCount(2, 1768438200.5),
                XidName("other"): XidCount(1, 5.0),
            }
        },
        unassigned={},
        sources={"kmsg": True, "nvml": False},
    )
    assert rendered(reading) == [
        ("gpu_xid_errors_total", ("6", "GPU-a", "149", "false"), 2.0),
        ("gpu_xid_last_timestamp_seconds", ("6", "GPU-a", "149", "false"), 1768438200.5),
        ("gpu_xid_errors_total", ("6", "GPU-a", "other", ""), 1.0),
        ("gpu_xid_last_timestamp_seconds", ("6", "GPU-a", "other", ""), 5.0),
        ("gpu_exporter_xid_source_up", ("kmsg",), 1.0),
        ("gpu_exporter_xid_source_up", ("nvml",), 0.0),
    ]


def test_a_gpu_never_seen_is_named_by_its_address() -> None:
    reading = XidReading(
        counted=(), gpus={}, unassigned={"0000:b3:00.0": {XidName("79"): XidCount(1, 7.0)}}, sources={}
    )
    assert rendered(reading) == [
        ("gpu_xid_unassigned_errors_total", ("0000:b3:00.0", "79", ""), 1.0),
        ("gpu_xid_unassigned_last_timestamp_seconds", ("0000:b3:00.0", "79", ""), 7.0),
    ]


def test_without_xids_there_is_only_who_listens() -> None:
    assert rendered(XidReading((), {}, {}, {"kmsg": False})) == [("gpu_exporter_xid_source_up", ("kmsg",), 0.0)]


def test_what_a_program_causes_is_counted_from_0_and_has_no_time_before_it_happens() -> None:
    gpu = GpuLabels("6", "GPU-a")
    codes = {XidName("31"): XidCount(2, 5.0), XidName("79"): XidCount(1, 7.0)}
    samples = rendered(XidReading(counted=(gpu,), gpus={gpu: codes}, unassigned={}, sources={}))
    counts = {labels[2]: value for name, labels, value in samples if name == "gpu_xid_errors_total"}
    assert counts == {"13": 0, "31": 2, "32": 0, "43": 0, "45": 0, "68": 0, "69": 0, "79": 1}
    assert [labels[2] for name, labels, _ in samples if name == "gpu_xid_last_timestamp_seconds"] == ["31", "79"]
