from __future__ import annotations

from gpu_triage.collectors.contract import GpuLabels
from gpu_triage.collectors.xid import XidReading, render
from gpu_triage.hardware.xid_ledger import XidCount


def rendered(reading: XidReading) -> list[tuple[str, tuple[str, ...], float]]:
    return [(sample.spec.name, sample.labels, sample.value) for sample in render(reading)]


def test_every_xid_has_a_count_and_a_time() -> None:
    reading = XidReading(
        gpus={GpuLabels("6", "GPU-a"): {"79": XidCount(2, 1768438200.5), "other": XidCount(1, 5.0)}},
        unassigned={},
        sources={"kmsg": True, "nvml": False},
    )
    assert rendered(reading) == [
        ("gpu_xid_errors_total", ("6", "GPU-a", "79"), 2.0),
        ("gpu_xid_last_timestamp_seconds", ("6", "GPU-a", "79"), 1768438200.5),
        ("gpu_xid_errors_total", ("6", "GPU-a", "other"), 1.0),
        ("gpu_xid_last_timestamp_seconds", ("6", "GPU-a", "other"), 5.0),
        ("gpu_exporter_xid_source_up", ("kmsg",), 1.0),
        ("gpu_exporter_xid_source_up", ("nvml",), 0.0),
    ]


def test_a_gpu_never_seen_is_named_by_its_address() -> None:
    reading = XidReading(gpus={}, unassigned={"0000:b3:00.0": {"79": XidCount(1, 7.0)}}, sources={})
    assert rendered(reading) == [
        ("gpu_xid_unassigned_errors_total", ("0000:b3:00.0", "79"), 1.0),
        ("gpu_xid_unassigned_last_timestamp_seconds", ("0000:b3:00.0", "79"), 7.0),
    ]


def test_without_xids_there_is_only_who_listens() -> None:
    assert rendered(XidReading({}, {}, {"kmsg": False})) == [("gpu_exporter_xid_source_up", ("kmsg",), 0.0)]
