"""Several GPUs of a host that are lost are one finding about the host."""

from collections.abc import Iterable, Iterator, Mapping

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


GONE = (DRIVER_UNAVAILABLE,)
CASES: Mapping[str, tuple[tuple[tuple[str, ...], ...], str, list[int]]] = {
    "one": ((("lost", FELL), (UP,), (UP,)), "", []),
    "two of three": ((("lost", FELL), ("lost",), (UP,)), "", [2]),
    "all, each in its way": ((("lost",), ("reset_required",), ("lost", FELL)), "", [3]),
    "one hangs and blocks the others": (((STALLED,), (BLOCKED_BEHIND,), (BLOCKED_BEHIND,)), "", []),
    "the log names one that is blocked": (((STALLED, FELL), (BLOCKED_BEHIND, FELL), (BLOCKED_BEHIND,)), "", [2]),
    "they may not be opened": ((("no_permission",), ("no_permission",)), "", []),
    "they went to virtual machines": ((("missing",), ("missing",)), "", []),
    "they answer again": (((UP, FELL), (UP, FELL)), "", []),
    "they took the driver with them": (((*GONE, FELL), (*GONE, FELL)), "unknown", [2]),
    "only the driver is gone": ((GONE, GONE), "unknown", []),
}


def counted(samples: Iterable[Sample]) -> list[float | None]:
    evidence = evidence_of((0.0, tuple(samples)), wall=NOW)
    found = HostJudge(JudgedHost("host", continuous=True)).judge(evidence).report.findings
    return [each.value for each in found if each.check.code == "gpu.board_lost"]


@pytest.mark.parametrize(("gpus", "driver", "lost"), CASES.values(), ids=CASES)
def test_two_lost_gpus_or_more_are_counted(gpus: tuple[tuple[str, ...], ...], driver: str, lost: list[int]) -> None:
    assert counted(host(*gpus, driver=driver)) == lost


def test_a_slot_that_the_kernel_log_names_is_the_gpu_in_it() -> None:
    """One that was lost before the exporter started is known by its address alone."""
    fallen = (GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS.sample(NOW, slot(number), "79", "") for number in (0, 7))
    assert counted((*host(("lost",), (UP,)), *fallen)) == [2]
