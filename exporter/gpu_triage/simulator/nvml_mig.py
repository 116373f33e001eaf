"""NVML functions of a GPU that is divided into MIG devices."""

from __future__ import annotations

from ctypes import c_uint, c_void_p
from typing import Final

from gpu_triage.simulator.nvml_calls import OUT, Function, gauge
from gpu_triage.simulator.nvml_library import Failure
from gpu_triage.simulator.nvml_session import Device
from gpu_triage.simulator.scenario import MigDevice

_MOST_DEVICES: Final = 7


def _handle(device: Device, number: int, out: int | None) -> None:
    if not out:
        raise Failure("INVALID_ARGUMENT")
    c_void_p.from_address(out).value = device.part(number)


def _mig(device: Device) -> MigDevice:
    if device.mig is None:
        raise Failure("NOT_SUPPORTED")
    return device.mig


FUNCTIONS: Final = (
    gauge("nvmlDeviceGetMaxMigDeviceCount", lambda _device: _MOST_DEVICES, feature="mig"),
    Function("nvmlDeviceGetMigDeviceHandleByIndex", (c_uint, OUT), _handle, feature="mig"),
    gauge("nvmlDeviceGetGpuInstanceId", lambda device: _mig(device).gpu_instance, feature="mig"),
    gauge("nvmlDeviceGetComputeInstanceId", lambda device: _mig(device).compute_instance, feature="mig"),
)
