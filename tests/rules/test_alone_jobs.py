"""Alerts about jobs, and the healthy jobs that look like them. Series by hand, a sample a minute."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.rules.handwritten import Firing, Series, Told, gpu, host

MINUTES = 70


def gib(a_second: float) -> list[float]:
    """A counter of bytes."""
    return [60 * a_second * minute for minute in range(MINUTES)]


def waiting(number: int, class_: str = "communication") -> Series:
    """A GPU that has been in a class all the time."""
    uuid = f"GPU-{number}"
    seconds = [60.0 * minute for minute in range(MINUTES)]
    return {
        **gpu("gpu_bottleneck_seconds_total", seconds, uuid, gpu=str(number), **{"class": class_}),
        **(
            gpu("gpu_bottleneck_seconds_total", [0.0] * MINUTES, uuid, gpu=str(number), **{"class": "compute"})
            if class_ != "compute"
            else {}
        ),
    }


def moving(number: int, nvlink: float = 0, pcie: float = 0) -> Series:
    """Bytes a second that a GPU exchanges."""
    labels = {"gpu": str(number)}
    uuid = f"GPU-{number}"
    return {
        **gpu("gpu_nvlink_transmit_bytes_total", gib(nvlink), uuid, **labels),
        **gpu("gpu_nvlink_receive_bytes_total", gib(nvlink), uuid, **labels),
        **gpu("gpu_pcie_transmit_bytes_total", gib(pcie), uuid, **labels),
        **gpu("gpu_pcie_receive_bytes_total", gib(pcie), uuid, **labels),
    }


def pair(*parts: Series) -> Series:
    return {key: values for part in parts for key, values in part.items()}


TWO = pair(waiting(0), waiting(1))
SILENT = pair(moving(0), moving(1))
INFINIBAND = host("gpu_host_infiniband_transmit_bytes_total", gib(5e9), device="mlx5_0", port="1")


@pytest.mark.parametrize(
    ("series", "fires"),
    [
        (pair(TWO, SILENT), True),
        (pair(TWO, moving(0, nvlink=2e9), moving(1, nvlink=2e9)), False),
        (pair(TWO, moving(0, pcie=1e9), moving(1, pcie=1e9)), False),
        (pair(TWO, SILENT, INFINIBAND), False),
        (TWO, False),
        (pair(waiting(0), waiting(1, "compute"), SILENT), False),
        (pair(waiting(0, "compute"), waiting(1, "compute"), SILENT), False),
    ],
    ids=[
        "no byte moves",
        "slow over NVLink",
        "slow over PCIe",
        "slow over InfiniBand",
        "traffic is not counted",
        "one GPU of two",
        "computing",
    ],
)
def test_gpus_that_spin_while_no_byte_moves_are_a_hang(firing: Firing, series: Series, *, fires: bool) -> None:
    assert bool(firing("GpuCollectiveHang", series, minutes=MINUTES)) == fires


def test_a_hang_of_a_collective_is_a_ticket_for_the_jobs_owner(told: Told) -> None:
    owners = [
        gpu("gpu_process_info", [1.0] * MINUTES, f"GPU-{n}", gpu=str(n), slurm_job_id="42", user="alice")
        for n in (0, 1)
    ]
    (alert,) = told("GpuCollectiveHang", pair(TWO, SILENT, *owners), 60)
    assert (alert.labels["severity"], alert.labels["action"]) == ("warning", "fix_job")
    assert "2 GPUs of a have looked busy" in alert.annotations["description"]
    assert " (Slurm job 42 of alice)" in alert.annotations["description"]


def processes(number: int, count: int, owners: Sequence[str] = ()) -> Series:
    """Compute processes of a GPU, and the pods that they are of."""
    labels = {"gpu": str(number)}
    uuid = f"GPU-{number}"
    found = {
        **gpu("gpu_info", [1.0] * MINUTES, uuid, name="NVIDIA A10", **labels),
        **gpu("gpu_processes", [float(count)] * MINUTES, uuid, type="compute", **labels),
    }
    for pid, owner in enumerate(owners):
        found |= gpu("gpu_process_info", [1.0] * MINUTES, uuid, pid=f"{number}{pid}", pod_uid=owner, **labels)
    return found


@pytest.mark.parametrize(
    ("owners", "fires"),
    [((), True), (("one", "one"), True), (("one", "two"), False), (("one", "two", "two"), True)],
    ids=["owners unknown", "one job", "time slicing", "one of the jobs has two"],
)
def test_processes_of_different_jobs_on_one_gpu_are_no_imbalance(
    firing: Firing, owners: Sequence[str], *, fires: bool
) -> None:
    series = pair(processes(0, max(2, len(owners)), owners), processes(1, 0))
    assert bool(firing("GpuImbalance", series)) == fires


def clocked(number: int, mhz: float, watts: float, throttled: float = 0) -> Series:
    """A busy GPU at this clock and power, and what share of the time it is held back by heat."""
    labels = {"gpu": str(number)}
    uuid = f"GPU-{number}"
    return {
        **gpu("gpu_info", [1.0] * MINUTES, uuid, name="NVIDIA H100", **labels),
        **gpu("gpu_clock_hertz", [mhz * 1e6] * MINUTES, uuid, clock="sm", **labels),
        **gpu("gpu_busy_seconds_total", [57.0 * minute for minute in range(MINUTES)], uuid, **labels),
        **gpu("gpu_power_watts", [watts] * MINUTES, uuid, **labels),
        **gpu("gpu_power_limit_watts", [700.0] * MINUTES, uuid, **labels),
        **gpu("gpu_power_default_limit_watts", [700.0] * MINUTES, uuid, **labels),
        **gpu(
            "gpu_throttle_seconds_total", [60 * throttled * minute for minute in range(MINUTES)], uuid,
            reason="sw_thermal", **labels,
        ),
    }  # fmt: skip


HEAVY = pair(*(clocked(number, 1980, 650) for number in (1, 2, 3)))


@pytest.mark.parametrize(
    ("series", "fires"),
    [
        (clocked(0, 1500, 500), True),
        (clocked(0, 1500, 200), False),
        (clocked(0, 1500, 200, throttled=0.5), True),
        (clocked(0, 1900, 650), False),
    ],
    ids=["slower at the same work", "lighter work", "held back by heat", "alike"],
)
def test_a_light_job_beside_a_heavy_one_is_no_straggler(firing: Firing, series: Series, *, fires: bool) -> None:
    assert bool(firing("GpuStraggler", pair(series, HEAVY))) == fires
