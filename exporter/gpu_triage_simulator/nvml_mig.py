"""NVML functions of MIG: whether MIG is on, the MIG devices, and their attributes."""

from ctypes import c_uint, c_void_p
from typing import Final

from gpu_triage_simulator.nvml_calls import OUT, Function, at, gauge, pair
from gpu_triage_simulator.nvml_library import DEVICE_ATTRIBUTES, Failure
from gpu_triage_simulator.nvml_processes import memory_mib
from gpu_triage_simulator.nvml_session import MOST_MIG_DEVICES, Device, MigDevice

_MULTIPROCESSORS: Final = {1: 16, 2: 32, 3: 60, 4: 64, 5: 80, 6: 96, 7: 132}
"""Number of SMs of an H100, by slices."""
_ALL_SLICES: Final = 7


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


def _attributes(device: Device, out: int | None) -> None:
    profile = _instance(device).instance.profile
    slices = int(profile.split("g.")[0][-1])
    compute = int(profile.split("c.")[0]) if "c." in profile else slices
    attributes = at(DEVICE_ATTRIBUTES, out)
    attributes.multiprocessorCount = _MULTIPROCESSORS[compute]
    attributes.sharedCopyEngineCount = attributes.sharedDecoderCount = attributes.sharedJpegCount = slices
    attributes.sharedEncoderCount = 0
    attributes.sharedOfaCount = int("+me" in profile or slices == _ALL_SLICES)
    attributes.gpuInstanceSliceCount = slices
    attributes.computeInstanceSliceCount = compute
    attributes.memorySizeMB = memory_mib(device)[0]


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
    Function("nvmlDeviceGetAttributes_v2", (OUT,), _attributes, mig="instance"),
)
