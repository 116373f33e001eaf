"""NVML functions for utilization, memory, clocks, power and temperature."""

import math
import struct
from collections.abc import Callable
from ctypes import c_uint, c_ulonglong, memmove
from typing import Any, Final

from gpu_triage_simulator.effects import PowerProfiles
from gpu_triage_simulator.gauges import Gauges
from gpu_triage_simulator.model import WITHOUT_APPLICATION_CLOCKS
from gpu_triage_simulator.nvml_calls import OUT, Function, at, gauge, pair, put
from gpu_triage_simulator.nvml_library import (
    BAR1_MEMORY,
    MARGIN_TEMPERATURE,
    MARGIN_VERSION,
    MEMORY,
    MEMORY_V2,
    MEMORY_V2_VERSION,
    POWER_PROFILES,
    POWER_PROFILES_VERSION,
    TEMPERATURE,
    TEMPERATURE_VERSION,
    UTILIZATION,
    Failure,
)
from gpu_triage_simulator.nvml_processes import memory_mib
from gpu_triage_simulator.nvml_session import Device

_MIB: Final = 2**20
_SAMPLE_SECONDS: Final = 0.2
_UNSIGNED_INT: Final = 1
_SAMPLES_KEPT: Final = 100
_SAMPLES_A_STEP: Final = 5
_SAMPLE_LAYOUT: Final = struct.Struct("QI4x")
"""An nvmlSample_t with a value of type unsigned int."""
_TOTAL_POWER, _GPU_UTILIZATION, _MEMORY_UTILIZATION = 0, 1, 2
_ENCODER_PERIOD_US: Final = 167_000
_SUPPORTED_REASONS: Final = 0x1FF
"""The same on every card, GeForce included; a real driver may omit reasons that a card's settings rule out."""
_RESERVED_APART: Final = 510
"""Driver branch from which on the total includes the driver's reserved memory."""


def percent(share: float) -> int:
    return round(share * 100)


def memory_celsius(device: Device) -> int:
    """Temperature of the device memory: slightly above the GPU's under load."""
    return int(device.gauges.celsius + 8.0 * device.gauges.memory_utilization)


def margin_celsius(device: Device) -> int:
    """How far the GPU is below its maximum operating temperature (T.Limit)."""
    return int(device.model.thermal.gpu_max - device.gauges.celsius)


def _utilization(device: Device, out: int | None) -> None:
    rates = at(UTILIZATION, out)
    newest = math.floor(device.state.seconds / _SAMPLE_SECONDS + 1e-9)
    rates.gpu = percent(_sampled_utilization(device, device.gauges, newest))
    rates.memory = percent(device.gauges.memory_utilization)


def _samples(device: Device, kind: int, since: int, *outs: int | None) -> None:
    kind_out, count_out, out = outs
    if kind not in (_TOTAL_POWER, _GPU_UTILIZATION, _MEMORY_UTILIZATION):
        raise Failure("NOT_SUPPORTED")
    put(c_uint, kind_out, _UNSIGNED_INT)
    if not out:
        # The caller only needs the maximum number of samples; the newest one shows whether there are any.
        found = _recent_samples(device, kind, since, 1)
        put(c_uint, count_out, _SAMPLES_KEPT if found else 0)
        if not found:
            raise Failure("NOT_FOUND")
        return
    found = _recent_samples(device, kind, since, _SAMPLES_KEPT)
    if not found:
        put(c_uint, count_out, 0)
        raise Failure("NOT_FOUND")
    if not count_out or c_uint.from_address(count_out).value < len(found):
        raise Failure("INSUFFICIENT_SIZE")
    # Written in one go: doing it field by field took a tenth of a simulated host's run time.
    packed = b"".join(_SAMPLE_LAYOUT.pack(stamp, value) for stamp, value in reversed(found))
    memmove(out, packed, len(packed))
    put(c_uint, count_out, len(found))


def _recent_samples(device: Device, kind: int, since: int, most: int) -> list[tuple[int, int]]:
    """Timestamps in µs and values of the ring buffer's samples after `since`, newest first, at most `most`."""
    newest = math.floor(device.state.seconds / _SAMPLE_SECONDS + 1e-9)
    samples: list[tuple[int, int]] = []
    for gauges in reversed(device.state.history):
        first = gauges.step * _SAMPLES_A_STEP
        numbers = range(min(first + _SAMPLES_A_STEP - 1, newest), first - 1, -1)
        stamps = device.host.stamps(number * _SAMPLE_SECONDS for number in numbers)
        for number, stamp in zip(numbers, stamps, strict=True):
            if stamp <= since or number <= newest - _SAMPLES_KEPT or len(samples) >= most:
                return samples
            samples.append((stamp, _sample(device, kind, gauges, number)))
    return samples


def _sample(device: Device, kind: int, gauges: Gauges, number: int) -> int:
    if kind == _TOTAL_POWER:
        return round(gauges.reading_watts * 1000)
    if kind == _MEMORY_UTILIZATION:
        return percent(gauges.memory_utilization)
    return percent(_sampled_utilization(device, gauges, number))


def _sampled_utilization(device: Device, gauges: Gauges, number: int) -> float:
    """Utilization in the driver's sample with this number: the share of time since the previous sample."""
    ends = number * _SAMPLE_SECONDS
    return device.state.utilization_between(gauges, ends - _SAMPLE_SECONDS, ends)


def _encoder(device: Device) -> tuple[int, int]:
    return percent(device.gauges.encoder), _ENCODER_PERIOD_US


def _decoder(device: Device) -> tuple[int, int]:
    return percent(device.gauges.decoder), _ENCODER_PERIOD_US


def _encoder_stats(device: Device, sessions: int | None, frames: int | None, latency: int | None) -> None:
    # A real-time stream keeps about an eighth of an engine busy.
    streams = math.ceil(8 * device.gauges.encoder)
    put(c_uint, sessions, streams)
    put(c_uint, frames, 30 if streams else 0)
    put(c_uint, latency, 2000 if streams else 0)


def _memory(device: Device, out: int | None) -> None:
    info = at(MEMORY, out)
    total, reserved, used = memory_mib(device)
    apart = device.host.scenario.driver.branch < _RESERVED_APART
    info.total = (total - reserved if apart else total) * _MIB
    info.used = (used if apart else used + reserved) * _MIB
    info.free = info.total - info.used


def _memory_v2(device: Device, out: int | None) -> None:
    info = at(MEMORY_V2, out, MEMORY_V2_VERSION)
    info.total, info.reserved, info.used = (mib * _MIB for mib in memory_mib(device))
    info.free = info.total - info.reserved - info.used


def _bar1(device: Device, out: int | None) -> None:
    info = at(BAR1_MEMORY, out)
    info.bar1Total = device.model.bar1_mib * _MIB
    info.bar1Used = 4 * _MIB
    info.bar1Free = info.bar1Total - info.bar1Used


def _clock(device: Device, kind: int, out: int | None) -> None:
    gauges = device.gauges
    put(c_uint, out, _pick((gauges.sm_mhz, gauges.sm_mhz, gauges.memory_mhz, gauges.video_mhz), kind))


def _max_clock(device: Device, kind: int, out: int | None) -> None:
    clocks = device.model.clocks
    put(c_uint, out, _pick((clocks.sm_max, clocks.sm_max, clocks.memory_max, clocks.video_max), kind))


def _target_clock(device: Device, kind: int, out: int | None) -> None:
    sm = device.state.conditions.sm_target_mhz
    put(c_uint, out, _pick((sm, sm, device.model.clocks.memory_max), kind))


def _default_clock(device: Device, kind: int, out: int | None) -> None:
    clocks = device.model.clocks
    put(c_uint, out, _pick((clocks.sm_target, clocks.sm_target, clocks.memory_max), kind))


def _pick(values: tuple[int, ...], number: int) -> int:
    if number >= len(values):
        raise Failure("INVALID_ARGUMENT")
    return values[number]


def _temperature(device: Device, sensor: int, out: int | None) -> None:
    if sensor:
        raise Failure("INVALID_ARGUMENT")
    put(c_uint, out, int(device.gauges.celsius))


def _temperature_v(device: Device, out: int | None) -> None:
    info = at(TEMPERATURE, out, TEMPERATURE_VERSION)
    if info.sensorType:
        raise Failure("INVALID_ARGUMENT")
    info.temperature = int(device.gauges.celsius)


def _margin(device: Device, out: int | None) -> None:
    at(MARGIN_TEMPERATURE, out, MARGIN_VERSION).marginTemperature = margin_celsius(device)


def _threshold(device: Device, which: int, out: int | None) -> None:
    thermal = device.model.thermal
    thresholds = (thermal.shutdown, thermal.slowdown, thermal.memory_max, thermal.gpu_max)
    supported = (True, True, "memory_temperature" in device.model.features, thermal.gpu_max_reported)
    if which >= len(thresholds) or not supported[which]:
        raise Failure("NOT_SUPPORTED")
    put(c_uint, out, int(thresholds[which]))


def _fan_speed(device: Device, fan: int, out: int | None) -> None:
    if fan >= device.model.fans:
        raise Failure("INVALID_ARGUMENT" if device.model.fans else "NOT_SUPPORTED")
    fixed = device.model.fan_percent
    put(c_uint, out, max(0, min(100, 2 * int(device.gauges.celsius) - 70)) if fixed is None else fixed)


def _limit_milliwatts(device: Device) -> int:
    return round(device.state.conditions.power_limit_watts * 1000)


def _limits(device: Device) -> tuple[int, int]:
    return round(device.model.power.min_limit * 1000), round(device.model.power.max_limit * 1000)


def _millijoules(device: Device) -> int:
    return int(device.state.counter("power_watts") * 1000)


def _reasons(device: Device) -> int:
    return device.state.reasons & _SUPPORTED_REASONS


def _supported_reasons(_device: Device) -> int:
    return _SUPPORTED_REASONS


def _application_clocks(name: str, body: Callable[[Device, int, int | None], None]) -> Function:
    return Function(name, (c_uint, OUT), body, feature="application_clocks", until=WITHOUT_APPLICATION_CLOCKS)


_BITS: Final = 32


def _current(device: Device, out: int | None) -> None:
    profiles: Any = at(POWER_PROFILES, out, POWER_PROFILES_VERSION)
    now = device.host.timeline.latest(PowerProfiles, device.state.index, device.state.seconds)
    requested, enforced = ((), ()) if now is None else (now.requested, now.enforced)
    for mask, numbers in ((profiles.requestedProfilesMask, requested), (profiles.enforcedProfilesMask, enforced)):
        mask.mask[:] = [sum(1 << n % _BITS for n in numbers if n // _BITS == word) for word in range(len(mask.mask))]


FUNCTIONS: Final = (
    Function("nvmlDeviceGetUtilizationRates", (OUT,), _utilization, mig="whole"),
    Function("nvmlDeviceGetSamples", (c_uint, c_ulonglong, OUT, OUT, OUT), _samples),
    pair("nvmlDeviceGetEncoderUtilization", _encoder, mig="whole"),
    pair("nvmlDeviceGetDecoderUtilization", _decoder, mig="whole"),
    pair("nvmlDeviceGetJpgUtilization", lambda _device: (0, _ENCODER_PERIOD_US), mig="whole", since=535),
    Function("nvmlDeviceGetEncoderStats", (OUT, OUT, OUT), _encoder_stats, mig="whole"),
    Function("nvmlDeviceGetMemoryInfo", (OUT,), _memory, mig="any"),
    Function("nvmlDeviceGetMemoryInfo_v2", (OUT,), _memory_v2, since=515, mig="any"),
    Function("nvmlDeviceGetBAR1MemoryInfo", (OUT,), _bar1),
    gauge("nvmlDeviceGetPerformanceState", lambda device: device.gauges.performance_state),
    Function("nvmlDeviceGetClockInfo", (c_uint, OUT), _clock),
    Function("nvmlDeviceGetMaxClockInfo", (c_uint, OUT), _max_clock),
    _application_clocks("nvmlDeviceGetApplicationsClock", _target_clock),
    _application_clocks("nvmlDeviceGetDefaultApplicationsClock", _default_clock),
    gauge("nvmlDeviceGetPowerUsage", lambda device: round(device.gauges.reading_watts * 1000)),
    gauge("nvmlDeviceGetEnforcedPowerLimit", _limit_milliwatts),
    gauge("nvmlDeviceGetPowerManagementLimit", _limit_milliwatts),
    gauge("nvmlDeviceGetPowerManagementDefaultLimit", lambda device: round(device.model.power.default_limit * 1000)),
    pair("nvmlDeviceGetPowerManagementLimitConstraints", _limits),
    gauge("nvmlDeviceGetTotalEnergyConsumption", _millijoules, c_ulonglong, feature="energy"),
    gauge("nvmlDeviceGetCurrentClocksEventReasons", _reasons, c_ulonglong, since=535),
    gauge("nvmlDeviceGetSupportedClocksEventReasons", _supported_reasons, c_ulonglong, since=535),
    gauge("nvmlDeviceGetCurrentClocksThrottleReasons", _reasons, c_ulonglong),
    gauge("nvmlDeviceGetSupportedClocksThrottleReasons", _supported_reasons, c_ulonglong),
    Function("nvmlDeviceGetTemperature", (c_uint, OUT), _temperature),
    Function("nvmlDeviceGetTemperatureV", (OUT,), _temperature_v, since=570),
    Function("nvmlDeviceGetMarginTemperature", (OUT,), _margin, since=570, feature="tlimit"),
    Function("nvmlDeviceGetTemperatureThreshold", (c_uint, OUT), _threshold),
    gauge("nvmlDeviceGetNumFans", lambda device: device.model.fans),
    Function("nvmlDeviceGetFanSpeed_v2", (c_uint, OUT), _fan_speed),
    Function("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", (OUT,), _current, since=570, feature="power_profiles"),
)
