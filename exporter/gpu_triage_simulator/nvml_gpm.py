"""NVML functions of newer data center GPUs: SM activity (GPM), and the NVLink fabric."""

import uuid
from collections.abc import Mapping
from ctypes import Structure, c_uint, c_void_p, cast
from typing import Any, Final, NamedTuple

from gpu_triage.read.gpu.fabric import FABRIC_FAULTS
from gpu_triage_simulator.effects import Fabric
from gpu_triage_simulator.nvml_calls import OUT, Function, at
from gpu_triage_simulator.nvml_library import (
    CODES,
    FABRIC_INFO,
    FABRIC_INFO_V3,
    FABRIC_V2_VERSION,
    FABRIC_V3_VERSION,
    GPM_METRICS,
    GPM_METRICS_VERSION,
    GPM_SUPPORT,
    SUCCESS,
    Failure,
)
from gpu_triage_simulator.nvml_session import Device, NvmlSession

_MIB: Final = 2**20
_SHORTEST_INTERVAL: Final = 0.1


class GpmSample(NamedTuple):
    """Counters of a GPU or GPU instance at one time: seconds of each share, and bytes."""

    subject: tuple[int, ...]
    seconds: float
    counters: Mapping[str, float]
    readings: Mapping[int, float]


_COUNTED: Final = (*("utilization", "computing", "sm_active", "tensor_active", "dram_active"), *("receive", "transmit"))

_METRICS: Final[dict[int, tuple[str, float]]] = {
    1: ("utilization", 100.0),
    2: ("sm_active", 100.0),
    3: ("sm_active", 34.0 / 0.92),
    4: ("computing", 12.0),
    5: ("tensor_active", 100.0),
    6: ("computing", 0.0),
    7: ("tensor_active", 100.0),
    9: ("computing", 0.0),
    10: ("dram_active", 100.0),
    11: ("computing", 0.0),
    12: ("computing", 9.0),
    13: ("computing", 5.0),
    20: ("transmit", 1 / _MIB),
    21: ("receive", 1 / _MIB),
}
"""Metrics by ID, in percent or MiB/s: a gauge of the GPU, and a factor."""


def _support(device: Device, out: int | None) -> None:
    at(GPM_SUPPORT, out).isSupportedDevice = int("gpm" in device.model.features)


def _alloc(session: NvmlSession, out: int | None) -> None:
    session.require_initialized()
    if not out:
        raise Failure("INVALID_ARGUMENT")
    c_void_p.from_address(out).value = session.new_sample()


def _free(session: NvmlSession, sample: int | None) -> None:
    session.require_initialized()
    if session.samples.pop(sample or 0, "unknown") == "unknown":
        raise Failure("INVALID_ARGUMENT")


def _get(device: Device, sample: int | None) -> None:
    _sample(device, sample, (device.handle,), 1.0)


def _get_mig(device: Device, number: int, sample: int | None) -> None:
    layout = device.state.conditions.mig
    if layout is None:
        raise Failure("NOT_SUPPORTED")
    activities = [mig.activity for mig in layout.instances.values() if mig.gi == number]
    if not activities:
        raise Failure("NOT_FOUND")
    _sample(device, sample, (device.handle, layout.since, number), max(activities))


def _sample(device: Device, sample: int | None, subject: tuple[int, ...], activity: float) -> None:
    samples = device.session.samples
    if sample is None or sample not in samples:
        raise Failure("INVALID_ARGUMENT")
    state = device.state
    counters = {name: state.counter(name) * activity for name in _COUNTED}
    samples[sample] = GpmSample(subject, state.seconds, counters, state.conditions.readings.gpm)


def _metrics(session: NvmlSession, out: int | None) -> None:
    session.require_initialized()
    request: Any = at(GPM_METRICS, out, GPM_METRICS_VERSION)
    first, second = (session.samples.get(_address(sample)) for sample in (request.sample1, request.sample2))
    if not isinstance(first, GpmSample) or not isinstance(second, GpmSample) or first.subject != second.subject:
        raise Failure("INVALID_ARGUMENT")
    length = second.seconds - first.seconds
    for i in range(request.numMetrics):
        metric = request.metrics[i]
        counted = _METRICS.get(metric.metricId)
        if counted is None:
            metric.nvmlReturn = CODES["NOT_SUPPORTED"]
        elif length < _SHORTEST_INTERVAL:
            metric.nvmlReturn = CODES["NO_DATA"]
        else:
            name, factor = counted
            computed = factor * (second.counters[name] - first.counters[name]) / length
            metric.value = second.readings.get(metric.metricId, computed)
            metric.nvmlReturn = SUCCESS


def _address(pointer: Any) -> int:
    return cast(pointer, c_void_p).value or 0


def _fabric(device: Device, out: int | None) -> None:
    if not out:
        raise Failure("INVALID_ARGUMENT")
    version = c_uint.from_address(out).value
    kinds: dict[int, type[Structure]] = {FABRIC_V2_VERSION: FABRIC_INFO, FABRIC_V3_VERSION: FABRIC_INFO_V3}
    if version not in kinds or (version == FABRIC_V3_VERSION and device.host.scenario.driver.branch < 570):  # noqa: PLR2004
        raise Failure("ARGUMENT_VERSION_MISMATCH")
    info: Any = at(kinds[version], out)
    info.status = SUCCESS
    fabric = device.host.timeline.latest(Fabric, device.state.index, device.state.seconds) or Fabric()
    info.state = fabric.state
    info.cliqueId = fabric.clique
    info.clusterUuid[:] = uuid.UUID(fabric.cluster_uuid).bytes if fabric.cluster_uuid else bytes(16)
    faults = sum(bad << shift for fault, (shift, bad) in FABRIC_FAULTS.items() if fault in fabric.faults)
    info.healthMask = faults | fabric.configuration << 8
    if version == FABRIC_V3_VERSION:
        info.healthSummary = fabric.health


FUNCTIONS: Final = (
    Function("nvmlGpmQueryDeviceSupport", (OUT,), _support, since=520),
    Function("nvmlGpmSampleAlloc", (OUT,), _alloc, on="library", since=520),
    Function("nvmlGpmSampleFree", (c_void_p,), _free, on="library", since=520),
    Function("nvmlGpmSampleGet", (c_void_p,), _get, since=520, feature="gpm", mig="whole"),
    Function("nvmlGpmMigSampleGet", (c_uint, c_void_p), _get_mig, since=520, feature="gpm"),
    Function("nvmlGpmMetricsGet", (OUT,), _metrics, on="library", since=520),
    Function("nvmlDeviceGetGpuFabricInfoV", (OUT,), _fabric, since=535, feature="fabric"),
)
