"""Several GPUs of a host that are lost are one finding about the host."""

from collections.abc import Iterator

import pytest
from tests.evidence import evidence_of

from gpu_triage.judge.host_judge import HostJudge
from gpu_triage.judge.report.report import JudgedHost
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.presence import GPU_DRIVER_ERROR_INFO, GPU_ERROR_INFO, GPU_UP
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.xid.xid_metrics import GPU_XID_LAST_TIMESTAMP_SECONDS, GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS
from gpu_triage.sampler.driver import STALLED
from gpu_triage.sampler.host_gpus import BLOCKED_BEHIND, DRIVER_UNAVAILABLE

NOW = 1_700_000_000.0
UP, FELL = "", "fell off the bus"


def slot(number: int) -> str:
    return f"0000:{number}1:00.0"


def host(*gpus: tuple[str, ...], driver: str = "") -> Iterator[Sample]:
    """GPUs, each with why it does not answer ("" if it does) and perhaps FELL, and the driver's error."""
    if driver:
        yield GPU_DRIVER_ERROR_INFO.sample(1.0, driver)
    for number, (error, *logged) in enumerate(gpus):
        gpu = (str(number), f"GPU-{number}")
        facts = dict.fromkeys(GPU_INFO.labels, "") | dict(zip(("gpu", "uuid"), gpu, strict=True))
        yield GPU_INFO.sample(1.0, *(facts | {"pci_bus_id": slot(number)}).values())
        yield GPU_UP.sample(float(not error), *gpu)
        if error:
            yield GPU_ERROR_INFO.sample(1.0, *gpu, error)
        if logged:
            yield GPU_XID_LAST_TIMESTAMP_SECONDS.sample(NOW - 60.0, *gpu, "79", "")


@pytest.mark.parametrize(
    ("samples", "count"),
    [
        (host(("lost", FELL), (UP,), (UP,)), None),
        (host(("lost", FELL), ("lost",), (UP,)), 2),
        (host(("lost",), ("reset_required",), ("lost", FELL)), 3),
        (host((STALLED,), (BLOCKED_BEHIND,), (BLOCKED_BEHIND,)), None),
        (host((STALLED, FELL), (BLOCKED_BEHIND, FELL), (BLOCKED_BEHIND,)), 2),
        (host((UP, FELL), (UP, FELL)), None),
        (host((DRIVER_UNAVAILABLE, FELL), (DRIVER_UNAVAILABLE, FELL), driver="unknown"), 2),
        (host((DRIVER_UNAVAILABLE,), (DRIVER_UNAVAILABLE,), driver="unknown"), None),
    ],
    ids=[
        "one",
        "two of three",
        "all, each in its way",
        "one hangs and blocks the others",
        "the log names one that is blocked",
        "they answer again",
        "they took the driver with them",
        "only the driver is gone",
    ],
)
def test_two_lost_gpus_or_more_are_counted(samples: Iterator[Sample], count: int | None) -> None:
    evidence = evidence_of((0.0, tuple(samples)), wall=NOW)
    found = HostJudge(JudgedHost("host", continuous=True)).judge(evidence).report.findings
    assert [each.value for each in found if each.check.code == "gpu.board_lost"] == ([] if count is None else [count])


def test_a_slot_that_the_kernel_log_names_is_the_gpu_in_it() -> None:
    """One that was lost before the exporter started is known by its address alone."""
    fallen = (GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS.sample(NOW, slot(number), "79", "") for number in (0, 7))
    evidence = evidence_of((0.0, (*host(("lost",), (UP,)), *fallen)), wall=NOW)
    found = HostJudge(JudgedHost("host", continuous=True)).judge(evidence).report.findings
    assert [each.value for each in found if each.check.code == "gpu.board_lost"] == [2]
