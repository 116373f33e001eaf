"""NVML functions for the processes on a GPU."""

from collections.abc import Callable
from ctypes import c_uint, c_ulonglong, sizeof
from typing import Any, Final

from gpu_triage.read.processes.listing import BOTH
from gpu_triage_simulator.effects import MigInstance
from gpu_triage_simulator.nvml_calls import OUT, Function, put
from gpu_triage_simulator.nvml_library import PROCESS_INFO, PROCESS_SAMPLE, Failure
from gpu_triage_simulator.nvml_session import Device, MigDevice
from gpu_triage_simulator.scenario import Process

_MIB: Final = 2**20
_NO_INSTANCE: Final = 0xFFFFFFFF


_LISTS: Final = {BOTH: ("compute", "graphics")}
"""The driver's lists that contain a process, for types that are in more than one."""


def processes_on(device: Device) -> list[Process]:
    timeline, seconds = device.host.timeline, device.state.seconds
    return [
        process
        for process in device.host.scenario.processes
        if process.gpu == device.state.index and timeline.running(process.pid, seconds) and _placed(process, device)
    ]


def _listed_on(device: Device) -> list[Process]:
    """Processes that the driver lists; none if the caller is not in the host's PID namespace."""
    return processes_on(device) if device.host.scenario.exporter_view.host_pids else []


def memory_mib(device: Device) -> tuple[int, int, int]:
    """Device memory: total, reserved by the driver, and otherwise in use."""
    model = device.model
    mine = sum(process.memory_mib for process in processes_on(device))
    if isinstance(device, MigDevice):
        # A GPU instance has slightly less than its eighths of the board's memory.
        nominal = gpu_instance_gb(device.instance) * 1024
        total = nominal - nominal // 40
        return total, 0, min(mine, total)
    total = model.memory_mib
    if model.memory_without_ecc_mib is not None and not device.state.conditions.ecc_mode:
        total = model.memory_without_ecc_mib
    room = total - model.memory_reserved_mib
    return total, model.memory_reserved_mib, min(mine + device.state.gpu.other_memory_mib, room)


def gpu_instance_gb(instance: MigInstance) -> int:
    """Nominal memory of a profile: 10 for 1g.10gb."""
    return int(instance.profile.split("g.")[1].split("gb")[0])


def _placed(process: Process, device: Device) -> bool:
    """Whether a process is on a device: a GPU without MIG, or its MIG device, or for memory its GPU instance."""
    if isinstance(device, MigDevice):
        return process.gi == device.instance.gi
    layout = device.state.conditions.mig
    if layout is None:
        return process.gi is None
    return any((mig.gi, mig.ci) == (process.gi, process.ci) for mig in layout.instances.values())


def _running(kind: str) -> Callable[[Device, int | None, int | None], None]:
    def body(device: Device, count_out: int | None, out: int | None) -> None:
        mine = [process for process in _listed_on(device) if kind in _LISTS.get(process.type, (process.type,))]
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
            info.gpuInstanceId = _NO_INSTANCE if process.gi is None else process.gi
            info.computeInstanceId = _NO_INSTANCE if process.gi is None else process.ci

    return body


def _utilization(device: Device, out: int | None, count_out: int | None, since: int) -> None:
    gauges = device.gauges
    stamp = round(device.host.wall(gauges.step) * 1_000_000)
    usual = device.state.gpu.load.utilization or 0.0
    activity = min(1.0, gauges.utilization / usual) if usual else 0.0
    mine = [process for process in _listed_on(device) if process.sm * activity > 0.0] if stamp > since else []
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
    *(
        Function(f"nvmlDeviceGet{name}RunningProcesses_{version}", (OUT, OUT), _running(kind), since=since)
        for name, kind in (("Compute", "compute"), ("Graphics", "graphics"), ("MPSCompute", "mps"))
        # Both versions have the same struct layout.
        for version, since in (("v2", 450), ("v3", 510))
    ),
    Function("nvmlDeviceGetProcessUtilization", (OUT, OUT, c_ulonglong), _utilization, mig="whole"),
)
