"""``nvmlDeviceGetFieldValues``: what each field id means, and which drivers and models have it."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, sizeof
from dataclasses import dataclass
from typing import Any, Final

from gpu_triage.simulator import effects, gpu_state
from gpu_triage.simulator.nvml_calls import OUT, Function
from gpu_triage.simulator.nvml_library import CODES, FIELD_VALUE, SUCCESS, Failure
from gpu_triage.simulator.nvml_load import memory_celsius
from gpu_triage.simulator.nvml_pcie import ecc_errors, remapped_rows, replays
from gpu_triage.simulator.nvml_session import Device

_UNSIGNED: Final = 1
_UNSIGNED_LONG_LONG: Final = 3
_SIGNED: Final = 5
_MEMBERS: Final = {_UNSIGNED: "uiVal", _UNSIGNED_LONG_LONG: "ullVal", _SIGNED: "siVal"}
_ALL_LINKS: Final = 0xFFFFFFFF
_LATENCY_MICROSECONDS: Final = 8
_NVLINK_BYTES_PER_SECOND: Final = 8e9
"""What one link carries each way at full utilisation."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field: `read` gets the device and the scope id, and returns None where the scope does not exist."""

    read: Callable[[Device, int], int | None]
    kind: int = _UNSIGNED
    since: tuple[int, ...] = (0,)
    feature: str | None = None


def _throttled(reason: int) -> Callable[[Device, int], int]:
    return lambda device, _scope: int(device.state.throttled_seconds(reason) * 1e9)


def _counted(reason: int, first: tuple[int, ...]) -> Field:
    return Field(_throttled(reason), _UNSIGNED_LONG_LONG, first, "event_reason_counters")


def _milliwatts(device: Device, scope: int) -> int | None:
    return round(device.gauges.power_watts * 1000) if scope == 0 else None


def _transmitted(device: Device, _scope: int) -> int:
    return int(device.state.transmitted_bytes()) % (1 << device.model.pcie.byte_counter_bits)


def _received(device: Device, _scope: int) -> int:
    return int(device.state.received_bytes()) % (1 << device.model.pcie.byte_counter_bits)


def _below_limit(threshold: str) -> Callable[[Device, int], int]:
    """A threshold as T.Limit tells it: degrees the GPU may still warm up when it is reached."""
    return lambda device, _scope: int(device.model.thermal.gpu_max - getattr(device.model.thermal, threshold))


def _pcie_errors(rate: str) -> Callable[[Device, int], int]:
    return lambda device, _scope: int(
        device.host.timeline.accrued(effects.PcieErrors, rate, device.state.index, device.state.seconds)
    )


def _link_state(device: Device, link: int) -> int | None:
    if link >= device.model.nvlinks:
        return None
    return 0 if link in device.state.conditions.links_down else 1


def _link_constant(value: int) -> Callable[[Device, int], int | None]:
    return lambda device, link: value if link < device.model.nvlinks else None


def _link_kib(device: Device, scope: int) -> int | None:
    """NVLink traffic of one link, or of all: it goes with the energy the SMs turn over."""
    links = device.model.nvlinks if scope == _ALL_LINKS else 1
    if scope != _ALL_LINKS and scope >= device.model.nvlinks:
        return None
    full = device.state.energy_joules() / device.model.power.default_limit
    return int(full * _NVLINK_BYTES_PER_SECOND / 1024) * links


FIELDS: Final[dict[int, Field]] = {
    3: Field(lambda device, _: ecc_errors(device, 0, 0), _UNSIGNED_LONG_LONG, feature="ecc"),
    4: Field(lambda device, _: ecc_errors(device, 1, 0), _UNSIGNED_LONG_LONG, feature="ecc"),
    5: Field(lambda device, _: ecc_errors(device, 0, 1), _UNSIGNED_LONG_LONG, feature="ecc"),
    6: Field(lambda device, _: ecc_errors(device, 1, 1), _UNSIGNED_LONG_LONG, feature="ecc"),
    74: Field(_throttled(gpu_state.SW_POWER_CAP), _UNSIGNED_LONG_LONG),
    76: Field(lambda _device, _scope: 0, _UNSIGNED_LONG_LONG),
    82: Field(lambda device, _: memory_celsius(device), feature="memory_temperature"),
    91: Field(lambda device, _: device.model.nvlinks),
    94: Field(lambda device, _: replays(device)),
    95: Field(lambda _device, _scope: 0),
    138: Field(_link_kib, _UNSIGNED_LONG_LONG),
    139: Field(_link_kib, _UNSIGNED_LONG_LONG),
    142: Field(lambda device, _: remapped_rows(device)[0], feature="remapped_rows"),
    143: Field(lambda device, _: remapped_rows(device)[1], feature="remapped_rows"),
    144: Field(lambda device, _: remapped_rows(device)[2], feature="remapped_rows"),
    145: Field(lambda device, _: remapped_rows(device)[3], feature="remapped_rows"),
    161: Field(_link_constant(0)),
    162: Field(_link_constant(0)),
    163: Field(_link_constant(0)),
    164: Field(_link_constant(26_562)),
    165: Field(_link_state),
    173: Field(_pcie_errors("correctable_per_hour"), since=(535,)),
    179: Field(_pcie_errors("nonfatal_per_hour"), since=(535,)),
    180: Field(lambda _device, _scope: 0, since=(535,)),
    185: Field(_milliwatts, since=(535,)),
    186: Field(_milliwatts, since=(535,)),
    187: Field(lambda device, _: round(device.model.power.min_limit * 1000), since=(535,)),
    188: Field(lambda device, _: round(device.model.power.max_limit * 1000), since=(535,)),
    189: Field(lambda device, _: round(device.model.power.default_limit * 1000), since=(535,)),
    190: Field(lambda device, _: round(device.state.conditions.power_limit_watts * 1000), since=(535,)),
    193: Field(_below_limit("shutdown"), _SIGNED, (535,), "tlimit"),
    194: Field(_below_limit("slowdown"), _SIGNED, (535,), "tlimit"),
    195: Field(lambda _device, _scope: 0, _SIGNED, (535,), "tlimit"),
    196: Field(_below_limit("gpu_max"), _SIGNED, (535,), "tlimit"),
    197: Field(_transmitted, _UNSIGNED_LONG_LONG, (555,), "pcie_byte_counters"),
    198: Field(_received, _UNSIGNED_LONG_LONG, (555,), "pcie_byte_counters"),
    230: Field(lambda device, _: device.state.conditions.recovery_action, since=(570,)),
}
"""Fields whose id never changed."""

_SLOWDOWN_REASONS: Final = (gpu_state.SW_THERMAL, gpu_state.HW_THERMAL, gpu_state.HW_POWER_BRAKE)
_EARLY_SLOWDOWN: Final = {251 + i: _counted(reason, (575, 51)) for i, reason in enumerate(_SLOWDOWN_REASONS)}
_LATE_SLOWDOWN: Final = {269 + i: _counted(reason, (580, 82)) for i, reason in enumerate(_SLOWDOWN_REASONS)}
_SLOWDOWN_MOVED: Final = (580, 82)


def field_of(number: int, driver: tuple[int, ...]) -> Field | None:
    """The field of an id in a driver version; None where that driver does not know it."""
    slowdown = _LATE_SLOWDOWN if driver >= _SLOWDOWN_MOVED else _EARLY_SLOWDOWN
    field = FIELDS.get(number) or slowdown.get(number)
    return field if field is not None and driver >= field.since else None


def _field_values(device: Device, count: int, out: int | None) -> None:
    if not out or count <= 0:
        raise Failure("INVALID_ARGUMENT")
    driver = device.host.scenario.driver.numbers
    stamp = round(device.host.wall(device.state.seconds) * 1_000_000)
    for i in range(count):
        entry: Any = FIELD_VALUE.from_address(out + i * sizeof(FIELD_VALUE))
        entry.timestamp = stamp
        entry.latencyUsec = _LATENCY_MICROSECONDS
        field = field_of(entry.fieldId, driver)
        if field is None:
            entry.nvmlReturn = CODES["INVALID_ARGUMENT"]
            continue
        supported = field.feature is None or field.feature in device.model.features
        value = field.read(device, entry.scopeId) if supported else None
        if value is None:
            entry.nvmlReturn = CODES["NOT_SUPPORTED"]
            continue
        entry.valueType = field.kind
        setattr(entry.value, _MEMBERS[field.kind], value)
        entry.nvmlReturn = SUCCESS


FUNCTIONS: Final = (Function("nvmlDeviceGetFieldValues", (c_int, OUT), _field_values),)
