"""The detail of a finding: it names the part, no text in it is interpreted, and a measurement makes no new series."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.evidence import Readings, steady

from gpu_triage.judge.conditions.clocks import judge_clocks
from gpu_triage.judge.conditions.health import judge_health
from gpu_triage.judge.conditions.host import judge_host
from gpu_triage.judge.conditions.links import judge_links
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.findings.finding import Finding, of_host
from gpu_triage.judge.host_judge import HostJudge, _reading
from gpu_triage.judge.report.report import JudgedHost
from gpu_triage.read.gpu import pcie, power
from gpu_triage.read.gpu.presence import GPU_DEVICES, GPU_UP
from gpu_triage.read.host import infiniband, kernel_log
from gpu_triage.read.xid.xid_metrics import GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS

GPU = ("0", "GPU-0")
UP: Readings = {(GPU_UP, GPU): 1.0}


def said(kind: str, *subjects: str) -> Readings:
    return {(kernel_log.GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS, (kind, subject)): 0.0 for subject in subjects}


TASK, SILENT = said("hung_task", "python3 (42)", "dd (7)"), said("nfs_not_responding", "nas01")
TASKS = "dd (7), python3 (42)"
KILLED: Readings = {(kernel_log.GPU_HOST_OOM_KILL_TIMESTAMP_SECONDS, ("42", "<!here>", "", "", "4711")): 0.0}
SLOW_PORT: Readings = {(infiniband.GPU_HOST_INFINIBAND_RATE_EXPECTED_RATIO, ("mlx5_3", "1")): 0.5}
SXID: Readings = {(GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS, ("0000:c1:00.0", "20034", "true")): 0.0}
NARROW: Readings = {(pcie.GPU_PCIE_LINK_WIDTH, GPU): 4.0, (pcie.GPU_PCIE_LINK_EXPECTED_WIDTH, GPU): 16.0}
HOT: Readings = {
    (power.GPU_TEMPERATURE_CELSIUS, (*GPU, "gpu")): 89.0,
    (power.GPU_TEMPERATURE_THRESHOLD_CELSIUS, (*GPU, "slowdown")): 90.0,
}
SEVEN: Readings = {(GPU_DEVICES, ("nvml",)): 7.0, (GPU_DEVICES, ("expected",)): 8.0}


@pytest.mark.parametrize(
    ("judge", "readings", "code", "detail"),
    [
        (judge_host, said("filesystem_read_only", "md0"), "storage.read_only", "md0"),
        (judge_host, SILENT, "storage.not_responding", "nas01"),
        (judge_host, TASK, "host.hung_task", TASKS),
        (judge_host, {**TASK, **SILENT}, "host.hung_task", f"{TASKS}, and NFS server nas01 does not respond"),
        (judge_host, KILLED, "memory.oom_killed_other", "__here_ (42) of Slurm job 4711"),
        (judge_host, SLOW_PORT, "network.port_slow", "mlx5_3 port 1"),
        (judge_links, SXID, "nvswitch.sxid_fatal", "SXid 20034 of switch 0000:c1:00.0"),
        (judge_links, {**UP, **NARROW}, "pcie.width_from_boot", "x4 of x16"),
        (judge_clocks, {**UP, **HOT}, "thermal.margin", "gpu at 89 °C, slowdown at 90 °C"),
        (lambda host: judge_health(host, {}), SEVEN, "gpu.missing", "1 of 8 missing"),
    ],
)
def test_a_detail_names_the_part(
    judge: Callable[[HostEvidence], Iterator[Finding]], readings: Readings, code: str, detail: str
) -> None:
    assert [each.detail for each in judge(steady(readings)) if each.check.code == code] == [detail]


def test_a_detail_is_bounded() -> None:
    assert len(of_host("storage.nvme", "", detail="n" * 1000).detail) == 100


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        ("91 °C (limit 90 °C), SM clock about 1200 of 1980 MHz", True),
        ("91 °C (limit 90 °C), SM clock about 1200 of 1755 MHz", False),
        ("md1", False),
    ],
)
def test_measurements_alone_change_no_detail(now: str, kept: bool) -> None:  # noqa: FBT001 - a table
    before = "87 °C (limit 90 °C), SM clock about 1095 of 1980 MHz"
    assert of_host("storage.nvme", "", detail=now).with_earlier(before).detail == (before if kept else now)


def test_a_detail_is_published_once_confirmed_and_then_kept() -> None:
    """Until then each measurement would be a series; what needs no wait has it at once."""
    judge, details = HostJudge(JudgedHost("a", continuous=True)), []
    for number, heat in enumerate((87, 88)):
        host = steady({})
        host = replace(host, at=replace(host.at, monotonic=host.at.monotonic + 5.0 * number))
        more = [of_host("storage.nvme", "", 1, f"{heat} °C"), of_host("network.port_slow", "", 1, f"{heat} °C")]
        published = _reading(judge.judge(host, more=more).report).findings
        details += [{each.code: each.detail for each in published}]
    assert details == [{"storage.nvme": "87 °C", "network.port_slow": ""}] * 2
