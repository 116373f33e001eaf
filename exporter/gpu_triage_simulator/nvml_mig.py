"""NVML functions of MIG: whether MIG is on, and the MIG devices."""

from ctypes import c_uint, c_void_p
from typing import Final

from gpu_triage_simulator.nvml_calls import OUT, Function, gauge, pair
from gpu_triage_simulator.nvml_library import Failure
from gpu_triage_simulator.nvml_session import MOST_MIG_DEVICES, Device, MigDevice


def _mode(device: Device) -> tuple[int, int]:
    on = int(device.state.conditions.mig is not None)
    return on, on


def _most(device: Device) -> int:
    return 0 if device.state.conditions.mig is None else MOST_MIG_DEVICES


def _handle(device: Device, index: int, out: int | None) -> None:
    if device.state.conditions.mig is None:
        raise Failure("NOT_SUPPORTED")
    if index >= MOST_MIG_DEVICES or not out:
        raise Failure("INVALID_ARGUMENT")
    found = device.mig_device(index)
    if found is None:
        raise Failure("NOT_FOUND")
    c_void_p.from_address(out).value = found.handle


def _instance(device: Device) -> MigDevice:
    if not isinstance(device, MigDevice):
        raise Failure("INVALID_ARGUMENT")
    return device


FUNCTIONS: Final = (
    pair("nvmlDeviceGetMigMode", _mode, feature="mig"),
    gauge("nvmlDeviceGetMaxMigDeviceCount", _most),
    Function("nvmlDeviceGetMigDeviceHandleByIndex", (c_uint, OUT), _handle),
    gauge("nvmlDeviceGetGpuInstanceId", lambda device: _instance(device).instance.gi, mig="instance"),
    gauge("nvmlDeviceGetComputeInstanceId", lambda device: _instance(device).instance.ci, mig="instance"),
)
