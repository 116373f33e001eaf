"""Exhibits of steps 4 and 5: the GPU starves, or the software is in the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.rules.exhibits import (
    BOARD,
    BOARDS,
    FIVE,
    POD,
    SLURM,
    USER,
    Board,
    Exhibit,
    Owner,
    growing,
    merged,
    of_gpu,
    of_host,
    steady,
)
from tests.rules.handwritten import Series, host


def spent_in(class_: str, *boards: Board, share: float = 0.97) -> Series:
    """GPUs that are in this class for so much of the time."""
    return merged(
        *(
            board.series("gpu_bottleneck_seconds_total", growing(60 * share), **{"class": class_})
            for board in boards or (BOARD,)
        )
    )


def starved(alert: str, class_: str, owner: Owner = POD) -> Exhibit:
    return of_host(alert, spent_in(class_, *BOARDS), owners=(owner,))


def silent(board: Board) -> Series:
    """A GPU whose NVLinks and PCIe link carry nothing."""
    return merged(
        *(board.series(f"gpu_pcie_{way}_bytes_total", growing(0)) for way in ("transmit", "receive")),
        *(board.series(f"gpu_nvlink_{way}_bytes_total", growing(0)) for way in ("transmit", "receive")),
    )


def running(board: Board, processes: float) -> Series:
    return merged(board.identity(), board.series("gpu_processes", steady(processes), type="compute"))


def clocked(board: Board, megahertz: float) -> Series:
    return merged(
        board.identity(),
        board.series("gpu_clock_hertz", steady(megahertz * 1e6), clock="sm"),
        board.series("gpu_busy_seconds_total", growing(58)),
        board.series("gpu_power_watts", steady(600)),
    )


GIB: Final = 2.0**30
GIVEN: Final = merged(
    BOARD.series("gpu_allocated", steady(1), workload_namespace="ml", workload_pod="notebook-7"),
    BOARD.series("gpu_allocated", steady(1), slurm_job_id="4711", user="alice", account="physics"),
)
FILLING: Final = merged(
    BOARD.series("gpu_memory_used_bytes", [79 * GIB + minute * 1e7 for minute, _ in enumerate(steady(0))]),
    BOARD.series("gpu_memory_free_bytes", steady(GIB)),
    BOARD.series("gpu_memory_total_bytes", steady(80 * GIB)),
)
SWAPPING: Final = (
    host("gpu_host_swap_in_bytes_total", growing(60 * 8.4 * 2**20)),
    BOARD.series("gpu_processes", steady(1), type="compute"),
)

STARVED: Final = (
    starved("GpuStarvedByStorage", "storage", SLURM),
    replace(of_host("GpuStarvedByStorage", spent_in("storage"), what="one-gpu", owners=(USER,)), cluster="east"),
    starved("GpuStarvedByCpu", "cpu"),
    starved("GpuStarvedByNetwork", "network"),
    starved("GpuStarvedByMemory", "memory"),
    of_host("GpuHostSwapping", *SWAPPING, owners=(POD,)),
)

SOFTWARE: Final = (
    of_gpu("GpuHungProcess", spent_in("hung"), owners=(SLURM,)),
    of_host("GpuImbalance", running(BOARD, 2), running(BOARDS[0], 0), owners=(USER, USER)),
    of_gpu("GpuStraggler", *(clocked(board, 1410 if board is BOARD else 1980) for board in BOARDS), owners=(SLURM,)),
    of_host(
        "GpuCollectiveHang",
        spent_in("communication", *BOARDS),
        *(silent(board) for board in BOARDS),
        owners=(SLURM,),
    ),
    of_host(
        "GpuCollectiveHang",
        spent_in("communication", *BOARDS),
        *(silent(b) for b in BOARDS),
        what="five-owners",
        owners=FIVE,
    ),
    of_gpu("GpuBusyButLowPower", spent_in("communication")),
    of_gpu("GpuMemoryNearFull", FILLING, owners=(SLURM,)),
    of_gpu(
        "GpuAllocatedIdle",
        BOARD.series("gpu_processes", steady(1), type="compute"),
        BOARD.series("gpu_busy_seconds_total", growing(0.6)),
        owners=(USER,),
    ),
    of_gpu(
        "GpuAllocatedIdle",
        BOARD.series("gpu_processes", steady(0), type="compute"),
        BOARD.series("gpu_busy_seconds_total", growing(0)),
        GIVEN,
        what="no-process",
        owners=(),
    ),
    of_gpu(
        "GpuVgpuUnlicensed",
        BOARD.series("gpu_vgpu_license_state", steady(0), product="NVIDIA Virtual Compute Server"),
        owners=(SLURM,),
    ),
    of_gpu("GpuPersistenceModeOff", BOARD.series("gpu_persistence_mode", steady(0)), owners=()),
)
