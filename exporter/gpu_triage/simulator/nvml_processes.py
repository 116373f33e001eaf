"""NVML functions of the processes on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_uint, c_ulonglong, sizeof
from typing import Any, Final

from gpu_triage.simulator.nvml_calls import OUT, Function, put
from gpu_triage.simulator.nvml_library import PROCESS_INFO, PROCESS_SAMPLE, Failure
from gpu_triage.simulator.nvml_session import Device
from gpu_triage.simulator.scenario import Process

_MIB: Final = 2**20
_NO_INSTANCE: Final = 0xFFFFFFFF


def processes_on(device: Device) -> list[Process]:
    """Processes that hold a GPU now."""
    timeline, seconds = device.host.timeline, device.state.seconds
    return [
        process
        for process in device.host.scenario.processes
        if process.gpu == device.state.index and timeline.running(process.pid, seconds)
    ]


def memory_used_mib(device: Device) -> int:
    """Device memory in use, what the driver reserves for itself aside."""
    mine = sum(process.memory_mib for process in processes_on(device))
    room = device.model.memory_mib - device.model.memory_reserved_mib
    return min(mine + device.state.gpu.other_memory_mib, room)


def _running(kind: str) -> Callable[[Device, int | None, int | None], None]:
    def body(device: Device, count_out: int | None, out: int | None) -> None:
        mine = [process for process in processes_on(device) if process.type == kind]
        if not count_out:
            raise Failure("INVALID_ARGUMENT")
        room = c_uint.from_address(count_out).value
        put(c_uint, count_out, len(mine))
        if mine and (room < len(mine) or not out):
            raise Failure("INSUFFICIENT_SIZE")
        for i, process in enumerate(mine):
            info: Any = PROCESS_INFO.from_address((out or 0) + i * sizeof(PROCESS_INFO))
            info.pid = process.pid
            info.usedGpuMemory = process.memory_mib * _MIB
            mig = None if process.mig is None else device.state.gpu.mig[process.mig]
            info.gpuInstanceId = _NO_INSTANCE if mig is None else mig.gpu_instance
            info.computeInstanceId = _NO_INSTANCE if mig is None else mig.compute_instance

    return body


def _utilization(device: Device, out: int | None, count_out: int | None, since: int) -> None:
    if device.state.gpu.mig:
        raise Failure("NOT_SUPPORTED")
    gauges = device.gauges
    stamp = round(device.host.wall(gauges.step) * 1_000_000)
    usual = device.state.gpu.load.utilization or 0.0
    activity = min(1.0, gauges.utilization / usual) if usual else 0.0
    mine = [process for process in processes_on(device) if process.sm * activity > 0.0] if stamp > since else []
    if not count_out:
        raise Failure("INVALID_ARGUMENT")
    if not mine:
        put(c_uint, count_out, 0)
        raise Failure("NOT_FOUND")
    room = c_uint.from_address(count_out).value
    put(c_uint, count_out, len(mine))
    if not out or room < len(mine):
        raise Failure("INSUFFICIENT_SIZE")
    for i, process in enumerate(mine):
        sample: Any = PROCESS_SAMPLE.from_address(out + i * sizeof(PROCESS_SAMPLE))
        sample.pid = process.pid
        sample.timeStamp = stamp
        sample.smUtil = round(process.sm * activity * 100)
        sample.memUtil = round(process.memory * activity * 100)
        sample.encUtil = sample.decUtil = 0


FUNCTIONS: Final = (
    Function("nvmlDeviceGetComputeRunningProcesses_v3", (OUT, OUT), _running("compute"), since=510),
    Function("nvmlDeviceGetGraphicsRunningProcesses_v3", (OUT, OUT), _running("graphics"), since=510),
    Function("nvmlDeviceGetMPSComputeRunningProcesses_v3", (OUT, OUT), _running("mps"), since=510),
    Function("nvmlDeviceGetProcessUtilization", (OUT, OUT, c_ulonglong), _utilization),
)
